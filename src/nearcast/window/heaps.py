"""Heap results: the k nearest since a subscription at full speed, as heaps in an arena, and the messages they hold.

    some messages ── index, against thresholds ── slots, distances ── heaps ── changes
                          ▲                                             │
                          └──────────────── thresholds ─────────────────┘

The index matches some messages of a batch at a time, and receives the new thresholds before each call. The number of
messages per call falls if most matches do not enter, since thresholds have moved meanwhile, and rises if they do. So
results that are not full do not match a whole batch in vain, and the matches of a call always fit.

Results cannot be computed again, so their messages are stored (see `held_messages`): those of a batch are appended
if one of them entered a result, so the handle of a message follows from its row. Messages that no result holds leave
gaps, which are closed when there are twice as many messages as the last time.

The heaps are dealt out to as many parts as there are threads, which share the messages.

Cost: an arrival takes tens of nanoseconds and log k per result that it enters; 12 bytes for each of k, and 16 more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from nearcast._jit import Arena, column
from nearcast.model import BEST_EVER, IdColumn, MessageBatch, SubscriptionBatch
from nearcast.model.subscription_columns import KeywordColumns
from nearcast.window._kernels import heaps as kernels
from nearcast.window.best_results import BestResults
from nearcast.window.heap_part import MAX_FOUND, PREFIX, HeapPart, Slots
from nearcast.window.held_messages import HeldMessages
from nearcast.window.result_store import Changes, Find, Results, ThresholdChanges
from nearcast.window.sliding import Steps
from nearcast.worker_pool import SERIAL, WorkerPool

_LEAST = 1 << 10  # messages from which gaps are closed
_HEADS_PER_MESSAGE = 8  # subscriptions per new message from which on gaps are closed: it is a pass over all heaps
_MATCH_S, _MESSAGE_S = 1e-7, 1e-6  # seconds to publish a match, and to store a message
_FIRST_ROWS = 32  # messages that the index matches in the first call


class HeapResults(BestResults):
    """Stores the k smallest scores since the subscription; the older message wins a tie."""

    policy = BEST_EVER

    def __init__(self, arena: Arena, *, least: int = _LEAST) -> None:
        self._arena, self._least, self._pool = arena, least, SERIAL
        if f"{PREFIX}.heads" not in arena:
            with arena.together():
                arena.new(f"{PREFIX}.heads", np.int32, 0, columns=4)
                arena.new(f"{PREFIX}.reported", np.float32, 0)
        self._messages = HeldMessages(arena, f"{PREFIX}.held")
        n_parts = sum(re.fullmatch(rf"{PREFIX}\.\d+\.state", name) is not None for name in arena.names)
        self._parts = self._make_parts(max(n_parts, 1))
        self._n_rows = _FIRST_ROWS

    def _make_parts(self, n_parts: int) -> list[HeapPart]:
        return [HeapPart(self._arena, number, n_parts) for number in range(n_parts)]

    def use(self, pool: WorkerPool) -> None:
        """Use the threads of a pool from now on, each for a part of the heaps; these move between parts."""
        self._pool = pool
        if pool.n_threads == len(self._parts):
            return
        slots = np.flatnonzero(self._heads[:, kernels.K] > 0).astype(np.int32)
        owned = [slots[part.select(slots)] for part in self._parts]
        before = [part.drop() for part in self._parts]
        self._heads[:, kernels.SIZE] = 0  # until a heap has moved
        self._parts = self._make_parts(pool.n_threads)
        for own, arrays in zip(owned, before, strict=True):
            for part in self._parts:
                part.move(own[part.select(own)], arrays)

    def insert(self, slots: Slots, subscriptions: SubscriptionBatch) -> Results:
        """Insert subscriptions, whose results are empty."""
        if len(slots):
            columns = subscriptions.columns
            assert isinstance(columns, KeywordColumns)
            slots, ks = column(slots, np.int32), column(columns.ks, np.int32)
            self._arena.grow_all([f"{PREFIX}.{name}" for name in ("heads", "reported")], int(slots.max()) + 1)
            for part in self._parts:
                rows = part.select(slots)
                part.begin(slots[rows], ks[rows])
        return Results.none()

    def delete(self, slots: Slots) -> Results:
        """Delete subscriptions and return their last results."""
        results = self.held(slots)
        for part, own in self._divided(slots):
            part.end(own)
        return results

    def restore(self, saved: Sequence[Results]) -> None:
        """Set saved results; their messages are merged in the order of arrival."""
        if not saved:
            return
        unique = [np.unique(results.seqs, return_index=True) for results in saved]
        ids = IdColumn.joined([results.ids.take(rows) for results, (_, rows) in zip(saved, unique, strict=True)])
        numbers = self._messages.merge(np.concatenate([seqs for seqs, _ in unique]), ids)
        for part in self._parts:
            part.renumber(numbers)
            for results in saved:
                handles = np.searchsorted(self._messages.seqs, results.seqs).astype(np.int32)
                part.fill(results.slots, results.scores, handles)

    def publish(self, batch: MessageBatch, steps: Steps, find: Find) -> list[Changes]:
        """Match some messages at a time with the index, and insert the matches into heaps."""
        self._close_gaps()
        for part in self._parts:
            part.begin_batch(len(self._messages))
        row, any_entered = 0, False
        while row < len(batch):
            stop = min(len(batch), row + self._n_rows)
            found = find(row, stop)
            n_found, n_rows = len(found.slots), stop - row
            n_entered = sum(
                self._pool.for_work(_MATCH_S * n_found).map(
                    partial(HeapPart.push, found=found, steps=steps), self._parts
                )
            )
            any_entered |= n_entered > 0
            n_next = self._n_rows // 2 if 2 * n_entered < n_found else 2 * n_rows
            self._n_rows = max(1, min(n_next, MAX_FOUND * n_rows // max(n_found, 1)))
            row = stop
        if any_entered:
            self._messages.append(batch.seqs, batch.ids)
        return self._pool.for_work(_MESSAGE_S * len(batch)).map(
            lambda part: part.end_batch(self._messages), self._parts
        )

    def _close_gaps(self) -> None:
        """Drop the messages that no result holds any more, if there may be many."""
        if len(self._messages) < self._least or self._messages.n_new < len(self._heads) // _HEADS_PER_MESSAGE:
            return
        if self._messages.has_doubled:
            numbers = self._messages.keep(self._marks())
            self._pool.map(lambda part: part.renumber(numbers), self._parts)

    def _marks(self) -> npt.NDArray[np.bool_]:
        """Return which messages are in results, by handle: one pass over all heaps."""
        marks = np.zeros(len(self._messages), np.bool_)
        for part in self._parts:
            part.mark(marks)
        return marks

    def take_threshold_changes(self) -> ThresholdChanges:
        """Return the thresholds that have changed since the last call."""
        taken = [changes for part in self._parts for changes in part.take_threshold_changes()]
        if not taken:
            return ThresholdChanges(np.zeros(0, np.int32), np.zeros(0))
        slots, thresholds = (np.concatenate(columns) for columns in zip(*taken, strict=True))
        in_use = self._heads[slots, kernels.K] > 0
        return ThresholdChanges(slots[in_use], thresholds[in_use])

    def result_size(self, slot: int) -> int:
        """Return k of a subscription."""
        return int(self._heads[slot, kernels.K])

    def held(self, slots: Slots) -> Results:
        """Return the results of some subscriptions."""
        return Results.joined([part.held(own, self._messages) for part, own in self._divided(slots)])

    def held_seqs(self, slots: Slots) -> npt.NDArray[np.int64]:
        """Return the seqs of all messages in results, ascending: one pass over all heaps."""
        return self._messages.seqs[self._marks()]

    def holds(self, slots: Slots, seqs: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which of some messages are in results: one pass over all heaps, or none."""
        known = np.isin(seqs, self._messages.seqs)
        return np.isin(seqs, self.held_seqs(slots)) if known.any() else known

    def holders(self, slots: Slots, seqs: npt.NDArray[np.int64]) -> Slots:
        """Return the subscriptions whose results hold one of some messages: one pass over all heaps, or none."""
        wanted = np.isin(self._messages.seqs, seqs)
        if not wanted.any():
            return np.zeros(0, np.int32)
        found = np.zeros(len(self._heads), np.bool_)
        for part in self._parts:
            part.find_holders(wanted, found)
        return np.flatnonzero(found).astype(np.int32)

    def _divided(self, slots: Slots) -> list[tuple[HeapPart, Slots]]:
        """Return the parts that some slots belong to, each with its own."""
        slots = column(slots, np.int32)
        if len(self._parts) == 1:
            return [(self._parts[0], slots)]
        pieces = [(part, slots[part.select(slots)]) for part in self._parts]
        return [piece for piece in pieces if len(piece[1])]

    @property
    def _heads(self) -> npt.NDArray[np.int32]:
        return self._arena[f"{PREFIX}.heads"]
