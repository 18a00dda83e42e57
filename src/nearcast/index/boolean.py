"""Index of kind `boolean`: boxes with AND/OR expressions, in lists by the rarest term that are split by space.

    term id ── table ──> root of its tree ── list of postings
                            │ 8 x 8                           a long list passes its boxes to 64 children (those that
                            ├──> child ── list                overlap at most 3 x 3 of them) and retains the wide
                            └──> child ── list                ones; a message visits one path per term
    posting, 20 bytes in 3 columns     box in 60 bits, kind | slot | two more terms
    slot ──> box in float64, expression as words              read where a posting alone cannot decide

After GI2 (PS2Stream, section IV-D): every branch of an OR of ANDs is posted under its least frequent term, and in the
cells that its box overlaps. Departures:

- Text first, then space: one lookup per term finds the lists, and rare terms pay for no grid. How finely a term is
  split follows from the number of its subscriptions in each place, down to 2**30 cells along an axis. A box is on a
  few lists, whatever its size.
- A posting decides alone. Its box, in steps of its list's cell, is compared in one subtraction; only a message in the
  very step of an edge needs the float64 box. Its two further terms must be held (an AND of up to three) or must not
  (an OR of up to three single terms, which is reported by its first held term). So nothing is reported twice, and no
  marks are needed. Longer branches and other mixtures evaluate the expression.
- A message is matched in passes without branches that depend on data: prefetch the boxes, filter those that hold the
  point, take the slots of single terms, then test the rest. The fields are columns, since the box decides most
  postings.
- Deletion is immediate. Lists lie in blocks of a power of two that are halved in place when a quarter full; free
  halves are joined again. Expressions, nodes and terms are reused too.

Cost: a message reads a cache line or two per term and level, 8 bytes per posting visited and up to 12 more per
posting whose box fits; cache misses, not instructions, take the time. Insertion and deletion touch the lists of one
path or a few; a split moves one list, when it has doubled.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast._jit import Arena, Table, column
from nearcast.index._kernels import boolean as kernels
from nearcast.index._kernels.shared.output import MatchOutput
from nearcast.index.arena_index import ArenaIndex, ArrayLayout
from nearcast.index.base import Matches
from nearcast.index.scratch_pool import OutputWorkspace
from nearcast.model import MessageBatch, ScoringContext, SubscriptionBatch
from nearcast.model.subscription_columns import BooleanColumns
from nearcast.space import Box
from nearcast.worker_pool import apart

_ENTRIES_PER_TERM = 64  # of the hash set of a message: so sparse that terms rarely collide
_MIN_ENTRIES = 1024
_MAX_ENTRIES = 1 << 17
_ROOM = 1 << 12  # matches

_ARRAYS = {
    "nodes": ArrayLayout(np.int32, 4),
    "ids": ArrayLayout(np.int64),
    "refs": ArrayLayout(np.int32),
    "sides": ArrayLayout(np.int64),
    "slots": ArrayLayout(np.int32),
    "others": ArrayLayout(np.int64),
    "boxes": ArrayLayout(np.float64, 4),
    "records": ArrayLayout(np.int64, fill=-1),
    "words": ArrayLayout(np.int32),
    "free_tags": ArrayLayout(np.uint8),
}


class BooleanWorkspace(OutputWorkspace):
    """Scratch arrays of one match."""

    def __init__(self, room: int) -> None:
        scratch = kernels.BooleanScratch(
            numbers=np.zeros(64, np.int32),
            held=np.zeros(_MIN_ENTRIES, np.int32),
            lists=np.zeros((2 * (kernels.DEPTH + 1) * 16, 3), np.int64),
            rows=np.zeros(max(room, 1), np.int64),
            needed=np.zeros(1, np.int64),
        )
        super().__init__(scratch, room)

    def prepare(self, indptr: npt.NDArray[np.int64], start: int, stop: int) -> None:
        """Lengthen the arrays for the messages of some rows."""
        lengths = np.diff(indptr[start : stop + 1])
        most = int(lengths.max()) if len(lengths) else 0
        self.need(int(indptr[stop] - indptr[start]) if start < stop else 0, "numbers")
        n_entries = _MIN_ENTRIES
        while n_entries < min(_ENTRIES_PER_TERM * most, _MAX_ENTRIES) or n_entries < 2 * most:
            n_entries *= 2
        n_lists = 2 * most * (kernels.DEPTH + 1)
        if n_entries != self.scratch.held.size:  # no larger than needed, so that it stays in the cache
            self.scratch = self.scratch._replace(held=np.zeros(n_entries, np.int32))
        if n_lists > self.scratch.lists.shape[0]:
            self.scratch = self.scratch._replace(lists=np.zeros((n_lists, 3), np.int64))

    def enlarge(self, out: MatchOutput, n_filled: int) -> MatchOutput:
        """Make room for the postings of the message that did not fit, or for its matches."""
        needed = int(self.scratch.needed[0])
        if needed > self.scratch.rows.size:
            self.scratch = self.scratch._replace(rows=np.empty(needed * 3 // 2, np.int64))
            return out
        return super().enlarge(out, n_filled)

    def _new_output(self, n_rows: int) -> MatchOutput:
        room = self._room_for(n_rows)
        return MatchOutput(np.empty(room, np.int32), np.empty(0), np.zeros(n_rows, np.int64), apart(4, np.int64))

    def _matches(self, rows: npt.NDArray[np.int64], out: MatchOutput, n: int) -> Matches:
        out.slots.resize(n, refcheck=False)
        return Matches(rows, out.slots, np.broadcast_to(1.0, n))


class BooleanIndex(ArenaIndex[BooleanWorkspace]):
    """Finds the subscriptions whose box holds a message and whose expression its text satisfies.

    >>> from nearcast.model import BooleanSubscription, Message
    >>> from nearcast.testing import strategies
    >>> scoring = strategies.scoring()
    >>> index = BooleanIndex(scoring)
    >>> coffee = BooleanSubscription("b1", region=Box(0, 0, 1, 1), keywords="coffee AND (sale OR discount)")
    >>> index.insert(np.array([7], np.int32), SubscriptionBatch.of([coffee], scoring))
    >>> message = Message("m1", location=(1, 0.5), text="Coffee! SALE!")
    >>> batch = MessageBatch.from_messages([message], vocabulary=scoring.vocabulary)
    >>> index.match(batch, 0, 1).slots
    array([7], dtype=int32)
    """

    prefix = "boolean"

    def __init__(self, scoring: ScoringContext, *, arena: Arena | None = None, room: int = _ROOM) -> None:
        super().__init__(arena, lambda: BooleanWorkspace(room))
        self._vocabulary = scoring.vocabulary
        self._targets = np.zeros((kernels.TARGETS, 4), np.int64)
        if self._is_new("state"):
            bounds = scoring.space.bounds
            with self._arena.together():
                self._make(np.array([bounds.xmin / 2, bounds.ymin / 2, *_steps(bounds)]))
        self._table = Table(self._arena, f"{self.prefix}.table")

    def __len__(self) -> int:
        return int(self._array("state")[kernels.LIVE])

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays of the index, without the workspaces."""
        return super().nbytes - self._scratch_pool.nbytes

    def insert(self, slots: npt.NDArray[np.int32], subscriptions: SubscriptionBatch) -> None:
        """Insert subscriptions under free slots."""
        columns = subscriptions.columns
        assert isinstance(columns, BooleanColumns)
        self._insert(slots, self._ordered(columns).under(subscriptions.facets))

    def insert_columns(self, slots: npt.NDArray[np.int32], columns: BooleanColumns) -> None:
        """Insert subscriptions without facets under free slots."""
        self._insert(slots, self._ordered(columns))

    def _insert(self, slots: npt.NDArray[np.int32], columns: BooleanColumns) -> None:
        """Insert subscriptions under free slots; each branch is listed under its first term."""
        if not len(slots):
            return
        sides = (columns.xmins, columns.ymins, columns.xmaxs, columns.ymaxs)
        new = kernels.NewSubscriptions(
            column(slots, np.int32),
            np.column_stack(sides).astype(np.float64),
            np.repeat(np.arange(len(columns)), np.diff(columns.branch_indptr)),
            column(columns.branch_indptr, np.int64),
            column(columns.term_indptr, np.int64),
            column(columns.term_ids, np.int64),
        )
        self._grow(int(new.slots.max()) + 1, "boxes", "records")
        done = kernels.insert_branches(self._forest, new, 0, self._targets)
        while done < new.owners.size:
            self._make_room(new, done)
            done = kernels.insert_branches(self._forest, new, done, self._targets)

    def delete(self, slots: npt.NDArray[np.int32]) -> None:
        """Delete the subscriptions of some slots."""
        if len(slots):
            kernels.delete_slots(self._forest, column(slots, np.int32), self._targets)

    def set_thresholds(self, slots: npt.NDArray[np.int32], thresholds: npt.NDArray[np.float64]) -> None:
        """Do nothing: this kind has no thresholds."""

    def match(self, batch: MessageBatch, start: int, stop: int) -> Matches:
        """Return the pairs that match; every score is 1."""
        forest = self._forest
        messages = kernels.MessageColumns(
            column(batch.xs, np.float64),
            column(batch.ys, np.float64),
            column(batch.term_indptr, np.int64),
            column(batch.term_ids, np.int64),
        )
        with self._scratch_pool.take() as workspace:
            workspace.prepare(messages.term_indptr, start, stop)
            return workspace.collect(
                lambda row, out: int(kernels.match_rows(forest, messages, row, stop, start, workspace.scratch, out)),
                start,
                stop,
            )

    def compact(self) -> None:
        """Rebuild the index without the room that deletions left; costs as much as inserting all subscriptions."""
        slots, columns = self._export()
        frame = self._array("frame").copy()
        with self._arena.together():
            for name in self._own_names():
                self._arena.drop(name)
            self._make(frame)
            self._table = Table(self._arena, f"{self.prefix}.table")
            self._insert(slots, columns)

    @property
    def _forest(self) -> kernels.Forest:
        return kernels.Forest(self._table.arrays, *(self._array(field) for field in kernels.Forest._fields[1:]))

    def _make(self, frame: npt.NDArray[np.float64]) -> None:
        self._new_arrays(_ARRAYS)
        for name in ("free_rows", "free_words"):
            self._arena.new(f"{self.prefix}.{name}", np.int64, kernels.CLASSES, -1)
        self._arena.new(f"{self.prefix}.frame", np.float64, 4)[:] = frame
        state = self._arena.new(f"{self.prefix}.state", np.int64, kernels.STATE)
        state[[kernels.FREE_BLOCK, kernels.FREE_TERM]] = -1

    def _make_room(self, new: kernels.NewSubscriptions, branch: int) -> None:
        """Grow what the kernel found missing for a branch."""
        state: npt.NDArray[Any] = self._array("state")
        i = int(new.owners[branch])
        first, last = new.term_indptr[new.branch_indptr[i : i + 2]]
        with self._arena.together():
            self._grow(int(state[kernels.NEED_ROWS]), "sides", "slots", "others", "free_tags")
            self._grow(int(state[kernels.NEED_WORDS]), "words")
            self._grow(int(state[kernels.NEED_NODES]), "nodes", "ids", "refs")
            self._table.reserve(len(self._table) + int(last - first))

    def _ordered(self, columns: BooleanColumns) -> BooleanColumns:
        """Return subscriptions with the rarest term of each branch first."""
        ids, term_indptr = column(columns.term_ids, np.int64), column(columns.term_indptr, np.int64)
        if len(ids) == len(term_indptr) - 1:
            return columns
        # Each term once and in order: the vocabulary is then read sequentially instead of at random.
        distinct, inverse = np.unique(ids, return_inverse=True)
        ordered = np.empty(len(ids), np.int64)
        kernels.order_branches(term_indptr, ids, self._vocabulary.idfs_of(distinct)[inverse], ordered)
        return replace(columns, term_ids=ordered)

    def _export(self) -> tuple[npt.NDArray[np.int32], BooleanColumns]:
        """Return all slots in use and their subscriptions."""
        forest = self._forest
        slots = np.flatnonzero(forest.records >= 0).astype(np.int32)
        n_branches = np.zeros(slots.size, np.int64)
        term_ids = np.zeros(kernels.count_terms(forest, slots, n_branches), np.int64)
        n_terms = np.zeros(int(n_branches.sum()), np.int64)
        kernels.export_terms(forest, slots, n_terms, term_ids)
        xmins, ymins, xmaxs, ymaxs = forest.boxes[slots].T
        return slots, BooleanColumns(
            xmins,
            ymins,
            xmaxs,
            ymaxs,
            np.concatenate(([0], np.cumsum(n_branches))),
            np.concatenate(([0], np.cumsum(n_terms))),
            term_ids,
        )


def _steps(bounds: Box) -> tuple[float, float]:
    """Return the steps of the finest grid per half a unit, along x and y; any finite number is correct."""
    with np.errstate(divide="ignore", over="ignore"):
        halves = np.array([bounds.xmax / 2 - bounds.xmin / 2, bounds.ymax / 2 - bounds.ymin / 2])
        x, y = np.minimum(float(1 << kernels.TOTAL_BITS) / halves, np.finfo(np.float64).max)
    return float(x), float(y)
