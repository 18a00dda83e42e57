"""Subscriptions by location, close ones in the same shard; every shard sees every message (DSkype, section 7.3.2).

Space is cut alternately across x and y where both sides cost the same. The cost of a part is the number of its
subscriptions times the share of messages in it (equation 15, algorithm 3). The paper halves down to a power of two;
here a part for three shards gives one to the low side and two to the high side.

Cost: fitting sorts the sample once per level; placing descends the tree. A message goes to all shards.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from nearcast.model import Footprints, MessageBatch
from nearcast.partition.base import CellPairs, Sample, ShardArea, ToAll
from nearcast.partition.masks import Masks, check_shards, mask_of
from nearcast.partition.tree import Tree, grow
from nearcast.space import Box

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LocationRouting(ToAll):
    """Subscriptions by location, messages to all shards."""

    n_shards: int
    tree: Tree
    assignment: Ints
    """int32 (n_leaves,): the shard of each leaf."""
    loads: Floats
    """Equation 15: subscriptions times the share of messages."""

    def shard_areas(self, bounds: Box) -> list[ShardArea]:
        """Return the leaves."""
        each = zip(self.tree.boxes(bounds.as_tuple()).tolist(), self.assignment.tolist(), strict=True)
        return [ShardArea((a, b, c, d), 1 << shard) for (a, b, c, d), shard in each]

    def place(self, footprints: Footprints) -> Masks:
        """Return the shard of the leaf that a subscription is in."""
        return mask_of(self.assignment[self.tree.leaves_at(footprints.xs, footprints.ys)], self.n_shards)

    # -- cells, see `nearcast.partition.balance` -------------------------------------------------------------------

    @property
    def cell_shards(self) -> Ints:
        """The shard of each cell: a leaf."""
        return self.assignment

    @property
    def cell_leaves(self) -> Ints:
        """The leaf of each cell."""
        return np.arange(self.tree.n_leaves, dtype=np.int32)

    def message_cells(self, batch: MessageBatch) -> CellPairs:
        """Return no cells: every message goes to every shard."""
        return CellPairs.joined([])

    def subscription_cells(self, footprints: Footprints) -> CellPairs:
        """Return the cell of each subscription."""
        return CellPairs(np.arange(len(footprints)), self.tree.leaves_at(footprints.xs, footprints.ys))

    def refines(self, other: Self) -> bool:
        """Return whether the routing is another one after cuts and moves."""
        return self.tree.refines(other.tree)

    def reassigned(self, shards: Ints) -> Self:
        """Return the routing with the same cells in other shards."""
        return replace(self, assignment=shards)

    def may_cut(self, leaf: int) -> bool:
        """Return true: a cut adds one leaf."""
        return True

    def cut(self, leaf: int, *, axis: int, value: float) -> Self:
        """Return the routing with a leaf cut in two, both in its shard."""
        tree = self.tree.cut(leaf, axis=axis, value=value)
        return replace(self, tree=tree, assignment=np.append(self.assignment, self.assignment[leaf]))


class LocationPartitioner:
    """Cuts space into parts of equal cost."""

    name = "location"

    def fit(self, sample: Sample, *, n_shards: int) -> LocationRouting:
        """Cut space by the subscriptions and messages of the sample."""
        check_shards(n_shards)
        points = sample.footprints.xs, sample.footprints.ys
        messages = sample.messages.xs, sample.messages.ys

        def cut(rows: Longs, seen: Longs, depth: int, shares: tuple[int, int]) -> tuple[int, float] | None:
            for axis in (depth % 2, 1 - depth % 2):
                value = even_cut(points[axis][rows], messages[axis][seen], shares)
                if value is not None:
                    return axis, value
            return None

        tree = grow(n_shards, points, points, messages, cut)
        held, seen = (np.bincount(tree.leaves_at(*at), minlength=n_shards) for at in (points, messages))
        return LocationRouting(
            n_shards, tree, np.arange(tree.n_leaves, dtype=np.int32), held * (seen / max(1, len(sample.messages)))
        )


def even_cut(points: Floats, messages: Floats, shares: tuple[int, int]) -> float | None:
    """Return the coordinate of a subscription at which costs are in proportion to shares; None if there is none.

    >>> even_cut(np.array([1.0, 2.0, 3.0, 9.0]), np.array([1.0, 2.0, 3.0, 9.0]), (1, 1))
    2.0
    >>> even_cut(np.array([1.0, 1.0]), np.array([1.0]), (1, 1)) is None
    True
    """
    values, counts = np.unique(points, return_counts=True)
    if len(values) < 2:
        return None
    n_low = np.cumsum(counts)[:-1]
    # One extra message on each side: without messages, the number of subscriptions decides.
    seen_low = np.searchsorted(np.sort(messages), values[:-1], side="right")
    cost_low = n_low * (seen_low + 1.0)
    cost_high = (len(points) - n_low) * (len(messages) - seen_low + 1.0)
    return float(values[np.argmin(np.abs(cost_low / shares[0] - cost_high / shares[1]))])
