"""Some of the buffers of a kind, which one thread at a time changes: their blocks, their queues, and its scratch.

    heads, thresholds     by slot, of all parts          a part reads and writes those of its own subscriptions
    scores, numbers       blocks                         one pool per part
    queues                message -> subscriptions       one ring per part

Subscriptions are dealt out to parts by slot, a few neighbours at a time, so that no two threads write to the same
cache line of the heads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast._jit import Arena
from nearcast.model import Matches
from nearcast.model._kernels import blocks
from nearcast.model.profiles import Profiles
from nearcast.window._kernels import buffers as kernels
from nearcast.window._kernels import search
from nearcast.window._kernels.changes import name_once
from nearcast.window._kernels.horizon import Horizon
from nearcast.window._kernels.parts import part_of
from nearcast.window.candidates import CandidateSource
from nearcast.window.own_matches import own_matches
from nearcast.window.result_store import Changes, Results
from nearcast.window.sliding import SlidingWindow, Steps
from nearcast.window.store import FIRST, HORIZON, NEXT
from nearcast.worker_pool import apart

Slots = npt.NDArray[np.int32]

PREFIX = "buffers"
_ROOM = 1 << 12
_N_QUEUED = 32  # subscriptions whose buffers are prefetched before the first of them is needed
_BASE = 2  # position in the counts


class BufferPart:
    """Some of the buffers of a kind; an arena that holds them already is continued."""

    def __init__(
        self, arena: Arena, number: int, n_parts: int, *, window: SlidingWindow, source: CandidateSource
    ) -> None:
        """Take one of several parts; `source` must not be used by another."""
        self._arena, self._number, self._n_parts = arena, number, n_parts
        self._window, self._source, self._profiles = window, source, Profiles(arena)
        self._prefix = f"{PREFIX}.{number}"
        if f"{self._prefix}.state" not in arena:
            with arena.together():
                arena.new(f"{self._prefix}.scores", np.float64, 0)
                arena.new(f"{self._prefix}.numbers", np.int32, 0)
                arena.new(f"{self._prefix}.queues", np.int32, 0, kernels.NONE)
                arena.new(f"{self._prefix}.counts", np.int64, 8)[_BASE] = source.base
                arena.new(f"{self._prefix}.state", np.int64, blocks.STATE)[blocks.FIRST :] = -1
        self._scratch = _make_scratch(_ROOM)
        self._change_buffer = _make_changes(_ROOM)
        self._pending = _make_pending(0, _ROOM)
        self._moved: Slots = np.zeros(0, np.int32)
        self._places = np.zeros(0, np.int32)  # the row of each message of a batch, by its place in the window
        self._fit_queues(int(window.store.state[FIRST]))

    def drop(self) -> kernels.BufferArrays:
        """Remove the part from the arena, and return its arrays."""
        arrays = self._buffers
        with self._arena.together():
            for name in ("scores", "numbers", "queues", "counts", "state"):
                self._arena.drop(f"{self._prefix}.{name}")
        return arrays

    @property
    def searches(self) -> int:
        """The number of searches because a buffer ran short."""
        return int(self._array("counts")[0])

    def select(self, slots: Slots) -> npt.NDArray[np.int64]:
        """Return the rows of the slots that belong to this part."""
        return np.flatnonzero(part_of(slots, self._n_parts) == self._number)

    def begin(self, slots: Slots) -> Results:
        """Begin buffers, whose profiles are there, with the best of the window, and return these."""
        if not len(slots):
            return Results.none()
        self._change_buffer.cursor[:] = 0
        self._fit_terms(slots)
        state = self._window.store.state
        in_order = self._window.in_order
        horizon = Horizon(int(state[FIRST]), self._keys, int(state[HORIZON]), in_order)
        done = 0
        while True:
            done, code = self._source.begin(
                self._context(), slots, done, int(state[NEXT]) - 1, horizon, self._change_buffer
            )
            if code == kernels.DONE:
                break
            self._grow(code)
        self._set_moved(slots)
        changes, store = self._change_buffer, self._window.store
        n = int(changes.cursor[kernels.N_OUT])
        numbers = changes.numbers[:n].copy()
        return Results(
            changes.slots[:n].copy(), store.of("seqs", numbers), changes.scores[:n].copy(), store.ids(numbers)
        )

    def end(self, slots: Slots) -> None:
        """Free buffers."""
        kernels.end(self._buffers, self._base, np.ascontiguousarray(slots))

    def move(self, slots: Slots, before: kernels.BufferArrays) -> None:
        """Take buffers over from the arrays of another part, which is no longer in use."""
        done = 0
        while done < len(slots):
            done = int(kernels.move_buffers(self._context(), before, slots, done))
            if done < len(slots):
                self._grow(kernels.POOL)

    def publish(self, n_rows: int, steps: Steps, found: Matches) -> Changes:
        """Publish a batch, whose messages the lists of the window hold, given all of its matches."""
        self._fit_queues(steps.before)
        rows, slots, scores = self._own(found)
        state = self._window.store.state
        first_number = int(steps.numbers[0]) if len(steps.numbers) else int(state[NEXT])
        batch_steps = kernels.BatchSteps(
            first_number, steps.row_steps, steps.horizons, steps.leaving, steps.leaving_steps,
            rows, slots, scores, steps.in_order,
        )  # fmt: skip
        cursor = self._change_buffer.cursor
        cursor[:] = 0
        cursor[kernels.FIRST_ALIVE], cursor[kernels.NOW] = steps.before, first_number - 1
        cursor[kernels.FIRST_ROW], cursor[kernels.ARRIVING] = first_number, kernels.NONE
        self._pending = _make_pending(n_rows, max(2 * n_rows, len(self._pending.slots)))
        self._pending = self._pending._replace(thresholds=self._thresholds)
        while True:
            code = self._source.publish(self._context(), batch_steps, self._change_buffer, self._pending)
            if code == kernels.DONE:
                break
            self._grow(code)
        self._array("counts")[:2] += cursor[[kernels.N_SEARCHED, kernels.N_SWEPT]]
        self._set_moved(np.unique(self._pending.moved[: cursor[kernels.N_MOVED]]))
        return self._changes()

    def _own(self, found: Matches) -> Matches:
        """Return the matches of this part, without those below thresholds: a search may find these later."""
        return own_matches(found, self._number, self._n_parts, self._thresholds)

    def _changes(self) -> Changes:
        """Return the changes of a batch, each message named once."""
        changes, cursor, store = self._change_buffer, self._change_buffer.cursor, self._window.store
        n, size = int(cursor[kernels.N_OUT]), len(store.keys)
        if len(self._places) != size:
            self._places = np.full(size, kernels.NONE, np.int32)
        rows, named = np.empty(n, np.int64), np.empty(n, np.int64)
        numbers = named[: name_once(changes.numbers[:n], self._places, rows, named)]
        return Changes(
            changes.steps[:n].copy(),
            changes.slots[:n].copy(),
            changes.enters[:n].copy(),
            changes.scores[:n].copy(),
            store.ids(numbers),
            store.of("seqs", numbers),
            rows,
            int(cursor[kernels.N_ENTERED]),
        )

    def take_moved(self) -> Slots:
        """Return the slots whose thresholds have changed since the last call."""
        if not len(self._moved):
            return self._moved
        slots, self._moved = np.unique(self._moved), np.zeros(0, np.int32)
        return slots

    def held(self, slots: Slots) -> Results:
        """Return the results of some subscriptions of this part."""
        heads = self._heads[slots]
        lengths = np.minimum(heads[:, kernels.SIZE], heads[:, kernels.RESULT_SIZE]).astype(np.int64)
        ends = np.cumsum(lengths)
        at = np.repeat(heads[:, kernels.START] - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)
        numbers = self._array("numbers")[at].astype(np.int64) + self._base
        store = self._window.store
        return Results(
            np.repeat(slots, lengths), store.of("seqs", numbers), self._array("scores")[at], store.ids(numbers)
        )

    def follow_base(self) -> None:
        """Make numbers relative to the base of the lists, which may have moved."""
        by = self._source.base - self._base
        if by:
            kernels.move_numbers(self._buffers, by, self._number, self._n_parts)
            self._array("counts")[_BASE] += by

    def _set_moved(self, slots: Slots) -> None:
        """Set the thresholds of buffers that moved."""
        if not len(slots):
            return
        self._thresholds[slots] = self._heads.view(np.float32)[slots, kernels.THETA]
        self._moved = np.concatenate([self._moved, slots])

    @property
    def _heads(self) -> npt.NDArray[np.int32]:
        return self._arena[f"{PREFIX}.heads"]

    @property
    def _thresholds(self) -> npt.NDArray[np.float32]:
        return self._arena[f"{PREFIX}.thresholds"]

    @property
    def _buffers(self) -> kernels.BufferArrays:
        heads, queues = self._heads, self._array("queues")
        scores, numbers, state = (self._array(name) for name in ("scores", "numbers", "state"))
        return kernels.BufferArrays(heads, heads.view(np.float32), scores, numbers, queues, state)

    @property
    def _keys(self) -> npt.NDArray[np.int64]:
        return self._window.store.keys

    @property
    def _base(self) -> int:
        """The number that those in buffers are relative to."""
        return int(self._array("counts")[_BASE])

    def _context(self) -> kernels.BufferContext:
        source = self._source.arrays(self._profiles.arrays, self._scratch)
        return kernels.BufferContext(self._buffers, self._keys, source)

    def _fit_terms(self, slots: Slots) -> None:
        """Make the scratch large enough for the terms of subscriptions."""
        most = int(self._profiles.arrays.heads[slots, 1].max())
        if len(self._scratch.order) < most:
            self._scratch = self._scratch._replace(
                order=np.zeros(2 * most, np.int64), bits=np.zeros(2 * most, np.int64)
            )

    def _grow(self, code: int) -> None:
        """Enlarge the array that was too small."""
        if code == kernels.POOL:
            state = self._array("state")
            needed = int(state[blocks.USED] + state[blocks.NEEDED])
            self._arena.grow_all([f"{self._prefix}.{name}" for name in ("scores", "numbers")], needed)
        elif code == kernels.OUT:
            self._change_buffer = _make_changes(2 * len(self._change_buffer.steps), self._change_buffer)
        elif code == kernels.SCRATCH:
            larger = _make_scratch(2 * len(self._scratch.bounds))
            self._scratch = larger._replace(
                order=self._scratch.order, bits=self._scratch.bits, counts=self._scratch.counts
            )
        else:
            larger_pending = _make_pending(0, 2 * len(self._pending.slots))
            for name in ("links", "slots", "scores", "moved"):
                getattr(larger_pending, name)[: len(self._pending.slots)] = getattr(self._pending, name)
            self._pending = larger_pending._replace(heads=self._pending.heads, thresholds=self._pending.thresholds)

    def _fit_queues(self, first: int) -> None:
        """Make the ring of queues as large as those of the window; messages before the first have no queue."""
        before, size = self._array("queues"), len(self._window.store.arrays.seqs)
        if len(before) == size:
            return
        after = self._arena.renew(f"{self._prefix}.queues", size)
        if len(before):
            numbers = np.arange(first, min(first + len(before), int(self._window.store.state[NEXT])))
            after[numbers & (size - 1)] = before[numbers & (len(before) - 1)]

    def _array(self, name: str) -> npt.NDArray[Any]:
        return self._arena[f"{self._prefix}.{name}"]


def _make_scratch(n: int) -> search.SearchScratch:
    return search.SearchScratch(
        bounds=np.zeros(n, np.float32),
        numbers=np.zeros(n, np.int64),
        firsts=np.zeros(n, np.int16),
        bins=apart(search.N_BINS, np.int32),
        query=apart(16, np.float32),
        values=apart(search.PIECE, np.float32),
        scores=np.zeros(n + 1),
        found=np.zeros(n + 1, np.int64),
        pending=np.zeros(n, np.int64),
        chosen=np.zeros(n, np.int64),
        order=np.zeros(16, np.int64),
        bits=np.zeros(16, np.int64),
        queued=apart(_N_QUEUED, np.int32),
        counts=apart(8, np.int64),
    )


def _make_changes(n: int, before: kernels.ChangeBuffer | None = None) -> kernels.ChangeBuffer:
    made = kernels.ChangeBuffer(
        np.zeros(n, np.int64),
        np.zeros(n, np.int32),
        np.zeros(n, np.bool_),
        np.zeros(n),
        np.zeros(n, np.int64),
        apart(kernels.CURSOR, np.int64) if before is None else before.cursor,
    )
    if before is not None:
        for name in ("steps", "slots", "enters", "scores", "numbers"):
            getattr(made, name)[: len(before.steps)] = getattr(before, name)
    return made


def _make_pending(n_rows: int, n: int) -> kernels.PendingArrivals:
    return kernels.PendingArrivals(
        np.full(n_rows, -1, np.int32),
        np.zeros(n, np.int32),
        np.zeros(n, np.int32),
        np.zeros(n),
        np.zeros(n, np.int32),
        np.zeros(0, np.float32),
    )
