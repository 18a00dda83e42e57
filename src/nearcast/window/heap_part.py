"""Some of the heaps of a kind, which one thread at a time changes, and the messages that they hold.

heads      by slot, of all parts          a part reads and writes those of its own subscriptions
scores, handles                           one pool per part
messages   by handle                      those that a heap of the part holds
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nearcast._jit import Arena, column
from nearcast.model import IdColumn, Matches, MessageBatch
from nearcast.model._kernels import blocks
from nearcast.window._kernels import heaps as kernels
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
_SHRINK = 8  # arrays that are this many times too large are freed


class HeapPart:
    """Some of the heaps of a kind; an arena that holds them already is continued."""

    def __init__(self, arena: Arena, number: int, n_parts: int, *, least: int) -> None:
        """Take one of several parts; gaps are closed from `least` messages on."""
        self._arena, self._least = arena, least
        self._prefix = f"{PREFIX}.{number}"
        if f"{self._prefix}.state" not in arena:
            with arena.together():
                arena.new(f"{self._prefix}.scores", np.float64, 0)
                arena.new(f"{self._prefix}.handles", np.int32, 0)
                arena.new(f"{self._prefix}.state", np.int64, blocks.STATE)[blocks.FIRST :] = -1
        self._part = np.array([number, n_parts])
        self._messages = HeldMessages(arena, f"{self._prefix}.held")
        self._moved = np.zeros(0, np.int32)
        self._counts = apart(5, np.int64)
        self._thresholds: list[ThresholdChanges] = []
        self._change_arrays = _make_changes(0)
        self._message_rows = np.zeros(0, np.int32)
        self._row_handles = np.zeros(0, np.int32)

    def drop(self) -> tuple[kernels.ResultHeapArrays, Longs, IdColumn]:
        """Remove the part from the arena; return its arrays, with a copy of the heads, and its messages."""
        heads = self._arena[f"{PREFIX}.heads"]
        arrays, seqs = self._heaps._replace(heads=heads.copy()), self._messages.seqs.copy()
        ids = self._messages.ids(np.arange(len(seqs), dtype=np.int32))
        with self._arena.together():
            for name in ("scores", "handles", "state"):
                self._arena.drop(f"{self._prefix}.{name}")
            self._messages.drop()
        return arrays, seqs, ids

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

    def move(self, slots: Slots, before: kernels.ResultHeapArrays, seqs: Longs, ids: IdColumn) -> None:
        """Take heaps over from the arrays of another part, with its messages; those of no heap go with the gaps."""
        self._merge(seqs, ids)
        handles = np.searchsorted(self._messages.seqs, seqs).astype(np.int32)
        done = 0
        while done < len(slots):
            done = int(kernels.move_heaps(self._heaps, before, slots, handles, done))
            if done < len(slots):
                self._grow()

    def restore(self, saved: Sequence[Results]) -> None:
        """Set those saved results that are for this part; messages are merged in the order of arrival."""
        own = []
        for results in saved:
            rows = self.select(results.slots)
            own.append(Results(results.slots[rows], results.seqs[rows], results.scores[rows], results.ids.take(rows)))
        if not own:
            return
        unique = [np.unique(results.seqs, return_index=True) for results in own]
        ids = IdColumn.joined([results.ids.take(rows) for results, (_, rows) in zip(own, unique, strict=True)])
        self._merge(np.concatenate([seqs for seqs, _ in unique]), ids)
        for results in own:
            handles = np.searchsorted(self._messages.seqs, results.seqs).astype(np.int32)
            kernels.fill(self._heaps, column(results.slots, np.int32), column(results.scores, np.float64), handles)
            self._note_moved(np.unique(results.slots))

    def _merge(self, seqs: Longs, ids: IdColumn) -> None:
        kernels.renumber(self._heaps, self._messages.merge(seqs, ids))

    def _note_moved(self, slots: Slots) -> None:
        """Note that the thresholds of heaps may have moved."""
        n = int(self._counts[kernels.N_MOVED])
        self._fit_moved(len(slots))
        self._moved[n : n + len(slots)] = slots
        self._counts[kernels.N_MOVED] = n + len(slots)

    def begin_batch(self, n_rows: int) -> None:
        """Prepare for a batch of some messages."""
        self._close_gaps()
        self._counts[[kernels.N_CHANGES, kernels.N_MESSAGES, kernels.N_ENTERED]] = 0
        self._counts[kernels.NEXT] = len(self._messages)
        if len(self._message_rows) < len(self._messages) + n_rows:
            self._message_rows = np.full(2 * (len(self._messages) + n_rows), kernels.NONE, np.int32)
        self._row_handles = np.full(n_rows, kernels.NONE, np.int32)

    def push(self, found: Matches, steps: Steps) -> int:
        """Insert those of some matches that are for this part; return how many entered."""
        number, n_parts = self._part.tolist()
        if n_parts > 1:
            found = own_matches(found, number, n_parts)
        counts = self._counts
        before = int(counts[kernels.N_ENTERED])
        self._fit_changes(int(counts[kernels.N_CHANGES]) + 2 * len(found.slots))
        self._fit_moved(len(found.slots))
        matches = kernels.HeapMatches(*found, steps.row_steps, self._row_handles)
        kernels.push(self._heaps, matches, self._change_arrays, self._message_rows, self._moved, counts)
        self._take_moved()
        return int(counts[kernels.N_ENTERED]) - before

    def end_batch(self, batch: MessageBatch) -> Changes:
        """Store the messages of a batch that entered a heap, and return the changes."""
        entered = np.flatnonzero(self._row_handles != kernels.NONE)
        # Matches of a part come in the order of rows, so do handles.
        self._messages.append(batch.seqs[entered], batch.ids.take(entered))
        changes, n = self._change_arrays, int(self._counts[kernels.N_CHANGES])
        handles = changes.messages[: self._counts[kernels.N_MESSAGES]]
        self._message_rows[handles] = kernels.NONE
        if len(changes.steps) > MAX_FOUND and len(changes.steps) > _SHRINK * n:
            self._change_arrays = _make_changes(0)  # many results were open then, and no longer are
        return Changes(
            changes.steps[:n].copy(),
            changes.slots[:n].copy(),
            changes.enters[:n].copy(),
            changes.scores[:n].copy(),
            self._messages.ids(handles),
            self._messages.seqs[handles],
            changes.rows[:n].copy(),
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

    def held(self, slots: Slots) -> Results:
        """Return the results of some subscriptions of this part."""
        sizes = self._arena[f"{PREFIX}.heads"][slots, kernels.SIZE]
        scores, handles = np.empty(int(sizes.sum())), np.empty(int(sizes.sum()), np.int32)
        kernels.read_results(self._heaps, slots, scores, handles)
        return Results(np.repeat(slots, sizes), self._messages.seqs[handles], scores, self._messages.ids(handles))

    def held_seqs(self) -> Longs:
        """Return the seqs of all messages in results, ascending: one pass over all heaps."""
        marks = np.zeros(len(self._messages), np.bool_)
        kernels.mark(self._heaps, marks)
        return self._messages.seqs[marks]

    def holders(self, seqs: Longs) -> Slots:
        """Return the subscriptions whose results hold one of some messages: one pass over all heaps, or none."""
        marks = np.isin(self._messages.seqs, seqs)
        if not marks.any():
            return np.zeros(0, np.int32)
        found = np.zeros(len(self._arena[f"{PREFIX}.heads"]), np.bool_)
        kernels.find_holders(self._heaps, marks, found)
        return np.flatnonzero(found).astype(np.int32)

    def knows(self, seqs: Longs) -> npt.NDArray[np.bool_]:
        """Return which of some messages may be in results."""
        return np.isin(seqs, self._messages.seqs)

    def _close_gaps(self) -> None:
        """Drop the messages that no result holds any more, if there may be many."""
        if len(self._messages) < self._least or not self._messages.has_doubled:
            return
        marks = np.zeros(len(self._messages), np.bool_)
        kernels.mark(self._heaps, marks)
        kernels.renumber(self._heaps, self._messages.keep(marks))

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
        np.zeros(n, np.int64),
        np.zeros(n, np.int32),
        np.zeros(n, np.bool_),
        np.zeros(n),
        np.zeros(n, np.int64),
        np.zeros(n, np.int32),
    )
