"""What are the k nearest since a subscription came, at full speed? Heaps in an arena, and the messages they hold.

    some messages ── index, against bars ── slots, distances ── heaps ── changes
                          ▲                                       │
                          └──────────────── bars ─────────────────┘

An index is asked about some messages of a batch at a time, and told before each time whose bar has moved: about fewer
if most of what it finds comes to nothing, since bars have moved on, about more if not. So results that are not full
do not match a whole batch in vain, and what is found is never more than fits.

Results cannot be found again, so messages that are in one are kept (see `held`), and all else is forgotten. Gaps are
closed when there are twice as many as the last time.

Cost: an arrival costs each result that it enters some ten nanoseconds, and log k; 12 bytes for each of k, 16 more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast._jit import Arena, column
from nearcast.model import Document, IdColumn, Matches, MessageBatch, SubscriptionBatch
from nearcast.model._kernels import blocks
from nearcast.model.subscription_columns import KeywordColumns
from nearcast.window._kernels import heaps as kernels
from nearcast.window.held_messages import HeldMessages
from nearcast.window.result_store import Changes, Find, Moved, Results, ScoredMessage
from nearcast.window.sliding import Steps

_PREFIX = "heaps"
_LEAST = 1 << 10  # messages for which gaps are closed
_FIRST_ASK = 32  # messages that an index is asked about at first
_MOST_FOUND = 1 << 18  # matches that are wanted at a time
_MUCH = 8  # times as much room as was needed is given back


class HeapResults:
    """Keeps the k smallest scores since the subscription came; the older message wins a tie."""

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
        self._told = _told(0)
        self._mentions = np.zeros(0, np.int32)
        self._ask = _FIRST_ASK

    def insert(self, slots: npt.NDArray[np.int32], subscription_batch: SubscriptionBatch) -> Results:
        """Take in subscriptions, whose results are empty."""
        if len(slots):
            assert isinstance(subscription_batch.subscription_columns, KeywordColumns)
            slots, ks = column(slots, np.int32), column(subscription_batch.subscription_columns.ks, np.int32)
            self._arena.grow(f"{_PREFIX}.heads", int(slots.max()) + 1)
            done = kernels.begin(self._heaps, slots, ks, 0)
            while done < len(slots):
                state = self._array("state")
                needed = int(state[blocks.USED] + state[blocks.NEEDED])
                self._arena.grow_all([f"{_PREFIX}.{name}" for name in ("scores", "handles")], needed)
                done = kernels.begin(self._heaps, slots, ks, done)
        return Results.none()

    def delete(self, slots: npt.NDArray[np.int32]) -> Results:
        """Forget subscriptions and return the results they had."""
        had = self.held(slots)
        kernels.end(self._heaps, column(slots, np.int32))
        return had

    def restore(self, kept: Sequence[Results]) -> None:
        """Set results as they were saved: messages that they hold stand in the order in which they came."""
        once = [np.unique(part.seqs, return_index=True) for part in kept]
        ids = IdColumn.joined([part.ids.take(rows) for part, (_, rows) in zip(kept, once, strict=True)])
        kernels.renumber(self._heaps, self._held.merge(np.concatenate([seqs for seqs, _ in once]), ids))
        for part in kept:
            handles = np.searchsorted(self._held.seqs, part.seqs).astype(np.int32)
            kernels.fill(self._heaps, column(part.slots, np.int32), column(part.scores, np.float64), handles)
            slots, n = np.unique(part.slots), int(self._counts[kernels.N_MOVED])
            self._need_moved(len(slots))
            self._moved[n : n + len(slots)] = slots
            self._counts[kernels.N_MOVED] = n + len(slots)

    def publish(self, batch: MessageBatch, steps: Steps, find: Find) -> Changes:
        """Ask the index about some messages at a time, and let what it finds compete."""
        self._close_gaps()
        n, counts = len(batch), self._counts
        counts[[kernels.N_TOLD, kernels.N_MENTIONED, kernels.N_ENTERED]] = 0
        counts[kernels.NEXT] = len(self._held)
        if len(self._mentions) < len(self._held) + n:
            self._mentions = np.full(2 * (len(self._held) + n), kernels.NOBODY, np.int32)
        row_handles = np.full(n, kernels.NOBODY, np.int32)
        row = 0
        while row < n:
            stop = min(n, row + self._ask)
            self._push(find(row, stop), steps, row_handles, stop - row)
            row = stop
        coming = np.flatnonzero(row_handles != kernels.NOBODY)
        self._held.append(batch.seqs[coming], batch.ids.take(coming))
        return self._changes()

    def _push(self, found: Matches, steps: Steps, row_handles: npt.NDArray[np.int32], n_rows: int) -> None:
        """Let matches of some rows compete, and decide about how many the index is asked next."""
        n_found, counts = len(found.slots), self._counts
        before = int(counts[kernels.N_ENTERED])
        self._need_told(int(counts[kernels.N_TOLD]) + 2 * n_found)
        self._need_moved(n_found)
        matched = kernels.Found(*found, steps.of_rows, row_handles)
        kernels.push(self._heaps, matched, self._told, self._mentions, self._moved, counts)
        entered = int(counts[kernels.N_ENTERED]) - before
        query = self._ask // 2 if 2 * entered < n_found else 2 * n_rows
        self._ask = max(1, min(query, _MOST_FOUND * n_rows // max(n_found, 1)))

    def _changes(self) -> Changes:
        told, n = self._told, int(self._counts[kernels.N_TOLD])
        mentioned = told.mentioned[: self._counts[kernels.N_MENTIONED]]
        self._mentions[mentioned] = kernels.NOBODY
        if len(told.steps) > _MOST_FOUND and len(told.steps) > _MUCH * n:
            self._told = _told(0)  # many were open then, and are no more
        return Changes(
            told.steps[:n].copy(),
            told.slots[:n].copy(),
            told.enters[:n].copy(),
            told.scores[:n].copy(),
            self._held.ids(mentioned),
            self._held.seqs[mentioned],
            told.rows[:n].copy(),
            int(self._counts[kernels.N_ENTERED]),
        )

    def moved(self) -> Moved:
        """Return whose bars have changed since the last time, and what they are now."""
        moved = self._moved[: self._counts[kernels.N_MOVED]]
        thresholds = np.empty(len(moved))
        n = int(kernels.take_thresholds(self._heaps, moved, thresholds)) if len(moved) else 0
        self._counts[kernels.N_MOVED] = 0
        return Moved(moved[:n].copy(), thresholds[:n])

    def results(self, slot: int) -> list[ScoredMessage]:
        """Return a result, best first."""
        return self.held(np.array([slot], np.int32)).by_slot().get(slot, [])

    def would_enter(self, slot: int, document: Document, score: float) -> bool:
        """Tell whether a message is in a result or, published now, would come in."""
        held = self.results(slot)
        if len(held) < self._k(slot) or any(kept.seq == document.seq for kept in held):
            return True
        return (score, document.seq) < (held[-1].score, held[-1].seq)

    def threshold(self, slot: int) -> float | None:
        """Return the score of the worst of k results; None if there is room."""
        held = self.results(slot)
        return held[-1].score if len(held) == self._k(slot) else None

    def _k(self, slot: int) -> int:
        return int(self._array("heads")[slot, kernels.K])

    def held(self, slots: npt.NDArray[np.int32]) -> Results:
        """Return some results."""
        slots = column(slots, np.int32)
        sizes = self._array("heads")[slots, kernels.SIZE]
        scores, handles = np.empty(int(sizes.sum())), np.empty(int(sizes.sum()), np.int32)
        kernels.read_results(self._heaps, slots, scores, handles)
        return Results(np.repeat(slots, sizes), self._held.seqs[handles], scores, self._held.ids(handles))

    def _close_gaps(self) -> None:
        """Forget the messages that no result holds any more, if there may be many."""
        if len(self._held) < self._least or not self._held.has_doubled:
            return
        marks = np.zeros(len(self._held), np.bool_)
        kernels.mark(self._heaps, marks)
        kernels.renumber(self._heaps, self._held.keep(marks))

    def _need_told(self, room: int) -> None:
        if len(self._told.steps) < room:
            before, self._told = self._told, _told(2 * room)
            for name in kernels.HeapChanges._fields:
                getattr(self._told, name)[: len(before.steps)] = getattr(before, name)

    def _need_moved(self, more: int) -> None:
        room = int(self._counts[kernels.N_MOVED]) + more
        if len(self._moved) < room:
            self._moved = np.concatenate([self._moved, np.zeros(room, np.int32)])

    @property
    def _heaps(self) -> kernels.ResultHeapArrays:
        return self._arena.bundle(_PREFIX, kernels.ResultHeapArrays)

    def _array(self, name: str) -> npt.NDArray[Any]:
        return self._arena[f"{_PREFIX}.{name}"]


def _told(n: int) -> kernels.HeapChanges:
    return kernels.HeapChanges(
        np.zeros(n, np.int64),
        np.zeros(n, np.int32),
        np.zeros(n, np.bool_),
        np.zeros(n),
        np.zeros(n, np.int64),
        np.zeros(n, np.int32),
    )
