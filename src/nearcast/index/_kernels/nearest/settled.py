"""Settled lists: those of which no closed posting matches at a point, as an earlier message showed.

Many messages may lie at exactly the same point: reports of one event, sensors, a venue. Subscriptions whose result is
full of such messages have their threshold at exactly this distance. The older message wins a tie, so none of them
matches; but no bound in float32 rules out a tie, and each would be measured for every message.

A message that is nearer than no threshold shows that the closed postings of its lists do not match at its point. That
stays so until a posting is closed or a reach grows, which gives the list another version: thresholds only fall
otherwise. Until then a message at the same point reads the open postings of the list alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, mix
from nearcast.index._kernels.nearest.layout import LAST_VERSION, SETTLED, VERSION, NearestScratch

_STEPS = 1 << 24  # of an axis, by which points of the frame are told apart in a hash


@kernel
def _place_of(scratch: NearestScratch, term: int) -> int:
    """Return where the list of a term is remembered for the point of the query."""
    query = scratch.query
    x, y, z = int(query[0] * _STEPS), int(query[1] * _STEPS), int(query[2] * _STEPS)
    return int(mix(mix(x) ^ mix(y + _STEPS) ^ mix(z ^ (int(term) << 32))) & (SETTLED - 1))


@kernel
def is_settled(lists: NDArray[np.int32], scratch: NearestScratch, term: int, x: float, y: float) -> bool:
    """Return whether no closed posting of a list matches at a point."""
    at = _place_of(scratch, term)
    points, entries = scratch.settled_points, scratch.settled_lists
    return bool(
        entries[at, 0] == term + 1
        and entries[at, 1] == lists[term, VERSION]
        and points[at, 0] == x
        and points[at, 1] == y
    )


@kernel
def settle(lists: NDArray[np.int32], scratch: NearestScratch, term: int, x: float, y: float) -> None:
    """Remember that no closed posting of a list matches at a point."""
    if lists[term, VERSION] == LAST_VERSION:
        return
    at = _place_of(scratch, term)
    scratch.settled_points[at, 0], scratch.settled_points[at, 1] = x, y
    scratch.settled_lists[at, 0], scratch.settled_lists[at, 1] = term + 1, lists[term, VERSION]


@kernel
def unsettle(lists: NDArray[np.int32], term: int) -> None:
    """Give a list another version, since a posting may match where none did."""
    lists[term, VERSION] += lists[term, VERSION] < LAST_VERSION
