"""Leaves of a tree assigned to shards, the base of the partitioners that divide space by a tree.

A message goes to the shard of its leaf, a subscription to those of all leaves that its box overlaps. Cuts between
leaves of the same shard are left out when boxes and points descend the tree.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from nearcast.model import Footprints, MessageBatch
from nearcast.partition.base import CellPairs, ShardArea, ToSome
from nearcast.partition.masks import Masks, mask_of
from nearcast.partition.tree import Tree
from nearcast.space import Box

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class LeafRouting(ToSome):
    """Leaves of a tree, one shard each."""

    n_shards: int
    tree: Tree
    assignment: Ints
    """int32 (n_leaves,): the shard of each leaf."""
    loads: Floats

    @cached_property
    def _collapsed(self) -> tuple[Tree, Ints]:
        """A tree without the cuts between leaves of the same shard, and the shards of its leaves."""
        return self.tree.collapsed(self.assignment)

    def shard_areas(self, bounds: Box) -> list[ShardArea]:
        """Return the leaves within bounds that hold a point."""
        boxes = self.tree.boxes(bounds.as_tuple()).tolist()
        each = zip(self.assignment.tolist(), boxes, strict=True)
        return [ShardArea((a, b, c, d), 1 << shard) for shard, (a, b, c, d) in each if a <= c and b <= d]

    def place(self, footprints: Footprints) -> Masks:
        """Return the shards of the leaves that a box overlaps."""
        tree, shards = self._collapsed
        return tree.masks_in(footprints.boxes, shards, self.n_shards)

    def route(self, batch: MessageBatch) -> Masks:
        """Return the shard of the leaf that a message is in."""
        tree, shards = self._collapsed
        return mask_of(shards[tree.leaves_at(batch.xs, batch.ys)], self.n_shards)

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
        """Return the cell of each message."""
        return CellPairs(np.arange(len(batch)), self.tree.leaves_at(batch.xs, batch.ys))

    def subscription_cells(self, footprints: Footprints) -> CellPairs:
        """Return the cells of subscriptions."""
        return CellPairs.distinct(*self.tree.leaves_in(footprints.boxes))

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
