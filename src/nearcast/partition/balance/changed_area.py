"""Where a routing of space differs from the one before: subscriptions elsewhere stay where they are.

Cuts, splits and moves change the shards of a few leaves. A subscription whose box overlaps none of them has the same
shards before and after, whatever its terms, so a change of the routing need not look at more than its box. Cost: a
pass over the leaves, and a descent of a tree per box.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self, TypeGuard

import numpy as np
import numpy.typing as npt

from nearcast.partition.balance.cells import LeafCellRouting
from nearcast.partition.base import Routing
from nearcast.partition.tree import Tree

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Area = Callable[[Floats], Flags]
"""Returns which boxes, rows of xmin, ymin, xmax and ymax within the bounds of a space, overlap an area."""


class RefinableRouting(LeafCellRouting, Protocol):
    """A table of cells that divides space by a tree, and knows what it was made of."""

    @property
    def tree(self) -> Tree:
        """The division of space."""

    def refines(self, other: Self) -> bool:
        """Return whether the routing is another one after cuts, splits and moves."""


def changed_area(before: Routing, after: Routing) -> Area | None:
    """Return where a routing may place subscriptions elsewhere than the one before; None for everywhere."""
    if type(before) is not type(after) or before.n_shards != after.n_shards or not _can_refine(after):
        return None
    old: Any = before.fixed()
    new: Any = after.fixed()
    if not new.refines(old):
        return None
    changed = _changed_leaves(old, new).astype(np.int32)
    tree, numbers = new.tree.collapsed(changed)

    def overlaps(boxes: Floats) -> Flags:
        found: Flags = tree.masks_in(boxes, numbers, 2)[:, 0] >= 2
        return found

    return overlaps


def _changed_leaves(old: RefinableRouting, new: RefinableRouting) -> Flags:
    """Return which leaves of a routing have cells in other shards than the leaf that they were part of."""
    ancestors, were, are = new.tree.ancestors(old.tree), _shards_of_leaves(old), _shards_of_leaves(new)
    return np.array([are[leaf] != were[ancestor] for leaf, ancestor in enumerate(ancestors.tolist())], np.bool_)


def _shards_of_leaves(routing: RefinableRouting) -> list[list[int]]:
    """Return the shards of the cells of each leaf; a cut keeps their order."""
    found: list[list[int]] = [[] for _ in range(routing.tree.n_leaves)]
    for leaf, shard in zip(routing.cell_leaves.tolist(), routing.cell_shards.tolist(), strict=True):
        found[leaf].append(shard)
    return found


def _can_refine(routing: Any) -> TypeGuard[RefinableRouting]:
    return hasattr(routing, "refines")
