"""Squares of space assigned by the messages they depend on; every shard sees every message (DkM-SKS, section 3.2).

The most expensive square is quartered until there are THETA per shard. A square costs the number of its subscriptions
times the share of messages in the area that they depend on (equation 3). A later subscription costs the share of
messages in its area (equation 2) and goes to the least loaded shard. Cost: fitting evaluates some twenty squares per
shard; a message goes to all shards.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nearcast.model import Footprints
from nearcast.partition.assignment import AssignedRouting, Assignment
from nearcast.partition.base import Sample, ShardArea
from nearcast.partition.density_grid import DensityGrid, around_all, quarters
from nearcast.partition.load import assign_greedily
from nearcast.partition.masks import check_shards
from nearcast.partition.term_frequencies import TermFrequencies
from nearcast.space import Box

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]

THETA = 20
_DEEPEST = 40  # depth limit for subscriptions at one point


@dataclass(frozen=True)
class KnnSpaceRouting(AssignedRouting):
    """Subscriptions by the square that they were in, messages to all shards."""

    n_shards: int
    density: DensityGrid
    frequencies: TermFrequencies
    squares: Floats
    """float64 (n_squares, 4): xmin, ymin, xmax, ymax."""
    owners: npt.NDArray[np.int32]
    """int32 (n_squares,): the shard of each square."""
    assignment: Assignment

    def shard_areas(self, bounds: Box) -> list[ShardArea]:
        """Return the squares."""
        low, high = np.array([bounds.xmin, bounds.ymin] * 2), np.array([bounds.xmax, bounds.ymax] * 2)
        boxes = np.clip(self.squares, low, high).tolist()
        return [ShardArea((a, b, c, d), 1 << o) for (a, b, c, d), o in zip(boxes, self.owners.tolist(), strict=True)]

    def costs(self, footprints: Footprints) -> Floats:
        """Return what later subscriptions add to the load of a shard."""
        boxes = self.density.dependency_boxes(footprints, self.frequencies.costs(footprints))
        return np.maximum(self.density.shares_in(boxes), self.frequencies.least)


class KnnSpacePartitioner:
    """Quarters space and assigns the squares."""

    name = "knn_space"

    def fit(self, sample: Sample, *, n_shards: int) -> KnnSpaceRouting:
        """Quarter the square whose subscriptions depend on most messages."""
        check_shards(n_shards)
        footprints, density, frequencies = (
            sample.footprints,
            DensityGrid.of(sample),
            TermFrequencies.of(sample.messages),
        )
        looks = density.dependency_boxes(footprints, frequencies.costs(footprints))

        def cost_of(rows: Longs) -> float:
            return float(density.shares_in(around_all(looks[rows])[None])[0]) * len(rows) if len(rows) else 0.0

        everything = np.arange(len(footprints))
        open_ = [(-cost_of(everything), 0, 0, density.extent, everything)]
        made: list[tuple[float, Floats, Longs]] = []
        n_squares = 1
        while open_ and len(open_) + len(made) < THETA * n_shards:
            cost, _, depth, box, rows = heapq.heappop(open_)
            if depth == _DEEPEST or len(rows) < 2:
                made.append((-cost, box, rows))
                continue
            numbers, kids = quarters(footprints.xs[rows], footprints.ys[rows], box)
            for kid in range(4):
                inside = rows[numbers == kid]
                heapq.heappush(open_, (-cost_of(inside), n_squares, depth + 1, kids[kid], inside))
                n_squares += 1
        made += [(-cost, box, rows) for cost, _, _, box, rows in open_]
        costs, squares = np.array([cost for cost, _, _ in made]), np.array([box for _, box, _ in made])
        owners = assign_greedily(costs, np.zeros(n_shards))
        shards, own = np.zeros(len(footprints), np.int32), np.zeros(len(footprints))
        for owner, (cost, _, rows) in zip(owners.tolist(), made, strict=True):
            shards[rows], own[rows] = owner, cost / max(1, len(rows))
        assignment = Assignment.of(footprints.keys, shards, own, n_shards=n_shards)
        return KnnSpaceRouting(n_shards, density, frequencies, squares, owners, assignment)
