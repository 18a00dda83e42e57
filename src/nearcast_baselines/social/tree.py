"""The paper's quadtree: its layout, and what a subscription changes on its way to the root.

    nodes    node -> first child, parent, depth, first subscription, number of them
    slots_of slot -> leaf, the next and the previous subscription there
    words    (node, term) -> subscriptions below that have it

A leaf that is full is parted into four; no node ever goes. Every change of a subscription walks up to the root.
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
from nearcast_baselines.social.ground import Ground

DEEPEST = 24
"""A leaf this deep is never parted: its points may be one."""

CHILD, PARENT, DEPTH, FIRST, SIZE = 0, 1, 2, 3, 4
"""Columns of a node: its first child or -1, its parent or -1, its depth; of a leaf, the first subscription and how
many there are."""
LEAF, NEXT, PREVIOUS = 0, 1, 2
"""Columns of a seat: the leaf of a subscription, and its neighbours there."""
N_NODES, NEEDED = 0, 1
"""Places in the state: nodes that there are, and keys that found no room."""
DONE, NODES, WORDS = 0, 1, 2
"""How planting ends: all done, or for want of room in this."""
NO_SLOT = -1
"""Where a chain ends."""
TERM_BITS = 32
"""Of a key of `words`; the node is above them."""


class Tree(NamedTuple):
    """The quadtree."""

    capacity: int
    nodes: NDArray[np.int32]
    """int32 (n, 5): see the columns; the four children of a node stand together."""
    regions: NDArray[np.float64]
    """float64 (n, 4): xmin, ymin, xmax, ymax of the part of the space whose points are below."""
    boxes: NDArray[np.float64]
    """float64 (n, 6): least and greatest coordinates, in the frame, of the points that were ever below."""
    leasts: NDArray[np.float64]
    """float64 (n,): the least threshold below the node; infinite if it holds no subscription."""
    slots_of: NDArray[np.int32]
    """int32 (n_slots, 3): see the columns."""
    words: TableArrays
    """Node and term -> how many subscriptions below have it."""
    terms: TableArrays
    """Term id -> dense number."""
    state: NDArray[np.int64]
    """int64 (2,): see the places."""


@kernel
def _part(tree: Tree, node: int, x: float, y: float) -> int:
    """Return which of the four children of a node, or to be, a point belongs to."""
    region = tree.regions[node]
    return int(x >= region[0] * 0.5 + region[2] * 0.5) + 2 * int(y >= region[1] * 0.5 + region[3] * 0.5)


@kernel
def _leaf_of(tree: Tree, x: float, y: float) -> int:
    node = 0
    while tree.nodes[node, CHILD] >= 0:
        node = tree.nodes[node, CHILD] + _part(tree, node, x, y)
    return node


@kernel
def _has_room(tree: Tree, n_keys: int) -> bool:
    """Tell whether so many keys fit; if not, say how many are needed."""
    tree.state[NEEDED] = n_keys
    return bool(tree.words.n_taken[0] + n_keys <= tree.words.tags.size - tree.words.tags.size // 4)


@kernel
def _sit(tree: Tree, leaf: int, slot: int) -> None:
    nodes, slots_of = tree.nodes, tree.slots_of
    after = nodes[leaf, FIRST]
    slots_of[slot, LEAF], slots_of[slot, NEXT], slots_of[slot, PREVIOUS] = leaf, after, NO_SLOT
    if after != NO_SLOT:
        slots_of[after, PREVIOUS] = slot
    nodes[leaf, FIRST] = slot
    nodes[leaf, SIZE] += 1


@kernel
def _count_in(tree: Tree, ground: Ground, node: int, slot: int) -> None:
    """Let a node know the keywords, the point and the bar of a subscription; there is room."""
    profiles, words, box = ground.profiles, tree.words, tree.boxes[node]
    run, first_key = profiles.heads[slot, RUN], int(node) << TERM_BITS
    for i in range(run, run + profiles.heads[slot, LENGTH]):
        key = first_key | table_get(tree.terms, profiles.run_terms[i], -1)
        table_put(words, key, table_get(words, key, 0) + 1)
    for axis in range(3):
        box[axis] = min(box[axis], ground.sites[slot, X + axis])
        box[3 + axis] = max(box[3 + axis], ground.sites[slot, X + axis])
    tree.leasts[node] = min(tree.leasts[node], ground.sites[slot, THRESHOLD])


@kernel
def _split(tree: Tree, ground: Ground, leaf: int) -> None:
    """Part a leaf into four; there is room."""
    nodes, points, first = tree.nodes, ground.profiles.points, int(tree.state[N_NODES])
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
        child = first + _part(tree, leaf, points[slot, PROFILE_X], points[slot, PROFILE_Y])
        _sit(tree, child, slot)
        _count_in(tree, ground, child, slot)
        slot = after
    nodes[leaf, CHILD], nodes[leaf, FIRST], nodes[leaf, SIZE] = first, NO_SLOT, 0


@kernel
def plant(tree: Tree, ground: Ground, slots: NDArray[np.int32], start: int) -> tuple[int, int]:
    """Take in subscriptions from `start` on; return where it stopped, and for want of what."""
    nodes, points, heads = tree.nodes, ground.profiles.points, ground.profiles.heads
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
            _split(tree, ground, leaf)
            leaf = _leaf_of(tree, x, y)
        if not _has_room(tree, heads[slot, LENGTH] * (nodes[leaf, DEPTH] + 1)):
            return i, WORDS
        _sit(tree, leaf, slot)
        node = leaf
        while node >= 0:
            _count_in(tree, ground, node, slot)
            node = nodes[node, PARENT]
    return slots.size, DONE


@kernel
def _update_leasts(tree: Tree, ground: Ground, leaf: int) -> None:
    """Let a leaf, and the nodes above it, know the least bar below."""
    nodes, leasts = tree.nodes, tree.leasts
    least, slot, node = np.inf, nodes[leaf, FIRST], leaf
    while slot != NO_SLOT:
        least = min(least, ground.sites[slot, THRESHOLD])
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
def uproot(tree: Tree, ground: Ground, slots: NDArray[np.int32]) -> None:
    """Forget subscriptions whose profiles are still there."""
    nodes, slots_of, profiles, words = tree.nodes, tree.slots_of, ground.profiles, tree.words
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
        _update_leasts(tree, ground, leaf)


@kernel
def follow_thresholds(tree: Tree, ground: Ground, slots: NDArray[np.int32]) -> None:
    """Let nodes know that the bars of subscriptions have moved."""
    for slot in slots:
        _update_leasts(tree, ground, tree.slots_of[slot, LEAF])
