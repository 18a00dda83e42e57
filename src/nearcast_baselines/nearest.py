"""The index of DkM-SKS (section 4.3), over flat arrays.

    grid        term and cell ──> subscriptions with the term whose ball B(s) overlaps the cell
    inverted    the same with a single cell: an inverted file alone (section 3.1)

A message looks up its terms in its cell, and measures the distance to each subscription there. A subscription without
k results has no ball: the paper puts it into every cell.

Improvements on the paper: a subscription in more than MAX_CELLS cells, or without a ball, has one posting, on a list
of its term that every message with the term reads. A message reads the same postings either way, and the cells of a
million balls would not fit into memory. A ball that shrinks is posted again once it overlaps half as many cells; its
old postings carry an older version and are stale, like those of a deletion, see `cell_lists`. The difference in
latitude alone rules out most subscriptions that are far away.

Cost: one or two cache misses per subscription that shares a term, in the cell or on the list of the term.
"""

from __future__ import annotations

from functools import partial
from math import asin, cos, degrees, inf, isnan, pi, radians, sin
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast._jit import (
    Arena,
    PostingArrays,
    TableArrays,
    column,
    kernel,
    postings_first,
    postings_next,
    postings_remove_at,
    table_get,
)
from nearcast.index._kernels.shared.output import CANDIDATES, VERIFIED, VISITED, MatchOutput
from nearcast.model import ScoringContext, SubscriptionBatch
from nearcast.model._kernels.profiles import LENGTH, RUN, ProfileArrays, X, Y, euclidean, haversine
from nearcast.model.profiles import Profiles
from nearcast.model.subscription_columns import KeywordColumns
from nearcast.space.metric import EARTH_RADIUS_M
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

MAX_CELLS = 16
"""Cells under which a ball is posted; a larger one is posted once, as if it covered all of space."""
_CELL_BITS = 13
_METRES_PER_DEGREE = EARTH_RADIUS_M * pi / 180.0 * (1.0 - 1e-9)  # never overestimates


class GridParams(NamedTuple):
    """Position and size of the cells."""

    on_sphere: bool
    cells: int
    x0: float
    y0: float
    """Half of the least coordinates of the bounds."""
    per_half_x: float
    per_half_y: float
    """Cells in half a unit."""


class Balls(NamedTuple):
    """The balls of the subscriptions, by slot."""

    thresholds: npt.NDArray[np.float64]
    """float64 (n_slots,): the radius; infinite without a ball, NaN for a free slot."""
    ranges: npt.NDArray[np.int32]
    """int32 (n_slots, 4): the first and last cell along x, then y, under which it is posted; -1 for all of space."""
    versions: npt.NDArray[np.int32]
    """int32 (n_slots,): items with another version are stale."""


class Subscriptions(NamedTuple):
    """The subscriptions: profiles and balls, and the grid."""

    grid: GridParams
    profiles: ProfileArrays
    balls: Balls


@kernel
def _cell_of(grid: GridParams, x: float, y: float) -> int:
    """Return the number of a point's cell, from 1 on."""
    across = cell_along(x * 0.5, grid.x0, grid.per_half_x, grid.cells)
    return 1 + across + grid.cells * cell_along(y * 0.5, grid.y0, grid.per_half_y, grid.cells)


@kernel
def _extent(on_sphere: bool, x: float, y: float, radius: float) -> tuple[float, float]:
    """Return how far a ball reaches along x and y; never underestimates, and does not wrap: see `Space.reach`."""
    if not on_sphere:
        reach = radius * (1.0 + 1e-12) + 1e-12 * max(abs(x), abs(y)) + 1e-150
        return reach, reach
    angle = radius / EARTH_RADIUS_M + 1e-9
    dx, dy = 360.0, degrees(angle)
    if angle < pi / 2 and abs(y) + dy < 90.0:
        dx = degrees(asin(min(1.0, sin(angle) / cos(radians(y))))) + 1e-9
    return (360.0 if x - dx < -180.0 or x + dx > 180.0 else dx), dy


@kernel(allocates=True)
def _set_thresholds(
    subscriptions: Subscriptions,
    slots: npt.NDArray[np.int32],
    thresholds: npt.NDArray[np.float64],
    moved: npt.NDArray[np.int32],
) -> int:
    """Set thresholds; write the slots to post again and set their ranges; return how many there are."""
    grid, profiles, balls = subscriptions
    n, span = 0, np.empty(4, np.int32)
    for i in range(slots.size):
        slot, threshold = slots[i], thresholds[i] if thresholds[i] < inf else inf
        if isnan(balls.thresholds[slot]):
            continue
        balls.thresholds[slot] = threshold
        x, y = float(profiles.points[slot, X]), float(profiles.points[slot, Y])
        dx, dy = _extent(grid.on_sphere, x, y, max(float(threshold), 0.0))
        for side in range(2):
            sign = 2.0 * side - 1.0
            span[side] = cell_along(x * 0.5 + sign * dx * 0.5, grid.x0, grid.per_half_x, grid.cells)
            span[2 + side] = cell_along(y * 0.5 + sign * dy * 0.5, grid.y0, grid.per_half_y, grid.cells)
        n_cells = (span[1] - span[0] + 1) * (span[3] - span[2] + 1)
        before, n_before = balls.ranges[slot], MAX_CELLS + 1
        if before[0] >= 0:
            n_before = (before[1] - before[0] + 1) * (before[3] - before[2] + 1)
        grows = before[0] >= 0 and (
            span[0] < before[0] or span[1] > before[1] or span[2] < before[2] or span[3] > before[3]
        )
        is_wide = n_cells > MAX_CELLS or n_cells == grid.cells * grid.cells
        if grows or (not is_wide and (n_before > MAX_CELLS or 2 * n_cells <= n_before)):
            for side in range(4):
                balls.ranges[slot, side] = -1 if is_wide else span[side]
            moved[n] = slot
            n += 1
    return n


@kernel
def _count_keys(balls: Balls, heads: npt.NDArray[np.int32], slots: npt.NDArray[np.int32]) -> int:
    """Return the number of postings of subscriptions."""
    n = 0
    for slot in slots:
        span = balls.ranges[slot]
        n += heads[slot, LENGTH] * ((span[1] - span[0] + 1) * (span[3] - span[2] + 1) if span[0] >= 0 else 1)
    return n


@kernel
def _write_keys(
    subscriptions: Subscriptions,
    terms: TableArrays,
    slots: npt.NDArray[np.int32],
    keys: npt.NDArray[np.int64],
    items: npt.NDArray[np.int64],
) -> None:
    """Write the key and the item of each posting of subscriptions, in a new version."""
    grid, profiles, balls = subscriptions
    n = 0
    for slot in slots:
        balls.versions[slot] += 1
        item = int(slot) | (int(balls.versions[slot]) << 32)
        span, run = balls.ranges[slot], profiles.heads[slot, RUN]
        for i in range(run, run + profiles.heads[slot, LENGTH]):
            key = table_get(terms, profiles.run_terms[i], -1) << _CELL_BITS
            if span[0] < 0:
                keys[n], items[n] = key, item
                n += 1
                continue
            for y in range(span[2], span[3] + 1):
                for x in range(span[0], span[1] + 1):
                    keys[n], items[n] = key | (1 + x + grid.cells * y), item
                    n += 1


@kernel
def _first_shared(profiles: ProfileArrays, slot: int, message: npt.NDArray[np.int64]) -> int:
    """Return the first term that a subscription shares with a message, both ascending; requires that there is one."""
    at, other = profiles.heads[slot, RUN], 0
    while profiles.run_terms[at] != message[other]:
        if profiles.run_terms[at] < message[other]:
            at += 1
        else:
            other += 1
    return int(message[other])


@kernel
def _scan(
    subscriptions: Subscriptions,
    postings: PostingArrays,
    row: int,
    point: tuple[float, float],
    message: npt.NDArray[np.int64],
    term: int,
    out: MatchOutput,
    total: int,
) -> tuple[int, bool]:
    """Measure the subscriptions of a list; return the number of matches so far, and whether some items are stale."""
    grid, profiles, balls = subscriptions
    work, thresholds, points, is_stale = out.work, balls.thresholds, profiles.points, False
    x, y = point
    unit = _METRES_PER_DEGREE if grid.on_sphere else 1.0
    chunk, n = postings_first(postings, row)
    while n > 0:
        work[VISITED] += n
        for place in range(n):
            item = postings.items[chunk, place]
            slot = item & LOW
            if balls.versions[slot] != item >> 32:
                is_stale = True
                continue
            work[CANDIDATES] += 1
            threshold = thresholds[slot]
            ax, ay = float(points[slot, X]), float(points[slot, Y])  # uncompiled: may become infinite
            if abs(ay - y) * unit > threshold:
                continue
            work[VERIFIED] += 1
            score = haversine(ax, ay, x, y) if grid.on_sphere else euclidean(ax, ay, x, y)
            if (score < threshold or threshold == inf) and _first_shared(profiles, slot, message) == term:
                out.slots[total] = slot
                out.scores[total] = score
                total += 1
        chunk, n = postings_next(postings, row, chunk)
    return total, is_stale


@kernel(allocates=True)
def _match(
    subscriptions: Subscriptions,
    lists: CellLists,
    messages: CellColumns,
    rows: tuple[int, int, int],
    stale: StaleLists,
    out: MatchOutput,
) -> int:
    """Match messages; for `rows` and the result see `CellListIndex`."""
    start, stop, first = rows
    before, total = np.empty(4, np.int64), int(out.ends[start - first - 1]) if start > first else 0
    for row in range(start, stop):
        before[:] = out.work
        x, y = float(messages.xs[row]), float(messages.ys[row])
        cell = _cell_of(subscriptions.grid, x, y)
        message = messages.term_ids[messages.term_indptr[row] : messages.term_indptr[row + 1]]
        for term in message:
            number = table_get(lists.terms, term, -1)
            if number < 0:
                continue
            for where in (0, cell):
                found_row = table_get(lists.rows, (number << _CELL_BITS) | where, -1)
                if found_row < 0:
                    continue
                if total + lists.postings.lengths[found_row] > out.slots.size:
                    out.work[:] = before
                    return row
                total, is_stale = _scan(subscriptions, lists.postings, found_row, (x, y), message, term, out, total)
                if is_stale:
                    record_stale(stale, found_row)
        out.ends[row - first] = total
    return stop


@kernel
def _sweep_old(postings: PostingArrays, versions: npt.NDArray[np.int32], rows: npt.NDArray[np.int64]) -> None:
    """Remove items of older versions from some lists."""
    for row in rows:
        chunk, n = postings_first(postings, row)
        while n > 0:
            place = 0
            while place < n:
                item = postings.items[chunk, place]
                if versions[item & LOW] != item >> 32:
                    n = postings_remove_at(postings, row, chunk, place)
                else:
                    place += 1
            if n > 0:
                chunk, n = postings_next(postings, row, chunk)


class Grid(CellListIndex):
    """Balls in a uniform grid of inverted lists; with a single cell, an inverted file."""

    def __init__(
        self, scoring: ScoringContext, arena: Arena | None = None, *, cells: int = CELLS, room: int = ROOM
    ) -> None:
        super().__init__(chunk_size=4, room=room)
        self._grid = _grid(scoring, cells)
        self._profiles = Profiles(Arena() if arena is None else arena)
        self._arena.new("balls.thresholds", np.float64, 0, np.nan)
        self._arena.new("balls.ranges", np.int32, 0, -1, columns=4)
        self._arena.new("balls.versions", np.int32, 0)
        self._make_lists()

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, profiles included."""
        return super().nbytes + self._profiles.nbytes

    def insert(self, slots: npt.NDArray[np.int32], subscriptions: SubscriptionBatch) -> None:
        """Insert subscriptions under free slots, without a ball."""
        columns = subscriptions.columns
        assert isinstance(columns, KeywordColumns)
        if len(slots):
            slots = column(slots, np.int32)
            self._profiles.insert(slots, columns)
            self._arena.grow_all([f"balls.{name}" for name in Balls._fields], int(slots.max()) + 1)
            self._arena["balls.thresholds"][slots] = np.inf
            self._arena["balls.ranges"][slots] = -1
            number_keys(self._terms, column(columns.term_ids, np.int64))
            self._post(slots)

    def delete(self, slots: npt.NDArray[np.int32]) -> None:
        """Delete the subscriptions of some slots; their postings become stale."""
        held = column(slots, np.int32)
        held = held[~np.isnan(self._arena["balls.thresholds"][held])]
        self._clean()
        self._arena["balls.versions"][held] += 1
        self._arena["balls.thresholds"][held] = np.nan
        self._profiles.delete(held)

    def set_thresholds(self, slots: npt.NDArray[np.int32], thresholds: npt.NDArray[np.float64]) -> None:
        """Set the radius of balls; those that overlap far fewer cells are posted again."""
        self._clean()
        moved = np.empty(len(slots), np.int32)
        slots, thresholds = column(slots, np.int32), column(thresholds, np.float64)
        n = _set_thresholds(self._subscriptions, slots, thresholds, moved)
        self._post(moved[:n])

    @property
    def _subscriptions(self) -> Subscriptions:
        return Subscriptions(self._grid, self._profiles.arrays, self._arena.bundle("balls", Balls))

    def _match_rows(
        self,
        lists: CellLists,
        messages: CellColumns,
        rows: tuple[int, int, int],
        stale: StaleLists,
        out: MatchOutput,
    ) -> int:
        return int(_match(self._subscriptions, lists, messages, rows, stale, out))

    def _sweep(self, rows: npt.NDArray[np.int64]) -> None:
        _sweep_old(self._postings.arrays, self._arena["balls.versions"], rows)

    def _post(self, slots: npt.NDArray[np.int32]) -> None:
        """Post subscriptions under the cells of their ranges; their former postings become stale."""
        if not len(slots):
            return
        subscriptions = self._subscriptions
        n = _count_keys(subscriptions.balls, subscriptions.profiles.heads, slots)
        keys, items = np.empty(n, np.int64), np.empty(n, np.int64)
        _write_keys(subscriptions, self._terms.arrays, slots, keys, items)
        self._postings.append_many(number_keys(self._rows, keys), items)


Inverted = partial(Grid, cells=1)


def _grid(scoring: ScoringContext, cells: int) -> GridParams:
    bounds = scoring.space.bounds
    per_half = cells_per_half(bounds, cells).tolist()
    return GridParams(scoring.space.metric == "haversine", cells, bounds.xmin / 2, bounds.ymin / 2, *per_half)
