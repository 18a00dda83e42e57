"""Insertion and deletion of subscriptions, and changes of their thresholds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import PostingArrays, kernel, postings_append, postings_remove, postings_remove_at
from nearcast.index._kernels.shared.projection import to_frame
from nearcast.index._kernels.social.layout import (
    FACET,
    LANE_BITS,
    LANES,
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
def write_sites(
    state: SocialState, slots: NDArray[np.int32], users: NDArray[np.int64], facets: NDArray[np.int64]
) -> None:
    """Write the sites of subscriptions, with open thresholds. Their profiles must exist."""
    sites, profiles = state.sites, state.profiles
    for i in range(slots.size):
        slot = slots[i]
        x, y, z = to_frame(state.projection, profiles.points[slot, PROFILE_X], profiles.points[slot, PROFILE_Y])
        sites[slot, X], sites[slot, Y], sites[slot, Z] = x, y, z
        sites[slot, N_TERMS], sites[slot, USER] = profiles.heads[slot, LENGTH], users[i]
        sites[slot, OPEN], sites[slot, FACET] = -1.0, facets[i]
        set_threshold(state, slot, -np.inf)


@kernel
def set_thresholds(state: SocialState, slots: NDArray[np.int32], thresholds: NDArray[np.float64]) -> None:
    """Set the scores that messages must reach; NaN frees the slot."""
    for i in range(slots.size):
        set_threshold(state, slots[i], thresholds[i])


@kernel
def set_threshold(state: SocialState, slot: int, threshold: float) -> None:
    """Set a threshold, and move the slot to or from the open ones: those that nearness plus SLACK may reach.

    There must be room for one more.
    """
    sites, open_slots, open_lanes = state.sites, state.open_slots, state.open_lanes
    sites[slot, THRESHOLD] = threshold
    is_open = threshold <= 1.0 + SLACK + 2.0 * state.projection.margin
    place, facet = int(sites[slot, OPEN]), int(sites[slot, FACET])
    if is_open and place < 0:
        postings_append(open_slots, facet, slot)
        place = (int(open_slots.tails[facet]) << LANE_BITS) | ((open_slots.lengths[facet] - 1) & (LANES - 1))
        sites[slot, OPEN] = place
    elif not is_open and place >= 0:
        postings_remove_at(open_slots, facet, place >> LANE_BITS, place & (LANES - 1))
        last = open_slots.items[place >> LANE_BITS, place & (LANES - 1)]  # the slot itself if it was the last one
        sites[last, OPEN] = place
        sites[slot, OPEN] = -1.0
        slot = last
    if place >= 0:
        chunk, lane = place >> LANE_BITS, place & (LANES - 1)
        lanes = open_lanes[chunk]
        lanes[lane], lanes[LANES + lane] = sites[slot, X], sites[slot, Y]
        lanes[2 * LANES + lane], lanes[3 * LANES + lane] = sites[slot, Z], sites[slot, THRESHOLD]


@kernel
def facet_user_key(facet: int, user: int) -> int:
    """Return the key of the list of a user and a facet."""
    return (int(facet) << 32) | int(user)


@kernel
def facet_user_keys(facets: NDArray[np.int64], users: NDArray[np.int64], keys: NDArray[np.int64]) -> None:
    """Write the keys of the lists of users and facets."""
    for i in range(facets.size):
        keys[i] = facet_user_key(facets[i], users[i])


@kernel
def remove_items(postings: PostingArrays, rows: NDArray[np.int64], items: NDArray[np.int64]) -> None:
    """Remove each item from its list."""
    for i in range(rows.size):
        postings_remove(postings, rows[i], items[i])
