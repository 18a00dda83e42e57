"""Arrays of the index of kind `nearest`: dtype, shape and meaning of each field."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import TableArrays
from nearcast.index._kernels.shared.grouped_postings import BOX, LANES, TILE, GroupedPostings
from nearcast.index._kernels.shared.projection import Projection

GROUPED = 4 * LANES
"""Lists in blocks of so many postings have bounds per group."""
UNSORTED_SHARE = 2
"""A list is sorted again when one in so many of its closed postings is unsorted."""
AHEAD = 32
"""Subscriptions whose memory is prefetched together."""


# The field of a posting after its point, LANES wide: the square of the chord within which a message may match; below
# 0 if no message can.
AT_REACH = 3 * LANES
N_FIELDS = 4
UNREACHABLE = -1.0


SETTLED = 4096
"""Points that a workspace remembers, each with the list of one term."""
LAST_VERSION = 2**31 - 1
"""A list that has changed so often is never settled again."""


# The bound of a group after its box, TILE wide: the greatest reach.
GREATEST = BOX * TILE
N_BOUNDS = BOX + 1


# Columns of a site: point and threshold, and in the int32 of the last eight bytes where its run begins and ends.
X, Y, THRESHOLD = 0, 1, 2
SITE = 4
RUN, RUN_END = 6, 7


# Columns of a list: its block, the size of the block, its postings, how many of them are closed and stand first, how
# many of these were added or moved since they were sorted, and how often one was closed or its reach grew.
START, ROOM, LENGTH, CLOSED, UNSORTED, VERSION = 0, 1, 2, 3, 4, 5
LIST = 8


# An entry of a run: the term in the high bits, the position on its list in the low ones.
TERM_BITS = 32
PLACE_MASK = (1 << TERM_BITS) - 1


class NearestState(NamedTuple):
    """All arrays of the index."""

    projection: Projection
    sites: NDArray[np.float64]
    """float64 (n_slots, SITE): subscriptions; the threshold is NaN for a free slot, infinite for an open one."""
    heads: NDArray[np.int32]
    """int32 (n_slots, 2 x SITE): the same bytes."""
    runs: NDArray[np.int64]
    """int64 (n,): term and position of each posting of a subscription, one after the other."""
    run_pool: NDArray[np.int64]
    """int64 (STATE,): blocks of the runs, see `nearcast.model._kernels.blocks`."""
    table: TableArrays
    """Term id -> dense number."""
    lists: NDArray[np.int32]
    """int32 (n_terms, LIST): the postings of each term, in a block of 1, 2, 4, ... of the pool."""
    postings: GroupedPostings


class NearestColumns(NamedTuple):
    """Points and terms of subscriptions or messages."""

    xs: NDArray[np.float64]
    ys: NDArray[np.float64]
    indptr: NDArray[np.int64]
    term_ids: NDArray[np.int64]


class NearestScratch(NamedTuple):
    """Scratch arrays of one message."""

    numbers: NDArray[np.int32]
    """int32 (terms of the rows,): dense numbers, -1 for a term of no subscription."""
    terms: NDArray[np.int32]
    """int32 (terms of a message,): those of its terms that have postings."""
    marks: NDArray[np.uint8]
    """uint8 (n_terms,): 1 for these, 0 between messages."""
    groups: NDArray[np.int32]
    """int32 (groups of all lists of a message,): those that no bound rules out."""
    ends: NDArray[np.int64]
    """int64 (terms of a message,): end of the groups of each list."""
    query: NDArray[np.float32]
    """float32 (3,): the point of the message in the frame."""
    gaps: NDArray[np.float32]
    """float32 (LANES,): reach less squared distance, of postings or of groups; below 0 if out of reach."""
    found: NDArray[np.int32]
    """int32 (at least the longest list,): postings that no bound rules out."""
    found_by: NDArray[np.int32]
    """int32 (as many,): the term on whose list each was found."""
    settled_points: NDArray[np.float64]
    """float64 (SETTLED, 2): the point at which no closed posting of a list matched."""
    settled_lists: NDArray[np.int64]
    """int64 (SETTLED, 2): the term of the list, counted from 1, and the version of the list; 0 for no term."""
    n_nearer: NDArray[np.int64]
    """int64 (1,): matches of the message that are nearer than a threshold."""
