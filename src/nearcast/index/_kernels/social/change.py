"""Insertion and deletion of subscriptions, and changes of their thresholds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import PostingArrays, kernel, postings_remove
from nearcast.index._kernels.shared.projection import to_frame
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
def write_sites(state: SocialState, slots: NDArray[np.int32], users: NDArray[np.int64]) -> None:
    """Write the sites of subscriptions, with open thresholds. Their profiles must exist."""
    sites, profiles = state.sites, state.profiles
    for i in range(slots.size):
        slot = slots[i]
        x, y, z = to_frame(state.projection, profiles.points[slot, PROFILE_X], profiles.points[slot, PROFILE_Y])
        sites[slot, X], sites[slot, Y], sites[slot, Z] = x, y, z
        sites[slot, N_TERMS], sites[slot, USER] = profiles.heads[slot, LENGTH], users[i]
        sites[slot, OPEN] = -1.0
        set_threshold(state, slot, -np.inf)


@kernel
def set_thresholds(state: SocialState, slots: NDArray[np.int32], thresholds: NDArray[np.float64]) -> None:
    """Set the scores that messages must reach; NaN frees the slot."""
    for i in range(slots.size):
        set_threshold(state, slots[i], thresholds[i])


@kernel
def set_threshold(state: SocialState, slot: int, threshold: float) -> None:
    """Set a threshold, and move the slot to or from the open ones: those that nearness plus SLACK may reach."""
    sites, open_slots, counts, open_rows = state.sites, state.open_slots, state.counts, state.open_rows
    sites[slot, THRESHOLD] = threshold
    is_open = threshold <= 1.0 + SLACK + 2.0 * state.projection.margin
    place = int(sites[slot, OPEN])
    if is_open and place < 0:
        open_slots[counts[N_OPEN]] = slot
        sites[slot, OPEN] = place = counts[N_OPEN]
        counts[N_OPEN] += 1
    elif not is_open and place >= 0:
        counts[N_OPEN] -= 1
        last = open_slots[counts[N_OPEN]]
        open_slots[place] = last
        sites[last, OPEN] = place
        sites[slot, OPEN] = -1.0
        slot = last
    if place >= 0:
        row, lane = place >> LANE_BITS, place & (LANES - 1)
        open_rows[row, lane], open_rows[row, LANES + lane] = sites[slot, X], sites[slot, Y]
        open_rows[row, 2 * LANES + lane], open_rows[row, 3 * LANES + lane] = sites[slot, Z], sites[slot, THRESHOLD]


@kernel
def remove_items(postings: PostingArrays, rows: NDArray[np.int64], items: NDArray[np.int64]) -> None:
    """Remove each item from its list."""
    for i in range(rows.size):
        postings_remove(postings, rows[i], items[i])
