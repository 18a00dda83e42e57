"""How do subscriptions come and go, and how do their bars move?"""

from __future__ import annotations

from math import isnan, nan

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import TableArrays, kernel, prefetch, table_get, table_put
from nearcast.index._kernels.topk.frame import to_frame
from nearcast.index._kernels.topk.groups import (
    bound_corners,
    bound_group,
    bound_list,
    is_greatest,
    is_loose,
    put_corners,
    put_in_group,
    sort_list,
)
from nearcast.index._kernels.topk.layout import (
    AHEAD,
    AT_ALPHA,
    AT_OTHERS,
    AT_OWN,
    AT_REST,
    AT_THRESHOLD,
    AT_X,
    AT_Y,
    AT_Z,
    BODY,
    GREATEST_THRESHOLD,
    GROUPED,
    LANE_BITS,
    LANES,
    LEAST_THRESHOLD,
    LONGEST,
    MANY,
    MARGIN,
    MOST_PRINTS,
    PRINTS,
    TILE,
    TILE_BITS,
    TopKColumns,
    TopKLists,
    TopKPostings,
    TopKState,
)
from nearcast.model._kernels.blocks import FIRST, NEEDED, USED, give_block, take_block
from nearcast.model._kernels.profiles import ALPHA, LENGTH, RUN, X, Y


@kernel
def number_terms(table: TableArrays, ids: NDArray[np.int64], out: NDArray[np.int32]) -> None:
    """Give every term a dense number; there is room for all."""
    for i in range(ids.size):
        dense = table_get(table, ids[i], -1)
        if dense < 0:
            dense = table.n_taken[0]
            table_put(table, ids[i], dense)
        out[i] = dense


@kernel
def posting_threshold(threshold: float) -> float:
    """Return the bar as postings hold it."""
    return min(max(threshold, LEAST_THRESHOLD), GREATEST_THRESHOLD) - MARGIN


@kernel
def copy_posting(postings: TopKPostings, at: int, to: int) -> None:
    """Copy one posting."""
    source, target = postings.words[at >> LANE_BITS], postings.words[to >> LANE_BITS]
    lane, to_lane = at & (LANES - 1), to & (LANES - 1)
    for field in range(0, BODY, LANES):
        target[field + to_lane] = source[field + lane]
    postings.slots[to] = postings.slots[at]


@kernel
def room_of(size_class: int) -> int:
    """Return how much of the pool a fresh block may take, with what it needs to begin where a row does, or within."""
    size = 1 << size_class
    return size + min(size, LANES)


@kernel
def take_postings(pool: NDArray[np.int64], slots: NDArray[np.int32], size_class: int) -> int:
    """Return a block for which there is room; a short one lies within a row, a long one begins where a row does."""
    if pool[FIRST + size_class] < 0:
        while pool[USED] & (min(1 << size_class, LANES) - 1):  # what is skipped serves shorter lists
            gap_class = 0
            while not (pool[USED] >> gap_class) & 1:
                gap_class += 1
            give_block(pool, slots, gap_class, pool[USED])
            pool[USED] += 1 << gap_class
    return take_block(pool, slots, size_class, 1 << size_class)


@kernel
def move_list(state: TopKState, term: int, size_class: int) -> None:
    """Move a list to a block of another class, for which there is room."""
    lists, postings = state.lists, state.postings
    block = take_postings(state.pool, postings.slots, size_class)
    start = lists.starts[term]
    for i in range(lists.lengths[term]):
        copy_posting(postings, start + i, block + i)
    if lists.classes[term] >= 0:
        give_block(state.pool, postings.slots, lists.classes[term], start)
    lists.starts[term] = block
    lists.classes[term] = size_class
    bound_list(lists, postings, term)


@kernel
def room_to_append(lists: TopKLists, term: int) -> int:
    """Return how much of the pool one more posting of a list may take."""
    size_class = int(lists.classes[term])
    if size_class < 0:
        return room_of(0)
    return room_of(size_class + 1) if lists.lengths[term] == 1 << size_class else 0


@kernel
def has_room(state: TopKState, terms: NDArray[np.int32]) -> bool:
    """Say whether the pool has room for one more posting of each term; else how much is NEEDED."""
    needed = 0
    for term in terms:
        needed += room_to_append(state.lists, term)
    if state.pool[USED] + needed > state.postings.slots.size:
        state.pool[NEEDED] = needed
        return False
    return True


@kernel
def append(state: TopKState, term: int) -> int:
    """Add a posting to a list for which there is room; return where it goes."""
    lists = state.lists
    length, size_class = int(lists.lengths[term]), int(lists.classes[term])
    if size_class < 0 or length == 1 << size_class:
        move_list(state, term, size_class + 1)
    lists.lengths[term] = length + 1
    lists.loose[term] += 1
    state.pool[LONGEST] = max(state.pool[LONGEST], length + 1)
    return int(lists.starts[term]) + length


@kernel
def by_falling_idf(idfs: NDArray[np.float64], first: int, stop: int, order: NDArray[np.int64]) -> None:
    """Write the places of terms by falling idf, of equal ones by number: the common order, the rarest first."""
    for i in range(first, stop):
        at = i - first
        while at > 0 and idfs[order[at - 1]] < idfs[i]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = i


@kernel
def print_of(number: int) -> int:
    """Return the fingerprint of a term."""
    return 1 + number % PRINTS


@kernel
def prints_of_others(dense: NDArray[np.int32], first: int, stop: int, skip: int) -> int:
    """Return the fingerprints of the terms of a subscription, one left out, as a signed number of 32 bits."""
    if stop - first - 1 > MOST_PRINTS:
        return MANY
    packed, shift = 0, 0
    for i in range(first, stop):
        if i != skip:
            packed |= print_of(dense[i]) << shift
            shift += 8
    return packed - (1 << 32) if packed >= 1 << 31 else packed


@kernel
def aim_to_append(state: TopKState, terms: NDArray[np.int32]) -> None:
    """Ask for the memory that posting some terms will need."""
    lists, postings = state.lists, state.postings
    for term in terms:
        prefetch(lists.starts, term)
        prefetch(lists.lengths, term)
        prefetch(lists.classes, term)
        prefetch(lists.loose, term)
    for term in terms:
        at = lists.starts[term] + lists.lengths[term]
        prefetch(postings.slots, at)
        prefetch(postings.bodies, at >> LANE_BITS)


@kernel
def post(
    state: TopKState, slot: int, columns: TopKColumns, row: int, dense: NDArray[np.int32], order: NDArray[np.int64]
) -> None:
    """Write the postings of a subscription for which there is room, the last in the common order first."""
    postings, posted, profiles = state.postings, state.posted, state.profiles
    first, stop = columns.indptr[row], columns.indptr[row + 1]
    by_falling_idf(columns.idfs, first, stop, order)
    x, y, z = to_frame(state.projection, profiles.points[slot, X], profiles.points[slot, Y])
    alpha, run = profiles.points[slot, ALPHA], profiles.heads[slot, RUN]
    rest = 0.0
    for i in range(stop - first - 1, -1, -1):
        j = order[i]
        term = dense[j]
        at = append(state, term)
        body, lane = postings.bodies[at >> LANE_BITS], at & (LANES - 1)
        body[AT_X + lane] = x
        body[AT_Y + lane] = y
        body[AT_Z + lane] = z
        body[AT_ALPHA + lane] = alpha
        body[AT_OWN + lane] = (1.0 - alpha) * columns.units[j]
        body[AT_REST + lane] = (1.0 - alpha) * rest
        body[AT_THRESHOLD + lane] = posting_threshold(posted.thresholds[slot])
        postings.words[at >> LANE_BITS, AT_OTHERS + lane] = prints_of_others(dense, first, stop, j)
        postings.slots[at] = slot
        if state.lists.classes[term] >= GROUPED:
            put_in_group(postings, at, lane == 0)
        posted.run_lists[run + j - first] = term
        posted.run_places[run + j - first] = at - state.lists.starts[term]
        rest += columns.units[j]


@kernel
def insert_rows(
    state: TopKState,
    columns: TopKColumns,
    slots: NDArray[np.int32],
    dense: NDArray[np.int32],
    order: NDArray[np.int64],
    start: int,
) -> int:
    """Post subscriptions from `start` on, whose profiles are there; return where it stopped for want of room."""
    for row in range(start, slots.size):
        if (row - start) % AHEAD == 0:
            aim_to_append(state, dense[columns.indptr[row] : columns.indptr[min(row + AHEAD, slots.size)]])
        if not has_room(state, dense[columns.indptr[row] : columns.indptr[row + 1]]):
            return row
        state.posted.thresholds[slots[row]] = -np.inf
        post(state, slots[row], columns, row, dense, order)
    return slots.size


@kernel
def remove_at(state: TopKState, term: int, place: int) -> None:
    """Remove the posting at a place of a list; the last one takes it."""
    lists, postings, posted = state.lists, state.postings, state.posted
    start, last = lists.starts[term], lists.lengths[term] - 1
    lists.lengths[term] = last
    if place != last:
        copy_posting(postings, start + last, start + place)
        at = state.profiles.heads[postings.slots[start + place], RUN]
        while posted.run_lists[at] != term:
            at += 1
        posted.run_places[at] = place
        lists.loose[term] += 1
    size_class = int(lists.classes[term])
    if last == 0:
        give_block(state.pool, postings.slots, size_class, start)
        lists.classes[term] = -1
        lists.loose[term] = 0
    elif size_class >= 2 and last <= 1 << (size_class - 2) and has_room_to_shrink(state, size_class - 1):
        move_list(state, term, size_class - 1)
    elif size_class >= GROUPED and place != last:
        bound_group(postings, (start + place) >> LANE_BITS, start + last)


@kernel
def has_room_to_shrink(state: TopKState, size_class: int) -> bool:
    """Say whether a block of a class can be had; a list that cannot move stays where it is."""
    has_free = state.pool[FIRST + size_class] >= 0
    return bool(has_free or state.pool[USED] + room_of(size_class) <= state.postings.slots.size)


@kernel
def delete_slots(state: TopKState, slots: NDArray[np.int32]) -> None:
    """Remove all postings of subscriptions, whose profiles are still there."""
    lists, posted, heads = state.lists, state.posted, state.profiles.heads
    for slot in slots:
        if isnan(posted.thresholds[slot]):
            continue
        run = heads[slot, RUN]
        for at in range(run, run + heads[slot, LENGTH]):
            term = posted.run_lists[at]
            remove_at(state, term, posted.run_places[at])
            if is_loose(lists, term):
                sort_list(state, term)
        posted.thresholds[slot] = nan


@kernel
def set_threshold(postings: TopKPostings, at: int, stop: int, threshold: np.float32) -> None:
    """Change the bar of a posting of a long list that ends at `stop`; its group is right at once, and no looser."""
    group, lane = at >> LANE_BITS, at & (LANES - 1)
    body, tile, place = postings.bodies[group], postings.tiles[group >> TILE_BITS], group & (TILE - 1)
    rises = threshold > body[AT_THRESHOLD + lane]
    must_bound = rises and is_greatest(body, lane, tile, place)
    body[AT_THRESHOLD + lane] = threshold
    if must_bound:
        bound_corners(postings, group, stop)
    elif not rises:
        put_corners(body, lane, tile, place, False)


@kernel
def aim_to_set(state: TopKState, slots: NDArray[np.int32]) -> None:
    """Ask for the memory that the bars of some subscriptions are in."""
    heads, run_lists, run_places = state.profiles.heads, state.posted.run_lists, state.posted.run_places
    starts, bodies = state.lists.starts, state.postings.bodies
    for slot in slots:
        prefetch(heads, slot)
        prefetch(state.posted.thresholds, slot)
    for slot in slots:
        prefetch(run_lists, heads[slot, RUN])
        prefetch(run_places, heads[slot, RUN])
    for slot in slots:
        if not isnan(state.posted.thresholds[slot]):
            run = heads[slot, RUN]
            for at in range(run, run + heads[slot, LENGTH]):
                prefetch(bodies, (starts[run_lists[at]] + run_places[at]) >> LANE_BITS)


@kernel
def set_thresholds(state: TopKState, slots: NDArray[np.int32], thresholds: NDArray[np.float64]) -> None:
    """Change the bars of subscriptions that are here."""
    lists, posted, heads, postings = state.lists, state.posted, state.profiles.heads, state.postings
    for i in range(slots.size):
        slot = slots[i]
        if i % AHEAD == 0:
            aim_to_set(state, slots[i : i + AHEAD])
        if isnan(posted.thresholds[slot]):
            continue
        posted.thresholds[slot] = thresholds[i]
        threshold = np.float32(posting_threshold(thresholds[i]))
        run = heads[slot, RUN]
        for j in range(run, run + heads[slot, LENGTH]):
            term = posted.run_lists[j]
            start = lists.starts[term]
            if lists.classes[term] >= GROUPED:
                set_threshold(postings, start + posted.run_places[j], start + lists.lengths[term], threshold)
            else:
                at = start + posted.run_places[j]
                postings.bodies[at >> LANE_BITS, AT_THRESHOLD + (at & (LANES - 1))] = threshold
