"""How do subscriptions come and go, and how do their bars move?

list of a term   [ closed, in order | closed, loose | open ]      swaps keep the parts together
"""

from __future__ import annotations

from math import inf, isnan, nan

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch
from nearcast.index._kernels.nearest.frame import reach_of, to_frame
from nearcast.index._kernels.nearest.groups import (
    bound_group_of,
    bound_groups,
    is_loose,
    put_in_group,
    set_reach,
    sort_list,
    write_place,
)
from nearcast.index._kernels.nearest.layout import (
    AHEAD,
    AT_REACH,
    AT_X,
    AT_Y,
    AT_Z,
    BODY,
    CLOSED,
    GREATEST,
    GROUPED,
    LANE_BITS,
    LANES,
    LENGTH,
    LONGEST,
    LOOSE,
    PLACE_MASK,
    ROOM,
    RUN,
    RUN_END,
    START,
    TERM_BITS,
    THRESHOLD,
    TILE_BITS,
    NearestColumns,
    NearestState,
    X,
    Y,
)
from nearcast.index._kernels.topk.change import room_of, take_postings
from nearcast.model._kernels.blocks import FIRST, NEEDED, USED, class_of, give_block, size_of, take_block


@kernel
def class_of_room(room: int) -> int:
    """Return the class of a block that holds so many postings."""
    size_class = 0
    while 1 << size_class < room:
        size_class += 1
    return size_class


@kernel
def move_list(state: NearestState, term: int, size_class: int) -> None:
    """Move a list to a block of another class, for which there is room."""
    lists, words, slots = state.lists, state.words, state.slots
    block = take_postings(state.pool, slots, size_class)
    start, room = int(lists[term, START]), int(lists[term, ROOM])
    for i in range(lists[term, LENGTH]):
        row, lane = (start + i) >> LANE_BITS, (start + i) & (LANES - 1)
        to, to_lane = (block + i) >> LANE_BITS, (block + i) & (LANES - 1)
        for field in range(0, BODY, LANES):
            words[to, field + to_lane] = words[row, field + lane]
        slots[block + i] = slots[start + i]
    if room > 0:
        give_block(state.pool, slots, class_of_room(room), start)
    lists[term, START] = block
    lists[term, ROOM] = 1 << size_class
    if 1 << size_class >= GROUPED:
        bound_groups(state.bodies, state.tiles, block, block + lists[term, CLOSED])


@kernel
def has_room(state: NearestState, terms: NDArray[np.int32]) -> bool:
    """Say whether the pool has room for one more posting of each term; else how much is NEEDED."""
    lists, needed = state.lists, 0
    for term in terms:
        room = int(lists[term, ROOM])
        if lists[term, LENGTH] == room:
            needed += room_of(class_of_room(2 * room if room > 0 else 1))
    if state.pool[USED] + needed > state.slots.size:
        state.pool[NEEDED] = needed
        return False
    return True


@kernel
def append(state: NearestState, term: int) -> int:
    """Add an open posting to a list for which there is room; return where it goes."""
    lists = state.lists
    length, room = int(lists[term, LENGTH]), int(lists[term, ROOM])
    if length == room:
        move_list(state, term, class_of_room(2 * room if room > 0 else 1))
    lists[term, LENGTH] = length + 1
    state.pool[LONGEST] = max(state.pool[LONGEST], length + 1)
    return int(lists[term, START]) + length


@kernel
def aim_to_append(state: NearestState, terms: NDArray[np.int32]) -> None:
    """Ask for the memory that posting some terms will need."""
    lists, slots, bodies = state.lists, state.slots, state.bodies
    for term in terms:
        prefetch(lists, term)
    for term in terms:
        at = lists[term, START] + lists[term, LENGTH]
        prefetch(slots, at)
        prefetch(bodies, at >> LANE_BITS)


@kernel
def insert_rows(
    state: NearestState, columns: NearestColumns, slots: NDArray[np.int32], dense: NDArray[np.int32], start: int
) -> int:
    """Post subscriptions from `start` on, open; return where it stopped for want of room in the pool."""
    sites, heads, runs, bodies, indptr = state.sites, state.heads, state.runs, state.bodies, columns.indptr
    for row in range(start, slots.size):
        first, stop, slot = indptr[row], indptr[row + 1], slots[row]
        if (row - start) % AHEAD == 0:
            aim_to_append(state, dense[first : indptr[min(row + AHEAD, slots.size)]])
        if not has_room(state, dense[first:stop]):
            return row
        block_class = class_of(stop - first)
        run = take_block(state.run_pool, runs, block_class, size_of(block_class))
        sites[slot, X], sites[slot, Y], sites[slot, THRESHOLD] = columns.xs[row], columns.ys[row], inf
        heads[slot, RUN], heads[slot, RUN_END] = run, run + stop - first
        x, y, z = to_frame(state.projection, columns.xs[row], columns.ys[row])
        for i in range(first, stop):
            at = append(state, dense[i])
            body, lane = at >> LANE_BITS, at & (LANES - 1)
            bodies[body, AT_X + lane], bodies[body, AT_Y + lane], bodies[body, AT_Z + lane] = x, y, z
            state.slots[at] = slot
            runs[run + i - first] = (int(dense[i]) << TERM_BITS) | (at - int(state.lists[dense[i], START]))
    return slots.size


@kernel
def swap(state: NearestState, term: int, place: int, other: int) -> None:
    """Let two postings of a list change places."""
    if place == other:
        return
    words, slots, start = state.words, state.slots, state.lists[term, START]
    a, b = start + place, start + other
    row, lane, to, to_lane = a >> LANE_BITS, a & (LANES - 1), b >> LANE_BITS, b & (LANES - 1)
    for field in range(0, BODY, LANES):
        held = words[row, field + lane]
        words[row, field + lane] = words[to, field + to_lane]
        words[to, field + to_lane] = held
    slot = slots[a]
    slots[a] = slots[b]
    slots[b] = slot
    write_place(state.heads, state.runs, slots[a], term, place)
    write_place(state.heads, state.runs, slots[b], term, other)


@kernel
def close(state: NearestState, term: int, place: int, reach: np.float32) -> None:
    """Give an open posting a reach: it goes to the loose end of the closed ones."""
    lists = state.lists
    to = int(lists[term, CLOSED])
    swap(state, term, place, to)
    lists[term, CLOSED] = to + 1
    lists[term, LOOSE] += 1
    at = int(lists[term, START]) + to
    state.bodies[at >> LANE_BITS, AT_REACH + (at & (LANES - 1))] = reach
    if lists[term, ROOM] >= GROUPED:
        put_in_group(state.bodies, state.tiles, at, at & (LANES - 1) == 0)


@kernel
def open_again(state: NearestState, term: int, place: int) -> None:
    """Move a closed posting to the open ones; the last closed one takes its place."""
    lists = state.lists
    last = int(lists[term, CLOSED]) - 1
    lists[term, CLOSED] = last
    swap(state, term, place, last)
    if place != last:
        lists[term, LOOSE] += 1
        if lists[term, ROOM] >= GROUPED:
            bound_group_of(state, term, int(lists[term, START]) + place)


@kernel
def remove_at(state: NearestState, term: int, place: int) -> None:
    """Remove the posting at a place of a list."""
    lists = state.lists
    if place < lists[term, CLOSED]:
        open_again(state, term, place)
        place = int(lists[term, CLOSED])
    last = int(lists[term, LENGTH]) - 1
    swap(state, term, place, last)
    lists[term, LENGTH] = last
    size_class = class_of_room(lists[term, ROOM])
    if last == 0:
        give_block(state.pool, state.slots, size_class, lists[term, START])
        lists[term, ROOM] = 0
        lists[term, LOOSE] = 0
    elif size_class >= 2 and last <= 1 << (size_class - 2) and can_take(state, size_class - 1):
        move_list(state, term, size_class - 1)


@kernel
def can_take(state: NearestState, size_class: int) -> bool:
    """Say whether a block of a class can be had; a list that cannot move stays where it is."""
    has_free = state.pool[FIRST + size_class] >= 0
    return bool(has_free or state.pool[USED] + room_of(size_class) <= state.slots.size)


@kernel
def delete_slots(state: NearestState, slots: NDArray[np.int32]) -> None:
    """Remove all postings of subscriptions; slots that are free stay so."""
    sites, heads, runs = state.sites, state.heads, state.runs
    for slot in slots:
        if slot >= sites.shape[0] or isnan(sites[slot, THRESHOLD]):
            continue
        first, stop = int(heads[slot, RUN]), int(heads[slot, RUN_END])
        for i in range(first, stop):
            term = runs[i] >> TERM_BITS
            remove_at(state, term, runs[i] & PLACE_MASK)
            if is_loose(state.lists, term):
                sort_list(state, term)
        give_block(state.run_pool, runs, class_of(stop - first), first)
        sites[slot, THRESHOLD] = nan


@kernel
def aim_to_set(state: NearestState, slots: NDArray[np.int32]) -> None:
    """Ask for the memory that the bars of some subscriptions are in."""
    sites, heads, runs, lists = state.sites, state.heads, state.runs, state.lists
    bodies, tiles = state.bodies, state.tiles
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
    """Change the bars of subscriptions that are here; one that is infinite, or NaN, opens them again."""
    sites, heads, runs, lists = state.sites, state.heads, state.runs, state.lists
    bodies, words, tiles = state.bodies, state.words, state.tiles
    for i in range(slots.size):
        if i % AHEAD == 0:
            aim_to_set(state, slots[i : i + AHEAD])
        slot, threshold = slots[i], thresholds[i] if thresholds[i] < inf else inf
        before = sites[slot, THRESHOLD]
        if isnan(before) or before == threshold:
            continue
        sites[slot, THRESHOLD] = threshold
        reach = np.float32(reach_of(state.projection, threshold))
        for j in range(heads[slot, RUN], heads[slot, RUN_END]):
            if threshold == inf:
                open_again(state, runs[j] >> TERM_BITS, runs[j] & PLACE_MASK)
            elif before == inf:
                close(state, runs[j] >> TERM_BITS, runs[j] & PLACE_MASK, reach)
            else:
                set_reach(lists, bodies, words, tiles, runs[j], reach)
            if is_loose(lists, runs[j] >> TERM_BITS):
                sort_list(state, runs[j] >> TERM_BITS)
