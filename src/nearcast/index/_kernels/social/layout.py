"""Arrays of the index of kind `social`: dtype, shape and meaning of each field."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import PostingArrays, TableArrays
from nearcast.index._kernels.shared.projection import Projection
from nearcast.model.profiles import ProfileArrays
from nearcast.social._kernels.graph import GraphArrays

# Columns of a site: point in the frame, threshold, number of terms, user, its lane among the open ones or -1, and the
# number of its facet value.
X, Y, Z, THRESHOLD, N_TERMS, USER, OPEN, FACET = 0, 1, 2, 3, 4, 5, 6, 7
SITE = 8
"""64 bytes: all that a bound needs of a subscription is one cache line."""

REST_BITS = 20
REST_MASK = (1 << REST_BITS) - 1
"""An item of a term's list: the slot in the high bits; in the low ones the subscription's terms from this one on."""

LANE_BITS = 4
LANES = 1 << LANE_BITS
"""Open subscriptions that are bounded together."""

AHEAD = 8
"""Items whose sites are prefetched."""

# Positions in the query of a message: its point in the frame, its number of terms, and the greatest social score of a
# user that `users_near` does not return.
QUERY_X, QUERY_Y, QUERY_Z, QUERY_TERMS, QUERY_SOCIAL = 0, 1, 2, 3, 4


class SocialState(NamedTuple):
    """All arrays of the index."""

    projection: Projection
    profiles: ProfileArrays
    graph: GraphArrays
    sites: NDArray[np.float64]
    """float64 (n_slots, SITE): subscriptions; the threshold is NaN for a free slot."""
    open_slots: PostingArrays
    """Facet -> slots whose threshold nearness alone may reach, int32, LANES in a chunk."""
    open_lanes: NDArray[np.float32]
    """float32 (n_chunks, 4 * LANES): points and thresholds of each chunk, LANES of each field side by side."""
    table: TableArrays
    """Term id -> dense number."""
    terms: PostingArrays
    """Dense number -> slots with the term."""
    users: PostingArrays
    """User -> slots without a facet."""
    facet_table: TableArrays
    """Facet and user, see `facet_user_key` -> dense number."""
    facet_users: PostingArrays
    """Dense number -> slots of the user with the facet."""
    facet_values: NDArray[np.int64]
    """int64 (n_facets,): the value of each facet, with which terms are combined; 0 for none."""


class SocialColumns(NamedTuple):
    """Points, terms and places of messages."""

    xs: NDArray[np.float64]
    ys: NDArray[np.float64]
    indptr: NDArray[np.int64]
    term_ids: NDArray[np.int64]
    """int64 (n_terms,): ids combined with the facet value of the row."""
    idfs: NDArray[np.float64]
    places: NDArray[np.int32]
    """int32 (n,): numbers in the graph, or -1."""
    facets: NDArray[np.int64]
    """int64 (n,): the number of the facet value of each row, 0 without one, -1 where no subscription has it."""


class SocialScratch(NamedTuple):
    """Scratch arrays of one message."""

    order: NDArray[np.int64]
    """int64 (n_terms,): positions of its terms, the rarest first."""
    socials: NDArray[np.float64]
    """float64 (n_users,): social scores above the slack; 0 between messages."""
    near_users: NDArray[np.int32]
    """int32 (n_users,): the users of these scores."""
    marks: NDArray[np.int64]
    """int64 (n_slots,): number of the last message of which a slot was a candidate."""
    found: NDArray[np.int32]
    """int32 (n_slots,): candidates."""
    query: NDArray[np.float64]
    """float64 (5,): see the positions above."""
    counts: NDArray[np.int32]
    """int32 (n_users,): scratch of `social_score`; 0 outside of it."""
    others: NDArray[np.int32]
    """int32 (n_users,): scratch of `social_score`."""
    stamps: NDArray[np.int64]
    """int64 (n_places,): number of the last message for which a place was reached."""
    stamp: NDArray[np.int64]
    """int64 (1,): number of the current message."""
