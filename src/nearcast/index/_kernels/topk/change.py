"""Insertion and deletion of subscriptions, and changes of their thresholds."""

from __future__ import annotations

from math import isnan, nan

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch
from nearcast.index._kernels.shared.grouped_postings import (
    AT_X,
    AT_Y,
    AT_Z,
    LANE_BITS,
    LANES,
    LONGEST,
    TILE,
    TILE_BITS,
    GroupedPostings,
    can_take,
    copy_posting,
    move_postings,
    room_of_block,
)
from nearcast.index._kernels.shared.projection import to_frame
from nearcast.index._kernels.shared.term_order import order_by_weight
from nearcast.index._kernels.topk.groups import (
    bound_corners,
    bound_group,
    bound_list,
    extend_corners,
    extend_group,
    is_greatest,
    needs_sorting,
    sort_list,
)
from nearcast.index._kernels.topk.layout import (
    AHEAD,
    AT_ALPHA,
    AT_OTHERS,
    AT_OWN,
    AT_REST,
    AT_THRESHOLD,
    GREATEST_THRESHOLD,
    GROUPED,
    MANY,
    MARGIN,
    MAX_FINGERPRINTS,
    MIN_THRESHOLD,
    N_FINGERPRINTS,
    TopKColumns,
    TopKLists,
    TopKState,
)
from nearcast.model._kernels.blocks import NEEDED, USED, give_block
from nearcast.model._kernels.profiles import ALPHA, LENGTH, RUN, X, Y


@kernel
def posting_threshold(threshold: float) -> float:
    """Return a threshold as postings hold it: clipped, and lowered by the margin."""
    return min(max(threshold, MIN_THRESHOLD), GREATEST_THRESHOLD) - MARGIN


@kernel
def move_list(state: TopKState, term: int, size_class: int) -> None:
    """Move a list to a block of another class, for which the pool must have room."""
    lists, postings, start = state.lists, state.postings, state.lists.starts[term]
    block = move_postings(postings, start, lists.lengths[term], size_class)
    if lists.classes[term] >= 0:
        give_block(postings.pool, postings.slots, lists.classes[term], start)
    lists.starts[term] = block
    lists.classes[term] = size_class
    bound_list(lists, postings, term)


@kernel
def room_to_append(lists: TopKLists, term: int) -> int:
    """Return how much of the pool one more posting of a list can take."""
    size_class = int(lists.classes[term])
    if size_class < 0:
        return room_of_block(0)
    return room_of_block(size_class + 1) if lists.lengths[term] == 1 << size_class else 0


@kernel
def has_room(state: TopKState, terms: NDArray[np.int32]) -> bool:
    """Return whether the pool has room for one more posting of each term; if not, set NEEDED."""
    needed, pool = 0, state.postings.pool
    for term in terms:
        needed += room_to_append(state.lists, term)
    if pool[USED] + needed > state.postings.slots.size:
        pool[NEEDED] = needed
        return False
    return True


@kernel
def append_posting(state: TopKState, term: int) -> int:
    """Lengthen a list by one posting, for which the pool must have room; return where to write it."""
    lists, pool = state.lists, state.postings.pool
    length, size_class = int(lists.lengths[term]), int(lists.classes[term])
    if size_class < 0 or length == 1 << size_class:
        move_list(state, term, size_class + 1)
    lists.lengths[term] = length + 1
    lists.unsorted[term] += 1
    pool[LONGEST] = max(pool[LONGEST], length + 1)
    return int(lists.starts[term]) + length


@kernel
def fingerprint(number: int) -> int:
    """Return the fingerprint of a term."""
    return 1 + number % N_FINGERPRINTS


@kernel
def pack_fingerprints(numbers: NDArray[np.int32], first: int, stop: int, skip: int) -> int:
    """Return the fingerprints of the terms of a subscription except one, as a signed 32-bit number."""
    if stop - first - 1 > MAX_FINGERPRINTS:
        return MANY
    packed, shift = 0, 0
    for i in range(first, stop):
        if i != skip:
            packed |= fingerprint(numbers[i]) << shift
            shift += 8
    return packed - (1 << 32) if packed >= 1 << 31 else packed


@kernel
def prefetch_ends(state: TopKState, terms: NDArray[np.int32]) -> None:
    """Prefetch what appending to the lists of some terms needs."""
    lists, postings = state.lists, state.postings
    for term in terms:
        prefetch(lists.starts, term)
        prefetch(lists.lengths, term)
        prefetch(lists.classes, term)
        prefetch(lists.unsorted, term)
    for term in terms:
        at = lists.starts[term] + lists.lengths[term]
        prefetch(postings.slots, at)
        prefetch(postings.bodies, at >> LANE_BITS)


@kernel
def write_postings(
    state: TopKState, slot: int, columns: TopKColumns, row: int, numbers: NDArray[np.int32], order: NDArray[np.int64]
) -> None:
    """Write the postings of a subscription, the last term of the common order first. The pool must have room."""
    postings, refs, profiles = state.postings, state.refs, state.profiles
    first, stop = columns.indptr[row], columns.indptr[row + 1]
    order_by_weight(columns.idfs, first, stop, order)
    x, y, z = to_frame(state.projection, profiles.points[slot, X], profiles.points[slot, Y])
    alpha, run = profiles.points[slot, ALPHA], profiles.heads[slot, RUN]
    rest = 0.0
    for i in range(stop - first - 1, -1, -1):
        j = order[i]
        term = numbers[j]
        at = append_posting(state, term)
        body, lane = postings.bodies[at >> LANE_BITS], at & (LANES - 1)
        body[AT_X + lane] = x
        body[AT_Y + lane] = y
        body[AT_Z + lane] = z
        body[AT_ALPHA + lane] = alpha
        body[AT_OWN + lane] = (1.0 - alpha) * columns.units[j]
        body[AT_REST + lane] = (1.0 - alpha) * rest
        body[AT_THRESHOLD + lane] = posting_threshold(refs.thresholds[slot])
        postings.words[at >> LANE_BITS, AT_OTHERS + lane] = pack_fingerprints(numbers, first, stop, j)
        postings.slots[at] = slot
        if state.lists.classes[term] >= GROUPED:
            extend_group(postings, at, lane == 0)
        refs.run_lists[run + j - first] = term
        refs.run_places[run + j - first] = at - state.lists.starts[term]
        rest += columns.units[j]


@kernel
def insert_rows(
    state: TopKState,
    columns: TopKColumns,
    slots: NDArray[np.int32],
    numbers: NDArray[np.int32],
    order: NDArray[np.int64],
    start: int,
) -> int:
    """Post subscriptions from row `start` on; return the row for which the pool has no room, or the number of rows.

    Their profiles must exist. Thresholds start open.
    """
    for row in range(start, slots.size):
        if (row - start) % AHEAD == 0:
            prefetch_ends(state, numbers[columns.indptr[row] : columns.indptr[min(row + AHEAD, slots.size)]])
        if not has_room(state, numbers[columns.indptr[row] : columns.indptr[row + 1]]):
            return row
        state.refs.thresholds[slots[row]] = -np.inf
        write_postings(state, slots[row], columns, row, numbers, order)
    return slots.size


@kernel
def remove_posting(state: TopKState, term: int, place: int) -> None:
    """Remove the posting at a position of a list; the last one takes its position."""
    lists, postings, refs = state.lists, state.postings, state.refs
    start, last = lists.starts[term], lists.lengths[term] - 1
    lists.lengths[term] = last
    if place != last:
        copy_posting(postings, start + last, start + place)
        at = state.profiles.heads[postings.slots[start + place], RUN]
        while refs.run_lists[at] != term:
            at += 1
        refs.run_places[at] = place
        lists.unsorted[term] += 1
    size_class = int(lists.classes[term])
    if last == 0:
        give_block(postings.pool, postings.slots, size_class, start)
        lists.classes[term] = -1
        lists.unsorted[term] = 0
    elif size_class >= 2 and last <= 1 << (size_class - 2) and can_take(postings, size_class - 1):
        move_list(state, term, size_class - 1)
    elif size_class >= GROUPED and place != last:
        bound_group(postings, (start + place) >> LANE_BITS, start + last)


@kernel
def delete_slots(state: TopKState, slots: NDArray[np.int32]) -> None:
    """Remove all postings of subscriptions; their profiles must still exist. Free slots are skipped."""
    lists, refs, heads = state.lists, state.refs, state.profiles.heads
    for slot in slots:
        if isnan(refs.thresholds[slot]):
            continue
        run = heads[slot, RUN]
        for at in range(run, run + heads[slot, LENGTH]):
            term = refs.run_lists[at]
            remove_posting(state, term, refs.run_places[at])
            if needs_sorting(lists, term):
                sort_list(state, term)
        refs.thresholds[slot] = nan


@kernel
def set_grouped_threshold(postings: GroupedPostings, at: int, stop: int, threshold: np.float32) -> None:
    """Set the threshold of a posting of a long list that ends at `stop`, and tighten or widen its group."""
    group, lane = at >> LANE_BITS, at & (LANES - 1)
    body, tile, place = postings.bodies[group], postings.tiles[group >> TILE_BITS], group & (TILE - 1)
    rises = threshold > body[AT_THRESHOLD + lane]
    must_bound = rises and is_greatest(body, lane, tile, place)
    body[AT_THRESHOLD + lane] = threshold
    if must_bound:
        bound_corners(postings, group, stop)
    elif not rises:
        extend_corners(body, lane, tile, place, False)


@kernel
def prefetch_thresholds(state: TopKState, slots: NDArray[np.int32]) -> None:
    """Prefetch the postings of some subscriptions."""
    heads, run_lists, run_places = state.profiles.heads, state.refs.run_lists, state.refs.run_places
    starts, bodies = state.lists.starts, state.postings.bodies
    for slot in slots:
        prefetch(heads, slot)
        prefetch(state.refs.thresholds, slot)
    for slot in slots:
        prefetch(run_lists, heads[slot, RUN])
        prefetch(run_places, heads[slot, RUN])
    for slot in slots:
        if not isnan(state.refs.thresholds[slot]):
            run = heads[slot, RUN]
            for at in range(run, run + heads[slot, LENGTH]):
                prefetch(bodies, (starts[run_lists[at]] + run_places[at]) >> LANE_BITS)


@kernel
def set_thresholds(state: TopKState, slots: NDArray[np.int32], thresholds: NDArray[np.float64]) -> None:
    """Set the thresholds of subscriptions; free slots are skipped."""
    lists, refs, heads, postings = state.lists, state.refs, state.profiles.heads, state.postings
    for i in range(slots.size):
        slot = slots[i]
        if i % AHEAD == 0:
            prefetch_thresholds(state, slots[i : i + AHEAD])
        if isnan(refs.thresholds[slot]):
            continue
        refs.thresholds[slot] = thresholds[i]
        threshold = np.float32(posting_threshold(thresholds[i]))
        run = heads[slot, RUN]
        for j in range(run, run + heads[slot, LENGTH]):
            term = refs.run_lists[j]
            at = lists.starts[term] + refs.run_places[j]
            if lists.classes[term] >= GROUPED:
                set_grouped_threshold(postings, at, lists.starts[term] + lists.lengths[term], threshold)
            else:
                postings.bodies[at >> LANE_BITS, AT_THRESHOLD + (at & (LANES - 1))] = threshold
