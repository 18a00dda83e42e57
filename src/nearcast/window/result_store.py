"""The protocol between an index and the results that it feeds, and the columns that results travel in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from nearcast.model import Document, Id, IdColumn, Matches, MessageBatch, SubscriptionBatch
from nearcast.window.sliding import Steps
from nearcast.worker_pool import WorkerPool


class ScoredMessage(NamedTuple):
    """A message in a result."""

    seq: int
    message: Id
    score: float


class Results(NamedTuple):
    """Results in columns: slot by slot, and best first within a slot."""

    slots: npt.NDArray[np.int32]
    seqs: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float64]
    ids: IdColumn

    @classmethod
    def of(cls, by_slot: Mapping[int, Sequence[ScoredMessage]]) -> Results:
        """Return results by slot as columns."""
        rows = [(slot, scored) for slot, result in by_slot.items() for scored in result]
        return cls(
            np.array([slot for slot, _ in rows], np.int32),
            np.array([scored.seq for _, scored in rows], np.int64),
            np.array([scored.score for _, scored in rows], np.float64),
            IdColumn.of([scored.message for _, scored in rows]),
        )

    @classmethod
    def none(cls) -> Results:
        """Return empty results."""
        return cls.of({})

    @classmethod
    def joined(cls, parts: Sequence[Results]) -> Results:
        """Concatenate results of different slots."""
        if not parts:
            return cls.none()
        slots, seqs, scores = (np.concatenate([part[i] for part in parts]) for i in range(3))
        return cls(slots, seqs, scores, IdColumn.joined([part.ids for part in parts]))

    def move(self, slots: npt.NDArray[np.int32]) -> Results:
        """Return the results under other slots, given by the old slot; those whose new slot is -1 are dropped."""
        to = slots[self.slots]
        chosen = np.flatnonzero(to >= 0)
        return Results(to[chosen], self.seqs[chosen], self.scores[chosen], self.ids.take(chosen))

    def by_slot(self) -> dict[int, list[ScoredMessage]]:
        """Return slot to result; empty results are left out."""
        results: dict[int, list[ScoredMessage]] = {}
        columns = (self.slots.tolist(), self.seqs.tolist(), self.ids, self.scores.tolist())
        for slot, seq, id_, score in zip(*columns, strict=True):
            results.setdefault(slot, []).append(ScoredMessage(seq, id_, score))
        return results


class ThresholdChanges(NamedTuple):
    """Subscriptions with a new threshold: the score that a message must reach to change their results."""

    slots: npt.NDArray[np.int32]
    thresholds: npt.NDArray[np.float64]


class Changes(NamedTuple):
    """Messages that entered or left results, in the order of the steps."""

    steps: npt.NDArray[np.int64]
    """The step of the batch."""
    slots: npt.NDArray[np.int32]
    """The subscription."""
    enters: npt.NDArray[np.bool_]
    """True where the message enters."""
    scores: npt.NDArray[np.float64]
    ids: IdColumn
    """Ids of messages."""
    seqs: npt.NDArray[np.int64]
    """Their seqs."""
    rows: npt.NDArray[np.int64] | None
    """The row of each change in `ids` and `seqs`; None if they have one row per change."""
    n_matched: int
    """The number of arrivals that changed a result, counted per subscription."""

    def slice(self, start: int, stop: int) -> Changes:
        """Return a range of the changes, without the count of arrivals."""
        ids, seqs, rows, own = self.ids, self.seqs, self.rows, slice(start, stop)
        if rows is None:
            ids, seqs = ids.slice(start, stop), seqs[own]
        else:
            rows = rows[own]
        return Changes(
            self.steps[own], self.slots[own], self.enters[own], self.scores[own], ids, seqs, rows, n_matched=0
        )

    @classmethod
    def merged(cls, parts: Sequence[Changes]) -> Changes:
        """Return the changes of different subscriptions in the order of the steps."""
        if len(parts) == 1:
            return parts[0]
        from nearcast.window._kernels.changes import ChangeColumns, count_steps, put_changes

        parts = with_common_ids(parts)
        n = sum(len(part.steps) for part in parts)
        out = ChangeColumns(
            np.empty(n, np.int64), np.empty(n, np.int32), np.empty(n, np.bool_), np.empty(n), np.empty(n, np.int64)
        )
        n_matched = sum(part.n_matched for part in parts)
        filled = [part for part in parts if len(part.steps)]
        if filled:
            first = min(int(part.steps[0]) for part in filled)
            counts = np.zeros((len(filled), max(int(part.steps[-1]) for part in filled) - first + 1), np.int64)
            for part, own in zip(filled, counts, strict=True):
                count_steps(part.steps, first, own)
            ends = np.cumsum(counts.T).reshape(counts.T.shape).T  # step by step, part by part within a step
            for part, starts in zip(filled, np.ascontiguousarray(ends - counts), strict=True):
                columns = (part.steps, part.slots, part.enters, part.scores, part.rows)
                put_changes(ChangeColumns._make(map(np.ascontiguousarray, columns)), first, starts, out)
        return cls(out.steps, out.slots, out.enters, out.scores, parts[0].ids, parts[0].seqs, out.rows, n_matched)

    @classmethod
    def divided(cls, parts: Sequence[Changes], n_pieces: int) -> list[list[Changes]]:
        """Cut the changes of different subscriptions at the same steps into pieces of about the same size.

        The counts of arrivals are in the first piece.
        """
        longest = max(parts, key=lambda part: len(part.steps))
        if n_pieces == 1 or not len(longest.steps):
            return [list(parts)]
        if parts[0].rows is not None:
            parts = with_common_ids(parts)  # once for all pieces
        firsts = longest.steps[[len(longest.steps) * i // n_pieces for i in range(1, n_pieces)]]
        cuts = [[0, *np.searchsorted(part.steps, firsts).tolist(), len(part.steps)] for part in parts]
        pieces = [
            [part.slice(at[i], at[i + 1]) for part, at in zip(parts, cuts, strict=True)] for i in range(n_pieces)
        ]
        pieces[0] = [own._replace(n_matched=part.n_matched) for own, part in zip(pieces[0], parts, strict=True)]
        return pieces


def with_common_ids(parts: Sequence[Changes]) -> Sequence[Changes]:
    """Return changes whose rows are those of the same ids and seqs."""
    if all(part.rows is not None and part.ids is parts[0].ids for part in parts):
        return parts
    ids, seqs = IdColumn.joined([part.ids for part in parts]), np.concatenate([part.seqs for part in parts])
    firsts = np.cumsum([0, *(len(part.seqs) for part in parts)]).tolist()
    return [
        part._replace(
            ids=ids, seqs=seqs, rows=first + (np.arange(len(part.seqs)) if part.rows is None else part.rows)
        )
        for first, part in zip(firsts, parts, strict=False)
    ]


Find = Callable[[int, int], Matches]
"""Match a range of rows of the batch with the index, against the thresholds that it has."""


class ResultStore(Protocol):
    """The results of the subscriptions of one kind."""

    matches_whole_batches: ClassVar[bool]
    """True if `publish` calls `find` once, for all rows."""

    def use(self, pool: WorkerPool) -> None:
        """Use the threads of a pool from now on; a store may divide its subscriptions among them."""

    def prepare(self, subscriptions: SubscriptionBatch) -> None:
        """Make what subscriptions need of a window; one thread at a time calls this."""

    def insert(self, slots: npt.NDArray[np.int32], subscriptions: SubscriptionBatch) -> Results:
        """Insert subscriptions and return their first results."""

    def delete(self, slots: npt.NDArray[np.int32]) -> Results:
        """Delete subscriptions and return their last results."""

    def restore(self, saved: Sequence[Results]) -> None:
        """Set the saved results of subscriptions that were just inserted."""

    def withdraw(self, seqs: npt.NDArray[np.int64]) -> None:
        """Forget messages that are withdrawn; subscriptions whose results may hold one were deleted before."""

    def publish(self, batch: MessageBatch, steps: Steps, find: Find) -> list[Changes]:
        """Publish a batch and return the changes, in parts of different subscriptions.

        Each part is in the order of the steps, and has leaves before enters within a step and subscription.
        """

    def take_threshold_changes(self) -> ThresholdChanges:
        """Return the thresholds that changed since the last call; a threshold that was never set is open."""

    def held(self, slots: npt.NDArray[np.int32]) -> Results:
        """Return the results of some subscriptions."""

    def held_seqs(self, slots: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Return the seqs of all messages in the results of some subscriptions, ascending."""

    def holds(self, slots: npt.NDArray[np.int32], seqs: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which of some messages are in the results of some subscriptions."""

    def holders(self, slots: npt.NDArray[np.int32], seqs: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Return those of some subscriptions, ascending, whose results hold one of some messages."""

    def results(self, slot: int) -> list[ScoredMessage]:
        """Return a result, best first."""

    def would_enter(self, slot: int, document: Document, score: float) -> bool:
        """Return whether a message is in a result or, published now, would enter it."""

    def threshold(self, slot: int) -> float | None:
        """Return the score of the worst of k results; None if there is room."""
