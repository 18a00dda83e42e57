"""Cells of a grid assigned by load; a message goes to one shard, a box to all it overlaps (PS2Stream, section VI-B).

The grid has 64 by 64 cells over the whole sample; points outside belong to the cells at the edge. The most expensive
cell (definition 1) comes first, each goes to the least loaded shard. Cost: fitting assigns 4,096 cells; placing looks
up four blocks of cells, in a table of 1.6 MB per 64 shards; routing is a division.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from nearcast.model import Footprints, MessageBatch
from nearcast.partition.base import CellPairs, Sample, ShardArea, ToSome
from nearcast.partition.load import assign_greedily, load_of
from nearcast.partition.masks import Masks, check_shards, mask_of, united
from nearcast.space import Box

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]

CELLS = 64
_LEVELS = np.log2(np.arange(1, CELLS + 1)).astype(np.int64)  # the longest 2**i within 1, 2, ... cells


@dataclass(frozen=True)
class SpaceGridRouting(ToSome):
    """Cells of a grid, one shard each."""

    n_shards: int
    edges: Floats
    """float64 (4,): xmin, ymin, xmax, ymax of the grid."""
    assignment: npt.NDArray[np.int32]
    """int32 (CELLS, CELLS): the shard of each cell, by y and x."""
    loads: Floats

    def shard_areas(self, bounds: Box) -> list[ShardArea]:
        """Return the cells within bounds; those at the edge extend to the bounds."""
        xs, ys = (np.linspace(self.edges[i], self.edges[i + 2], CELLS + 1) for i in (0, 1))
        xs[[0, -1]], ys[[0, -1]] = (bounds.xmin, bounds.xmax), (bounds.ymin, bounds.ymax)
        xs, ys = np.clip(xs, bounds.xmin, bounds.xmax), np.clip(ys, bounds.ymin, bounds.ymax)
        return [
            ShardArea(
                (float(xs[x]), float(ys[y]), float(xs[x + 1]), float(ys[y + 1])), 1 << int(self.assignment[y, x])
            )
            for y in range(CELLS)
            for x in range(CELLS)
        ]

    def place(self, footprints: Footprints) -> Masks:
        """Return the shards of the cells that a box overlaps."""
        lows, highs = (_cells(self.edges, footprints.boxes[:, i], footprints.boxes[:, i + 1]) for i in (0, 2))
        x_levels, y_levels = (_LEVELS[high - low] for low, high in zip(lows, highs, strict=True))
        xs, ys = (
            (low, high + 1 - (1 << level)) for low, high, level in zip(lows, highs, (x_levels, y_levels), strict=True)
        )
        table = (y_levels * (int(_LEVELS[-1]) + 1) + x_levels) * CELLS
        blocks = np.column_stack([(table + y) * CELLS + x for y in ys for x in xs])
        return united(np.arange(0, blocks.size + 1, 4), blocks.ravel(), self._blocks)

    @cached_property
    def _blocks(self) -> Masks:
        """The shards of 2**i by 2**j cells from each cell on, for all i, j, rows and columns.

        Any rectangle is the union of four blocks that overlap.
        """
        n = int(_LEVELS[-1]) + 1
        single = mask_of(self.assignment.ravel(), self.n_shards).reshape(CELLS, CELLS, -1)
        blocks: Masks = np.zeros((n, n, *single.shape), np.uint64)
        blocks[0, 0] = single
        for i in range(n):
            if i:
                half = 1 << (i - 1)
                blocks[i, 0] = blocks[i - 1, 0]
                blocks[i, 0, :-half] |= blocks[i - 1, 0, half:]
            for j in range(1, n):
                half = 1 << (j - 1)
                blocks[i, j] = blocks[i, j - 1]
                blocks[i, j, :, :-half] |= blocks[i, j - 1, :, half:]
        return blocks.reshape(-1, single.shape[-1])

    def route(self, batch: MessageBatch) -> Masks:
        """Return the shard of the cell that a message is in."""
        xs, ys = _cells(self.edges, batch.xs, batch.ys)
        return mask_of(self.assignment[ys, xs], self.n_shards)

    # -- cells, see `nearcast.partition.balance` -------------------------------------------------------------------

    @property
    def cell_shards(self) -> npt.NDArray[np.int32]:
        """The shard of each cell, row by row."""
        return self.assignment.ravel()

    def message_cells(self, batch: MessageBatch) -> CellPairs:
        """Return the cell of each message."""
        xs, ys = _cells(self.edges, batch.xs, batch.ys)
        return CellPairs(np.arange(len(batch)), (ys * CELLS + xs).astype(np.int32))

    def subscription_cells(self, footprints: Footprints) -> CellPairs:
        """Return the cells of subscriptions; a box anywhere is in all of them."""
        lows, highs = (_cells(self.edges, footprints.boxes[:, i], footprints.boxes[:, i + 1]) for i in (0, 2))
        n_xs, n_ys = (high - low + 1 for low, high in zip(lows, highs, strict=True))
        n = n_xs * n_ys
        rows = np.repeat(np.arange(len(footprints)), n)
        at = np.arange(len(rows)) - np.repeat(np.cumsum(n) - n, n)  # within the block of cells
        xs, ys = lows[0][rows] + at % n_xs[rows], lows[1][rows] + at // n_xs[rows]
        return CellPairs(rows, (ys * CELLS + xs).astype(np.int32))

    def reassigned(self, shards: npt.NDArray[np.int32]) -> Self:
        """Return the routing with the same cells in other shards."""
        return replace(self, assignment=shards.reshape(CELLS, CELLS))


class SpaceGridPartitioner:
    """Assigns cells."""

    name = "space_grid"

    def fit(self, sample: Sample, *, n_shards: int) -> SpaceGridRouting:
        """Compute the load of cells from the boxes and messages of the sample, and assign them."""
        check_shards(n_shards)
        boxes, messages = sample.footprints.boxes, sample.messages
        edges = _edges(boxes, messages)
        lows, highs = (_cells(edges, boxes[:, i], boxes[:, i + 1]) for i in (0, 2))
        # Each box adds 1 at its low corner and subtracts it after its other corners: prefix sums then count boxes per
        # cell.
        steps = np.zeros((CELLS + 1, CELLS + 1), np.int64)
        for ys, xs, by in (
            (lows[1], lows[0], 1),
            (lows[1], highs[0] + 1, -1),
            (highs[1] + 1, lows[0], -1),
            (highs[1] + 1, highs[0] + 1, 1),
        ):
            np.add.at(steps, (ys, xs), by)
        held = np.cumsum(np.cumsum(steps, axis=0), axis=1)[:CELLS, :CELLS]
        xs, ys = _cells(edges, messages.xs, messages.ys)
        seen = np.bincount(ys * CELLS + xs, minlength=CELLS * CELLS).reshape(CELLS, CELLS)
        costs = load_of(seen, held).ravel()
        assignment = assign_greedily(costs, np.zeros(n_shards))
        loads = np.bincount(assignment, weights=costs, minlength=n_shards).astype(np.float64)
        return SpaceGridRouting(n_shards, edges, assignment.reshape(CELLS, CELLS), loads)


def _edges(boxes: Floats, messages: MessageBatch) -> Floats:
    """Return the least and greatest coordinates of a sample; a unit box if it is empty."""
    found = []
    for axis, points in ((0, messages.xs), (1, messages.ys)):
        values = np.concatenate([points, boxes[:, axis], boxes[:, axis + 2]])
        values = values[np.isfinite(values)]
        found.append((values.min(), values.max()) if len(values) else (0.0, 1.0))
    (xmin, xmax), (ymin, ymax) = found
    return np.array([xmin, ymin, xmax, ymax])


def _cells(edges: Floats, xs: Floats, ys: Floats) -> tuple[Longs, Longs]:
    """Return the column and row of points; points outside the grid are in the cells at its edge."""
    at = []
    for low, high, values in ((edges[0], edges[2], xs), (edges[1], edges[3], ys)):
        share = (np.clip(values, low, high) - low) / max(high - low, 1e-300)
        at.append(np.minimum(CELLS - 1, (share * CELLS).astype(np.int64)))
    return at[0], at[1]
