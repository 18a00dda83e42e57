"""Heap results: the k nearest since a subscription at full speed, as heaps in an arena, and the messages they hold.

    some messages ── index, against thresholds ── slots, distances ── heaps ── changes
                          ▲                                             │
                          └──────────────── thresholds ─────────────────┘

The index matches some messages of a batch at a time, and receives the new thresholds before each call. The number of
messages per call falls if most matches do not enter, since thresholds have moved meanwhile, and rises if they do. So
results that are not full do not match a whole batch in vain, and the matches of a call always fit.

Results cannot be computed again, so messages that are in a result are stored (see `held_messages`), and all others
are forgotten. Gaps are closed when there are twice as many messages as the last time.

Cost: an arrival takes tens of nanoseconds and log k per result that it enters; 12 bytes for each of k, and 16 more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast._jit import Arena, column
from nearcast.model import BEST_EVER, IdColumn, Matches, MessageBatch, SubscriptionBatch
from nearcast.model._kernels import blocks
from nearcast.model.subscription_columns import KeywordColumns
from nearcast.window._kernels import heaps as kernels
from nearcast.window.best_results import BestResults
from nearcast.window.held_messages import HeldMessages
from nearcast.window.result_store import Changes, Find, Results, ThresholdChanges
from nearcast.window.sliding import Steps

_PREFIX = "heaps"
_LEAST = 1 << 10  # messages from which gaps are closed
_FIRST_ROWS = 32  # messages that the index matches in the first call
_MAX_FOUND = 1 << 18  # matches that a call should return at most
_SHRINK = 8  # arrays that are this many times too large are freed


class HeapResults(BestResults):
    """Stores the k smallest scores since the subscription; the older message wins a tie."""

    policy = BEST_EVER

    def __init__(self, arena: Arena, *, least: int = _LEAST) -> None:
        self._arena, self._least = arena, least
        if f"{_PREFIX}.state" not in arena:
            with arena.together():
                arena.new(f"{_PREFIX}.heads", np.int32, 0, columns=4)
                arena.new(f"{_PREFIX}.scores", np.float64, 0)
                arena.new(f"{_PREFIX}.handles", np.int32, 0)
                arena.new(f"{_PREFIX}.state", np.int64, blocks.STATE)[blocks.FIRST :] = -1
        self._held = HeldMessages(arena)
        self._moved = np.zeros(0, np.int32)
        self._counts = np.zeros(5, np.int64)
        self._change_arrays = _make_changes(0)
        self._message_rows = np.zeros(0, np.int32)
        self._n_rows = _FIRST_ROWS

    def insert(self, slots: npt.NDArray[np.int32], subscriptions: SubscriptionBatch) -> Results:
        """Insert subscriptions, whose results are empty."""
        if len(slots):
            columns = subscriptions.columns
            assert isinstance(columns, KeywordColumns)
            slots, ks = column(slots, np.int32), column(columns.ks, np.int32)
            self._arena.grow(f"{_PREFIX}.heads", int(slots.max()) + 1)
            done = kernels.begin(self._heaps, slots, ks, 0)
            while done < len(slots):
                state = self._array("state")
                needed = int(state[blocks.USED] + state[blocks.NEEDED])
                self._arena.grow_all([f"{_PREFIX}.{name}" for name in ("scores", "handles")], needed)
                done = kernels.begin(self._heaps, slots, ks, done)
        return Results.none()

    def delete(self, slots: npt.NDArray[np.int32]) -> Results:
        """Delete subscriptions and return their last results."""
        results = self.held(slots)
        kernels.end(self._heaps, column(slots, np.int32))
        return results

    def restore(self, saved: Sequence[Results]) -> None:
        """Set saved results; the messages that they hold are merged in the order of arrival."""
        unique = [np.unique(part.seqs, return_index=True) for part in saved]
        ids = IdColumn.joined([part.ids.take(rows) for part, (_, rows) in zip(saved, unique, strict=True)])
        kernels.renumber(self._heaps, self._held.merge(np.concatenate([seqs for seqs, _ in unique]), ids))
        for part in saved:
            handles = np.searchsorted(self._held.seqs, part.seqs).astype(np.int32)
            kernels.fill(self._heaps, column(part.slots, np.int32), column(part.scores, np.float64), handles)
            slots, n = np.unique(part.slots), int(self._counts[kernels.N_MOVED])
            self._fit_moved(len(slots))
            self._moved[n : n + len(slots)] = slots
            self._counts[kernels.N_MOVED] = n + len(slots)

    def publish(self, batch: MessageBatch, steps: Steps, find: Find) -> Changes:
        """Match some messages at a time with the index, and insert the matches into heaps."""
        self._close_gaps()
        n, counts = len(batch), self._counts
        counts[[kernels.N_CHANGES, kernels.N_MESSAGES, kernels.N_ENTERED]] = 0
        counts[kernels.NEXT] = len(self._held)
        if len(self._message_rows) < len(self._held) + n:
            self._message_rows = np.full(2 * (len(self._held) + n), kernels.NONE, np.int32)
        row_handles = np.full(n, kernels.NONE, np.int32)
        row = 0
        while row < n:
            stop = min(n, row + self._n_rows)
            self._push(find(row, stop), steps, row_handles, stop - row)
            row = stop
        entered = np.flatnonzero(row_handles != kernels.NONE)
        self._held.append(batch.seqs[entered], batch.ids.take(entered))
        return self._changes()

    def _push(self, found: Matches, steps: Steps, row_handles: npt.NDArray[np.int32], n_rows: int) -> None:
        """Insert the matches of some rows, and choose the number of rows of the next call."""
        n_found, counts = len(found.slots), self._counts
        before = int(counts[kernels.N_ENTERED])
        self._fit_changes(int(counts[kernels.N_CHANGES]) + 2 * n_found)
        self._fit_moved(n_found)
        matches = kernels.HeapMatches(*found, steps.row_steps, row_handles)
        kernels.push(self._heaps, matches, self._change_arrays, self._message_rows, self._moved, counts)
        n_entered = int(counts[kernels.N_ENTERED]) - before
        n_next = self._n_rows // 2 if 2 * n_entered < n_found else 2 * n_rows
        self._n_rows = max(1, min(n_next, _MAX_FOUND * n_rows // max(n_found, 1)))

    def _changes(self) -> Changes:
        changes, n = self._change_arrays, int(self._counts[kernels.N_CHANGES])
        handles = changes.messages[: self._counts[kernels.N_MESSAGES]]
        self._message_rows[handles] = kernels.NONE
        if len(changes.steps) > _MAX_FOUND and len(changes.steps) > _SHRINK * n:
            self._change_arrays = _make_changes(0)  # many results were open then, and no longer are
        return Changes(
            changes.steps[:n].copy(),
            changes.slots[:n].copy(),
            changes.enters[:n].copy(),
            changes.scores[:n].copy(),
            self._held.ids(handles),
            self._held.seqs[handles],
            changes.rows[:n].copy(),
            int(self._counts[kernels.N_ENTERED]),
        )

    def take_threshold_changes(self) -> ThresholdChanges:
        """Return the thresholds that have changed since the last call."""
        moved = self._moved[: self._counts[kernels.N_MOVED]]
        thresholds = np.empty(len(moved))
        n = int(kernels.take_thresholds(self._heaps, moved, thresholds)) if len(moved) else 0
        self._counts[kernels.N_MOVED] = 0
        return ThresholdChanges(moved[:n].copy(), thresholds[:n])

    def result_size(self, slot: int) -> int:
        """Return k of a subscription."""
        return int(self._array("heads")[slot, kernels.K])

    def held(self, slots: npt.NDArray[np.int32]) -> Results:
        """Return the results of some subscriptions."""
        slots = column(slots, np.int32)
        sizes = self._array("heads")[slots, kernels.SIZE]
        scores, handles = np.empty(int(sizes.sum())), np.empty(int(sizes.sum()), np.int32)
        kernels.read_results(self._heaps, slots, scores, handles)
        return Results(np.repeat(slots, sizes), self._held.seqs[handles], scores, self._held.ids(handles))

    def held_seqs(self, slots: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Return the seqs of all messages in results, ascending: one pass over all heaps."""
        marks = np.zeros(len(self._held), np.bool_)
        kernels.mark(self._heaps, marks)
        return self._held.seqs[marks]

    def holds(self, slots: npt.NDArray[np.int32], seqs: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which of some messages are in results: one pass over all heaps, or none."""
        known = np.isin(seqs, self._held.seqs)
        return np.isin(seqs, self.held_seqs(slots)) if known.any() else known

    def holders(self, slots: npt.NDArray[np.int32], seqs: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Return the subscriptions whose results hold one of some messages: one pass over all heaps, or none."""
        marks = np.isin(self._held.seqs, seqs)
        if not marks.any():
            return np.zeros(0, np.int32)
        found = np.zeros(len(self._array("heads")), np.bool_)
        kernels.find_holders(self._heaps, marks, found)
        return np.flatnonzero(found).astype(np.int32)

    def _close_gaps(self) -> None:
        """Drop the messages that no result holds any more, if there may be many."""
        if len(self._held) < self._least or not self._held.has_doubled:
            return
        marks = np.zeros(len(self._held), np.bool_)
        kernels.mark(self._heaps, marks)
        kernels.renumber(self._heaps, self._held.keep(marks))

    def _fit_changes(self, room: int) -> None:
        """Make room for a number of changes."""
        if len(self._change_arrays.steps) < room:
            before, self._change_arrays = self._change_arrays, _make_changes(2 * room)
            for name in kernels.HeapChanges._fields:
                getattr(self._change_arrays, name)[: len(before.steps)] = getattr(before, name)

    def _fit_moved(self, more: int) -> None:
        """Make room for more slots whose threshold moved."""
        room = int(self._counts[kernels.N_MOVED]) + more
        if len(self._moved) < room:
            self._moved = np.concatenate([self._moved, np.zeros(room, np.int32)])

    @property
    def _heaps(self) -> kernels.ResultHeapArrays:
        return self._arena.bundle(_PREFIX, kernels.ResultHeapArrays)

    def _array(self, name: str) -> npt.NDArray[Any]:
        return self._arena[f"{_PREFIX}.{name}"]


def _make_changes(n: int) -> kernels.HeapChanges:
    return kernels.HeapChanges(
        np.zeros(n, np.int64),
        np.zeros(n, np.int32),
        np.zeros(n, np.bool_),
        np.zeros(n),
        np.zeros(n, np.int64),
        np.zeros(n, np.int32),
    )
