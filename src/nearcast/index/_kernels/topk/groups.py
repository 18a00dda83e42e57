"""Bounds of the groups of long lists, and the order that makes them tight.

A posting passes by  alpha * near + own * w + rest * later - threshold,  which is linear in nearness, in the weight of
the term and in the greatest later weight of the message. So the greatest value in a group for any message is at most
the mean of the group's greatest values at the corners around the message, weighted by its place between them.
Measured at 1 M subscriptions of the tweets workload: 3,270 postings visited of 9,120. On 60 messages and freshly
sorted lists: 2,600 of 11,500; separate maxima of own, rest and alpha - threshold give 6,700.

A list is sorted by (alpha, place along the z-curve), so that a group lies in a small box and weighs nearness
similarly: the alpha-groups and the cells of the paper, without a tree. Postings that are added or moved later loosen
the bounds of their groups until one in UNSORTED_SHARE is unsorted; then the list is sorted again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch
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
from nearcast.index._kernels.topk.layout import (
    AHEAD,
    AT_ALPHA,
    AT_OWN,
    AT_REST,
    AT_THRESHOLD,
    FIRST_CORNER,
    GROUPED,
    MIDDLE,
    UNSORTED_SHARE,
    TopKLists,
    TopKState,
)
from nearcast.model._kernels.profiles import RUN

_ALPHAS = 4  # ranges of alpha in the order of a list
_MIDDLE = np.float32(MIDDLE)
_ZERO = np.float32(0.0)


@kernel
def corner_value(base: Any, own: Any, rest: Any, corner: int) -> Any:
    """Return the value of a posting at one of the nine corners of equal nearness; `base` is that of weights 0."""
    i, j = corner // 3, corner % 3
    with_own = base + (own if i == 2 else (own * _MIDDLE if i == 1 else _ZERO))
    return with_own + (rest if j == 2 else (rest * _MIDDLE if j == 1 else _ZERO))


@kernel
def extend_group(postings: GroupedPostings, at: int, is_first: bool) -> None:
    """Extend the bounds of a group by a posting; for the first posting of the group, start them anew."""
    group = at >> LANE_BITS
    extend_box(postings, at, is_first)
    tile, place = postings.tiles[group >> TILE_BITS], group & (TILE - 1)
    extend_corners(postings.bodies[group], at & (LANES - 1), tile, place, is_first)


@kernel
def extend_corners(
    body: NDArray[np.float32], lane: int, tile: NDArray[np.float32], place: int, is_first: bool
) -> None:
    """Extend the corners of a group by a posting, or start them anew."""
    alpha, threshold = body[AT_ALPHA + lane], body[AT_THRESHOLD + lane]
    own, rest = body[AT_OWN + lane], body[AT_REST + lane]
    at = FIRST_CORNER + place
    for nearness in range(2):
        base = alpha - threshold if nearness else -threshold
        for corner in range(9):
            value = corner_value(base, own, rest, corner)
            tile[at] = value if is_first else max(tile[at], value)
            at += TILE


@kernel
def is_greatest(body: NDArray[np.float32], lane: int, tile: NDArray[np.float32], place: int) -> bool:
    """Return whether a posting is the greatest of its group at any corner."""
    alpha, threshold = body[AT_ALPHA + lane], body[AT_THRESHOLD + lane]
    own, rest = body[AT_OWN + lane], body[AT_REST + lane]
    at, found = FIRST_CORNER + place, False
    for nearness in range(2):
        base = alpha - threshold if nearness else -threshold
        for corner in range(9):
            found |= corner_value(base, own, rest, corner) >= tile[at]
            at += TILE
    return found


@kernel
def bound_group(postings: GroupedPostings, group: int, stop: int) -> None:
    """Compute the bounds of a group of a list that ends at `stop`."""
    first = group << LANE_BITS
    for at in range(first, min(first + LANES, stop)):
        extend_group(postings, at, at == first)


@kernel
def bound_corners(postings: GroupedPostings, group: int, stop: int) -> None:
    """Compute the corners of a group of a list that ends at `stop`; its box stays."""
    body, tile, place = postings.bodies[group], postings.tiles[group >> TILE_BITS], group & (TILE - 1)
    for lane in range(min(LANES, stop - (group << LANE_BITS))):
        extend_corners(body, lane, tile, place, lane == 0)


@kernel
def bound_list(lists: TopKLists, postings: GroupedPostings, term: int) -> None:
    """Compute the bounds of all groups of a list, if it is long enough to have bounds."""
    if lists.classes[term] >= GROUPED:
        start = lists.starts[term]
        stop = start + lists.lengths[term]
        for group in range(start >> LANE_BITS, (stop + LANES - 1) >> LANE_BITS):
            bound_group(postings, group, stop)


@kernel
def order_key(x: float, y: float, z: float, alpha: float) -> int:
    """Return the sort key of a posting: the range of its alpha, then its place along the z-curve."""
    return (min(int(alpha * _ALPHAS), _ALPHAS - 1) << (3 * AXIS_BITS)) | curve_key(x, y, z)


@kernel(allocates=True)
def sort_list(state: TopKState, term: int) -> None:
    """Sort a list."""
    lists, bodies = state.lists, state.postings.bodies
    start, length = lists.starts[term], lists.lengths[term]
    keys = np.empty(length, np.int64)
    for i in range(length):
        body, lane = bodies[(start + i) >> LANE_BITS], (start + i) & (LANES - 1)
        keys[i] = order_key(body[AT_X + lane], body[AT_Y + lane], body[AT_Z + lane], body[AT_ALPHA + lane])
    reorder(state.postings, start, keys)
    lists.unsorted[term] = 0
    bound_list(lists, state.postings, term)
    write_places(state, term)


@kernel
def write_places(state: TopKState, term: int) -> None:
    """Write the positions of all postings of a list to their subscriptions."""
    heads, slots = state.profiles.heads, state.postings.slots
    run_lists, run_places = state.refs.run_lists, state.refs.run_places
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
def needs_sorting(lists: TopKLists, term: int) -> bool:
    """Return whether a list has bounds and too many unsorted postings."""
    return bool(lists.classes[term] >= GROUPED and lists.unsorted[term] * UNSORTED_SHARE > lists.lengths[term])


@kernel
def sort_unsorted(state: TopKState, terms: NDArray[Any]) -> None:
    """Sort those lists of some terms that have too many unsorted postings."""
    for term in terms:
        if needs_sorting(state.lists, term):
            sort_list(state, term)
