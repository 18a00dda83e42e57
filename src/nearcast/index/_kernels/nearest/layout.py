"""What is an index of kind `nearest` made of? Its arrays, each field with dtype, shape and meaning."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import TableArrays

LANE_BITS = 5
LANES = 1 << LANE_BITS
"""Postings of a group: they lie in one row, and are looked at together."""
TILE_BITS = 4
TILE = 1 << TILE_BITS
"""Groups of a tile: their bounds lie in one row, and are looked at together."""
GROUPED = 4 * LANES
"""Lists in blocks of so many postings have groups with bounds."""
LOOSE_SHARE = 2
"""A list is put in order when one in so many of its closed postings is out of it."""
AHEAD = 32
"""Subscriptions whose memory is asked for together."""
LONGEST = 63
"""Place in the state of the pool: the longest list there ever was."""


# A chord of the frame gives way by this: coordinates in float32 are off by 3e-8 each, and what is computed of them by
# a few parts in 10^7.
SLACK = 2.5e-7
MARGIN = 1e-6
LONGEST_CHORD = 4.0
"""No two points of the frame are as far apart."""


# Columns of a posting, each LANES wide: point in the frame, and the square of the chord within which a message may
# matter: below 0 if none can.
AT_X, AT_Y, AT_Z, AT_REACH = (i * LANES for i in range(4))
BODY = 4 * LANES
NEVER = -1.0


# Columns of a group, each TILE wide: the box that holds the points, and the greatest reach.
GREATEST = 6 * TILE
BOUNDS = 7 * TILE


# Columns of a site: point and bar, and in the int32 of the last eight bytes where its run begins and ends.
X, Y, THRESHOLD = 0, 1, 2
SITE = 4
RUN, RUN_END = 6, 7


# Columns of a list: its block, how many postings it has, how many of them are closed and stand first, and how many of
# these came or moved since they were put in order.
START, ROOM, LENGTH, CLOSED, LOOSE = 0, 1, 2, 3, 4
LIST = 8


# An entry of a run: the term above, its place in the list of the term below.
TERM_BITS = 32
PLACE_MASK = (1 << TERM_BITS) - 1


# Places in the counters.
VISITED, CANDIDATES, VERIFIED, MATCHED = 0, 1, 2, 3


class NearestProjection(NamedTuple):
    """What distances mean, as numbers; constant for the life of an index."""

    on_sphere: bool
    x0: float
    y0: float
    scale: float
    """The frame of the plane is `(x - x0, y - y0) * scale`, within [-1, 1]; that of the sphere is unit vectors."""


class NearestState(NamedTuple):
    """Everything."""

    projection: NearestProjection
    sites: NDArray[np.float64]
    """float64 (n_slots, SITE): subscriptions; the bar is NaN for a slot that is free, infinite for an open one."""
    heads: NDArray[np.int32]
    """int32 (n_slots, 2 x SITE): the same bytes."""
    runs: NDArray[np.int64]
    """int64 (n,): term and place of each posting of a subscription, one after the other."""
    run_pool: NDArray[np.int64]
    """int64 (STATE,): blocks of the runs, see `blocks`."""
    table: TableArrays
    """Term number -> dense number."""
    lists: NDArray[np.int32]
    """int32 (n_terms, LIST): the postings of each term, in a block of 1, 2, 4, ... of the pool."""
    bodies: NDArray[np.float32]
    """float32 (n / LANES, BODY): the pool of postings; lanes that hold no posting hold anything finite."""
    words: NDArray[np.int32]
    """int32 (n / LANES, BODY): the same bytes."""
    slots: NDArray[np.int32]
    """int32 (n,): the subscription of each; the next free block in the first of a free one."""
    tiles: NDArray[np.float32]
    """float32 (n_groups / TILE, BOUNDS): bounds of the closed groups of long lists."""
    pool: NDArray[np.int64]
    """int64 (STATE,): blocks of the pool."""


class NearestColumns(NamedTuple):
    """A slate or a batch: points and terms."""

    xs: NDArray[np.float64]
    ys: NDArray[np.float64]
    indptr: NDArray[np.int64]
    term_ids: NDArray[np.int64]


class NearestScratch(NamedTuple):
    """Room for one message."""

    numbers: NDArray[np.int32]
    """int32 (terms of the rows,): dense numbers, -1 for a term that nobody has."""
    terms: NDArray[np.int32]
    """int32 (terms of a message,): those of its terms that have postings."""
    marks: NDArray[np.uint8]
    """uint8 (n_terms,): 1 for these, 0 between messages."""
    groups: NDArray[np.int32]
    """int32 (groups of all lists of a message,): those that a message may matter in."""
    ends: NDArray[np.int64]
    """int64 (terms of a message,): where those of each list end."""
    query: NDArray[np.float32]
    """float32 (3,): the point of the message in the frame."""
    gaps: NDArray[np.float32]
    """float32 (LANES,): by how much postings, or groups, reach further than the message is away."""
    found: NDArray[np.int32]
    """int32 (at least the longest list,): postings that no bound ruled out."""
    found_by: NDArray[np.int32]
    """int32 (as many,): the term by which each was found."""


class NearestOutput(NamedTuple):
    """Where matches go."""

    slots: NDArray[np.int32]
    scores: NDArray[np.float64]
    ends: NDArray[np.int64]
    """int64 (n_rows,): where the matches of each row end."""
    work: NDArray[np.int64]
    """int64 (4,): visited, candidates, verified, matched."""
