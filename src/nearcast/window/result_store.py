"""What does a kind keep of what it found? The protocol between an index and the results it feeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from nearcast.model import Document, Id, IdColumn, Matches, MessageBatch, SubscriptionBatch
from nearcast.window.sliding import Steps


class ScoredMessage(NamedTuple):
    """A message in a result."""

    seq: int
    message: Id
    score: float


class Results(NamedTuple):
    """What results hold, in columns: slot by slot, and within one best first."""

    slots: npt.NDArray[np.int32]
    seqs: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float64]
    ids: IdColumn

    @classmethod
    def of(cls, by_slot: Mapping[int, Sequence[ScoredMessage]]) -> Results:
        """Put results into columns."""
        rows = [(slot, kept) for slot, held in by_slot.items() for kept in held]
        return cls(
            np.array([slot for slot, _ in rows], np.int32),
            np.array([kept.seq for _, kept in rows], np.int64),
            np.array([kept.score for _, kept in rows], np.float64),
            IdColumn.of([kept.message for _, kept in rows]),
        )

    @classmethod
    def none(cls) -> Results:
        """Return results that hold nothing."""
        return cls.of({})

    def move(self, slots: npt.NDArray[np.int32]) -> Results:
        """Return what moves to other slots, given by its old one; -1 for who stays behind."""
        to = slots[self.slots]
        chosen = np.flatnonzero(to >= 0)
        return Results(to[chosen], self.seqs[chosen], self.scores[chosen], self.ids.take(chosen))

    def by_slot(self) -> dict[int, list[ScoredMessage]]:
        """Return slot -> its result; who has an empty one is not there."""
        held: dict[int, list[ScoredMessage]] = {}
        columns = (self.slots.tolist(), self.seqs.tolist(), self.ids, self.scores.tolist())
        for slot, seq, id_, score in zip(*columns, strict=True):
            held.setdefault(slot, []).append(ScoredMessage(seq, id_, score))
        return held


class Moved(NamedTuple):
    """Subscriptions whose bar has changed: the score that a message must reach to matter to them."""

    slots: npt.NDArray[np.int32]
    thresholds: npt.NDArray[np.float64]


class Changes(NamedTuple):
    """What came into results and went out of them, in the order of the steps."""

    steps: npt.NDArray[np.int64]
    """Which step of the batch."""
    slots: npt.NDArray[np.int32]
    """Whose result."""
    enters: npt.NDArray[np.bool_]
    """True where the message came in."""
    scores: npt.NDArray[np.float64]
    ids: IdColumn
    """Ids of messages."""
    seqs: npt.NDArray[np.int64]
    """Their seqs."""
    rows: npt.NDArray[np.int64] | None
    """Which of them each change is about; None if there is one a change."""
    n_matched: int
    """How many arrivals changed a result."""


Find = Callable[[int, int], Matches]
"""Ask the index about some rows of the batch, against the bars that it was told."""


class ResultStore(Protocol):
    """Keeps the results of the subscriptions of one kind."""

    def insert(self, slots: npt.NDArray[np.int32], subscription_batch: SubscriptionBatch) -> Results:
        """Take in subscriptions and return the results they start with."""

    def delete(self, slots: npt.NDArray[np.int32]) -> Results:
        """Forget subscriptions and return the results they had."""

    def restore(self, kept: Sequence[Results]) -> None:
        """Give subscriptions just inserted the results they had when they were saved."""

    def publish(self, batch: MessageBatch, steps: Steps, find: Find) -> Changes:
        """Move on by a batch and return what changed: within a step and subscription, leaves before enters."""

    def moved(self) -> Moved:
        """Return whose bars have changed since the last time, and what they are now; a bar nobody set is open."""

    def held(self, slots: npt.NDArray[np.int32]) -> Results:
        """Return some results."""

    def results(self, slot: int) -> list[ScoredMessage]:
        """Return a result, best first."""

    def would_enter(self, slot: int, document: Document, score: float) -> bool:
        """Tell whether a message is in a result or, published now, would come in."""

    def threshold(self, slot: int) -> float | None:
        """Return the score of the worst of k results; None if there is room."""
