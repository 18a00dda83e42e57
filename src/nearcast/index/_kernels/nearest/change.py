"""Insertion and deletion of subscriptions, and changes of their thresholds.

list of a term   [ closed, sorted | closed, unsorted | open ]      swaps keep the parts together
"""

from __future__ import annotations

from math import inf, isnan, nan

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch
from nearcast.index._kernels.nearest.groups import (
    bound_group_of,
    bound_groups,
    extend_group,
    needs_sorting,
    set_reach,
    sort_list,
    write_place,
)
from nearcast.index._kernels.nearest.layout import (
    AHEAD,
    AT_REACH,
    CLOSED,
    GREATEST,
    GROUPED,
    LENGTH,
    PLACE_MASK,
    ROOM,
    RUN,
    RUN_END,
    START,
    TERM_BITS,
    THRESHOLD,
    UNSORTED,
    NearestColumns,
    NearestState,
    X,
    Y,
)
from nearcast.index._kernels.nearest.reach import squared_reach
from nearcast.index._kernels.nearest.settled import unsettle
from nearcast.index._kernels.shared.grouped_postings import (
    AT_X,
    AT_Y,
    AT_Z,
    LANE_BITS,
    LANES,
    LONGEST,
    TILE_BITS,
    can_take,
    move_postings,
    room_of_block,
)
from nearcast.index._kernels.shared.projection import to_frame
from nearcast.index._kernels.shared.size_class import class_of_size
from nearcast.model._kernels.blocks import NEEDED, USED, class_of, give_block, size_of, take_block


@kernel
def next_class(room: int) -> int:
    """Return the class of the block that follows one of `room` postings; that of the first block for 0."""
    return class_of_size(2 * room if room > 0 else 1)


@kernel
def move_list(state: NearestState, term: int, size_class: int) -> None:
    """Move a list to a block of another class, for which the pool must have room."""
    lists, postings = state.lists, state.postings
    start, room = int(lists[term, START]), int(lists[term, ROOM])
    block = move_postings(postings, start, lists[term, LENGTH], size_class)
    if room > 0:
        give_block(postings.pool, postings.slots, class_of_size(room), start)
    lists[term, START] = block
    lists[term, ROOM] = 1 << size_class
    if 1 << size_class >= GROUPED:
        bound_groups(postings, block, block + lists[term, CLOSED])


@kernel
def has_room(state: NearestState, terms: NDArray[np.int32]) -> bool:
    """Return whether the pool has room for one more posting of each term; if not, set NEEDED."""
    lists, pool, needed = state.lists, state.postings.pool, 0
    for term in terms:
        if lists[term, LENGTH] == lists[term, ROOM]:
            needed += room_of_block(next_class(int(lists[term, ROOM])))
    if pool[USED] + needed > state.postings.slots.size:
        pool[NEEDED] = needed
        return False
    return True


@kernel
def append_posting(state: NearestState, term: int) -> int:
    """Lengthen a list by one open posting, for which the pool must have room; return where to write it."""
    lists, pool = state.lists, state.postings.pool
    length, room = int(lists[term, LENGTH]), int(lists[term, ROOM])
    if length == room:
        move_list(state, term, next_class(room))
    lists[term, LENGTH] = length + 1
    pool[LONGEST] = max(pool[LONGEST], length + 1)
    return int(lists[term, START]) + length


@kernel
def prefetch_ends(state: NearestState, terms: NDArray[np.int32]) -> None:
    """Prefetch what appending to the lists of some terms needs."""
    lists, slots, bodies = state.lists, state.postings.slots, state.postings.bodies
    for term in terms:
        prefetch(lists, term)
    for term in terms:
        at = lists[term, START] + lists[term, LENGTH]
        prefetch(slots, at)
        prefetch(bodies, at >> LANE_BITS)


@kernel
def insert_rows(
    state: NearestState, columns: NearestColumns, slots: NDArray[np.int32], numbers: NDArray[np.int32], start: int
) -> int:
    """Post subscriptions from row `start` on, with open thresholds.

    Return the row for which the pool has no room, or the number of rows. There must be room for all runs.
    """
    sites, heads, runs, bodies = state.sites, state.heads, state.runs, state.postings.bodies
    indptr = columns.indptr
    for row in range(start, slots.size):
        first, stop, slot = indptr[row], indptr[row + 1], slots[row]
        if (row - start) % AHEAD == 0:
            prefetch_ends(state, numbers[first : indptr[min(row + AHEAD, slots.size)]])
        if not has_room(state, numbers[first:stop]):
            return row
        block_class = class_of(stop - first)
        run = take_block(state.run_pool, runs, block_class, size_of(block_class))
        sites[slot, X], sites[slot, Y], sites[slot, THRESHOLD] = columns.xs[row], columns.ys[row], inf
        heads[slot, RUN], heads[slot, RUN_END] = run, run + stop - first
        x, y, z = to_frame(state.projection, columns.xs[row], columns.ys[row])
        for i in range(first, stop):
            at = append_posting(state, numbers[i])
            body, lane = at >> LANE_BITS, at & (LANES - 1)
            bodies[body, AT_X + lane], bodies[body, AT_Y + lane], bodies[body, AT_Z + lane] = x, y, z
            state.postings.slots[at] = slot
            runs[run + i - first] = (int(numbers[i]) << TERM_BITS) | (at - int(state.lists[numbers[i], START]))
    return slots.size


@kernel
def swap_postings(state: NearestState, term: int, place: int, other: int) -> None:
    """Exchange two postings of a list."""
    if place == other:
        return
    words, slots, start = state.postings.words, state.postings.slots, state.lists[term, START]
    a, b = start + place, start + other
    row, lane, to, to_lane = a >> LANE_BITS, a & (LANES - 1), b >> LANE_BITS, b & (LANES - 1)
    for field in range(0, words.shape[1], LANES):
        word = words[row, field + lane]
        words[row, field + lane] = words[to, field + to_lane]
        words[to, field + to_lane] = word
    slot = slots[a]
    slots[a] = slots[b]
    slots[b] = slot
    write_place(state.heads, state.runs, slots[a], term, place)
    write_place(state.heads, state.runs, slots[b], term, other)


@kernel
def close_posting(state: NearestState, term: int, place: int, reach: np.float32) -> None:
    """Give an open posting a reach, and move it to the unsorted end of the closed ones."""
    lists = state.lists
    to = int(lists[term, CLOSED])
    swap_postings(state, term, place, to)
    lists[term, CLOSED] = to + 1
    lists[term, UNSORTED] += 1
    unsettle(lists, term)
    at = int(lists[term, START]) + to
    state.postings.bodies[at >> LANE_BITS, AT_REACH + (at & (LANES - 1))] = reach
    if lists[term, ROOM] >= GROUPED:
        extend_group(state.postings, at, at & (LANES - 1) == 0)


@kernel
def open_posting(state: NearestState, term: int, place: int) -> None:
    """Move a closed posting to the open ones; the last closed one takes its position."""
    lists = state.lists
    last = int(lists[term, CLOSED]) - 1
    lists[term, CLOSED] = last
    swap_postings(state, term, place, last)
    if place != last:
        lists[term, UNSORTED] += 1
        if lists[term, ROOM] >= GROUPED:
            bound_group_of(state, term, int(lists[term, START]) + place)


@kernel
def remove_posting(state: NearestState, term: int, place: int) -> None:
    """Remove the posting at a position of a list."""
    lists, postings = state.lists, state.postings
    if place < lists[term, CLOSED]:
        open_posting(state, term, place)
        place = int(lists[term, CLOSED])
    last = int(lists[term, LENGTH]) - 1
    swap_postings(state, term, place, last)
    lists[term, LENGTH] = last
    size_class = class_of_size(lists[term, ROOM])
    if last == 0:
        give_block(postings.pool, postings.slots, size_class, lists[term, START])
        lists[term, ROOM] = 0
        lists[term, UNSORTED] = 0
    elif size_class >= 2 and last <= 1 << (size_class - 2) and can_take(postings, size_class - 1):
        move_list(state, term, size_class - 1)


@kernel
def delete_slots(state: NearestState, slots: NDArray[np.int32]) -> None:
    """Remove all postings of subscriptions; free slots are skipped."""
    sites, heads, runs = state.sites, state.heads, state.runs
    for slot in slots:
        if slot >= sites.shape[0] or isnan(sites[slot, THRESHOLD]):
            continue
        first, stop = int(heads[slot, RUN]), int(heads[slot, RUN_END])
        for i in range(first, stop):
            term = runs[i] >> TERM_BITS
            remove_posting(state, term, runs[i] & PLACE_MASK)
            if needs_sorting(state.lists, term):
                sort_list(state, term)
        give_block(state.run_pool, runs, class_of(stop - first), first)
        sites[slot, THRESHOLD] = nan


@kernel
def prefetch_thresholds(state: NearestState, slots: NDArray[np.int32]) -> None:
    """Prefetch the postings of some subscriptions."""
    sites, heads, runs, lists = state.sites, state.heads, state.runs, state.lists
    bodies, tiles = state.postings.bodies, state.postings.tiles
    for slot in slots:
        prefetch(sites, slot)
    for slot in slots:
        prefetch(runs, heads[slot, RUN])
    for slot in slots:
        if not isnan(sites[slot, THRESHOLD]):
            for i in range(heads[slot, RUN], heads[slot, RUN_END]):
                at = lists[runs[i] >> TERM_BITS, START] + (runs[i] & PLACE_MASK)
                group = at >> LANE_BITS
                prefetch(bodies[group], AT_REACH + (at & (LANES - 1)))
                prefetch(tiles[group >> TILE_BITS], GREATEST)


@kernel
def set_thresholds(state: NearestState, slots: NDArray[np.int32], thresholds: NDArray[np.float64]) -> None:
    """Set the thresholds of subscriptions; infinity or NaN opens one again. Free slots are skipped."""
    sites, heads, runs, lists = state.sites, state.heads, state.runs, state.lists
    for i in range(slots.size):
        if i % AHEAD == 0:
            prefetch_thresholds(state, slots[i : i + AHEAD])
        slot, threshold = slots[i], thresholds[i] if thresholds[i] < inf else inf
        before = sites[slot, THRESHOLD]
        if isnan(before) or before == threshold:
            continue
        sites[slot, THRESHOLD] = threshold
        reach = np.float32(squared_reach(state.projection, threshold))
        for j in range(heads[slot, RUN], heads[slot, RUN_END]):
            if threshold == inf:
                open_posting(state, runs[j] >> TERM_BITS, runs[j] & PLACE_MASK)
            elif before == inf:
                close_posting(state, runs[j] >> TERM_BITS, runs[j] & PLACE_MASK, reach)
            else:
                set_reach(lists, state.postings, runs[j], reach)
                if threshold > before:
                    unsettle(lists, runs[j] >> TERM_BITS)
            if needs_sorting(lists, runs[j] >> TERM_BITS):
                sort_list(state, runs[j] >> TERM_BITS)
