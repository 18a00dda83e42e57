"""Arrays of the top-k index: dtype, shape and meaning of each field."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import TableArrays
from nearcast.index._kernels.shared.grouped_postings import BOX, LANES, TILE, GroupedPostings
from nearcast.index._kernels.shared.projection import Projection
from nearcast.model._kernels.profiles import ProfileArrays

GROUPED = 7
"""Lists in blocks of this class or above have bounds per group."""
MARGIN = 3e-5
"""Several times what rounding to float32 costs a bound."""
MIN_THRESHOLD, GREATEST_THRESHOLD = -1.0, 2.0
"""Range of thresholds in postings; every score lies within."""
UNSORTED_SHARE = 4
"""A list is sorted again when one in so many of its postings is unsorted."""
AHEAD = 32
"""Subscriptions whose memory is prefetched together."""


# Fields of a posting after its point, each LANES wide: alpha, weight of the term and of all later terms (both times
# 1 - alpha), threshold less the margin, and as an integer the fingerprints of the other terms.
AT_ALPHA, AT_OWN, AT_REST, AT_THRESHOLD, AT_OTHERS = (i * LANES for i in range(3, 8))
N_FIELDS = 8


# A fingerprint is a byte in 1..254. Four fit; 0 means none, and more than four become bytes of 255.
N_FINGERPRINTS = 254
MAX_FINGERPRINTS = 4
MANY = -1


# Bounds of a group after its box, each TILE wide: the greatest value of any posting at each corner (nearness, weight
# of the term, greatest later weight); the last one varies fastest.
CORNERS = 18
FIRST_CORNER = BOX * TILE
N_BOUNDS = BOX + CORNERS
MIDDLE = 0.35
"""Corners lie at weights 0, MIDDLE and 1, and at nearness 0 and 1."""


# Positions in the query of a message: its point, nearness lost per unit and the bends of the arc, the weights.
POINT_X, POINT_Y, POINT_Z, UNIT, BEND_AT, BEND_MORE_AT, WEIGHT, LATER = 0, 1, 2, 3, 4, 5, 6, 7


class TopKLists(NamedTuple):
    """The postings of each term, by its dense number, in a block of 1, 2, 4, ... of the pool."""

    starts: NDArray[np.int32]
    """int32 (n_terms,): first posting."""
    lengths: NDArray[np.int32]
    """int32 (n_terms,): number of postings."""
    classes: NDArray[np.int8]
    """int8 (n_terms,): the block holds 2**class postings; -1 without a block."""
    unsorted: NDArray[np.int32]
    """int32 (n_terms,): postings that were added or moved since the list was sorted."""


class PostingRefs(NamedTuple):
    """Thresholds and postings of the subscriptions, beside their profiles."""

    thresholds: NDArray[np.float64]
    """float64 (n_slots,): NaN for a free slot."""
    run_lists: NDArray[np.int32]
    """int32 (n,): dense number of each term, parallel to the runs of the profiles."""
    run_places: NDArray[np.int32]
    """int32 (n,): position of its posting on that list."""


class TopKState(NamedTuple):
    """All arrays of the index."""

    projection: Projection
    profiles: ProfileArrays
    refs: PostingRefs
    table: TableArrays
    """Term id -> dense number."""
    lists: TopKLists
    postings: GroupedPostings


class TopKColumns(NamedTuple):
    """Points and terms of subscriptions or messages."""

    xs: NDArray[np.float64]
    ys: NDArray[np.float64]
    indptr: NDArray[np.int64]
    term_ids: NDArray[np.int64]
    idfs: NDArray[np.float64]
    units: NDArray[np.float64]
    """float64 (n_terms,): weight of each term in a vector of length 1."""


class TopKScratch(NamedTuple):
    """Scratch arrays of one message."""

    numbers: NDArray[np.int32]
    """int32 (terms of the rows,): dense numbers, -1 for a term of no subscription."""
    order: NDArray[np.int64]
    """int64 (2 x terms of a message,): positions of its known terms by falling idf, for two messages in turn."""
    later_weights: NDArray[np.float64]
    """float64 (terms of a message,): the greatest weight of the terms after each."""
    held: NDArray[np.int32]
    """int32 (a power of two, 2): hash set of the message's dense numbers and positions; -1 between messages."""
    hits: NDArray[np.uint8]
    """uint8 (256,): 1 for the fingerprints of the message's terms, and at 255."""
    groups: NDArray[np.int32]
    """int32 (groups of all lists of a message,): those that no bound rules out."""
    ends: NDArray[np.int64]
    """int64 (terms of a message,): end of the groups of each list."""
    query: NDArray[np.float32]
    """float32 (8,): see the positions above."""
    values: NDArray[np.float32]
    """float32 (LANES,): how far the postings of a group may exceed their thresholds."""
    tops: NDArray[np.float32]
    """float32 (TILE,): how far some posting of each group may exceed its threshold."""
    found: NDArray[np.int32]
    """int32 (at least the longest list,): postings that no bound rules out, then their slots."""
    found_by: NDArray[np.int64]
    """int64 (as many,): position of the message's term on whose list each was found."""
    texts: NDArray[np.float64]
    """float64 (as many,): cosine of the texts."""
