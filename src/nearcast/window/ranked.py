"""Ranked results: a short sorted list of Python objects per subscription, the base of the slow result stores."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.model import IdColumn, Matches, MessageBatch, Scorer, SubscriptionBatch
from nearcast.window.best_results import BestResults
from nearcast.window.result_store import Changes, Find, Results, ScoredMessage, ThresholdChanges
from nearcast.window.sliding import Step, Steps

Found = Sequence[tuple[int, float]]
"""The matches of one message: slots and scores."""


class Change(NamedTuple):
    """A message that entered or left a result."""

    slot: int
    enter: bool
    scored: ScoredMessage


class RankedResults(BestResults):
    """The k best messages of each subscription, best first, in the order of the result policy."""

    thresholds_hold: ClassVar[bool]
    """True if thresholds only ever become harder to pass, so that a whole batch may be matched against the same."""

    def __init__(self) -> None:
        self._best: dict[int, list[ScoredMessage]] = {}
        self._k: dict[int, int] = {}

    @abstractmethod
    def step(self, step: Step, found: Found) -> list[Change]:
        """Apply one step and return the changes: for each subscription, leaves before enters."""

    def publish(self, batch: MessageBatch, steps: Steps, find: Find) -> list[Changes]:
        """Apply the steps of a batch one by one."""
        changes: list[tuple[int, Change]] = []
        n_matched = 0
        all_rows = _by_row(find(0, len(batch))) if self.thresholds_hold else None
        for step in steps.walk(batch):
            found: Found = ()
            if step.row >= 0:
                by_row = _by_row(find(step.row, step.row + 1)) if all_rows is None else all_rows
                found = by_row.get(step.row, ())
            for change in self.step(step, found):
                changes.append((step.number, change))
                n_matched += change.enter and step.arrival is not None and change.scored.seq == step.arrival.seq
        made = Changes(
            np.array([number for number, _ in changes], dtype=np.int64),
            np.array([change.slot for _, change in changes], dtype=np.int32),
            np.array([change.enter for _, change in changes], dtype=bool),
            np.array([change.scored.score for _, change in changes], dtype=np.float64),
            IdColumn.of([change.scored.message for _, change in changes]),
            np.array([change.scored.seq for _, change in changes], dtype=np.int64),
            np.arange(len(changes)),
            n_matched,
        )
        return [made]

    def insert(self, slots: npt.NDArray[np.int32], subscriptions: SubscriptionBatch) -> Results:
        """Insert subscriptions and return their first results."""
        first: dict[int, list[ScoredMessage]] = {}
        rows = zip(slots.tolist(), subscriptions.subscriptions, subscriptions.scorers, strict=True)
        for slot, subscription, score in rows:
            self._k[slot] = subscription.k  # type: ignore[attr-defined]
            self._best[slot] = []
            first[slot] = self.begin(slot, score)
        return Results.of(first)

    @abstractmethod
    def begin(self, slot: int, score: Scorer) -> list[ScoredMessage]:
        """Fill an empty result and return it."""

    def delete(self, slots: npt.NDArray[np.int32]) -> Results:
        """Delete subscriptions and return their last results."""
        return Results.of({slot: self.end(slot) for slot in slots.tolist()})

    def end(self, slot: int) -> list[ScoredMessage]:
        """Delete one subscription and return its last result."""
        del self._k[slot]
        return self._best.pop(slot)

    def restore(self, saved: Sequence[Results]) -> None:
        """Set saved results."""
        for part in saved:
            for slot, result in part.by_slot().items():
                self.change(slot, result)

    def select(self, slot: int, offered: Iterable[ScoredMessage]) -> list[ScoredMessage]:
        """Return the k best of some messages."""
        rank = self.policy.rank
        return sorted(offered, key=lambda scored: rank(scored.score, scored.seq))[: self._k[slot]]

    def change(self, slot: int, best: list[ScoredMessage]) -> list[Change]:
        """Set a result and return how it differs from the one before, leaves first."""
        before = self._best[slot]
        self._best[slot] = best
        old, new = {scored.seq for scored in before}, {scored.seq for scored in best}
        changes = [Change(slot, False, scored) for scored in before if scored.seq not in new]
        changes += [Change(slot, True, scored) for scored in best if scored.seq not in old]
        return changes

    def compete(self, slot: int, scored: ScoredMessage) -> list[Change]:
        """Insert a message if it is good enough, and return the changes."""
        worst = self.worst(slot)
        if not self.policy.would_enter(scored.score, scored.seq, None if worst is None else (worst.score, worst.seq)):
            return []
        return self.change(slot, self.select(slot, [*self._best[slot], scored]))

    def take_threshold_changes(self) -> ThresholdChanges:
        """Return no changes: all thresholds stay open, and matches that are not good enough are dropped here."""
        return ThresholdChanges(np.zeros(0, np.int32), np.zeros(0))

    def held(self, slots: npt.NDArray[np.int32]) -> Results:
        """Return the results of some subscriptions."""
        return Results.of({slot: self._best[slot] for slot in slots.tolist()})

    def results(self, slot: int) -> list[ScoredMessage]:
        """Return a result, best first."""
        return list(self._best[slot])

    def worst(self, slot: int) -> ScoredMessage | None:
        """Return the worst of k results; None if there is room."""
        best = self._best[slot]
        return best[-1] if len(best) == self._k[slot] else None

    def result_size(self, slot: int) -> int:
        """Return k of a subscription."""
        return self._k[slot]


def _by_row(matches: Matches) -> dict[int, list[tuple[int, float]]]:
    found: dict[int, list[tuple[int, float]]] = {}
    for row, slot, score in zip(*(column.tolist() for column in matches), strict=True):
        found.setdefault(row, []).append((slot, score))
    return found
