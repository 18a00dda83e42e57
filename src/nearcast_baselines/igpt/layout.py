"""The arrays of IGPT: a quadtree, lists of postings in its leaves, and what bounds need of each.

nodes ── leaves ── members            the subscriptions of each leaf, and the least nearness that any of them needs
leaf_lists ── lists ── postings       by term and leaf: groups of similar alpha, each by rising threshold
runs, slot_places                     from a subscription to its postings and its leaf
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import TableArrays
from nearcast_baselines.topk_base import IndexContext

DEEPEST = 20
"""Level of the quadtree at which leaves are no longer split."""

# Columns of a posting: its threshold (kScore*); the greatest weight and alpha (alpha*) of it and of later ones in
# its group; its own alpha, the weight of its term, the sum of the later weights, the greatest with and without it.
THRESHOLD, MAX_WEIGHT, MAX_ALPHA, OWN_ALPHA, OWN, REST, GREATEST, GREATEST_LATER = range(8)
# Columns of a subscription: nearness lost between it and the border of its leaf, and the least it needs (lambda_S).
INNER, NEEDS = 0, 1
# Columns of a leaf on the sphere: sines and cosines of half the angles xmin, ymin, xmax, ymax, and the least cosine
# of its latitudes.
SINE, COSINE, MIN_COSINE = 0, 4, 8
# Positions in the counts.
N_LISTS, FREE_LIST, N_LEAVES, N_NODES, NEED_LISTS, NEED_LEAVES = range(6)


class Leaves(NamedTuple):
    """The leaves of the quadtree."""

    boxes: NDArray[np.float64]
    """float64 (n, 4): xmin, ymin, xmax, ymax."""
    angles: NDArray[np.float64]
    """float64 (n, 9): see above; meaningless on the plane."""
    needs: NDArray[np.float64]
    """float64 (n,): the least nearness that any of its subscriptions needs."""
    heads: NDArray[np.int32]
    """int32 (n, 5): first member, number of members, class of their block, node, depth."""
    stale: NDArray[np.bool_]
    """bool (n,): whether `needs` must be recomputed."""


MEMBERS, N_MEMBERS, CLASS, NODE, DEPTH = range(5)
"""Columns of the head of a leaf."""


class Lists(NamedTuple):
    """The lists of all leaves, in blocks of 1, 2, 4, ... postings."""

    starts: NDArray[np.int32]
    """int32 (n,): the first posting; for a free list, the next free list."""
    lengths: NDArray[np.int32]
    classes: NDArray[np.int8]
    keys: NDArray[np.int64]
    """int64 (n,): the key of the list, -1 if it is free."""


class Postings(NamedTuple):
    """The pool of postings."""

    rows: NDArray[np.float32]
    """float32 (n, 8): see above."""
    slots: NDArray[np.int32]
    """int32 (n,): the subscription; the first of a free block holds the next free block."""
    lefts: NDArray[np.int32]
    """int32 (n,): number of postings of its group from here on."""
    groups: NDArray[np.int8]
    """int8 (n,): the number of its group."""


class Runs(NamedTuple):
    """The terms of subscriptions, parallel to the runs of profiles."""

    weights: NDArray[np.float32]
    """float32 (n, 4): OWN to GREATEST_LATER of a posting."""
    lists: NDArray[np.int32]
    """int32 (n,): the list of the posting."""


class Members(NamedTuple):
    """The subscriptions of the leaves."""

    slots: NDArray[np.int32]
    """int32 (n,): blocks of slots."""


class SlotPlaces(NamedTuple):
    """Bounds and leaf of each subscription."""

    bounds: NDArray[np.float64]
    """float64 (n_slots, 2): INNER and NEEDS."""
    leaves: NDArray[np.int32]
    """int32 (n_slots,): the leaf."""
    places: NDArray[np.int32]
    """int32 (n_slots,): position among the members of the leaf."""


class Prunings(NamedTuple):
    """Which of the paper's prunings are on; none of them changes the matches."""

    cells: bool = True
    """Whether leaves that are too far for all their subscriptions are skipped (lemma 6)."""
    groups: bool = True
    """Whether groups are skipped (theorem 3)."""
    ends: bool = True
    """Whether groups are left early (theorem 4)."""
    prefix: bool = True
    """Whether a term must be in the prefix of a subscription (theorem 1)."""
    unseen: bool = True
    """Whether the later terms must be able to make up the rest of the score (theorem 2)."""


class State(NamedTuple):
    """All arrays of the index."""

    context: IndexContext
    prunings: Prunings
    frame: NDArray[np.float64]
    """float64 (4 + n_groups - 1,): the bounds, then the greatest alpha of each group but the last."""
    nodes: NDArray[np.int32]
    """int32 (n,): the first of four children; for a leaf, the complement of its number."""
    leaves: Leaves
    leaf_lists: TableArrays
    """Term and leaf -> list."""
    lists: Lists
    postings: Postings
    runs: Runs
    members: Members
    slots_of: SlotPlaces
    pool: NDArray[np.int64]
    """int64 (STATE,): blocks of postings."""
    rooms: NDArray[np.int64]
    """int64 (STATE,): blocks of members."""
    counts: NDArray[np.int64]
    """int64 (8,): see above."""
