"""What is a top-k index made of? Its arrays, each field with dtype, shape and meaning."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import TableArrays
from nearcast.model._kernels.profiles import ProfileArrays

LANE_BITS = 5
LANES = 1 << LANE_BITS
"""Postings of a group: they lie in one row, and are looked at together."""
TILE_BITS = 4
TILE = 1 << TILE_BITS
"""Groups of a tile: their bounds lie in one row, and are looked at together."""
GROUPED = 7
"""The groups of lists in blocks of this class or above have bounds."""
MARGIN = 3e-5
"""What rounding to float32 may cost a bound, several times over."""
SLACK = 2.5e-7
"""The same of a chord of the frame."""
LEAST_THRESHOLD, GREATEST_THRESHOLD = -1.0, 2.0
"""No score is outside; bars of postings need not be either."""
LOOSE_SHARE = 4
"""A list is put in order when one in so many of its postings is out of it."""
AHEAD = 32
"""Subscriptions whose memory is asked for together."""
LONGEST = 63
"""Place in the state of the pool: the longest list there ever was."""


# Columns of a posting, each LANES wide: point in the frame, alpha, weight of the term and of all later ones (both
# times 1 - alpha), bar less the margin, and as an integer the fingerprints of the other terms.
AT_X, AT_Y, AT_Z, AT_ALPHA, AT_OWN, AT_REST, AT_THRESHOLD, AT_OTHERS = (i * LANES for i in range(8))
BODY = 8 * LANES


# A fingerprint is a byte in 1..254; four fit, 0 stands for none, and more than four are told by bytes of 255.
PRINTS = 254
MOST_PRINTS = 4
MANY = -1


# Columns of a group, each TILE wide: the box that holds the points, then the greatest value of any posting for each
# corner (nearness, weight of the term, greatest later weight), the last one first to change.
BOX, CORNERS = 6, 18
FIRST_CORNER = BOX * TILE
BOUNDS = (BOX + CORNERS) * TILE
MIDDLE = 0.35
"""Corners lie at weights 0, MIDDLE and 1, and nearness 0 and 1."""


# Places in what is asked of a list: the point, nearness lost a unit and how it bends, the weights.
POINT_X, POINT_Y, POINT_Z, UNIT, BEND, BEND_MORE, WEIGHT, LATER = 0, 1, 2, 3, 4, 5, 6, 7


# Places in the counters.
VISITED, CANDIDATES, VERIFIED, MATCHED = 0, 1, 2, 3


class TopKProjection(NamedTuple):
    """What scores mean, as numbers; constant for the life of an index."""

    on_sphere: bool
    max_distance: float
    x0: float
    y0: float
    scale: float
    """The frame of the plane is `(x - x0, y - y0) * scale`, within [-1, 1]; that of the sphere is unit vectors."""
    unit: float
    """Nearness lost along a unit of the frame."""


class TopKLists(NamedTuple):
    """The postings of each term, by its dense number, in a block of 1, 2, 4, ... of the pool."""

    starts: NDArray[np.int32]
    """int32 (n_terms,): first posting."""
    lengths: NDArray[np.int32]
    classes: NDArray[np.int8]
    """int8 (n_terms,): the block holds 2**class postings; -1 without a block."""
    loose: NDArray[np.int32]
    """int32 (n_terms,): how many postings came or moved since the list was put in order."""


class TopKPostings(NamedTuple):
    """The pool of postings, 32 in a row, and the bounds of groups, 16 in a row."""

    bodies: NDArray[np.float32]
    """float32 (n / LANES, BODY): see the columns above; lanes that hold no posting hold anything finite."""
    words: NDArray[np.int32]
    """int32 (n / LANES, BODY): the same bytes."""
    slots: NDArray[np.int32]
    """int32 (n,): the subscription; the next free block in the first of a free one."""
    tiles: NDArray[np.float32]
    """float32 (n_groups / TILE, BOUNDS): bounds of the groups of long lists."""


class Posted(NamedTuple):
    """What the index knows of a subscription beside its profile."""

    thresholds: NDArray[np.float64]
    """float64 (n_slots,): NaN for a slot that is free."""
    run_lists: NDArray[np.int32]
    """int32 (n,): the dense number of each term, parallel to the runs of profiles."""
    run_places: NDArray[np.int32]
    """int32 (n,): which posting of that list it is."""


class TopKState(NamedTuple):
    """Everything."""

    projection: TopKProjection
    profiles: ProfileArrays
    posted: Posted
    table: TableArrays
    """Term number -> dense number."""
    lists: TopKLists
    postings: TopKPostings
    pool: NDArray[np.int64]
    """int64 (STATE,): blocks of the pool, see `blocks`."""


class TopKColumns(NamedTuple):
    """A slate or a batch: points and terms."""

    xs: NDArray[np.float64]
    ys: NDArray[np.float64]
    indptr: NDArray[np.int64]
    term_ids: NDArray[np.int64]
    idfs: NDArray[np.float64]
    units: NDArray[np.float64]


class TopKScratch(NamedTuple):
    """Room for one message."""

    numbers: NDArray[np.int32]
    """int32 (terms of the rows,): dense numbers, -1 for a term that nobody has."""
    order: NDArray[np.int64]
    """int64 (2 x terms of a message,): its known terms by falling idf; those of two messages."""
    laters: NDArray[np.float64]
    """float64 (terms of a message,): the greatest weight of the terms behind each."""
    held: NDArray[np.int32]
    """int32 (a power of two, 2): hash set of the message's dense numbers, with places; -1 between messages."""
    hits: NDArray[np.uint8]
    """uint8 (256,): 1 for the fingerprints of the message's terms, and at 255."""
    groups: NDArray[np.int32]
    """int32 (groups of all lists of a message,): those that some posting may pass in."""
    ends: NDArray[np.int64]
    """int64 (terms of a message,): where those of each list end."""
    query: NDArray[np.float32]
    """float32 (8,): see the names above."""
    values: NDArray[np.float32]
    """float32 (LANES,): by how much postings of a group may pass."""
    tops: NDArray[np.float32]
    """float32 (TILE,): by how much some posting of a group may pass."""
    found: NDArray[np.int32]
    """int32 (at least the longest list,): postings that no bound ruled out."""
    found_by: NDArray[np.int64]
    """int64 (as many,): the term of the message by which each was found."""
    texts: NDArray[np.float64]
    """float64 (as many,): what text brings."""


class TopKOutput(NamedTuple):
    """Where matches go."""

    slots: NDArray[np.int32]
    scores: NDArray[np.float64]
    ends: NDArray[np.int64]
    """int64 (n_rows,): where the matches of each row end."""
    work: NDArray[np.int64]
    """int64 (4,): visited, candidates, verified, matched."""
