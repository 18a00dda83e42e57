"""The nodes of the paper's quadtree: their arrays, and their changes when a subscription changes.

    nodes    node -> first child, parent, depth, first subscription, number of them
    slots_of slot -> leaf, the next and the previous subscription there
    words    (node, term) -> number of subscriptions below the node with the term

A full leaf is split into four; nodes are never merged. Every change of a subscription walks up to the root.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import TableArrays, kernel, table_get, table_put, table_remove
from nearcast.index._kernels.social.layout import THRESHOLD, X
from nearcast.model._kernels.profiles import LENGTH, RUN
from nearcast.model._kernels.profiles import X as PROFILE_X
from nearcast.model._kernels.profiles import Y as PROFILE_Y
from nearcast_baselines.social.base import IndexContext

DEEPEST = 24
"""A leaf at this depth is never split: all its points may be equal."""

CHILD, PARENT, DEPTH, FIRST, SIZE = 0, 1, 2, 3, 4
"""Columns of a node: its first child or -1, its parent or -1, its depth; of a leaf, the first subscription and how
many there are."""
LEAF, NEXT, PREVIOUS = 0, 1, 2
"""Columns of `slots_of`: the leaf of a subscription, and the next and previous subscription of the leaf."""
N_NODES, NEEDED = 0, 1
"""Positions in the state: the number of nodes, and the number of keys that found no room."""
DONE, NODES, WORDS = 0, 1, 2
"""How an insertion ends: completed, or stopped because this array or table is full."""
NO_SLOT = -1
"""End of a linked list of subscriptions."""
TERM_BITS = 32
"""Bits of the term in a key of `words`; the node is above them."""


class Tree(NamedTuple):
    """The quadtree."""

    capacity: int
    nodes: NDArray[np.int32]
    """int32 (n, 5): see the columns; the four children of a node are adjacent."""
    regions: NDArray[np.float64]
    """float64 (n, 4): xmin, ymin, xmax, ymax of the part of the space that the node covers."""
    boxes: NDArray[np.float64]
    """float64 (n, 6): least and greatest coordinates, in the frame, of all points ever inserted below the node."""
    leasts: NDArray[np.float64]
    """float64 (n,): the least threshold below the node; infinite if it holds no subscription."""
    slots_of: NDArray[np.int32]
    """int32 (n_slots, 3): see the columns."""
    words: TableArrays
    """Node and term -> number of subscriptions below the node with the term."""
    terms: TableArrays
    """Term id -> dense number."""
    state: NDArray[np.int64]
    """int64 (2,): see the positions."""


@kernel
def _quarter(tree: Tree, node: int, x: float, y: float) -> int:
    """Return which quarter of a node's region a point lies in."""
    region = tree.regions[node]
    return int(x >= region[0] * 0.5 + region[2] * 0.5) + 2 * int(y >= region[1] * 0.5 + region[3] * 0.5)


@kernel
def _leaf_of(tree: Tree, x: float, y: float) -> int:
    """Return the leaf of a point."""
    node = 0
    while tree.nodes[node, CHILD] >= 0:
        node = tree.nodes[node, CHILD] + _quarter(tree, node, x, y)
    return node


@kernel
def _has_room(tree: Tree, n_keys: int) -> bool:
    """Return whether so many keys fit into `words`; record how many are needed."""
    tree.state[NEEDED] = n_keys
    return bool(tree.words.n_taken[0] + n_keys <= tree.words.tags.size - tree.words.tags.size // 4)


@kernel
def _link(tree: Tree, leaf: int, slot: int) -> None:
    """Add a subscription to the linked list of a leaf."""
    nodes, slots_of = tree.nodes, tree.slots_of
    after = nodes[leaf, FIRST]
    slots_of[slot, LEAF], slots_of[slot, NEXT], slots_of[slot, PREVIOUS] = leaf, after, NO_SLOT
    if after != NO_SLOT:
        slots_of[after, PREVIOUS] = slot
    nodes[leaf, FIRST] = slot
    nodes[leaf, SIZE] += 1


@kernel
def _add_to_node(tree: Tree, context: IndexContext, node: int, slot: int) -> None:
    """Add the keywords, the point and the threshold of a subscription to a node; requires room."""
    profiles, words, box = context.profiles, tree.words, tree.boxes[node]
    run, first_key = profiles.heads[slot, RUN], int(node) << TERM_BITS
    for i in range(run, run + profiles.heads[slot, LENGTH]):
        key = first_key | table_get(tree.terms, profiles.run_terms[i], -1)
        table_put(words, key, table_get(words, key, 0) + 1)
    for axis in range(3):
        box[axis] = min(box[axis], context.sites[slot, X + axis])
        box[3 + axis] = max(box[3 + axis], context.sites[slot, X + axis])
    tree.leasts[node] = min(tree.leasts[node], context.sites[slot, THRESHOLD])


@kernel
def _split(tree: Tree, context: IndexContext, leaf: int) -> None:
    """Split a leaf into four; requires room."""
    nodes, points, first = tree.nodes, context.profiles.points, int(tree.state[N_NODES])
    x0, y0, x1, y1 = tree.regions[leaf]
    xm, ym = x0 * 0.5 + x1 * 0.5, y0 * 0.5 + y1 * 0.5
    for part in range(4):
        child = first + part
        nodes[child, CHILD], nodes[child, PARENT], nodes[child, DEPTH] = -1, leaf, nodes[leaf, DEPTH] + 1
        nodes[child, FIRST], nodes[child, SIZE] = NO_SLOT, 0
        tree.regions[child, 0], tree.regions[child, 2] = (xm, x1) if part & 1 else (x0, xm)
        tree.regions[child, 1], tree.regions[child, 3] = (ym, y1) if part & 2 else (y0, ym)
        tree.boxes[child, :3], tree.boxes[child, 3:], tree.leasts[child] = np.inf, -np.inf, np.inf
    tree.state[N_NODES] += 4
    slot = nodes[leaf, FIRST]
    while slot != NO_SLOT:
        after = tree.slots_of[slot, NEXT]
        child = first + _quarter(tree, leaf, points[slot, PROFILE_X], points[slot, PROFILE_Y])
        _link(tree, child, slot)
        _add_to_node(tree, context, child, slot)
        slot = after
    nodes[leaf, CHILD], nodes[leaf, FIRST], nodes[leaf, SIZE] = first, NO_SLOT, 0


@kernel
def insert_slots(tree: Tree, context: IndexContext, slots: NDArray[np.int32], start: int) -> tuple[int, int]:
    """Insert subscriptions from `start` on; return where it stopped, and why."""
    nodes, points, heads = tree.nodes, context.profiles.points, context.profiles.heads
    for i in range(start, slots.size):
        slot = slots[i]
        x, y = points[slot, PROFILE_X], points[slot, PROFILE_Y]
        leaf = _leaf_of(tree, x, y)
        while nodes[leaf, SIZE] >= tree.capacity and nodes[leaf, DEPTH] < DEEPEST:
            if tree.state[N_NODES] + 4 > nodes.shape[0]:
                return i, NODES
            n_keys, one = 0, nodes[leaf, FIRST]
            while one != NO_SLOT:
                n_keys += heads[one, LENGTH]
                one = tree.slots_of[one, NEXT]
            if not _has_room(tree, n_keys):
                return i, WORDS
            _split(tree, context, leaf)
            leaf = _leaf_of(tree, x, y)
        if not _has_room(tree, heads[slot, LENGTH] * (nodes[leaf, DEPTH] + 1)):
            return i, WORDS
        _link(tree, leaf, slot)
        node = leaf
        while node >= 0:
            _add_to_node(tree, context, node, slot)
            node = nodes[node, PARENT]
    return slots.size, DONE


@kernel
def _update_leasts(tree: Tree, context: IndexContext, leaf: int) -> None:
    """Recompute the least threshold of a leaf and of the nodes above it."""
    nodes, leasts = tree.nodes, tree.leasts
    least, slot, node = np.inf, nodes[leaf, FIRST], leaf
    while slot != NO_SLOT:
        least = min(least, context.sites[slot, THRESHOLD])
        slot = tree.slots_of[slot, NEXT]
    while leasts[node] != least:
        leasts[node] = least
        node = nodes[node, PARENT]
        if node < 0:
            break
        least = np.inf
        for child in range(nodes[node, CHILD], nodes[node, CHILD] + 4):
            least = min(least, leasts[child])


@kernel
def delete_slots(tree: Tree, context: IndexContext, slots: NDArray[np.int32]) -> None:
    """Delete subscriptions; their profiles must still exist."""
    nodes, slots_of, profiles, words = tree.nodes, tree.slots_of, context.profiles, tree.words
    for slot in slots:
        leaf, before, after = slots_of[slot, LEAF], slots_of[slot, PREVIOUS], slots_of[slot, NEXT]
        if before == NO_SLOT:
            nodes[leaf, FIRST] = after
        else:
            slots_of[before, NEXT] = after
        if after != NO_SLOT:
            slots_of[after, PREVIOUS] = before
        nodes[leaf, SIZE] -= 1
        node, run = leaf, profiles.heads[slot, RUN]
        while node >= 0:
            for i in range(run, run + profiles.heads[slot, LENGTH]):
                key = (int(node) << TERM_BITS) | table_get(tree.terms, profiles.run_terms[i], -1)
                n = table_get(words, key, 0)
                if n > 1:
                    table_put(words, key, n - 1)
                else:
                    table_remove(words, key)
            node = nodes[node, PARENT]
        _update_leasts(tree, context, leaf)


@kernel
def follow_thresholds(tree: Tree, context: IndexContext, slots: NDArray[np.int32]) -> None:
    """Update nodes after changes of thresholds."""
    for slot in slots:
        _update_leasts(tree, context, tree.slots_of[slot, LEAF])
