"""How are k results kept in order? What both keepers of the best share: a short sorted list a subscription."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.model import Document, IdColumn, Matches, MessageBatch, Scorer, SubscriptionBatch
from nearcast.window.result_store import Changes, Find, Moved, Results, ScoredMessage
from nearcast.window.sliding import Step, Steps

Rank = Callable[[ScoredMessage], tuple[float, int]]
"""The better, the smaller."""

Found = Sequence[tuple[int, float]]
"""What an index found for one message: slots and scores."""


class Change(NamedTuple):
    """A message that came into a result or went out of it."""

    slot: int
    enter: bool
    kept: ScoredMessage


class RankedResults(ABC):
    """The k best of each subscription, best first, under one ranking."""

    thresholds_hold: bool
    """True if bars only ever get harder to pass, so that a whole batch may be matched against the same ones."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._best: dict[int, list[ScoredMessage]] = {}
        self._k: dict[int, int] = {}

    @abstractmethod
    def step(self, step: Step, found: Found) -> list[Change]:
        """Move on by one step and return what changed: for each subscription, leaves before enters."""

    def publish(self, batch: MessageBatch, steps: Steps, find: Find) -> Changes:
        """Move on step by step."""
        told: list[tuple[int, Change]] = []
        n_matched = 0
        together = _by_row(find(0, len(batch))) if self.thresholds_hold else None
        for step in steps.walk(batch):
            found: Found = ()
            if step.row >= 0:
                by_row = _by_row(find(step.row, step.row + 1)) if together is None else together
                found = by_row.get(step.row, ())
            for change in self.step(step, found):
                told.append((step.number, change))
                n_matched += change.enter and step.coming is not None and change.kept.seq == step.coming.seq
        return Changes(
            np.array([number for number, _ in told], dtype=np.int64),
            np.array([change.slot for _, change in told], dtype=np.int32),
            np.array([change.enter for _, change in told], dtype=bool),
            np.array([change.kept.score for _, change in told], dtype=np.float64),
            IdColumn.of([change.kept.message for _, change in told]),
            np.array([change.kept.seq for _, change in told], dtype=np.int64),
            np.arange(len(told)),
            n_matched,
        )

    def insert(self, slots: npt.NDArray[np.int32], subscription_batch: SubscriptionBatch) -> Results:
        """Take in subscriptions and return the results they start with."""
        started: dict[int, list[ScoredMessage]] = {}
        for slot, subscription, score in zip(
            slots.tolist(), subscription_batch.subscriptions, subscription_batch.scorers, strict=True
        ):
            self._make_room(slot, subscription.k)  # type: ignore[attr-defined]
            started[slot] = self.begin(slot, score)
        return Results.of(started)

    @abstractmethod
    def begin(self, slot: int, score: Scorer) -> list[ScoredMessage]:
        """Fill an empty result and return it."""

    def _make_room(self, slot: int, k: int) -> None:
        self._k[slot] = k
        self._best[slot] = []

    def delete(self, slots: npt.NDArray[np.int32]) -> Results:
        """Forget subscriptions and return the results they had."""
        return Results.of({slot: self.end(slot) for slot in slots.tolist()})

    def end(self, slot: int) -> list[ScoredMessage]:
        """Forget one."""
        del self._k[slot]
        return self._best.pop(slot)

    def restore(self, kept: Sequence[Results]) -> None:
        """Set results as they were saved."""
        for part in kept:
            for slot, held in part.by_slot().items():
                self.change(slot, held)

    def select(self, slot: int, offered: Iterable[ScoredMessage]) -> list[ScoredMessage]:
        """Return the best k of what is offered."""
        return sorted(offered, key=self._rank)[: self._k[slot]]

    def change(self, slot: int, best: list[ScoredMessage]) -> list[Change]:
        """Set a result and return how it differs from the one before, leaves first."""
        before = self._best[slot]
        self._best[slot] = best
        old, new = {kept.seq for kept in before}, {kept.seq for kept in best}
        changes = [Change(slot, False, kept) for kept in before if kept.seq not in new]
        changes += [Change(slot, True, kept) for kept in best if kept.seq not in old]
        return changes

    def compete(self, slot: int, kept: ScoredMessage) -> list[Change]:
        """Let one more message compete and return what changed."""
        if not self._beats(slot, kept):
            return []
        return self.change(slot, self.select(slot, [*self._best[slot], kept]))

    def _beats(self, slot: int, kept: ScoredMessage) -> bool:
        best = self._best[slot]
        return len(best) < self._k[slot] or self._rank(kept) < self._rank(best[-1])

    def moved(self) -> Moved:
        """Leave all bars open: what an index finds beyond them is sifted here."""
        return Moved(np.zeros(0, np.int32), np.zeros(0))

    def held(self, slots: npt.NDArray[np.int32]) -> Results:
        """Return some results."""
        return Results.of({slot: self._best[slot] for slot in slots.tolist()})

    def results(self, slot: int) -> list[ScoredMessage]:
        """Return a result, best first."""
        return list(self._best[slot])

    def would_enter(self, slot: int, document: Document, score: float) -> bool:
        """Tell whether a message is in a result or, published now, would come in."""
        held = any(kept.seq == document.seq for kept in self._best[slot])
        return held or self._beats(slot, ScoredMessage(document.seq, document.id, score))

    def threshold(self, slot: int) -> float | None:
        """Return the score of the worst of k results; None if there is room."""
        best = self._best[slot]
        return best[-1].score if len(best) == self._k[slot] else None


def _by_row(matches: Matches) -> dict[int, list[tuple[int, float]]]:
    found: dict[int, list[tuple[int, float]]] = {}
    for row, slot, score in zip(*(column.tolist() for column in matches), strict=True):
        found.setdefault(row, []).append((slot, score))
    return found
