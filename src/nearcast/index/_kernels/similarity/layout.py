"""What is a similarity index made of? Its arrays, each field with dtype, shape and meaning."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import TableArrays, kernel
from nearcast.space import metric
from nearcast.text import similarity as text

EARTH_RADIUS_M = metric.EARTH_RADIUS_M
MARGIN = 1e-9
"""Scores this close to tau are decided by the reference arithmetic; bounds give way by as much."""
SLACK = 2.5e-7
"""What rounding to float32 may cost a chord of the frame, twice over."""
LEAST_SIDE = 2.0**-18
"""Cells of the frame are numbered with 20 bits an axis."""
MOST_LEVELS = 8
EVERYWHERE = 0  # the cell of postings that no distance rules out
SPLIT = -2  # home of a term whose postings lie in cells
N_PRINTS = 5  # fingerprints of 12 bits in an int64
AHEAD = 32  # subscriptions whose terms are touched before they are inserted
MANY = 1 << 60  # more terms than fingerprints


# Places in the state of lists and blocks.
USED, LONGEST, NEEDED, FREE_LIST, N_LISTS, BLOCKS = 0, 1, 2, 3, 4, 5


# Columns of a record.
DELTA, TAU, WEIGHT = 5, 6, 7


# Columns of a head.
RUN, LENGTH, NEAR_PLACE = 0, 1, 2


# Places in the counters.
VISITED, CANDIDATES, VERIFIED, MATCHED = 0, 1, 2, 3


containment, overlap, jaccard = kernel(text.containment), kernel(text.overlap), kernel(text.jaccard)


dice, cosine = kernel(text.dice), kernel(text.cosine)


haversine = kernel(metric.haversine)


class SimilarityParams(NamedTuple):
    """What scores mean, as numbers; constant for the life of an index."""

    on_sphere: bool
    text: int
    """Place of the text function in `TEXT_SIMILARITIES`."""
    max_distance: float
    near_a_unit: float
    """Nearness lost along a unit of distance: of the plane, or of angle."""
    x0: float
    y0: float
    scale: float
    """The frame of the plane is `(x - x0, y - y0) * scale`, within [-1, 1]; that of the sphere is unit vectors."""
    is_fine: bool
    """Whether a chord in float64 gives nearness to better than the margin."""
    side: float
    """Side of a cell of level 0, in the frame; each level halves it."""
    levels: int
    near_spread: float
    """A posting by nearness lies at the finest level whose side, times this, covers its reach."""
    term_spread: float
    """The same of a posting by term."""
    term_levels: int
    """Levels of postings by term: hash probes cost more than a few postings that do not reach."""
    by_reach: bool
    by_cells: bool
    by_others: bool
    """The filters that are on."""


class Records(NamedTuple):
    """All that is known of a subscription, by slot."""

    floats: NDArray[np.float64]
    """float64 (n_slots, 8): point (unit vector, or x, y, 0), x, y, delta, tau, weight of all terms; a cache line."""
    heads: NDArray[np.int32]
    """int32 (n_slots, 4): start of its run or -1, number of terms, place on its list of nearness or -1, 0."""
    run_terms: NDArray[np.int32]
    """int32 (n,): dense terms of each run, by ascending term number."""
    run_places: NDArray[np.int32]
    """int32 (n,): place of the posting on its list."""
    run_state: NDArray[np.int64]
    """int64 (40,): blocks, as in `SimilarityLists`."""


class Terms(NamedTuple):
    """The terms of all subscriptions, by dense number."""

    table: TableArrays
    """Term number -> dense number."""
    numbers: NDArray[np.int64]
    idfs: NDArray[np.float64]
    prints: NDArray[np.int32]
    """int32 (n_terms,): fingerprint in 1..4095."""
    n_postings: NDArray[np.int32]
    """int32 (n_terms,): its only list, -1 if it has none, SPLIT if it has one a cell."""


class SimilarityLists(NamedTuple):
    """Lists in blocks of 1, 2, 4, ... postings of a pool."""

    starts: NDArray[np.int32]
    """int32 (n_lists,): first posting; the next free list if free."""
    lengths: NDArray[np.int32]
    classes: NDArray[np.int8]
    """int8 (n_lists,): the block holds 2**class postings; -1 without a block."""
    reaches: NDArray[np.float32]
    """float32 (n_lists,): the greatest squared reach there ever was: the region's least nearness."""
    owners: NDArray[np.int32]
    """int32 (n_lists,): dense term."""
    cells: NDArray[np.int32]
    """int32 (n_lists,): cell, or -1 for the only list of a term."""
    state: NDArray[np.int64]
    """int64 (40,): postings handed out, longest list ever, room that was missing, first free list, lists handed out,
    first free block of each class."""


class Pool(NamedTuple):
    """Postings."""

    points: NDArray[np.float32]
    """float32 (n, 4): point in the frame, squared reach; no rows in the pool of nearness."""
    solos: NDArray[np.float32]
    """float32 (n,): squared reach if no other term is shared, below 0 if that never suffices; as many as points."""
    others: NDArray[np.int64]
    """int64 (n,): fingerprints of the other terms."""
    slots: NDArray[np.int32]
    """int32 (n,): the subscription; the next free block in the first of a free one."""
    exact: NDArray[np.float64]
    """float64 (n, 6): point as in a record, its squared reach, delta, tau; no rows in the pool of terms."""


class SimilarityScratch(NamedTuple):
    """Room for one message or one subscription."""

    point: NDArray[np.float64]
    """float64 (8,): point as in a record, x, y, weight, number of terms, nothing of meaning."""
    frame: NDArray[np.float64]
    frame32: NDArray[np.float32]
    hits: NDArray[np.uint8]
    """uint8 (4096,): 1 for the fingerprints of the message."""
    marks: NDArray[np.uint8]
    """uint8 (at least n_terms,): 1 for the terms of the message."""
    known: NDArray[np.int32]
    """int32 (n_message_terms,): dense terms of the message."""
    cells: NDArray[np.int32]
    cell_gaps: NDArray[np.float32]
    """Cells within reach and the squared distance to their nearest point."""
    term_cells: NDArray[np.int32]
    term_gaps: NDArray[np.float32]
    """Those among them that may hold postings by term."""
    found: NDArray[np.int32]
    """int32 (at least the longest list,): slots of candidates."""
    found_terms: NDArray[np.int32]
    """int32 (as many,): the term by which each was found."""
    found_runs: NDArray[np.int32]
    """int32 (as many,): where its terms stand."""
    order: NDArray[np.int32]
    reaches: NDArray[np.float64]
    solos: NDArray[np.float64]
    rows: NDArray[np.int32]
    """The plan of a subscription, by position of its terms in falling weight; `rows` are lists."""
    queue: NDArray[np.int32]
    """int32 (n,): terms whose list grew long."""


class SimilarityState(NamedTuple):
    """Everything."""

    params: SimilarityParams
    records: Records
    terms: Terms
    cell_table: TableArrays
    """Level and place of a cell -> its number."""
    level_cells: NDArray[np.int64]
    """int64 (8,): cells of each level."""
    spots: TableArrays
    """Dense term and cell -> list."""
    near_lists: SimilarityLists
    """By cell: what may match by nearness alone."""
    near_pool: Pool
    term_lists: SimilarityLists
    term_pool: Pool
    scratch: SimilarityScratch


class SimilarityColumns(NamedTuple):
    """A slate or a batch: points and terms."""

    xs: NDArray[np.float64]
    ys: NDArray[np.float64]
    indptr: NDArray[np.int64]
    term_ids: NDArray[np.int64]
    idfs: NDArray[np.float64]
    deltas: NDArray[np.float64]
    taus: NDArray[np.float64]
    """The last two are empty in a batch."""


class SimilarityOutput(NamedTuple):
    """Where matches go."""

    slots: NDArray[np.int32]
    scores: NDArray[np.float64]
    ends: NDArray[np.int64]
    """int64 (n_rows,): where the matches of each row end."""
    work: NDArray[np.int64]
    """int64 (4,): visited, candidates, verified, matched."""
