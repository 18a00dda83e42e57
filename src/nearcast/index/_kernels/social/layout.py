"""What is an index of kind `social` made of? Its arrays, each field with dtype, shape and meaning."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import PostingArrays, TableArrays
from nearcast.model.profiles import ProfileArrays
from nearcast.social._kernels.graph import GraphArrays

# Columns of a site: its point in the frame, its bar, how many terms it has, its user, where it stands among the open
# ones, or -1.
X, Y, Z, THRESHOLD, N_TERMS, USER, OPEN = 0, 1, 2, 3, 4, 5, 6
SITE = 8
"""64 bytes: all that a bound asks of a subscription is one line of memory."""

REST_BITS = 20
REST_MASK = (1 << REST_BITS) - 1
"""An item of a term's list: the slot above, and below how many terms the subscription has from this one on."""

N_OPEN = 0
"""Place in the state: how many are open."""

LANE_BITS = 4
LANES = 1 << LANE_BITS
"""Open subscriptions that are looked at together."""

AHEAD = 8
"""Items whose sites are on their way."""

# Places in the counters.
VISITED, CANDIDATES, VERIFIED, MATCHED = 0, 1, 2, 3


class SocialProjection(NamedTuple):
    """What nearness means, as numbers; constant for the life of an index."""

    on_sphere: bool
    max_distance: float
    x0: float
    y0: float
    scale: float
    """The frame of the plane is `(x - x0, y - y0) * scale`, within [-1, 1]; that of the sphere is unit vectors."""
    unit: float
    """Nearness lost along a unit of the frame."""
    margin: float
    """What rounding may cost a bound."""


class SocialState(NamedTuple):
    """Everything."""

    projection: SocialProjection
    profiles: ProfileArrays
    graph: GraphArrays
    sites: NDArray[np.float64]
    """float64 (n_slots, SITE): subscriptions; the bar is NaN for a slot that is free."""
    opens: NDArray[np.int32]
    """int32 (n_slots,): slots that a message may reach by nearness alone."""
    fronts: NDArray[np.float32]
    """float32 (n_slots / LANES, 4 * LANES): their points and bars, LANES of each coordinate and bar side by side."""
    table: TableArrays
    """Term number -> dense number."""
    terms: PostingArrays
    """Dense number -> slots that have the term."""
    users: PostingArrays
    """User -> slots."""
    counts: NDArray[np.int64]
    """int64 (1,): see the places."""


class SocialColumns(NamedTuple):
    """Messages."""

    xs: NDArray[np.float64]
    ys: NDArray[np.float64]
    indptr: NDArray[np.int64]
    term_ids: NDArray[np.int64]
    idfs: NDArray[np.float64]
    places: NDArray[np.int32]
    """int32 (n,): numbers in the graph, or -1."""


class SocialScratch(NamedTuple):
    """Room to match one message."""

    order: NDArray[np.int64]
    """int64 (n_terms,): its terms, the rarest first."""
    socials: NDArray[np.float64]
    """float64 (n_users,): social scores above the slack; 0 between messages."""
    met: NDArray[np.int32]
    """int32 (n_users,): whose these are."""
    marks: NDArray[np.int64]
    """int64 (n_slots,): the last message for which a slot was found."""
    found: NDArray[np.int32]
    """int32 (n_slots,): the slots that were."""
    query: NDArray[np.float64]
    """float64 (5,): the message's point in the frame, its number of terms, and what the graph may bring to others."""
    counts: NDArray[np.int32]
    """int32 (n_users,): 0 but within `social_score`."""
    others: NDArray[np.int32]
    """int32 (n_users,): room for it."""
    stamps: NDArray[np.int64]
    """int64 (n_places,): the last message for which a place was reached."""
    stamp: NDArray[np.int64]
    """int64 (1,): messages that were matched here."""


class SocialOutput(NamedTuple):
    """What was found."""

    slots: NDArray[np.int32]
    scores: NDArray[np.float64]
    ends: NDArray[np.int64]
    """int64 (n_rows,): where the matches of each row end."""
    work: NDArray[np.int64]
    """int64 (4,): see the places."""
