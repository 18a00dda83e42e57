"""A tree of cuts that divides space, each across x or y; its leaves are the parts.

    cuts    node -> axis (0 for x, 1 for y) and value: coordinates up to the value go low, others go high
    kids    node -> the nodes below, low and high; a leaf is ~number

The box of a leaf is closed at its high cuts and open at its low cuts, so each point is in one leaf. Cost: one
comparison per level for each point, all points of a level at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nearcast.errors import require
from nearcast.partition.base import ShardArea
from nearcast.partition.masks import Masks, mask_of, no_shards
from nearcast.space import Box

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]

Cut = Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64], int, tuple[int, int]], tuple[int, float] | None]
"""Function of the subscriptions and messages in a node, its depth, and the numbers of leaves for the low and high
sides; it returns the axis and value of a cut, or None if the node cannot be cut.
"""


@dataclass(frozen=True)
class Tree:
    """A division of space."""

    axes: npt.NDArray[np.int8]
    values: Floats
    kids: Ints
    """int32 (n_nodes, 2): see above. The root is node 0; a tree without nodes is one leaf."""
    n_leaves: int

    def leaves_at(self, xs: Floats, ys: Floats) -> Ints:
        """Return the leaf of each point."""
        at = np.zeros(len(xs), np.int32) if len(self.axes) else np.full(len(xs), -1, np.int32)
        inside = np.flatnonzero(at >= 0)
        while len(inside):
            nodes = at[inside]
            is_high = np.where(self.axes[nodes] == 0, xs[inside], ys[inside]) > self.values[nodes]
            at[inside] = self.kids[nodes, is_high.astype(np.int64)]
            inside = inside[at[inside] >= 0]
        return ~at

    def leaves_in(self, boxes: Floats) -> tuple[npt.NDArray[np.int64], Ints]:
        """Return pairs of boxes and leaves that overlap, as rows of boxes and leaf numbers."""
        rows, at = np.arange(len(boxes)), np.zeros(len(boxes), np.int32)
        if not len(self.axes):
            return rows, at
        done = [(rows[:0], at[:0])]
        while len(rows):
            axes, values = self.axes[at].astype(np.int64), self.values[at]
            low, high = boxes[rows, axes] <= values, boxes[rows, axes + 2] > values
            kids = np.concatenate([self.kids[at[low], 0], self.kids[at[high], 1]])
            rows = np.concatenate([rows[low], rows[high]])
            is_leaf = kids < 0
            done.append((rows[is_leaf], ~kids[is_leaf]))
            rows, at = rows[~is_leaf], kids[~is_leaf]
        return np.concatenate([rows for rows, _ in done]), np.concatenate([leaves for _, leaves in done])

    def masks_in(self, boxes: Floats, shards: Ints, n_shards: int) -> Masks:
        """Return the shards of the leaves that each box overlaps, given the shard of each leaf."""
        from nearcast.partition._kernels.tree import TreeArrays, add_overlapped

        if not len(self.axes):
            return mask_of(np.repeat(shards, len(boxes)), n_shards)
        masks = no_shards(len(boxes), n_shards)
        add_overlapped(TreeArrays(self.axes, self.values, self.kids, shards), np.ascontiguousarray(boxes), masks)
        return masks

    def collapsed(self, shards: Ints) -> tuple[Tree, Ints]:
        """Return the tree in which every node whose leaves have the same shard is a leaf, and the shards of leaves.

        >>> tree, _ = joined([((0, 5.0, 0),), ((0, 5.0, 1), (1, 2.0, 0)), ((0, 5.0, 1), (1, 2.0, 1))])
        >>> fewer, shards = tree.collapsed(np.array([3, 4, 4], np.int32))
        >>> fewer.n_leaves, shards.tolist()
        (2, [3, 4])
        """
        only = np.concatenate(
            [np.full(len(self.axes), -1, np.int32), shards[::-1]]
        )  # leaf ~i is the i-th from the end
        for node in range(len(self.axes) - 1, -1, -1):
            low, high = only[self.kids[node]].tolist()
            only[node] = low if low == high else -1
        if not len(self.axes) or only[0] >= 0:
            return Tree(self.axes[:0], self.values[:0], self.kids[:0], 1), only[:1] if len(self.axes) else shards
        kept = np.flatnonzero(only[: len(self.axes)] < 0)
        number = np.cumsum(only[: len(self.axes)] < 0) - 1
        kids = self.kids[kept]
        are_leaves = only[kids] >= 0
        kids = np.where(are_leaves, ~(np.cumsum(are_leaves).reshape(kids.shape) - 1), number[np.maximum(kids, 0)])
        tree = Tree(self.axes[kept], self.values[kept], kids.astype(np.int32), int(are_leaves.sum()))
        return tree, only[self.kids[kept][are_leaves]]

    def cut(self, leaf: int, *, axis: int, value: float) -> Tree:
        """Return the tree with a leaf cut in two: the low side keeps its number, the high side gets the next one.

        >>> tree = Tree(np.zeros(0, np.int8), np.zeros(0), np.zeros((0, 2), np.int32), 1)
        >>> tree = tree.cut(0, axis=0, value=5.0).cut(1, axis=1, value=2.0)
        >>> tree.leaves_at(np.array([4.0, 6.0, 6.0]), np.array([9.0, 1.0, 9.0])).tolist(), tree.n_leaves
        ([0, 1, 2], 3)
        """
        require(0 <= leaf < self.n_leaves, "leaf", f"must be between 0 and {self.n_leaves - 1}", leaf)
        require(axis in (0, 1), "axis", "must be 0 for x or 1 for y", axis)
        kids = self.kids.copy()
        kids[kids == ~leaf] = len(kids)
        return Tree(
            np.append(self.axes, np.int8(axis)),
            np.append(self.values, value),
            np.concatenate([kids, np.array([[~leaf, ~self.n_leaves]], np.int32)]),
            self.n_leaves + 1,
        )

    def refines(self, other: Tree) -> bool:
        """Return whether the tree is another one after cuts of leaves."""
        n = len(other.axes)
        if n > len(self.axes) or other.n_leaves + len(self.axes) - n != self.n_leaves:
            return False
        same = np.array_equal(self.axes[:n], other.axes) and np.array_equal(self.values[:n], other.values)
        inner, kids = other.kids >= 0, self.kids[:n]
        rest = (kids[~inner] == other.kids[~inner]) | (kids[~inner] >= n)
        return same and np.array_equal(kids[inner], other.kids[inner]) and bool(rest.all())

    def ancestors(self, other: Tree) -> Ints:
        """Return the leaf of another tree that each leaf was part of before the cuts.

        >>> tree = Tree(np.zeros(0, np.int8), np.zeros(0), np.zeros((0, 2), np.int32), 1).cut(0, axis=0, value=5.0)
        >>> tree.cut(1, axis=1, value=2.0).ancestors(tree).tolist()
        [0, 1, 1]
        """
        found = np.zeros(self.n_leaves, np.int32)
        found[: other.n_leaves] = np.arange(other.n_leaves)
        n, kids = len(other.axes), self.kids.tolist()
        of_node = {0: 0} if n == 0 else {}
        for after, before in zip(self.kids[:n].ravel().tolist(), other.kids.ravel().tolist(), strict=True):
            if after != before:
                of_node[after] = ~before
        for node in range(n, len(kids)):
            for kid in kids[node]:
                if kid < 0:
                    found[~kid] = of_node[node]
                else:
                    of_node[kid] = of_node[node]
        return found

    def shard_areas(self, bounds: Box) -> list[ShardArea]:
        """Return the leaves within bounds that hold a point; leaf i belongs to shard i."""
        boxes = self.boxes(bounds.as_tuple()).tolist()
        return [ShardArea((a, b, c, d), 1 << leaf) for leaf, (a, b, c, d) in enumerate(boxes) if a <= c and b <= d]

    def boxes(self, bounds: tuple[float, float, float, float]) -> Floats:
        """Return the box of each leaf within bounds: xmin, ymin, xmax, ymax."""
        found = np.tile(np.array(bounds), (self.n_leaves, 1))
        open_ = [(0, np.array(bounds))] if len(self.axes) else []
        while open_:
            node, box = open_.pop()
            for side in (0, 1):
                inner, kid = box.copy(), int(self.kids[node, side])
                inner[int(self.axes[node]) + 2 * (1 - side)] = self.values[node]
                if kid < 0:
                    found[~kid] = inner
                else:
                    open_.append((kid, inner))
        return found


Points = tuple[Floats, Floats]
"""The xs and ys of points."""


def grow(n_leaves: int, lows: Points, highs: Points, others: Points, cut: Cut) -> Tree:
    """Cut space until there are the given number of leaves, or nothing can be cut.

    Boxes, given by their low and high corners, and other points follow the cuts; a box across a cut goes both ways.
    """
    axes: list[int] = []
    values: list[float] = []
    kids: list[list[int]] = []
    n_made = 0

    def build(rows: npt.NDArray[np.int64], other_rows: npt.NDArray[np.int64], wanted: int, depth: int) -> int:
        nonlocal n_made
        shares = wanted // 2, wanted - wanted // 2
        chosen = cut(rows, other_rows, depth, shares) if wanted > 1 else None
        if chosen is None:
            n_made += 1
            return ~(n_made - 1)
        axis, value = chosen
        node = len(axes)
        axes.append(axis)
        values.append(value)
        kids.append([0, 0])
        low, high, other_low = lows[axis][rows] <= value, highs[axis][rows] > value, others[axis][other_rows] <= value
        kids[node][0] = build(rows[low], other_rows[other_low], shares[0], depth + 1)
        kids[node][1] = build(rows[high], other_rows[~other_low], shares[1], depth + 1)
        return node

    build(np.arange(len(lows[0])), np.arange(len(others[0])), n_leaves, 0)
    return Tree(np.array(axes, np.int8), np.array(values), np.array(kids, np.int32).reshape(len(kids), 2), n_made)


Path = tuple[tuple[int, float, int], ...]
"""The cuts around a leaf, outermost first: axis, value, and 0 for the low side or 1 for the high side."""


def joined(paths: Sequence[Path]) -> tuple[Tree, dict[Path, int]]:
    """Return the tree with leaves at the ends of the given complete set of paths, and the number of each leaf.

    >>> tree, leaf_of = joined([((0, 5.0, 0),), ((0, 5.0, 1), (1, 2.0, 0)), ((0, 5.0, 1), (1, 2.0, 1))])
    >>> tree.leaves_at(np.array([4.0, 6.0, 6.0]), np.array([9.0, 1.0, 9.0])).tolist(), list(leaf_of.values())
    ([0, 1, 2], [0, 1, 2])
    """
    axes: list[int] = []
    values: list[float] = []
    kids: list[list[int]] = []
    leaf_of: dict[Path, int] = {}

    def build(below: Sequence[Path], depth: int) -> int:
        if len(below) == 1:
            return ~leaf_of.setdefault(below[0], len(leaf_of))
        node, (axis, value, _) = len(axes), below[0][depth]
        axes.append(axis)
        values.append(value)
        kids.append([0, 0])
        for side in (0, 1):
            kids[node][side] = build([path for path in below if path[depth][2] == side], depth + 1)
        return node

    build(paths, 0)
    made = Tree(np.array(axes, np.int8), np.array(values), np.array(kids, np.int32).reshape(len(kids), 2), len(paths))
    return made, leaf_of
