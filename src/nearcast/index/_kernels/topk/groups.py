"""What can be said of many postings at once? Groups of long lists, their bounds, and the order that makes them tight.

A posting passes by  alpha * near + own * w + rest * later - bar,  which is linear in what a message brings: nearness,
the weight of the term and the greatest later one. So the greatest value of a group at any message is no more than its
greatest values at the corners around it say, mixed as the message lies between them. Measured at 1 M
subscriptions of the tweets workload: 3,270 postings visited of 9,120. On 60 messages and freshly sorted lists, 2,600
of 11,500; with the greatest own, rest and alpha - bar kept apart, 6,700.

A list is in order by (alpha, place along a curve through space), so that a group lies in a small box and cares about
nearness alike: the alpha-groups and the cells of the paper, without a tree. Postings that come or move later loosen
their groups until one in LOOSE_SHARE is out of order; then the list is sorted anew.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch
from nearcast.index._kernels.topk.layout import (
    AHEAD,
    AT_ALPHA,
    AT_OWN,
    AT_REST,
    AT_THRESHOLD,
    AT_X,
    AT_Y,
    AT_Z,
    BODY,
    FIRST_CORNER,
    GROUPED,
    LANE_BITS,
    LANES,
    LOOSE_SHARE,
    MIDDLE,
    TILE,
    TILE_BITS,
    TopKLists,
    TopKPostings,
    TopKState,
)
from nearcast.model._kernels.profiles import RUN

_ALPHAS = 4  # groups of alpha
_AXIS_BITS = 10
_PLACE_BITS = 27
_MIDDLE = np.float32(MIDDLE)
_ZERO = np.float32(0.0)


@kernel
def put_in_group(postings: TopKPostings, at: int, is_first: bool) -> None:
    """Let the bounds of its group hold a posting: nothing else, or that too."""
    body, lane = postings.bodies[at >> LANE_BITS], at & (LANES - 1)
    group = at >> LANE_BITS
    tile, place = postings.tiles[group >> TILE_BITS], group & (TILE - 1)
    for axis in range(3):
        value = body[axis * LANES + lane]
        low, high = axis * TILE + place, (3 + axis) * TILE + place
        tile[low] = value if is_first else min(tile[low], value)
        tile[high] = value if is_first else max(tile[high], value)
    put_corners(body, lane, tile, place, is_first)


@kernel
def put_corners(body: NDArray[np.float32], lane: int, tile: NDArray[np.float32], place: int, is_first: bool) -> None:
    """The same of the corners alone."""
    alpha, own, rest, threshold = (
        body[AT_ALPHA + lane],
        body[AT_OWN + lane],
        body[AT_REST + lane],
        body[AT_THRESHOLD + lane],
    )
    at = FIRST_CORNER + place
    for nearness in range(2):
        base = alpha - threshold if nearness else -threshold
        for i in range(3):
            with_own = base + (own if i == 2 else (own * _MIDDLE if i == 1 else _ZERO))
            for j in range(3):
                value = with_own + (rest if j == 2 else (rest * _MIDDLE if j == 1 else _ZERO))
                tile[at] = value if is_first else max(tile[at], value)
                at += TILE


@kernel
def is_greatest(body: NDArray[np.float32], lane: int, tile: NDArray[np.float32], place: int) -> bool:
    """Say whether a posting is the greatest of its group at any corner."""
    alpha, own, rest, threshold = (
        body[AT_ALPHA + lane],
        body[AT_OWN + lane],
        body[AT_REST + lane],
        body[AT_THRESHOLD + lane],
    )
    at, found = FIRST_CORNER + place, False
    for nearness in range(2):
        base = alpha - threshold if nearness else -threshold
        for i in range(3):
            with_own = base + (own if i == 2 else (own * _MIDDLE if i == 1 else _ZERO))
            for j in range(3):
                value = with_own + (rest if j == 2 else (rest * _MIDDLE if j == 1 else _ZERO))
                found |= value >= tile[at]
                at += TILE
    return found


@kernel
def bound_group(postings: TopKPostings, group: int, stop: int) -> None:
    """Bound a group anew, of a list that ends at `stop`."""
    first = group << LANE_BITS
    for at in range(first, min(first + LANES, stop)):
        put_in_group(postings, at, at == first)


@kernel
def bound_corners(postings: TopKPostings, group: int, stop: int) -> None:
    """Bound the corners of a group anew, of a list that ends at `stop`."""
    body, tile, place = postings.bodies[group], postings.tiles[group >> TILE_BITS], group & (TILE - 1)
    for lane in range(min(LANES, stop - (group << LANE_BITS))):
        put_corners(body, lane, tile, place, lane == 0)


@kernel
def bound_list(lists: TopKLists, postings: TopKPostings, term: int) -> None:
    """Bound all groups of a list, if it has some."""
    if lists.classes[term] >= GROUPED:
        start = lists.starts[term]
        stop = start + lists.lengths[term]
        for group in range(start >> LANE_BITS, (stop + LANES - 1) >> LANE_BITS):
            bound_group(postings, group, stop)


@kernel
def spread_bits(value: int) -> int:
    """Put two zeros between the bits of a number of 10 bits."""
    value = (value | (value << 16)) & 0x030000FF
    value = (value | (value << 8)) & 0x0300F00F
    value = (value | (value << 4)) & 0x030C30C3
    return (value | (value << 2)) & 0x09249249


@kernel
def cell_of(value: float) -> int:
    """Return the number of a cell along an axis of the frame."""
    most = (1 << _AXIS_BITS) - 1
    return max(0, min(most, int((float(value) + 1.0) * 0.5 * most)))


@kernel
def order_key(x: float, y: float, z: float, alpha: float) -> int:
    """Return where a posting belongs: alpha first, then the place along a z-curve through the frame."""
    curve = spread_bits(cell_of(x)) | (spread_bits(cell_of(y)) << 1) | (spread_bits(cell_of(z)) << 2)
    return (min(int(alpha * _ALPHAS), _ALPHAS - 1) << (3 * _AXIS_BITS)) | curve


@kernel
def sort_list(state: TopKState, term: int) -> None:
    """Put a list in order."""
    lists, bodies, words, slots = state.lists, state.postings.bodies, state.postings.words, state.postings.slots
    start, length = lists.starts[term], lists.lengths[term]
    keys = np.empty(length, np.int64)
    for i in range(length):
        body, lane = bodies[(start + i) >> LANE_BITS], (start + i) & (LANES - 1)
        key = order_key(body[AT_X + lane], body[AT_Y + lane], body[AT_Z + lane], body[AT_ALPHA + lane])
        keys[i] = (key << _PLACE_BITS) | i
    keys.sort()
    before, before_slots = np.empty((length, BODY // LANES), np.int32), slots[start : start + length].copy()
    for i in range(length):
        body, lane = words[(start + i) >> LANE_BITS], (start + i) & (LANES - 1)
        for field in range(BODY // LANES):
            before[i, field] = body[field * LANES + lane]
    for i in range(length):
        body, lane = words[(start + i) >> LANE_BITS], (start + i) & (LANES - 1)
        source = keys[i] & ((1 << _PLACE_BITS) - 1)
        slots[start + i] = before_slots[source]
        for field in range(BODY // LANES):
            body[field * LANES + lane] = before[source, field]
    lists.loose[term] = 0
    bound_list(lists, state.postings, term)
    write_places(state, term)


@kernel
def write_places(state: TopKState, term: int) -> None:
    """Tell the subscriptions of a list where their postings stand."""
    heads, slots = state.profiles.heads, state.postings.slots
    run_lists, run_places = state.posted.run_lists, state.posted.run_places
    start, length = state.lists.starts[term], state.lists.lengths[term]
    for first in range(0, length, AHEAD):
        last = min(first + AHEAD, length)
        for i in range(last, min(last + AHEAD, length)):
            prefetch(heads, slots[start + i])
        for i in range(first, last):
            prefetch(run_lists, heads[slots[start + i], RUN])
            prefetch(run_places, heads[slots[start + i], RUN])
        for i in range(first, last):
            at = heads[slots[start + i], RUN]
            while run_lists[at] != term:
                at += 1
            run_places[at] = i


@kernel
def is_loose(lists: TopKLists, term: int) -> bool:
    """Say whether a list has bounds and is too far out of order."""
    return bool(lists.classes[term] >= GROUPED and lists.loose[term] * LOOSE_SHARE > lists.lengths[term])


@kernel
def tidy(state: TopKState, terms: NDArray[Any]) -> None:
    """Put those lists in order that are too far out of it."""
    for term in terms:
        if is_loose(state.lists, term):
            sort_list(state, term)
