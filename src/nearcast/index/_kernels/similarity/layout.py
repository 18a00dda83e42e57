"""Arrays of the similarity index: dtype, shape and meaning of each field."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import TableArrays
from nearcast.index._kernels.shared.projection import Projection

MARGIN = 1e-9
"""The reference arithmetic decides scores this close to tau; bounds are widened by as much."""
MIN_SIDE = 2.0**-18
"""Least side of a cell: cells of the frame are numbered with 20 bits per axis."""
MAX_LEVELS = 8
GLOBAL_CELL = 0  # the cell of postings that no distance rules out
SPLIT = -2  # in place of the only list of a term, whose postings lie in cells
MAX_FINGERPRINTS = 5  # of 12 bits each in an int64
AHEAD = 32  # subscriptions whose terms are touched before they are inserted
MANY = 1 << 60  # stands for more terms than fit


# Positions in the state of lists, after those of `nearcast.model._kernels.blocks`.
N_LISTS, FREE_LIST, LONGEST = 61, 62, 63


# Columns of a record.
DELTA, TAU, WEIGHT = 5, 6, 7


# Columns of a head.
RUN, LENGTH, NEAR_PLACE, FACET = 0, 1, 2, 3


class SimilarityParams(NamedTuple):
    """Constants of the scores and of the grid; fixed for the life of an index."""

    projection: Projection
    text: int
    """Position of the text function in `TEXT_SIMILARITIES`."""
    near_per_unit: float
    """Nearness lost per unit of distance: of the plane, or of angle."""
    is_fine: bool
    """Whether a chord in float64 gives nearness with an error below the margin."""
    side: float
    """Side of a cell of level 0, in the frame; each level halves it."""
    levels: int
    """Levels of the grid."""
    near_spread: float
    """A posting by nearness lies at the finest level whose side, times this, covers its reach."""
    term_spread: float
    """The same for a posting by term."""
    term_levels: int
    """Levels of postings by term; more would cost more hash probes than the postings they save."""
    by_reach: bool
    by_cells: bool
    by_others: bool
    """The filters in use."""


class SimilarityRecords(NamedTuple):
    """Subscriptions by slot."""

    floats: NDArray[np.float64]
    """float64 (n_slots, 8): point (unit vector, or x, y, 0), x, y, delta, tau, weight of all terms: a cache line."""
    heads: NDArray[np.int32]
    """int32 (n_slots, 4): start of its run or -1, number of terms, position on its list by nearness or -1, facet."""
    run_terms: NDArray[np.int32]
    """int32 (n,): dense terms of each run, by ascending term id."""
    run_places: NDArray[np.int32]
    """int32 (n,): position of the posting on its list."""
    run_state: NDArray[np.int64]
    """int64 (blocks.STATE,): blocks of the runs."""


class SimilarityTerms(NamedTuple):
    """The terms of all subscriptions, by dense number."""

    table: TableArrays
    """Term id -> dense number."""
    ids: NDArray[np.int64]
    """int64 (n_terms,): term ids."""
    idfs: NDArray[np.float64]
    """float64 (n_terms,)."""
    fingerprints: NDArray[np.int32]
    """int32 (n_terms,): fingerprint in 1..4095."""
    only_lists: NDArray[np.int32]
    """int32 (n_terms,): its only list, -1 if it has none, SPLIT if it has one per cell."""


class SimilarityLists(NamedTuple):
    """Lists in blocks of 1, 2, 4, ... postings of a pool."""

    starts: NDArray[np.int32]
    """int32 (n_lists,): first posting; the next free list if free."""
    lengths: NDArray[np.int32]
    """int32 (n_lists,): number of postings."""
    classes: NDArray[np.int8]
    """int8 (n_lists,): the block holds 2**class postings; -1 without a block."""
    reaches: NDArray[np.float32]
    """float32 (n_lists,): the greatest squared reach since the list was empty."""
    owners: NDArray[np.int32]
    """int32 (n_lists,): dense term."""
    cells: NDArray[np.int32]
    """int32 (n_lists,): cell, or -1 for the only list of a term."""
    state: NDArray[np.int64]
    """int64 (blocks.STATE,): blocks of the pool; then lists handed out, first free list, longest list so far."""


class PostingPool(NamedTuple):
    """Postings of all lists by nearness, or of all lists by term."""

    points: NDArray[np.float32]
    """float32 (n, 4): point in the frame, squared reach; no rows in the pool by nearness."""
    solo_reaches: NDArray[np.float32]
    """float32 (n,): squared reach if no other term is shared, below 0 if that never suffices."""
    others: NDArray[np.int64]
    """int64 (n,): fingerprints of the other terms."""
    slots: NDArray[np.int32]
    """int32 (n,): the subscription; the next free block in the first of a free one."""
    exact: NDArray[np.float64]
    """float64 (n, 6): point as in a record, its squared reach, delta, tau; no rows in the pool by term."""


class SimilarityScratch(NamedTuple):
    """Scratch arrays of one message or one subscription.

    Every call between kernels passes all arrays of the state. One array more made insertion 50 % slower.
    """

    point: NDArray[np.float64]
    """float64 (8,): point as in a record, x, y, weight, number of terms, and a value without meaning."""
    frame: NDArray[np.float64]
    """float64 (3,): the point in the frame."""
    frame32: NDArray[np.float32]
    """float32 (3,): the same."""
    hits: NDArray[np.uint8]
    """uint8 (4096,): 1 for the fingerprints of the message."""
    marks: NDArray[np.uint8]
    """uint8 (at least n_terms,): 1 for the terms of the message."""
    message_terms: NDArray[np.int32]
    """int32 (terms of a message,): its dense terms."""
    cells: NDArray[np.int32]
    """int32 (cells around a point,): cells within reach of the message."""
    cell_gaps: NDArray[np.float32]
    """float32 (as many,): squared distance to the nearest point of each."""
    term_cells: NDArray[np.int32]
    """int32 (as many,): those that may hold postings by term."""
    term_gaps: NDArray[np.float32]
    """float32 (as many,): squared distance to the nearest point of each."""
    found: NDArray[np.int32]
    """int32 (at least the longest list,): slots of candidates."""
    found_terms: NDArray[np.int32]
    """int32 (as many,): the term on whose list each was found."""
    found_runs: NDArray[np.int32]
    """int32 (as many,): start of its run."""
    order: NDArray[np.int32]
    """int32 (terms of a subscription,): positions of its terms by falling weight."""
    reaches: NDArray[np.float64]
    """float64 (as many,): reach of each term, in that order."""
    solo_reaches: NDArray[np.float64]
    """float64 (as many,): reach of each term if no other is shared, in that order."""
    rows: NDArray[np.int32]
    """int32 (as many,): list of each term, in that order."""
    queue: NDArray[np.int32]
    """int32 (n,): terms whose list became long enough to split."""


class SimilarityState(NamedTuple):
    """All arrays of the index."""

    params: SimilarityParams
    records: SimilarityRecords
    terms: SimilarityTerms
    cell_table: TableArrays
    """Level and position of a cell -> its number; facet and number of a cell -> the cell of the facet there."""
    level_cells: NDArray[np.int64]
    """int64 (MAX_LEVELS,): number of cells of each level, those of facets aside."""
    cell_lists: TableArrays
    """Dense term and cell -> list."""
    near_lists: SimilarityLists
    """By cell: subscriptions that may match by nearness alone."""
    near_pool: PostingPool
    term_lists: SimilarityLists
    """By term, or by term and cell."""
    term_pool: PostingPool
    scratch: SimilarityScratch


class SimilarityColumns(NamedTuple):
    """Points and terms of subscriptions or messages."""

    xs: NDArray[np.float64]
    ys: NDArray[np.float64]
    indptr: NDArray[np.int64]
    term_ids: NDArray[np.int64]
    """int64 (n_terms,): ids combined with the facet value of the row, see `nearcast.model.facets`."""
    idfs: NDArray[np.float64]
    facets: NDArray[np.int64]
    """int64 (n,): the number of the facet value of each row, 0 without one, -1 where no subscription has it."""
    deltas: NDArray[np.float64]
    taus: NDArray[np.float64]
    """The last two are empty in a batch."""
