"""What can be said of many postings at once? Groups of the closed part of long lists, their bounds, and their order.

A group is ruled out if the message is further from its box than its greatest reach. The closed part of a list is in
order by (size of the reach, place along a curve through space), so that a group is small and its reaches alike: the
grid of the paper, without cells in which a large ball would stand over and over. What comes, or shrinks to another
size, is loose until one in LOOSE_SHARE is; then the list is sorted anew.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch
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
    LOOSE,
    LOOSE_SHARE,
    PLACE_MASK,
    ROOM,
    RUN,
    START,
    TERM_BITS,
    TILE,
    TILE_BITS,
    NearestState,
)

_AXIS_BITS = 16
_SIZE_SHIFT = 24  # of the bits of a float32: what is left grows by one where its value grows fourfold


@kernel
def size_of_reach(word: int) -> int:
    """Return the size of a reach, given as the bits of a float32: one more is twice as far."""
    return max(0, int(word) >> _SIZE_SHIFT)


@kernel
def put_in_group(bodies: NDArray[np.float32], tiles: NDArray[np.float32], at: int, is_first: bool) -> None:
    """Let the bounds of its group hold a posting: nothing else, or that too."""
    group, lane = at >> LANE_BITS, at & (LANES - 1)
    tile, place = group >> TILE_BITS, group & (TILE - 1)
    for axis in range(3):
        value = bodies[group, axis * LANES + lane]
        low, high = axis * TILE + place, (3 + axis) * TILE + place
        tiles[tile, low] = value if is_first else min(tiles[tile, low], value)
        tiles[tile, high] = value if is_first else max(tiles[tile, high], value)
    reach = bodies[group, AT_REACH + lane]
    tiles[tile, GREATEST + place] = reach if is_first else max(tiles[tile, GREATEST + place], reach)


@kernel
def bound_groups(bodies: NDArray[np.float32], tiles: NDArray[np.float32], start: int, stop: int) -> None:
    """Bound the groups of postings from where a group starts up to `stop` anew."""
    for at in range(start, stop):
        put_in_group(bodies, tiles, at, at & (LANES - 1) == 0)


@kernel
def bound_group_of(state: NearestState, term: int, at: int) -> None:
    """Bound the group of a posting anew."""
    first = at & ~(LANES - 1)
    stop = state.lists[term, START] + state.lists[term, CLOSED]
    bound_groups(state.bodies, state.tiles, first, min(first + LANES, stop))


@kernel
def set_reach(
    lists: NDArray[np.int32],
    bodies: NDArray[np.float32],
    words: NDArray[np.int32],
    tiles: NDArray[np.float32],
    entry: int,
    reach: np.float32,
) -> None:
    """Change the reach of a closed posting, given as an entry of a run; its group follows."""
    term = entry >> TERM_BITS
    at = lists[term, START] + (entry & PLACE_MASK)
    group, lane = at >> LANE_BITS, AT_REACH + (at & (LANES - 1))
    before, size = bodies[group, lane], size_of_reach(words[group, lane])
    bodies[group, lane] = reach
    lists[term, LOOSE] += size != size_of_reach(words[group, lane])
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
def spread_bits(value: int) -> int:
    """Put two zeros between the bits of a number of 16 bits."""
    value = (value | (value << 16)) & 0xFF0000FF
    value = (value | (value << 8)) & 0x00F00F00F00F
    value = (value | (value << 4)) & 0x0C30C30C30C3
    return (value | (value << 2)) & 0x249249249249


@kernel
def cell_of(value: float) -> int:
    """Return the number of a cell along an axis of the frame."""
    most = (1 << _AXIS_BITS) - 1
    return max(0, min(most, int((float(value) + 1.0) * 0.5 * most)))


@kernel
def order_key(x: float, y: float, z: float, word: int) -> int:
    """Return where a posting belongs: the size of its reach first, then the place along a z-curve."""
    curve = spread_bits(cell_of(x)) | (spread_bits(cell_of(y)) << 1) | (spread_bits(cell_of(z)) << 2)
    return (size_of_reach(word) << (3 * _AXIS_BITS)) | curve


@kernel
def sort_list(state: NearestState, term: int) -> None:
    """Put the closed part of a list in order."""
    bodies, words, slots = state.bodies, state.words, state.slots
    start, n = state.lists[term, START], state.lists[term, CLOSED]
    keys, before = np.empty(n, np.int64), np.empty((n, BODY // LANES), np.int32)
    before_slots = slots[start : start + n].copy()
    for i in range(n):
        row, lane = (start + i) >> LANE_BITS, (start + i) & (LANES - 1)
        x, y, z = bodies[row, AT_X + lane], bodies[row, AT_Y + lane], bodies[row, AT_Z + lane]
        keys[i] = order_key(x, y, z, words[row, AT_REACH + lane])
        for field in range(BODY // LANES):
            before[i, field] = words[row, field * LANES + lane]
    order = np.argsort(keys)
    for i in range(n):
        row, lane = (start + i) >> LANE_BITS, (start + i) & (LANES - 1)
        slots[start + i] = before_slots[order[i]]
        for field in range(BODY // LANES):
            words[row, field * LANES + lane] = before[order[i], field]
    state.lists[term, LOOSE] = 0
    bound_groups(bodies, state.tiles, start, start + n)
    write_places(state, term, n)


@kernel
def write_places(state: NearestState, term: int, n: int) -> None:
    """Tell the subscriptions of the first postings of a list where these stand."""
    heads, slots, runs, start = state.heads, state.slots, state.runs, state.lists[term, START]
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
    """Tell a subscription where its posting of a term stands."""
    at = heads[slot, RUN]
    while runs[at] >> TERM_BITS != term:
        at += 1
    runs[at] = (int(term) << TERM_BITS) | int(place)


@kernel
def is_loose(lists: NDArray[np.int32], term: int) -> bool:
    """Say whether a list has bounds and is too far out of order."""
    return bool(lists[term, ROOM] >= GROUPED and lists[term, LOOSE] * LOOSE_SHARE > lists[term, CLOSED])
