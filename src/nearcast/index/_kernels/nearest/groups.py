"""Bounds of the groups of long lists, and the order that makes them tight.

A group is ruled out if the message is farther from its box than its greatest reach. The closed part of a list is
sorted by (size of the reach, place along the z-curve), so that a group is small and its reaches resemble each other:
the grid of the paper, without the many cells in which a large ball would stand. A posting that is added, or whose
reach shrinks to another size, is unsorted until one in UNSORTED_SHARE is; then the list is sorted again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch
from nearcast.index._kernels.nearest.layout import (
    AHEAD,
    AT_REACH,
    CLOSED,
    GREATEST,
    GROUPED,
    PLACE_MASK,
    ROOM,
    RUN,
    START,
    TERM_BITS,
    UNSORTED,
    UNSORTED_SHARE,
    NearestState,
)
from nearcast.index._kernels.shared.grouped_postings import (
    AT_X,
    AT_Y,
    AT_Z,
    AXIS_BITS,
    LANE_BITS,
    LANES,
    TILE,
    TILE_BITS,
    GroupedPostings,
    curve_key,
    extend_box,
    reorder,
)

_SIZE_SHIFT = 24  # the bits of a float32 above this grow by one where its value grows fourfold


@kernel
def size_of_reach(word: int) -> int:
    """Return the size of a squared reach, given as the bits of a float32: one more is twice as far."""
    return max(0, int(word) >> _SIZE_SHIFT)


@kernel
def extend_group(postings: GroupedPostings, at: int, is_first: bool) -> None:
    """Extend the bounds of a group by a posting; for the first posting of the group, start them anew."""
    extend_box(postings, at, is_first)
    tiles, group = postings.tiles, at >> LANE_BITS
    tile, place = group >> TILE_BITS, GREATEST + (group & (TILE - 1))
    reach = postings.bodies[group, AT_REACH + (at & (LANES - 1))]
    tiles[tile, place] = reach if is_first else max(tiles[tile, place], reach)


@kernel
def bound_groups(postings: GroupedPostings, start: int, stop: int) -> None:
    """Compute the bounds of the groups of postings from the start of a group up to `stop`."""
    for at in range(start, stop):
        extend_group(postings, at, at & (LANES - 1) == 0)


@kernel
def bound_group_of(state: NearestState, term: int, at: int) -> None:
    """Compute the bounds of the group of a posting."""
    first = at & ~(LANES - 1)
    stop = state.lists[term, START] + state.lists[term, CLOSED]
    bound_groups(state.postings, first, min(first + LANES, stop))


@kernel
def set_reach(lists: NDArray[np.int32], postings: GroupedPostings, entry: int, reach: np.float32) -> None:
    """Set the reach of a closed posting, given as an entry of a run, and tighten or widen its group."""
    bodies, words, tiles = postings.bodies, postings.words, postings.tiles
    term = entry >> TERM_BITS
    at = lists[term, START] + (entry & PLACE_MASK)
    group, lane = at >> LANE_BITS, AT_REACH + (at & (LANES - 1))
    before, size = bodies[group, lane], size_of_reach(words[group, lane])
    bodies[group, lane] = reach
    lists[term, UNSORTED] += size != size_of_reach(words[group, lane])
    if lists[term, ROOM] < GROUPED:
        return
    tile, greatest = group >> TILE_BITS, GREATEST + (group & (TILE - 1))
    if reach >= tiles[tile, greatest]:
        tiles[tile, greatest] = reach
    elif before >= tiles[tile, greatest]:
        most, stop = reach, lists[term, START] + lists[term, CLOSED]
        for i in range(AT_REACH, AT_REACH + min(LANES, stop - (group << LANE_BITS))):
            most = max(most, bodies[group, i])
        tiles[tile, greatest] = most


@kernel
def order_key(x: float, y: float, z: float, word: int) -> int:
    """Return the sort key of a posting: the size of its reach, then its place along the z-curve."""
    return (size_of_reach(word) << (3 * AXIS_BITS)) | curve_key(x, y, z)


@kernel(allocates=True)
def sort_list(state: NearestState, term: int) -> None:
    """Sort the closed part of a list."""
    bodies, words = state.postings.bodies, state.postings.words
    start, n = state.lists[term, START], state.lists[term, CLOSED]
    keys = np.empty(n, np.int64)
    for i in range(n):
        row, lane = (start + i) >> LANE_BITS, (start + i) & (LANES - 1)
        x, y, z = bodies[row, AT_X + lane], bodies[row, AT_Y + lane], bodies[row, AT_Z + lane]
        keys[i] = order_key(x, y, z, words[row, AT_REACH + lane])
    reorder(state.postings, start, keys)
    state.lists[term, UNSORTED] = 0
    bound_groups(state.postings, start, start + n)
    write_places(state, term, n)


@kernel
def write_places(state: NearestState, term: int, n: int) -> None:
    """Write the positions of the first `n` postings of a list to their subscriptions."""
    heads, slots, runs, start = state.heads, state.postings.slots, state.runs, state.lists[term, START]
    for first in range(0, n, AHEAD):
        last = min(first + AHEAD, n)
        for i in range(last, min(last + AHEAD, n)):
            prefetch(heads, slots[start + i])
        for i in range(first, last):
            prefetch(runs, heads[slots[start + i], RUN])
        for i in range(first, last):
            write_place(heads, runs, slots[start + i], term, i)


@kernel
def write_place(heads: NDArray[np.int32], runs: NDArray[np.int64], slot: int, term: int, place: int) -> None:
    """Write the position of a posting to its subscription."""
    at = heads[slot, RUN]
    while runs[at] >> TERM_BITS != term:
        at += 1
    runs[at] = (int(term) << TERM_BITS) | int(place)


@kernel
def needs_sorting(lists: NDArray[np.int32], term: int) -> bool:
    """Return whether a list has bounds and too many unsorted postings."""
    return bool(lists[term, ROOM] >= GROUPED and lists[term, UNSORTED] * UNSORTED_SHARE > lists[term, CLOSED])
