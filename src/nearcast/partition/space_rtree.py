"""A packed R-tree divides space; a message goes to one shard, a box to all it overlaps (PS2Stream, section VI-B).

The tree is packed by sort-tile-recursive: slabs across x with the same number of points, each cut across y into
leaves with the same number, about 16 per shard. The points are the centres of subscriptions and the messages:
subscriptions alone do not show where messages are dense, and both are load (definition 1).

    1 │ 3 │ 5         Adjacent leaves, up one slab and then up the next, are merged into runs of even load, one run
   ───┤   ├───        per shard. A leaf extends to its neighbours, or to infinity, so each point is in one leaf.
    0 ├───┤ 4         (Runs in z-order make a third more replicas: leaves of the same height in two slabs are rarely
      │ 2 │           neighbours.)

Cost: fitting reads each point once per level; placing and routing descend the tree, one comparison per level.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nearcast.partition.base import Sample
from nearcast.partition.leaf_assignment import LeafRouting
from nearcast.partition.load import load_of
from nearcast.partition.masks import check_shards, count_rows
from nearcast.partition.tree import grow

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

LEAVES = 16  # per shard, at least


@dataclass(frozen=True)
class SpaceRtreeRouting(LeafRouting):
    """Leaves of a packed R-tree, some per shard."""


class SpaceRtreePartitioner:
    """Packs a tree and merges its leaves."""

    name = "space_rtree"

    def fit(self, sample: Sample, *, n_shards: int) -> SpaceRtreeRouting:
        """Pack the subscriptions and messages of the sample, and merge the leaves."""
        check_shards(n_shards)
        footprints, messages = sample.footprints, sample.messages
        points, others = (footprints.xs, footprints.ys), (messages.xs, messages.ys)
        n_levels = 0  # number of slabs, and of leaves per slab
        while 4**n_levels < LEAVES * n_shards:
            n_levels += 1

        def cut(rows: Longs, seen: Longs, depth: int, shares: tuple[int, int]) -> tuple[int, float] | None:
            for axis in (0, 1) if depth < n_levels else (1, 0):
                value = _middle(np.concatenate([points[axis][rows], others[axis][seen]]))
                if value is not None:
                    return axis, value
            return None

        tree = grow(4**n_levels, points, points, others, cut)
        seen = np.bincount(tree.leaves_at(*others), minlength=tree.n_leaves)
        held = np.bincount(tree.leaves_at(*points), minlength=tree.n_leaves)
        assignment = runs(load_of(seen, held), n_shards)
        routing = SpaceRtreeRouting(n_shards, tree, assignment, np.zeros(n_shards))
        placed, routed = routing.place(footprints), np.bincount(assignment, weights=seen, minlength=n_shards)
        routing.loads[:] = load_of(routed, count_rows(placed, n_shards))
        return routing


def runs(costs: Floats, n_runs: int) -> Ints:
    """Return the run of each piece when adjacent pieces are merged into runs of equal cost.

    >>> runs(np.array([1.0, 1.0, 2.0, 3.0, 1.0]), 2).tolist()
    [0, 0, 0, 1, 1]
    """
    ends = np.cumsum(costs)
    middles = (ends - costs / 2) / max(float(ends[-1]), 1e-300)
    return np.minimum(middles * n_runs, n_runs - 1).astype(np.int32)


def _middle(values: Floats) -> float | None:
    """Return a value that about half of the values do not exceed, below the greatest if possible."""
    if not len(values):
        return None
    middle, greatest = np.partition(values, (len(values) - 1) // 2)[(len(values) - 1) // 2], values.max()
    if middle == greatest:
        values = values[values < greatest]
        return float(values.max()) if len(values) else None
    return float(middle)
