"""How do subscriptions come and go, and how do their bars move?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import PostingArrays, kernel, postings_remove
from nearcast.index._kernels.social.frame import to_frame
from nearcast.index._kernels.social.layout import (
    LANE_BITS,
    LANES,
    N_OPEN,
    N_TERMS,
    OPEN,
    THRESHOLD,
    USER,
    SocialState,
    X,
    Y,
    Z,
)
from nearcast.model._kernels.profiles import LENGTH
from nearcast.model._kernels.profiles import X as PROFILE_X
from nearcast.model._kernels.profiles import Y as PROFILE_Y
from nearcast.social._kernels.graph import SLACK


@kernel
def place_sites(state: SocialState, slots: NDArray[np.int32], users: NDArray[np.int64]) -> None:
    """Write down what bounds ask of subscriptions whose profiles are there; bars are open."""
    sites, profiles = state.sites, state.profiles
    for i in range(slots.size):
        slot = slots[i]
        x, y, z = to_frame(state.projection, profiles.points[slot, PROFILE_X], profiles.points[slot, PROFILE_Y])
        sites[slot, X], sites[slot, Y], sites[slot, Z] = x, y, z
        sites[slot, N_TERMS], sites[slot, USER] = profiles.heads[slot, LENGTH], users[i]
        sites[slot, OPEN] = -1.0
        move_threshold(state, slot, -np.inf)


@kernel
def set_thresholds(state: SocialState, slots: NDArray[np.int32], thresholds: NDArray[np.float64]) -> None:
    """Say which score messages have to reach; NaN, that there is no subscription any more."""
    for i in range(slots.size):
        move_threshold(state, slots[i], thresholds[i])


@kernel
def move_threshold(state: SocialState, slot: int, threshold: float) -> None:
    """Set a bar, and keep those apart that nearness and the slack of the graph may reach."""
    sites, opens, counts, fronts = state.sites, state.opens, state.counts, state.fronts
    sites[slot, THRESHOLD] = threshold
    is_open = threshold <= 1.0 + SLACK + 2.0 * state.projection.margin
    place = int(sites[slot, OPEN])
    if is_open and place < 0:
        opens[counts[N_OPEN]] = slot
        sites[slot, OPEN] = place = counts[N_OPEN]
        counts[N_OPEN] += 1
    elif not is_open and place >= 0:
        counts[N_OPEN] -= 1
        last = opens[counts[N_OPEN]]
        opens[place] = last
        sites[last, OPEN] = place
        sites[slot, OPEN] = -1.0
        slot = last
    if place >= 0:
        row, lane = place >> LANE_BITS, place & (LANES - 1)
        fronts[row, lane], fronts[row, LANES + lane] = sites[slot, X], sites[slot, Y]
        fronts[row, 2 * LANES + lane], fronts[row, 3 * LANES + lane] = sites[slot, Z], sites[slot, THRESHOLD]


@kernel
def remove_items(postings: PostingArrays, rows: NDArray[np.int64], items: NDArray[np.int64]) -> None:
    """Take items off their lists."""
    for i in range(rows.size):
        postings_remove(postings, rows[i], items[i])
