"""GI2, the grid-inverted-index of PS2Stream (section IV-D), over flat arrays.

    term id ── table ──> number ─┐
    location ── 64 x 64 grid ────┴─ table ──> list of (subscription, branch)
    subscription ──> slot, box, terms of its branches

Every branch of an OR of ANDs stands under its least frequent term in each cell that the box overlaps. A message looks
up its terms in its cell and asks every subscription in those lists: the box, then the terms. Deletion is lazy: a
subscription is marked, and its entries go after a message has come past them: not at once, since messages may be
matched on several threads, but before the next change. The paper marks in a hash table of ids and says nothing of a
second branch that holds; here marks are an array, and the first branch that holds reports.

Cost: some cache misses a message and term for the lists, and two or three a posting for the subscription.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast._jit import (
    Arena,
    PostingArrays,
    Postings,
    Table,
    TableArrays,
    column,
    kernel,
    postings_first,
    postings_next,
    postings_remove_at,
    table_get,
)
from nearcast.index import scratch_pool
from nearcast.index.base import Matches, Work
from nearcast.model import MessageBatch, ScoringContext, SubscriptionBatch
from nearcast.model.subscription_columns import BooleanColumns

CELLS = 64
"""Along each axis."""
_CELL_BITS = 12
_LOW = 0xFFFFFFFF
_VISITED, _CANDIDATES, _VERIFIED, _FILLED, _MET = range(5)
_ROOM = 1 << 12  # matches
_MOST_MET = 1 << 10


class Subscriptions(NamedTuple):
    """What was inserted, in that order."""

    slots: npt.NDArray[np.int32]
    """int32 (n,): the slot of each."""
    dead: npt.NDArray[np.uint8]
    """uint8 (n / 8,): a bit each, set by deletion; small enough to stay in the cache."""
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


class Lists(NamedTuple):
    """The inverted lists of all cells."""

    terms: TableArrays
    """Term id -> number."""
    rows: TableArrays
    """Number and cell -> list."""
    postings: PostingArrays
    """Items are a subscription, and above it the number of a branch among all."""


class Messages(NamedTuple):
    """Messages to match."""

    xs: npt.NDArray[np.float64]
    ys: npt.NDArray[np.float64]
    term_indptr: npt.NDArray[np.int64]
    term_ids: npt.NDArray[np.int64]


class Found(NamedTuple):
    """Where matching writes."""

    slots: npt.NDArray[np.int32]
    """int32 (room,): what was found."""
    counts: npt.NDArray[np.int64]
    """int64 (rows,): how many of them each row has."""
    met: npt.NDArray[np.int64]
    """int64 (room,): lists on which deleted ones were met; those that find no room will be met again."""
    work: npt.NDArray[np.int64]
    """int64 (5,): visited, candidates, verified, how many slots are filled, how many lists were met."""


@kernel
def _cell(half_value: float, half_low: float, cells: float) -> int:
    return int(min(max((half_value - half_low) * cells, 0.0), CELLS - 1.0))


@kernel
def _n_cells(boxes: npt.NDArray[np.float64], frame: npt.NDArray[np.float64], ranges: npt.NDArray[np.int64]) -> None:
    """Write the first and last cell of each box along x, then y."""
    for i in range(boxes.shape[0]):
        for side in range(4):
            axis = side & 1
            ranges[i, side] = _cell(boxes[i, side] * 0.5, frame[axis], frame[2 + axis])


@kernel
def _keys(
    ranges: npt.NDArray[np.int64], owners: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64],
    keys: npt.NDArray[np.int64],
) -> None:  # fmt: skip
    """Write, branch by branch, the number of its key term with each cell of its box."""
    n = 0
    for branch in range(owners.size):
        i = owners[branch]
        for y in range(ranges[i, 1], ranges[i, 3] + 1):
            for x in range(ranges[i, 0], ranges[i, 2] + 1):
                keys[n] = (numbers[branch] << _CELL_BITS) | (y * CELLS + x)
                n += 1


@kernel
def _mark(dead: npt.NDArray[np.uint8], places: npt.NDArray[np.int64]) -> None:
    for i in places:
        dead[i >> 3] |= 1 << (i & 7)


@kernel
def _holds(subscriptions: Subscriptions, branch: int, message: npt.NDArray[np.int64]) -> bool:
    """Say whether a message, given by its terms in ascending order, holds all terms of a branch."""
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
    """Say whether a branch is the first of its subscription that holds."""
    if not _holds(subscriptions, branch, message):
        return False
    for earlier in range(subscriptions.branch_indptr[i], branch):
        if _holds(subscriptions, earlier, message):
            return False
    return True


@kernel
def _scan(
    lists: Lists, subscriptions: Subscriptions, row: int, x: float, y: float, message: npt.NDArray[np.int64],
    found: Found,
) -> None:  # fmt: skip
    """Ask the subscriptions of a list, and note it if some were deleted."""
    boxes, work, postings = subscriptions.boxes, found.work, lists.postings
    n_dead = 0
    chunk, n = postings_first(postings, row)
    while n > 0:
        for place in range(n):
            item = postings.items[chunk, place]
            i = item & _LOW
            work[_VISITED] += 1
            if (subscriptions.dead[i >> 3] >> (i & 7)) & 1:
                n_dead += 1
                continue
            work[_CANDIDATES] += 1
            if x < boxes[i, 0] or y < boxes[i, 1] or x > boxes[i, 2] or y > boxes[i, 3]:
                continue
            work[_VERIFIED] += 1
            if _reports(subscriptions, i, item >> 32, message):
                found.slots[work[_FILLED]] = subscriptions.slots[i]
                work[_FILLED] += 1
        chunk, n = postings_next(postings, row, chunk)
    if n_dead > 0 and work[_MET] < found.met.size:
        found.met[work[_MET]] = row
        work[_MET] += 1


@kernel
def _sweep(postings: PostingArrays, dead: npt.NDArray[np.uint8], rows: npt.NDArray[np.int64]) -> None:
    """Drop those that were deleted from some lists."""
    for row in rows:
        chunk, n = postings_first(postings, row)
        while n > 0:
            place = 0
            while place < n:
                i = postings.items[chunk, place] & _LOW
                if (dead[i >> 3] >> (i & 7)) & 1:
                    n = postings_remove_at(postings, row, chunk, place)
                else:
                    place += 1
            if n > 0:
                chunk, n = postings_next(postings, row, chunk)


@kernel
def _match(
    lists: Lists, subscriptions: Subscriptions, messages: Messages, start: int, stop: int, found: Found
) -> int:  # fmt: skip
    """Match messages from row `start` on; return the row that may not find room, or `stop`."""
    frame, work = subscriptions.frame, found.work
    before = np.empty(5, np.int64)
    for row in range(start, stop):
        before[:] = work
        x, y = messages.xs[row], messages.ys[row]
        cell = _cell(y * 0.5, frame[1], frame[3]) * CELLS + _cell(x * 0.5, frame[0], frame[2])
        message = messages.term_ids[messages.term_indptr[row] : messages.term_indptr[row + 1]]
        for term in message:
            number = table_get(lists.terms, term, -1)
            if number < 0:
                continue
            found_row = table_get(lists.rows, (number << _CELL_BITS) | cell, -1)
            if found_row < 0:
                continue
            if work[_FILLED] + lists.postings.lengths[found_row] > found.slots.size:
                work[:] = before
                return row
            _scan(lists, subscriptions, found_row, x, y, message, found)
        found.counts[row] = work[_FILLED] - before[_FILLED]
    return stop


class Workspace(scratch_pool.Workspace):
    """Room to match."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.slots = np.empty(room, np.int32)
        self.met = np.empty(_MOST_MET, np.int64)


class GI2:
    """Boxes and expressions in a uniform grid of inverted lists."""

    def __init__(self, scoring: ScoringContext, *, arena: Arena | None = None, room: int = _ROOM) -> None:
        self._scratch_pool = scratch_pool.ScratchPool(lambda: Workspace(room))
        self._met: set[int] = set()  # lists
        self._scoring = scoring
        self._arena = Arena() if arena is None else arena
        self._make()

    @property
    def work(self) -> Work:
        """How much was done so far."""
        return self._scratch_pool.work

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self._arena.nbytes

    def insert(self, slots: npt.NDArray[np.int32], subscription_batch: SubscriptionBatch) -> None:
        """Take in subscriptions under slots that are free."""
        assert isinstance(subscription_batch.columns, BooleanColumns)
        self.insert_columns(slots, subscription_batch.columns)

    def insert_columns(self, slots: npt.NDArray[np.int32], subscription_columns: BooleanColumns) -> None:
        """Take in subscriptions under slots that are free."""
        if not len(slots):
            return
        self._clean()
        n_branches = self._n_branches
        first = self._store(slots, subscription_columns)
        ids = column(subscription_columns.term_ids, np.int64)
        term_indptr, branch_indptr = (
            column(subscription_columns.term_indptr, np.int64),
            column(subscription_columns.branch_indptr, np.int64),
        )
        branches = np.repeat(np.arange(len(term_indptr) - 1), np.diff(term_indptr))
        order = np.lexsort((ids, -self._scoring.vocabulary.idfs_of(ids), branches))
        numbers = self._numbers(self._terms, ids[order][term_indptr[:-1]])
        owners = np.repeat(np.arange(len(subscription_columns)), np.diff(branch_indptr))
        ranges = np.empty((len(subscription_columns), 4), np.int64)
        _n_cells(self._arena["subscriptions.boxes"][first : self._n], self._arena["subscriptions.frame"], ranges)
        n_cells = ((ranges[:, 2] - ranges[:, 0] + 1) * (ranges[:, 3] - ranges[:, 1] + 1))[owners]
        keys = np.empty(int(n_cells.sum()), np.int64)
        _keys(ranges, owners, numbers, keys)
        items = (first + owners) | (np.arange(n_branches, n_branches + len(owners)) << 32)
        self._postings.append_many(self._numbers(self._rows, keys), np.repeat(items, n_cells))

    def delete(self, slots: npt.NDArray[np.int32]) -> None:
        """Mark the subscriptions of some slots."""
        self._clean()
        _mark(self._arena["subscriptions.dead"], self._places[slots])

    def set_thresholds(self, slots: npt.NDArray[np.int32], thresholds: npt.NDArray[np.float64]) -> None:
        """Do nothing: this kind has no bars."""

    def match(self, batch: MessageBatch, start: int, stop: int) -> Matches:
        """Return what the messages of some rows concern; every score is 1."""
        lists = Lists(self._terms.arrays, self._rows.arrays, self._postings.arrays)
        subscriptions = self._arena.bundle("subscriptions", Subscriptions)
        messages = Messages(
            column(batch.xs, np.float64),
            column(batch.ys, np.float64),
            column(batch.term_indptr, np.int64),
            column(batch.term_ids, np.int64),
        )
        with self._scratch_pool.take() as workspace:
            found = Found(workspace.slots, np.empty(stop, np.int64), workspace.met, np.zeros(5, np.int64))
            row = _match(lists, subscriptions, messages, start, stop, found)
            while row < stop:
                workspace.slots = np.empty(2 * found.slots.size, np.int32)
                workspace.slots[: found.slots.size] = found.slots
                found = found._replace(slots=workspace.slots)
                row = _match(lists, subscriptions, messages, row, stop, found)
            visited, candidates, verified, n, n_met = found.work.tolist()
            workspace.count(visited=visited, candidates=candidates, verified=verified, matched=n)
            if n_met:
                self._met.update(found.met[:n_met].tolist())  # one step for all threads
            rows = np.repeat(np.arange(start, stop), found.counts[start:stop])
            return Matches(rows, found.slots[:n].copy(), np.broadcast_to(1.0, n))

    def compact(self) -> None:
        """Build everything anew from what was not deleted."""
        old = self._arena.bundle("subscriptions", Subscriptions)
        slots = old.slots[: self._n]
        alive = np.flatnonzero(np.unpackbits(old.dead, bitorder="little", count=self._n) == 0)
        n_branches = np.diff(old.branch_indptr[: self._n + 1])[alive]
        branches = _ranges(old.branch_indptr[alive], n_branches)
        n_terms = old.term_indptr[branches + 1] - old.term_indptr[branches]
        xmins, ymins, xmaxs, ymaxs = old.boxes[alive].T
        subscription_columns = BooleanColumns(
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
        self.insert_columns(kept, subscription_columns)

    def _make(self) -> None:
        bounds = self._scoring.space.bounds
        self._n = self._n_branches = self._n_terms = 0
        self._met.clear()
        self._places = np.zeros(0, np.int64)  # of slots
        new = self._arena.new
        new("subscriptions.slots", np.int32, 0)
        new("subscriptions.dead", np.uint8, 0)
        new("subscriptions.boxes", np.float64, 0, columns=4)
        new("subscriptions.branch_indptr", np.int64, 1)
        new("subscriptions.term_indptr", np.int64, 1)
        new("subscriptions.term_ids", np.int64, 0)
        halves = np.array([bounds.xmax / 2 - bounds.xmin / 2, bounds.ymax / 2 - bounds.ymin / 2])
        with np.errstate(divide="ignore", over="ignore"):
            cells = np.minimum(CELLS / halves, np.finfo(np.float64).max)
        new("subscriptions.frame", np.float64, 4)[:] = bounds.xmin / 2, bounds.ymin / 2, *cells
        self._terms, self._rows = Table(self._arena, "terms"), Table(self._arena, "rows")
        self._postings = Postings(self._arena, "postings", chunk_size=8)

    def _clean(self) -> None:
        """Drop deleted entries from the lists on which messages met them."""
        if self._met:
            _sweep(self._postings.arrays, self._arena["subscriptions.dead"], column(sorted(self._met), np.int64))
            self._met.clear()

    def _store(self, slots: npt.NDArray[np.int32], subscription_columns: BooleanColumns) -> int:
        """Append subscriptions; return the number of the first."""
        first, self._n = self._n, self._n + len(subscription_columns)
        if int(slots.max()) >= len(self._places):
            self._places = np.concatenate((self._places, np.zeros(int(slots.max()) + 1, np.int64)))
        self._places[slots] = np.arange(first, self._n)
        self._arena.grow("subscriptions.slots", self._n)[first : self._n] = slots
        self._arena.grow("subscriptions.dead", self._n // 8 + 1)
        boxes = np.column_stack(
            (
                subscription_columns.xmins,
                subscription_columns.ymins,
                subscription_columns.xmaxs,
                subscription_columns.ymaxs,
            )
        )
        self._arena.grow("subscriptions.boxes", self._n)[first : self._n] = boxes
        branches = self._arena.grow("subscriptions.branch_indptr", self._n + 1)
        branches[first + 1 : self._n + 1] = self._n_branches + subscription_columns.branch_indptr[1:]
        before, self._n_branches = self._n_branches, int(branches[self._n])
        terms = self._arena.grow("subscriptions.term_indptr", self._n_branches + 1)
        terms[before + 1 : self._n_branches + 1] = self._n_terms + subscription_columns.term_indptr[1:]
        before, self._n_terms = self._n_terms, int(terms[self._n_branches])
        self._arena.grow("subscriptions.term_ids", self._n_terms)[before : self._n_terms] = (
            subscription_columns.term_ids
        )
        return first

    @staticmethod
    def _numbers(table: Table, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the values of keys, and give new keys the next ones."""
        distinct, inverse = np.unique(keys, return_inverse=True)
        values = table.get_many(distinct)
        new = np.flatnonzero(values < 0)
        values[new] = np.arange(len(table), len(table) + len(new))
        table.put_many(distinct[new], values[new])
        return values[inverse]


def _ranges(starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return start, start + 1, ... for each start, as many as its length."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(int(ends[-1]) if len(ends) else 0)
