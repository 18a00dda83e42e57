"""Some of the heaps of a kind, which one thread at a time changes.

heads      by slot, of all parts          a part reads and writes those of its own subscriptions
scores, handles                           one pool per part
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nearcast._jit import Arena, column
from nearcast.model import Matches
from nearcast.model._kernels import blocks
from nearcast.window._kernels import heaps as kernels
from nearcast.window._kernels.changes import name_once
from nearcast.window._kernels.parts import part_of
from nearcast.window.held_messages import HeldMessages
from nearcast.window.own_matches import own_matches
from nearcast.window.result_store import Changes, Results, ThresholdChanges
from nearcast.window.sliding import Steps
from nearcast.worker_pool import apart

Slots = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

PREFIX = "heaps"
MAX_FOUND = 1 << 18  # matches that a call of the index should return at most


class HeapPart:
    """Some of the heaps of a kind; an arena that holds them already is continued."""

    def __init__(self, arena: Arena, number: int, n_parts: int) -> None:
        """Take one of several parts."""
        self._arena = arena
        self._prefix = f"{PREFIX}.{number}"
        if f"{self._prefix}.state" not in arena:
            with arena.together():
                arena.new(f"{self._prefix}.scores", np.float64, 0)
                arena.new(f"{self._prefix}.handles", np.int32, 0)
                arena.new(f"{self._prefix}.state", np.int64, blocks.STATE)[blocks.FIRST :] = -1
        self._part = np.array([number, n_parts])
        self._moved = np.zeros(0, np.int32)
        self._counts = apart(4, np.int64)
        self._thresholds: list[ThresholdChanges] = []
        self._change_arrays = _make_changes(0)
        self._places = np.zeros(0, np.int32)  # the row of each message of a batch, by its handle

    def drop(self) -> kernels.ResultHeapArrays:
        """Remove the part from the arena; return its arrays, with a copy of the heads."""
        arrays = self._heaps._replace(heads=self._arena[f"{PREFIX}.heads"].copy())
        with self._arena.together():
            for name in ("scores", "handles", "state"):
                self._arena.drop(f"{self._prefix}.{name}")
        return arrays

    def select(self, slots: Slots) -> Longs:
        """Return the rows of the slots that belong to this part."""
        number, n_parts = self._part.tolist()
        return np.flatnonzero(part_of(slots, n_parts) == number)

    def begin(self, slots: Slots, ks: npt.NDArray[np.int32]) -> None:
        """Begin empty heaps."""
        done = kernels.begin(self._heaps, slots, ks, 0)
        while done < len(slots):
            self._grow()
            done = kernels.begin(self._heaps, slots, ks, done)

    def end(self, slots: Slots) -> None:
        """Free heaps."""
        kernels.end(self._heaps, slots)
        for i, changes in enumerate(self._thresholds):
            stays = ~np.isin(changes.slots, slots)
            self._thresholds[i] = ThresholdChanges(changes.slots[stays], changes.thresholds[stays])

    def move(self, slots: Slots, before: kernels.ResultHeapArrays) -> None:
        """Take heaps over from the arrays of another part."""
        done = 0
        while done < len(slots):
            done = int(kernels.move_heaps(self._heaps, before, slots, done))
            if done < len(slots):
                self._grow()

    def fill(self, slots: Slots, scores: npt.NDArray[np.float64], handles: npt.NDArray[np.int32]) -> None:
        """Add entries to heaps that have room for them."""
        rows = self.select(slots)
        slots = column(slots[rows], np.int32)
        kernels.fill(self._heaps, slots, column(scores[rows], np.float64), column(handles[rows], np.int32))
        self._note_moved(np.unique(slots))

    def renumber(self, numbers: npt.NDArray[np.int32]) -> None:
        """Replace the handles of messages by others in the same order."""
        kernels.renumber(self._heaps, numbers)

    def _note_moved(self, slots: Slots) -> None:
        """Note that the thresholds of heaps may have moved."""
        n = int(self._counts[kernels.N_MOVED])
        self._fit_moved(len(slots))
        self._moved[n : n + len(slots)] = slots
        self._counts[kernels.N_MOVED] = n + len(slots)

    def begin_batch(self, first_handle: int) -> None:
        """Prepare for a batch whose messages have handles from one on."""
        self._counts[[kernels.N_CHANGES, kernels.N_ENTERED]] = 0
        self._counts[kernels.NEXT] = first_handle

    def push(self, found: Matches, steps: Steps) -> int:
        """Insert those of some matches that are for this part; return how many entered."""
        number, n_parts = self._part.tolist()
        if n_parts > 1:
            found = own_matches(found, number, n_parts)
        counts = self._counts
        before = int(counts[kernels.N_ENTERED])
        self._fit_changes(int(counts[kernels.N_CHANGES]) + 2 * len(found.slots))
        self._fit_moved(len(found.slots))
        matches = kernels.HeapMatches(*found, steps.row_steps)
        kernels.push(self._heaps, matches, self._change_arrays, self._moved, counts)
        self._take_moved()
        return int(counts[kernels.N_ENTERED]) - before

    def end_batch(self, messages: HeldMessages) -> Changes:
        """Return the changes of a batch, whose messages are stored, each message named once."""
        changes, n = self._change_arrays, int(self._counts[kernels.N_CHANGES])
        size = 1 << max(len(messages) - 1, 1).bit_length()
        if len(self._places) < size:
            self._places = np.full(size, kernels.NONE, np.int32)
        rows, named = np.empty(n, np.int64), np.empty(n, np.int64)
        handles = named[: name_once(changes.handles[:n], self._places, rows, named)].astype(np.int32)
        if n > MAX_FOUND:  # many results were open; they will hardly be again, so the arrays are given away
            self._change_arrays = _make_changes(0)
        else:
            changes = kernels.HeapChanges._make(values[:n].copy() for values in changes)
        return Changes(
            changes.steps[:n],
            changes.slots[:n],
            changes.enters[:n],
            changes.scores[:n],
            messages.ids(handles),
            messages.seqs[handles],
            rows,
            int(self._counts[kernels.N_ENTERED]),
        )

    def _take_moved(self) -> None:
        """Collect the thresholds of the heaps that moved."""
        moved = self._moved[: self._counts[kernels.N_MOVED]]
        if len(moved):
            thresholds = np.empty(len(moved))
            n = int(kernels.take_thresholds(self._heaps, moved, thresholds))
            self._thresholds.append(ThresholdChanges(moved[:n].copy(), thresholds[:n]))
            self._counts[kernels.N_MOVED] = 0

    def take_threshold_changes(self) -> list[ThresholdChanges]:
        """Return the thresholds that have changed since the last call; a later one counts."""
        self._take_moved()
        taken, self._thresholds = self._thresholds, []
        return taken

    def held(self, slots: Slots, messages: HeldMessages) -> Results:
        """Return the results of some subscriptions of this part."""
        sizes = self._arena[f"{PREFIX}.heads"][slots, kernels.SIZE]
        scores, handles = np.empty(int(sizes.sum())), np.empty(int(sizes.sum()), np.int32)
        kernels.read_results(self._heaps, slots, scores, handles)
        return Results(np.repeat(slots, sizes), messages.seqs[handles], scores, messages.ids(handles))

    def mark(self, marks: npt.NDArray[np.bool_]) -> None:
        """Mark the messages in results, by handle: one pass over all heaps."""
        kernels.mark(self._heaps, marks)

    def find_holders(self, wanted: npt.NDArray[np.bool_], found: npt.NDArray[np.bool_]) -> None:
        """Mark the slots whose results hold a wanted message: one pass over all heaps."""
        kernels.find_holders(self._heaps, wanted, found)

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

    def _grow(self) -> None:
        state = self._arena[f"{self._prefix}.state"]
        needed = int(state[blocks.USED] + state[blocks.NEEDED])
        self._arena.grow_all([f"{self._prefix}.{name}" for name in ("scores", "handles")], needed)

    @property
    def _heaps(self) -> kernels.ResultHeapArrays:
        scores, handles, state = (self._arena[f"{self._prefix}.{name}"] for name in ("scores", "handles", "state"))
        heads, reported = self._arena[f"{PREFIX}.heads"], self._arena[f"{PREFIX}.reported"]
        return kernels.ResultHeapArrays(heads, reported, scores, handles, state, self._part)


def _make_changes(n: int) -> kernels.HeapChanges:
    return kernels.HeapChanges(
        np.zeros(n, np.int64), np.zeros(n, np.int32), np.zeros(n, np.bool_), np.zeros(n), np.zeros(n, np.int64)
    )
