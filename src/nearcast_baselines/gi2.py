"""GI2, the grid-inverted index of PS2Stream (section IV-D), over flat arrays.

    term id ── table ──> number ─┐
    location ── 64 x 64 grid ────┴─ table ──> list of (subscription, branch)
    subscription ──> slot, box, terms of its branches

Every branch of an OR of ANDs is posted under its least frequent term in each cell that the box overlaps. A message
looks up its terms in its cell and checks every subscription on those lists: the box, then the terms. Deletion is
lazy: a subscription is marked, and its postings are removed once a message has read them, see `cell_lists`. The paper
marks subscriptions in a hash table of ids and does not say what happens if several branches hold; here marks are bits
of an array, and only the first branch that holds reports the subscription.

Cost: a few cache misses per message and term for the lists, and two or three per posting for the subscription.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast._jit import PostingArrays, column, kernel, postings_first, postings_next, postings_remove_at, table_get
from nearcast.index._kernels.shared.output import CANDIDATES, VERIFIED, VISITED, MatchOutput
from nearcast.model import ScoringContext, SubscriptionBatch
from nearcast.model.subscription_columns import BooleanColumns
from nearcast_baselines.cell_lists import (
    CELLS,
    LOW,
    ROOM,
    CellColumns,
    CellListIndex,
    CellLists,
    StaleLists,
    cell_along,
    cells_per_half,
    record_stale,
)
from nearcast_baselines.dense_numbers import number_keys

_CELL_BITS = 12


class Subscriptions(NamedTuple):
    """The subscriptions in the order of insertion."""

    slots: npt.NDArray[np.int32]
    """int32 (n,): the slot of each."""
    dead: npt.NDArray[np.uint8]
    """uint8 (n / 8,): one bit each, set by deletion; small enough to stay in the cache."""
    boxes: npt.NDArray[np.float64]
    """float64 (n, 4): xmin, ymin, xmax, ymax."""
    branch_indptr: npt.NDArray[np.int64]
    """int64 (n + 1,): the branches of each."""
    term_indptr: npt.NDArray[np.int64]
    """int64 (n_branches + 1,): the terms of each branch."""
    term_ids: npt.NDArray[np.int64]
    """int64 (n_terms,): ascending within a branch."""
    frame: npt.NDArray[np.float64]
    """float64 (4,): half of xmin and ymin of the bounds; cells in half a unit along x and y."""


@kernel
def _find_cells(
    boxes: npt.NDArray[np.float64], frame: npt.NDArray[np.float64], ranges: npt.NDArray[np.int64]
) -> None:
    """Write the first and last cell of each box along x, then y."""
    for i in range(boxes.shape[0]):
        for side in range(4):
            axis = side & 1
            ranges[i, side] = cell_along(boxes[i, side] * 0.5, frame[axis], frame[2 + axis], CELLS)


@kernel
def _keys(
    ranges: npt.NDArray[np.int64], owners: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64],
    keys: npt.NDArray[np.int64],
) -> None:  # fmt: skip
    """Write the keys of each branch: the number of its least frequent term with each cell of its box."""
    n = 0
    for branch in range(owners.size):
        i = owners[branch]
        for y in range(ranges[i, 1], ranges[i, 3] + 1):
            for x in range(ranges[i, 0], ranges[i, 2] + 1):
                keys[n] = (numbers[branch] << _CELL_BITS) | (y * CELLS + x)
                n += 1


@kernel
def _mark(dead: npt.NDArray[np.uint8], places: npt.NDArray[np.int64]) -> None:
    """Mark subscriptions as deleted."""
    for i in places:
        dead[i >> 3] |= 1 << (i & 7)


@kernel
def _holds(subscriptions: Subscriptions, branch: int, message: npt.NDArray[np.int64]) -> bool:
    """Return whether a message, given by its terms in ascending order, holds all terms of a branch."""
    at = 0
    for i in range(subscriptions.term_indptr[branch], subscriptions.term_indptr[branch + 1]):
        term = subscriptions.term_ids[i]
        while at < message.size and message[at] < term:
            at += 1
        if at == message.size or message[at] != term:
            return False
    return True


@kernel
def _reports(subscriptions: Subscriptions, i: int, branch: int, message: npt.NDArray[np.int64]) -> bool:
    """Return whether a branch is the first of its subscription that holds."""
    if not _holds(subscriptions, branch, message):
        return False
    for earlier in range(subscriptions.branch_indptr[i], branch):
        if _holds(subscriptions, earlier, message):
            return False
    return True


@kernel
def _is_dead(dead: npt.NDArray[np.uint8], i: int) -> bool:
    return bool((dead[i >> 3] >> (i & 7)) & 1)


@kernel
def _scan(
    postings: PostingArrays, subscriptions: Subscriptions, row: int, x: float, y: float,
    message: npt.NDArray[np.int64], out: MatchOutput, total: int,
) -> tuple[int, bool]:  # fmt: skip
    """Check the subscriptions of a list; return the number of matches so far, and whether some items are stale."""
    boxes, work, is_stale = subscriptions.boxes, out.work, False
    chunk, n = postings_first(postings, row)
    while n > 0:
        work[VISITED] += n
        for place in range(n):
            item = postings.items[chunk, place]
            i = item & LOW
            if _is_dead(subscriptions.dead, i):
                is_stale = True
                continue
            work[CANDIDATES] += 1
            if x < boxes[i, 0] or y < boxes[i, 1] or x > boxes[i, 2] or y > boxes[i, 3]:
                continue
            work[VERIFIED] += 1
            if _reports(subscriptions, i, item >> 32, message):
                out.slots[total] = subscriptions.slots[i]
                out.scores[total] = 1.0
                total += 1
        chunk, n = postings_next(postings, row, chunk)
    return total, is_stale


@kernel
def _sweep_dead(postings: PostingArrays, dead: npt.NDArray[np.uint8], rows: npt.NDArray[np.int64]) -> None:
    """Remove deleted subscriptions from some lists."""
    for row in rows:
        chunk, n = postings_first(postings, row)
        while n > 0:
            place = 0
            while place < n:
                if _is_dead(dead, postings.items[chunk, place] & LOW):
                    n = postings_remove_at(postings, row, chunk, place)
                else:
                    place += 1
            if n > 0:
                chunk, n = postings_next(postings, row, chunk)


@kernel(allocates=True)
def _match(
    lists: CellLists, subscriptions: Subscriptions, messages: CellColumns, rows: tuple[int, int, int],
    stale: StaleLists, out: MatchOutput,
) -> int:  # fmt: skip
    """Match messages; for `rows` and the result see `CellListIndex`."""
    start, stop, first = rows
    frame, before = subscriptions.frame, np.empty(4, np.int64)
    total = int(out.ends[start - first - 1]) if start > first else 0
    for row in range(start, stop):
        before[:] = out.work
        x, y = messages.xs[row], messages.ys[row]
        across, up = cell_along(x * 0.5, frame[0], frame[2], CELLS), cell_along(y * 0.5, frame[1], frame[3], CELLS)
        cell = up * CELLS + across
        message = messages.term_ids[messages.term_indptr[row] : messages.term_indptr[row + 1]]
        for term in message:
            number = table_get(lists.terms, term, -1)
            found_row = table_get(lists.rows, (number << _CELL_BITS) | cell, -1) if number >= 0 else -1
            if found_row < 0:
                continue
            if total + lists.postings.lengths[found_row] > out.slots.size:
                out.work[:] = before
                return row
            total, is_stale = _scan(lists.postings, subscriptions, found_row, x, y, message, out, total)
            if is_stale:
                record_stale(stale, found_row)
        out.ends[row - first] = total
    return stop


class GI2(CellListIndex):
    """Boxes and expressions in a uniform grid of inverted lists."""

    def __init__(self, scoring: ScoringContext, *, room: int = ROOM) -> None:
        super().__init__(chunk_size=8, room=room)
        self._scoring = scoring
        self._make()

    def insert(self, slots: npt.NDArray[np.int32], subscriptions: SubscriptionBatch) -> None:
        """Insert subscriptions under free slots."""
        assert isinstance(subscriptions.columns, BooleanColumns)
        self.insert_columns(slots, subscriptions.columns)

    def insert_columns(self, slots: npt.NDArray[np.int32], columns: BooleanColumns) -> None:
        """Insert subscriptions under free slots."""
        if not len(slots):
            return
        self._clean()
        n_branches = self._n_branches
        first = self._store(slots, columns)
        ids = column(columns.term_ids, np.int64)
        term_indptr, branch_indptr = column(columns.term_indptr, np.int64), column(columns.branch_indptr, np.int64)
        branches = np.repeat(np.arange(len(term_indptr) - 1), np.diff(term_indptr))
        order = np.lexsort((ids, -self._scoring.vocabulary.idfs_of(ids), branches))
        numbers = number_keys(self._terms, ids[order][term_indptr[:-1]])
        owners = np.repeat(np.arange(len(columns)), np.diff(branch_indptr))
        ranges = np.empty((len(columns), 4), np.int64)
        _find_cells(self._arena["subscriptions.boxes"][first : self._n], self._arena["subscriptions.frame"], ranges)
        n_cells = ((ranges[:, 2] - ranges[:, 0] + 1) * (ranges[:, 3] - ranges[:, 1] + 1))[owners]
        keys = np.empty(int(n_cells.sum()), np.int64)
        _keys(ranges, owners, numbers, keys)
        items = (first + owners) | (np.arange(n_branches, n_branches + len(owners)) << 32)
        self._postings.append_many(number_keys(self._rows, keys), np.repeat(items, n_cells))

    def delete(self, slots: npt.NDArray[np.int32]) -> None:
        """Mark the subscriptions of some slots as deleted."""
        self._clean()
        _mark(self._arena["subscriptions.dead"], self._places[slots])

    def set_thresholds(self, slots: npt.NDArray[np.int32], thresholds: npt.NDArray[np.float64]) -> None:
        """Do nothing: this kind has no thresholds."""

    def compact(self) -> None:
        """Rebuild all arrays from the subscriptions that are not deleted."""
        old = self._arena.bundle("subscriptions", Subscriptions)
        slots = old.slots[: self._n]
        alive = np.flatnonzero(np.unpackbits(old.dead, bitorder="little", count=self._n) == 0)
        n_branches = np.diff(old.branch_indptr[: self._n + 1])[alive]
        branches = _ranges(old.branch_indptr[alive], n_branches)
        n_terms = old.term_indptr[branches + 1] - old.term_indptr[branches]
        xmins, ymins, xmaxs, ymaxs = old.boxes[alive].T
        columns = BooleanColumns(
            xmins,
            ymins,
            xmaxs,
            ymaxs,
            np.concatenate(([0], np.cumsum(n_branches))),
            np.concatenate(([0], np.cumsum(n_terms))),
            old.term_ids[_ranges(old.term_indptr[branches], n_terms)],
        )
        kept = slots[alive].copy()
        for name in self._arena.names:
            self._arena.drop(name)
        self._make()
        self.insert_columns(kept, columns)

    def _make(self) -> None:
        """Create empty arrays."""
        bounds = self._scoring.space.bounds
        self._n = self._n_branches = self._n_terms = 0
        self._places = np.zeros(0, np.int64)  # slot -> position in the order of insertion
        new = self._arena.new
        new("subscriptions.slots", np.int32, 0)
        new("subscriptions.dead", np.uint8, 0)
        new("subscriptions.boxes", np.float64, 0, columns=4)
        new("subscriptions.branch_indptr", np.int64, 1)
        new("subscriptions.term_indptr", np.int64, 1)
        new("subscriptions.term_ids", np.int64, 0)
        frame = bounds.xmin / 2, bounds.ymin / 2, *cells_per_half(bounds, CELLS)
        new("subscriptions.frame", np.float64, 4)[:] = frame
        self._make_lists()

    def _match_rows(
        self,
        lists: CellLists,
        messages: CellColumns,
        rows: tuple[int, int, int],
        stale: StaleLists,
        out: MatchOutput,
    ) -> int:
        return int(_match(lists, self._arena.bundle("subscriptions", Subscriptions), messages, rows, stale, out))

    def _sweep(self, rows: npt.NDArray[np.int64]) -> None:
        _sweep_dead(self._postings.arrays, self._arena["subscriptions.dead"], rows)

    def _store(self, slots: npt.NDArray[np.int32], columns: BooleanColumns) -> int:
        """Append subscriptions; return the position of the first."""
        first, self._n = self._n, self._n + len(columns)
        if int(slots.max()) >= len(self._places):
            self._places = np.concatenate((self._places, np.zeros(int(slots.max()) + 1, np.int64)))
        self._places[slots] = np.arange(first, self._n)
        self._arena.grow("subscriptions.slots", self._n)[first : self._n] = slots
        self._arena.grow("subscriptions.dead", self._n // 8 + 1)
        boxes = np.column_stack((columns.xmins, columns.ymins, columns.xmaxs, columns.ymaxs))
        self._arena.grow("subscriptions.boxes", self._n)[first : self._n] = boxes
        branches = self._arena.grow("subscriptions.branch_indptr", self._n + 1)
        branches[first + 1 : self._n + 1] = self._n_branches + columns.branch_indptr[1:]
        before, self._n_branches = self._n_branches, int(branches[self._n])
        terms = self._arena.grow("subscriptions.term_indptr", self._n_branches + 1)
        terms[before + 1 : self._n_branches + 1] = self._n_terms + columns.term_indptr[1:]
        before, self._n_terms = self._n_terms, int(terms[self._n_branches])
        self._arena.grow("subscriptions.term_ids", self._n_terms)[before : self._n_terms] = columns.term_ids
        return first


def _ranges(starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return start, start + 1, ... for each start, as many as its length."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(int(ends[-1]) if len(ends) else 0)
