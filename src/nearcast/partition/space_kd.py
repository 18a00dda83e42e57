"""A kd-tree divides space; a message goes to one shard, a box to all it overlaps (PS2Stream, section VI-B).

A part is cut where both sides have the same load (definition 1), alternately across x and y; boxes across a cut count
on both sides. Terms do not matter. Cost: fitting evaluates a few hundred positions per cut; placing and routing
descend the tree, one comparison per level.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nearcast.partition.base import Sample
from nearcast.partition.leaf_assignment import LeafRouting
from nearcast.partition.load import load_of
from nearcast.partition.masks import check_shards
from nearcast.partition.tree import grow

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]

_PLACES = 256  # candidate positions per cut


@dataclass(frozen=True)
class SpaceKdRouting(LeafRouting):
    """Leaves of a kd-tree, one per shard."""


class SpaceKdPartitioner:
    """Cuts space into parts of equal load."""

    name = "space_kd"

    def fit(self, sample: Sample, *, n_shards: int) -> SpaceKdRouting:
        """Cut space by the boxes and messages of the sample."""
        check_shards(n_shards)
        boxes, messages = sample.footprints.boxes, (sample.messages.xs, sample.messages.ys)
        lows, highs = (boxes[:, 0], boxes[:, 1]), (boxes[:, 2], boxes[:, 3])

        def cut(rows: Longs, seen: Longs, depth: int, shares: tuple[int, int]) -> tuple[int, float] | None:
            for axis in (depth % 2, 1 - depth % 2):
                value = _even_cut(lows[axis][rows], highs[axis][rows], messages[axis][seen], shares)
                if value is not None:
                    return axis, value
            return None

        tree = grow(n_shards, lows, highs, messages, cut)
        held = np.bincount(tree.leaves_in(boxes)[1], minlength=n_shards)
        seen = np.bincount(tree.leaves_at(*messages), minlength=n_shards)
        assignment = np.arange(tree.n_leaves, dtype=np.int32)
        return SpaceKdRouting(n_shards, tree, assignment, load_of(seen, held))


def _even_cut(lows: Floats, highs: Floats, messages: Floats, shares: tuple[int, int]) -> float | None:
    """Return where both sides have loads in proportion to their shares; None if there is no such position."""
    edges = np.concatenate([messages, lows[np.isfinite(lows)], highs[np.isfinite(highs)]])
    values = np.unique(edges)[:-1]
    if not len(values):
        return None
    values = values[np.unique(np.linspace(0, len(values) - 1, _PLACES).astype(np.int64))]
    seen = np.searchsorted(np.sort(messages), values, side="right")
    held_low = np.searchsorted(np.sort(lows), values, side="right")
    held_high = len(highs) - np.searchsorted(np.sort(highs), values, side="right")
    low, high = load_of(seen, held_low), load_of(len(messages) - seen, held_high)
    return float(values[np.argmin(np.abs(low / shares[0] - high / shares[1]))])
