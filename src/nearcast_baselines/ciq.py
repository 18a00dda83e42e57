"""CIQ as Skype adapts it (sections 2.2 and 8.1), without decay over time.

    subscription ── covering: cells of a quadtree around the subscription that together cover all of space
    cell ── (term, cell) ── table ──> list [ slot, weight ], by slot
    subscription and cell ──> the least text score that a message in that cell needs (MinT)

    + ------- + --- + --- +      three levels: each quarters the cell that holds the subscription (*); the other three
    |         |     |     |      quarters are cells of the covering, at the last level all four
    |         + --- + -+--+
    |         |     |  |* |
    + ------- + --- + -+--+

A message lies in one cell of each level, and so in exactly one cell of every covering. The inverted files of these
cells are traversed document at a time: the lists of the message's terms are merged by slot, so the cosine of each
subscription is complete when it is reached. If the cosine is at least the text score that the subscription needs in
this cell, the subscription is verified.

The text score needed follows from the threshold and the nearness of the nearest point of the cell, which is computed
once. The paper chooses coverings by cost and says that they cannot be large; here all have three levels, ten cells.
Where the paper divides by 1 - alpha, the divisor here is at least 1 / 1024, which loosens the bound.

Cost: all postings of the message's terms in its cells, as many as one list per term would have. A subscription takes
ten postings per term; a change of a threshold sets ten numbers.
"""

from __future__ import annotations

from math import atan2, cos, pi, radians, sin
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import Arena, Table, TableArrays, kernel, table_get, table_put, table_remove
from nearcast.index._kernels.shared.output import VISITED, MatchOutput
from nearcast.index._kernels.topk.layout import TopKColumns
from nearcast.model import ScoringContext
from nearcast.model._kernels.blocks import NEEDED, USED, give_block, take_block
from nearcast.model._kernels.profiles import ALPHA, LENGTH, RUN, X, Y, haversine
from nearcast.space import metric
from nearcast.space.metric import EARTH_RADIUS_M
from nearcast_baselines.topk_base import (
    LEAST,
    ROOM,
    BaselineIndex,
    IndexContext,
    Scratch,
    enter,
    threshold_of_bound,
    verify,
)

LEVELS = 3
QUARTERS = 4 * LEVELS
"""Quarters of all levels; a quarter that holds the subscription is a cell of its covering at the last level only."""
_CELL_BITS = 2 * LEVELS + 2
# Positions in the counts.
N_LISTS, FREE_LIST, NEED_LISTS = 0, 1, 2

plane_nearest = kernel(metric.euclidean_nearest)


class Coverings(NamedTuple):
    """Bounds of each subscription for the cells of its covering, by level and quarter."""

    nears: NDArray[np.float64]
    """float64 (n_slots, QUARTERS): the greatest nearness of a message in the cell."""
    texts: NDArray[np.float32]
    """float32 (n_slots, QUARTERS): the least text score that such a message needs."""


class Lists(NamedTuple):
    """The lists of all cells, in blocks of 1, 2, 4, ... postings."""

    starts: NDArray[np.int32]
    """int32 (n,): the first posting; for a free list, the next free list."""
    lengths: NDArray[np.int32]
    classes: NDArray[np.int8]


class Postings(NamedTuple):
    """The pool of postings."""

    slots: NDArray[np.int32]
    """int32 (n,): the subscription, ascending; the first of a free block holds the next free block."""
    weights: NDArray[np.float32]
    """float32 (n,): the weight of the term."""


class State(NamedTuple):
    """All arrays of the index."""

    context: IndexContext
    bounds: NDArray[np.float64]
    """float64 (4,): the bounds of the space."""
    cell_lists: TableArrays
    """Term and cell -> list."""
    lists: Lists
    postings: Postings
    coverings: Coverings
    pool: NDArray[np.int64]
    """int64 (STATE,): blocks of postings."""
    counts: NDArray[np.int64]
    """int64 (4,): see above."""


@kernel
def to_meridian(x: float, y: float, meridian: float, low: float, high: float) -> float:
    """Return the distance on the sphere to a segment of a meridian."""
    best = min(haversine(x, y, meridian, low), haversine(x, y, meridian, high))
    top = atan2(sin(radians(y)), cos(radians(y)) * cos(radians(meridian - x))) * (180.0 / pi)
    return min(best, haversine(x, y, meridian, top)) if low < top < high else best


@kernel
def sphere_nearest(x: float, y: float, left: float, low: float, right: float, high: float) -> float:
    """Return the distance on the sphere to the nearest point of a box, less a metre for rounding."""
    if left <= x <= right:
        metres = radians(max(low - y, y - high)) * EARTH_RADIUS_M
    else:
        metres = min(to_meridian(x, y, left, low, high), to_meridian(x, y, right, low, high))
    return max(0.0, metres - 1.0)


@kernel
def quarters_of(bounds: NDArray[np.float64], x: float, y: float, quarters: NDArray[np.int64]) -> None:
    """Write the quarter of a point at each level."""
    xmin, ymin, xmax, ymax = bounds[0], bounds[1], bounds[2], bounds[3]
    for level in range(LEVELS):
        x0, y0 = xmin * 0.5 + xmax * 0.5, ymin * 0.5 + ymax * 0.5
        quarters[level] = (x > x0) + 2 * (y > y0)
        xmin, xmax = (x0, xmax) if x > x0 else (xmin, x0)
        ymin, ymax = (y0, ymax) if y > y0 else (ymin, y0)


@kernel
def cell_of(quarters: NDArray[np.int64], level: int, quarter: int) -> int:
    """Return the number of a cell, from the quarters on the path to it."""
    way = 1
    for i in range(level):
        way = 4 * way + quarters[i]
    return 4 * way + quarter


@kernel
def list_key(number: int, cell: int) -> int:
    """Return the key of a term in a cell."""
    return int((np.int64(number) << _CELL_BITS) | np.int64(cell))


@kernel
def is_covering(quarters: NDArray[np.int64], level: int, quarter: int) -> bool:
    """Return whether a quarter is a cell of the covering of a subscription in `quarters`."""
    return level == LEVELS - 1 or quarters[level] != quarter


@kernel
def near_cells(state: State, slot: int) -> None:
    """Write the greatest nearness of a message in each quarter of each level; never underestimates."""
    context, bounds = state.context, state.bounds
    x, y = float(context.profiles.points[slot, X]), float(context.profiles.points[slot, Y])
    xmin, ymin, xmax, ymax = float(bounds[0]), float(bounds[1]), float(bounds[2]), float(bounds[3])
    for level in range(LEVELS):
        x0, y0 = xmin * 0.5 + xmax * 0.5, ymin * 0.5 + ymax * 0.5
        for quarter in range(4):
            left, right = (x0, xmax) if quarter & 1 else (xmin, x0)
            low, high = (y0, ymax) if quarter & 2 else (ymin, y0)
            if context.on_sphere:
                gap = sphere_nearest(x, y, left, low, right, high)
            else:
                gap = plane_nearest(x, y, left, low, right, high)
            state.coverings.nears[slot, 4 * level + quarter] = max(0.0, 1.0 - gap / context.max_distance)
        xmin, xmax = (x0, xmax) if x > x0 else (xmin, x0)
        ymin, ymax = (y0, ymax) if y > y0 else (ymin, y0)


@kernel
def set_texts(state: State, slot: int) -> None:
    """Set the least text score that messages need in each cell; never overestimates."""
    alpha, threshold = state.context.profiles.points[slot, ALPHA], threshold_of_bound(state.context.thresholds[slot])
    text = max(1.0 - alpha, LEAST)
    for i in range(QUARTERS):
        state.coverings.texts[slot, i] = (threshold - alpha * state.coverings.nears[slot, i]) / text


@kernel
def place_of(slots: NDArray[np.int32], start: int, stop: int, slot: int) -> int:
    """Return the position of the first posting at or after a slot; most new postings go to the end."""
    if start < stop and slots[stop - 1] < slot:
        return stop
    while start < stop:
        middle = (start + stop) >> 1
        if slots[middle] < slot:
            start = middle + 1
        else:
            stop = middle
    return start


@kernel
def list_with_room(state: State, key: int) -> int:
    """Return the list of a key with room for one more posting, or -1 if there is no room for it."""
    lists, counts, pool, postings = state.lists, state.counts, state.pool, state.postings
    row = table_get(state.cell_lists, key, -1)
    if row < 0:
        row = counts[FREE_LIST] if counts[FREE_LIST] >= 0 else counts[N_LISTS]
        n_keys, size = state.cell_lists.n_taken[0], state.cell_lists.tags.size
        if row >= lists.starts.size or n_keys >= size - size // 4:
            counts[NEED_LISTS] = 1
            return -1
        block = take_block(pool, postings.slots, 0, 1)
        if block < 0:
            return -1
        if row == counts[N_LISTS]:
            counts[N_LISTS] += 1
        else:
            counts[FREE_LIST] = lists.starts[row]
        table_put(state.cell_lists, key, row)
        lists.starts[row], lists.lengths[row], lists.classes[row] = block, 0, 0
    elif lists.lengths[row] == 1 << int(lists.classes[row]):
        before, size_class = int(lists.starts[row]), int(lists.classes[row])
        block = take_block(pool, postings.slots, size_class + 1, 1 << (size_class + 1))
        if block < 0:
            return -1
        for i in range(lists.lengths[row]):
            postings.slots[block + i] = postings.slots[before + i]
            postings.weights[block + i] = postings.weights[before + i]
        give_block(pool, postings.slots, size_class, before)
        lists.starts[row], lists.classes[row] = block, size_class + 1
    return row


@kernel
def put_in(state: State, key: int, slot: int, weight: float) -> bool:
    """Add a posting to a list, unless it exists; return whether there was room."""
    row = list_with_room(state, key)
    if row < 0:
        return False
    lists, slots, weights = state.lists, state.postings.slots, state.postings.weights
    start, stop = lists.starts[row], lists.starts[row] + lists.lengths[row]
    at = place_of(slots, start, stop, slot)
    if at < stop and slots[at] == slot:
        return True
    for i in range(stop, at, -1):
        slots[i], weights[i] = slots[i - 1], weights[i - 1]
    slots[at], weights[at] = slot, weight
    lists.lengths[row] += 1
    return True


@kernel
def take_out(state: State, key: int, slot: int) -> None:
    """Remove a posting; an empty list is freed."""
    lists, counts, slots, weights = state.lists, state.counts, state.postings.slots, state.postings.weights
    row = table_get(state.cell_lists, key, -1)
    start, stop = lists.starts[row], lists.starts[row] + lists.lengths[row]
    for i in range(place_of(slots, start, stop, slot), stop - 1):
        slots[i], weights[i] = slots[i + 1], weights[i + 1]
    lists.lengths[row] -= 1
    if lists.lengths[row] == 0:
        give_block(state.pool, slots, int(lists.classes[row]), start)
        table_remove(state.cell_lists, key)
        lists.starts[row], counts[FREE_LIST] = counts[FREE_LIST], row


@kernel
def post(state: State, slot: int, quarters: NDArray[np.int64]) -> bool:
    """Post a subscription in all cells of its covering; return whether there was room. Postings that exist stay."""
    profiles, numbers = state.context.profiles, state.context.run_numbers
    first, stop = profiles.heads[slot, RUN], profiles.heads[slot, RUN] + profiles.heads[slot, LENGTH]
    for level in range(LEVELS):
        for quarter in range(4):
            if is_covering(quarters, level, quarter):
                cell = cell_of(quarters, level, quarter)
                for at in range(first, stop):
                    key = list_key(numbers[at], cell)
                    if not put_in(state, key, slot, profiles.run_units[at]):
                        return False
    return True


@kernel(allocates=True)
def insert_slots(state: State, slots: NDArray[np.int32], start: int) -> int:
    """Insert subscriptions from `start` on; return where room ran out, which may be posted in part."""
    points, quarters = state.context.profiles.points, np.zeros(LEVELS, np.int64)
    for i in range(start, slots.size):
        slot = slots[i]
        quarters_of(state.bounds, points[slot, X], points[slot, Y], quarters)
        if not post(state, slot, quarters):
            return i
        near_cells(state, slot)
        set_texts(state, slot)
    return slots.size


@kernel(allocates=True)
def delete_slots(state: State, slots: NDArray[np.int32]) -> None:
    """Remove all postings of subscriptions."""
    profiles, numbers, quarters = state.context.profiles, state.context.run_numbers, np.zeros(LEVELS, np.int64)
    for slot in slots:
        quarters_of(state.bounds, profiles.points[slot, X], profiles.points[slot, Y], quarters)
        for level in range(LEVELS):
            for quarter in range(4):
                if is_covering(quarters, level, quarter):
                    cell = cell_of(quarters, level, quarter)
                    for at in range(
                        profiles.heads[slot, RUN], profiles.heads[slot, RUN] + profiles.heads[slot, LENGTH]
                    ):
                        take_out(state, list_key(numbers[at], cell), slot)


@kernel
def move_thresholds(state: State, slots: NDArray[np.int32], thresholds: NDArray[np.float64]) -> None:
    """Set thresholds, and with them the text scores that messages need."""
    for i in range(slots.size):
        state.context.thresholds[slots[i]] = thresholds[i]
        set_texts(state, slots[i])


@kernel
def merge_lists(
    slots: NDArray[np.int32], weights: NDArray[np.float32], texts: NDArray[np.float32], column: int,
    n_lists: int, cursors: NDArray[np.int64], units: NDArray[np.float64],
    found: NDArray[np.int32], n_found: int,
) -> int:  # fmt: skip
    """Merge lists by slot; write the subscriptions whose text score suffices, and return how many there are in all.

    `cursors` are pairs of a position and an end; a list that is finished is replaced by the last one.
    """
    while n_lists > 0:
        slot = slots[cursors[0]]
        for i in range(1, n_lists):
            slot = min(slot, slots[cursors[2 * i]])
        text, i = 0.0, 0
        while i < n_lists:
            at = cursors[2 * i]
            if slots[at] == slot:
                text += weights[at] * units[i]
                cursors[2 * i] = at + 1
                if at + 1 == cursors[2 * i + 1]:
                    n_lists -= 1
                    cursors[2 * i], cursors[2 * i + 1] = cursors[2 * n_lists], cursors[2 * n_lists + 1]
                    units[i] = units[n_lists]
                    continue
            i += 1
        if text >= texts[slot, column]:
            found[n_found] = slot
            n_found += 1
    return n_found


@kernel
def find(state: State, n_terms: int, quarters: NDArray[np.int64], scratch: Scratch, out: MatchOutput) -> int:
    """Merge the lists of the cells that hold a message; return how many candidates there are."""
    lists, cursors, units = state.lists, scratch.places, scratch.greatest
    slots, weights, texts = state.postings.slots, state.postings.weights, state.coverings.texts
    n_found = 0
    for level in range(LEVELS):
        cell, n_lists = cell_of(quarters, level, quarters[level]), 0
        for i in range(n_terms):
            row = table_get(state.cell_lists, list_key(scratch.numbers[i], cell), -1)
            if row >= 0:
                cursors[2 * n_lists] = lists.starts[row]
                cursors[2 * n_lists + 1] = lists.starts[row] + lists.lengths[row]
                units[n_lists] = scratch.weights[i]
                n_lists += 1
                out.work[VISITED] += lists.lengths[row]
        column = 4 * level + quarters[level]
        n_found = merge_lists(slots, weights, texts, column, n_lists, cursors, units, scratch.found, n_found)
    return n_found


@kernel(allocates=True)
def match_rows(
    state: State, batch: TopKColumns, start: int, stop: int, first: int, scratch: Scratch, out: MatchOutput
) -> int:
    """Match messages from `start` on; return where it stopped: `stop`, or a message whose matches may not fit."""
    total = out.ends[start - first - 1] if start > first else np.int64(0)
    before, quarters = np.empty(4, np.int64), np.zeros(LEVELS, np.int64)
    for row in range(start, stop):
        before[:] = out.work
        n_terms = enter(state.context.terms, batch, row, scratch)
        quarters_of(state.bounds, batch.xs[row], batch.ys[row], quarters)
        n_found = find(state, n_terms, quarters, scratch, out)
        total = verify(state.context, batch, row, scratch.found, n_found, out, total)  # type: ignore[arg-type]
        if total < 0:
            out.work[:] = before
            return row
        out.ends[row - first] = total
    return stop


class CIQ(BaselineIndex):
    """Subscriptions in the cells of their coverings."""

    delete_slots = staticmethod(delete_slots)
    move_thresholds = staticmethod(move_thresholds)
    match_rows = staticmethod(match_rows)

    def __init__(self, scoring: ScoringContext, arena: Arena, *, room: int = ROOM) -> None:
        super().__init__(scoring, arena, room=room)
        bounds = scoring.space.bounds
        self._arena.new("bounds", np.float64, 4)[:] = bounds.xmin, bounds.ymin, bounds.xmax, bounds.ymax
        self._new_pool("lists", Lists, {"starts": np.int32, "lengths": np.int32, "classes": np.int8})
        self._new_pool("postings", Postings, {"slots": np.int32, "weights": np.float32})
        self._new_pool("coverings", Coverings, {"nears": (np.float64, QUARTERS), "texts": (np.float32, QUARTERS)})
        self._new_state("pool")
        self._arena.new("counts", np.int64, 4)[FREE_LIST] = -1
        self._cell_lists = Table(self._arena, "cell_lists")

    def _post(self, slots: NDArray[np.int32], columns: TopKColumns, places: NDArray[np.int64]) -> None:
        self._arena.grow_all([f"coverings.{name}" for name in Coverings._fields], int(slots.max()) + 1)
        done = 0
        while done < slots.size:
            done = insert_slots(self._state(), slots, done)
            self._make_room()

    def _make_room(self) -> None:
        """Grow the arrays that were too small."""
        counts, pool = self._arena["counts"], self._arena["pool"]
        if counts[NEED_LISTS]:
            self._cell_lists.reserve(len(self._cell_lists) + 1)
        self._grow("lists", Lists, int(counts[N_LISTS]), int(counts[NEED_LISTS]))
        self._grow("postings", Postings, int(pool[USED]), int(pool[NEEDED]))
        counts[NEED_LISTS] = pool[NEEDED] = 0

    def _state(self) -> State:
        bundle = self._arena.bundle
        return State(
            self._context(),
            self._arena["bounds"],
            self._cell_lists.arrays,
            bundle("lists", Lists),
            bundle("postings", Postings),
            bundle("coverings", Coverings),
            self._arena["pool"],
            self._arena["counts"],
        )
