"""Grouped postings: inverted lists in rows of 32 lanes, with bounds for each row of a long list.

    bodies   row of 32 postings     [ x * 32 | y * 32 | z * 32 | further fields, 32 lanes each ]
    tiles    16 groups              [ least x, y, z * 16 | greatest x, y, z * 16 | further bounds, 16 each ]
    slots    one per posting        the subscription

One row is one group: a loop without branches computes a bound for its 32 postings. A tile holds the bounds of 16
groups side by side, so that one such loop rules out up to 512 postings. The first three fields of a posting are its
point in the frame; further fields and bounds belong to the index.

A list lies in a block of a power of two of the pool. A short block lies within one row, a long one begins at a row,
so a group never holds postings of two lists. Free blocks are reused by lists of the same class.

Groups rule out much only if their postings resemble each other. Sorted lists therefore stand by a key of the index
and then along a z-curve through the frame. Postings that arrive or move later count as unsorted until the index sorts
the list again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel
from nearcast.model._kernels.blocks import FIRST, USED, give_block, take_block

LANE_BITS = 5
LANES = 1 << LANE_BITS
"""Postings per group."""
TILE_BITS = 4
TILE = 1 << TILE_BITS
"""Groups per tile."""
AT_X, AT_Y, AT_Z = 0, LANES, 2 * LANES
"""First lanes of the point of a posting, in `bodies`."""
BOX = 6
"""Bounds of a group that are its box: the first of a tile."""
LONGEST = 63
"""Position in `pool`: length of the longest list so far."""
AXIS_BITS = 16
"""Bits of the z-curve per axis."""
_ZERO = np.float32(0.0)


class GroupedPostings(NamedTuple):
    """The pool of postings of one index."""

    bodies: NDArray[np.float32]
    """float32 (n / LANES, n_fields * LANES): fields of the postings; unused lanes hold any finite value."""
    words: NDArray[np.int32]
    """int32 (n / LANES, n_fields * LANES): the same bytes as integers."""
    slots: NDArray[np.int32]
    """int32 (n,): the subscription; in the first posting of a free block the next free block."""
    tiles: NDArray[np.float32]
    """float32 (n_groups / TILE, n_bounds * TILE): bounds of the groups of long lists."""
    pool: NDArray[np.int64]
    """int64 (STATE,): free blocks, see `nearcast.model._kernels.blocks`; LONGEST at its end."""


@kernel
def room_of_block(size_class: int) -> int:
    """Return how much of the pool a new block of a class can take, with what is skipped to align it."""
    size = 1 << size_class
    return size + min(size, LANES)


@kernel
def can_take(postings: GroupedPostings, size_class: int) -> bool:
    """Return whether a block of a class is free or fits into the pool."""
    has_free = postings.pool[FIRST + size_class] >= 0
    return bool(has_free or postings.pool[USED] + room_of_block(size_class) <= postings.slots.size)


@kernel
def take_postings(postings: GroupedPostings, size_class: int) -> int:
    """Return a block of 2**size_class postings. The pool must have room for it."""
    pool, slots = postings.pool, postings.slots
    if pool[FIRST + size_class] < 0:
        while pool[USED] & (min(1 << size_class, LANES) - 1):  # what is skipped becomes free blocks of short lists
            gap_class = 0
            while not (pool[USED] >> gap_class) & 1:
                gap_class += 1
            give_block(pool, slots, gap_class, pool[USED])
            pool[USED] += 1 << gap_class
    return take_block(pool, slots, size_class, 1 << size_class)


@kernel
def copy_posting(postings: GroupedPostings, at: int, to: int) -> None:
    """Copy one posting."""
    words = postings.words
    row, lane, to_row, to_lane = at >> LANE_BITS, at & (LANES - 1), to >> LANE_BITS, to & (LANES - 1)
    for field in range(0, words.shape[1], LANES):
        words[to_row, field + to_lane] = words[row, field + lane]
    postings.slots[to] = postings.slots[at]


@kernel
def move_postings(postings: GroupedPostings, start: int, length: int, size_class: int) -> int:
    """Copy a list to a block of a class, for which the pool must have room; return the block."""
    block = take_postings(postings, size_class)
    for i in range(length):
        copy_posting(postings, start + i, block + i)
    return block


@kernel
def extend_box(postings: GroupedPostings, at: int, is_first: bool) -> None:
    """Extend the box of a group by a posting; for the first posting of the group, start the box anew."""
    bodies, tiles = postings.bodies, postings.tiles
    group, lane = at >> LANE_BITS, at & (LANES - 1)
    tile, place = group >> TILE_BITS, group & (TILE - 1)
    for axis in range(3):
        value = bodies[group, axis * LANES + lane]
        low, high = axis * TILE + place, (3 + axis) * TILE + place
        tiles[tile, low] = value if is_first else min(tiles[tile, low], value)
        tiles[tile, high] = value if is_first else max(tiles[tile, high], value)


@kernel
def squared_gap(tile: NDArray[np.float32], place: int, x: Any, y: Any, z: Any) -> Any:
    """Return the squared distance from a point to the box of a group, in float32.

    Every step is monotonic, so the result is at most `squared_chord` of any posting in the box.
    """
    dx = max(max(tile[place] - x, x - tile[3 * TILE + place]), _ZERO)
    dy = max(max(tile[TILE + place] - y, y - tile[4 * TILE + place]), _ZERO)
    dz = max(max(tile[2 * TILE + place] - z, z - tile[5 * TILE + place]), _ZERO)
    return dx * dx + dy * dy + dz * dz


@kernel
def squared_chord(bodies: NDArray[np.float32], row: int, lane: int, x: Any, y: Any, z: Any) -> Any:
    """Return the squared distance from a point to a posting, in float32."""
    dx, dy, dz = bodies[row, AT_X + lane] - x, bodies[row, AT_Y + lane] - y, bodies[row, AT_Z + lane] - z
    return dx * dx + dy * dy + dz * dz


@kernel
def spread_bits(value: int) -> int:
    """Insert two zeros between the bits of a number of AXIS_BITS."""
    value = (value | (value << 16)) & 0xFF0000FF
    value = (value | (value << 8)) & 0x00F00F00F00F
    value = (value | (value << 4)) & 0x0C30C30C30C3
    return (value | (value << 2)) & 0x249249249249


@kernel
def cell_of(value: float) -> int:
    """Return the cell of a coordinate of the frame along its axis."""
    most = (1 << AXIS_BITS) - 1
    return max(0, min(most, int((float(value) + 1.0) * 0.5 * most)))


@kernel
def curve_key(x: float, y: float, z: float) -> int:
    """Return the position of a point of the frame along the z-curve, in 3 * AXIS_BITS bits."""
    return spread_bits(cell_of(x)) | (spread_bits(cell_of(y)) << 1) | (spread_bits(cell_of(z)) << 2)


@kernel(allocates=True)
def reorder(postings: GroupedPostings, start: int, keys: NDArray[np.int64]) -> None:
    """Sort the postings from `start` on by their keys."""
    words, slots, length = postings.words, postings.slots, keys.size
    n_fields = words.shape[1] // LANES
    before, before_slots = np.empty((length, n_fields), np.int32), slots[start : start + length].copy()
    for i in range(length):
        row, lane = (start + i) >> LANE_BITS, (start + i) & (LANES - 1)
        for field in range(n_fields):
            before[i, field] = words[row, field * LANES + lane]
    order = np.argsort(keys)
    for i in range(length):
        row, lane = (start + i) >> LANE_BITS, (start + i) & (LANES - 1)
        slots[start + i] = before_slots[order[i]]
        for field in range(n_fields):
            words[row, field * LANES + lane] = before[order[i], field]
