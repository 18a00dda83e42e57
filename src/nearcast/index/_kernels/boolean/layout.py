"""Arrays of the boolean index: dtype, shape and meaning of each field, and the positions in its state."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import TableArrays

BITS = 3
"""A node has 2**BITS x 2**BITS children."""
FAN = 1 << BITS
BLOCK = FAN * FAN
DEPTH = 10
"""Levels below a root."""
STEP_BITS = 13
TOTAL_BITS = BITS * DEPTH + STEP_BITS
SPLIT = 32
"""A shorter list is never split."""
SPAN = 3
"""A box that overlaps more children along an axis stays with the parent."""
TARGETS = 2048
"""More lists than a box can belong to."""
AHEAD = 32
"""Branches whose terms are touched before they are inserted."""
CLASSES = 40
STEPS = (1 << STEP_BITS) - 1
BEYOND = STEPS + 2
LANE = 15
LANE_MAX = (1 << (LANE - 1)) - 1
ONES = 1 | (1 << LANE) | (1 << (2 * LANE)) | (1 << (3 * LANE))

GUARDS = ONES << (LANE - 1)

LOW = 0xFFFFFFFF
NONE = -1
LINE = 8  # words of a cache line


# Columns of `nodes`.
START, LENGTH, CLASS, CHILDREN = 0, 1, 2, 3


# Kinds of postings: the message must hold both other terms, or neither; the expression decides; only the box decides.
WANTED, CHECK_EXPRESSION, PLAIN = 1, 2, 4
KIND = 4 * LANE


# Positions in `state`.
ROWS, WORDS, NODES, FREE_BLOCK, FREE_TERM, APPENDED, NEED_ROWS, NEED_WORDS, NEED_NODES, LIVE = range(10)
STATE = 10


class Forest(NamedTuple):
    """One tree of lists per term, and the subscriptions themselves."""

    table: TableArrays
    """Term id -> term number, which is the number of its root."""
    nodes: NDArray[np.int32]
    """int32 (n_nodes, 4): first row of the list, its length, 1 + log2 of its room, first of BLOCK children or 0."""
    ids: NDArray[np.int64]
    """int64 (n_nodes,): the id of the term, where the node is a root."""
    refs: NDArray[np.int32]
    """int32 (n_nodes,): how often subscriptions hold that term."""
    sides: NDArray[np.int64]
    """int64 (n_rows,): of each posting the box in lanes, and its kind above them."""
    slots: NDArray[np.int32]
    """int32 (n_rows,): the subscription."""
    others: NDArray[np.int64]
    """int64 (n_rows,): two more terms, or one and the number of the branch."""
    boxes: NDArray[np.float64]
    """float64 (n_slots, 4): xmin, ymin, xmax, ymax."""
    records: NDArray[np.int64]
    """int64 (n_slots,): start of the expression in `words`; -1 for a free slot."""
    words: NDArray[np.int32]
    """int32 (n_words,): number of branches, then per branch its length and its term numbers, the rarest first."""
    free_rows: NDArray[np.int64]
    """int64 (CLASSES,): first free block of 2**i postings; each links to the next and the one before."""
    free_tags: NDArray[np.uint8]
    """uint8 (n_rows,): 1 + i where a free block of 2**i postings starts, else 0."""
    free_words: NDArray[np.int64]
    """int64 (CLASSES,): first free block of 2**i words; each links to the next."""
    frame: NDArray[np.float64]
    """float64 (4,): half of xmin and ymin of the bounds; steps per half a unit along x and y."""
    state: NDArray[np.int64]
    """int64 (STATE,): counters; see the positions above."""


class NewSubscriptions(NamedTuple):
    """Subscriptions to insert."""

    slots: NDArray[np.int32]
    """int32 (n,)."""
    boxes: NDArray[np.float64]
    """float64 (n, 4)."""
    owners: NDArray[np.int64]
    """int64 (n_branches,): the subscription of each branch."""
    branch_indptr: NDArray[np.int64]
    """int64 (n + 1,)."""
    term_indptr: NDArray[np.int64]
    """int64 (n_branches + 1,)."""
    term_ids: NDArray[np.int64]
    """int64 (n_terms,): the rarest term of a branch first."""


class MessageColumns(NamedTuple):
    """Points and terms of messages."""

    xs: NDArray[np.float64]
    """float64 (n,)."""
    ys: NDArray[np.float64]
    """float64 (n,)."""
    term_indptr: NDArray[np.int64]
    """int64 (n + 1,)."""
    term_ids: NDArray[np.int64]
    """int64 (n_terms,)."""


class BooleanScratch(NamedTuple):
    """Scratch arrays of one message."""

    numbers: NDArray[np.int32]
    """int32 (terms of the rows,): their numbers; 0 for a term of no subscription."""
    held: NDArray[np.int32]
    """int32 (a power of two,): hash set of the numbers of one message; all 0 between messages."""
    lists: NDArray[np.int64]
    """int64 (2 x 11 x most terms of a message, 3): first row, length and depth of the lists of two messages."""
    rows: NDArray[np.int64]
    """int64 (room,): postings of one message whose boxes may hold its point."""
    needed: NDArray[np.int64]
    """int64 (1,): postings on the lists of the current message, for which `rows` must have room."""
