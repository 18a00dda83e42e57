"""The density of messages in a sample as counts in a fine grid, and the area that a subscription depends on.

DkM-SKS looks up the k nearest messages of a sample for each subscription (section 3.2). Here they are estimated: if a
share p of all messages holds one of its terms, its k nearest lie among the k / p nearest of all, and grids of falling
resolution give their distance. A stateless subscription depends on its box; one that needs more messages than there
are depends on all of space.

Cost: at most four megabytes, and nine cells of each of ten grids per subscription.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from nearcast.model import Footprints
from nearcast.model.footprint import anywhere
from nearcast.partition.base import Sample

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]

_FEWEST, _MOST = 8, 1_024  # cells along each axis


@dataclass(frozen=True)
class DensityGrid:
    """Messages by cell."""

    extent: Floats
    """float64 (4,): xmin, ymin, xmax, ymax of the sample; points outside count for the cells at the edge."""
    counts: npt.NDArray[np.int32]
    """int32 (n_cells, n_cells): messages, by y and x; there are about as many cells as messages."""

    @classmethod
    def of(cls, sample: Sample) -> DensityGrid:
        """Count the messages of a sample."""
        xs, ys = sample.messages.xs, sample.messages.ys
        both = np.concatenate([sample.footprints.xs, xs]), np.concatenate([sample.footprints.ys, ys])
        ends = [(float(points.min()), float(points.max())) if len(points) else (0.0, 1.0) for points in both]
        extent = np.array([ends[0][0], ends[1][0], ends[0][1], ends[1][1]])
        n = _FEWEST
        while n < _MOST and n * n < len(xs):
            n *= 2
        made = cls(extent, np.zeros((n, n), np.int32))
        np.add.at(made.counts, (made._rows(ys, 1, n), made._rows(xs, 0, n)), 1)
        return made

    @cached_property
    def n(self) -> int:
        """The number of messages."""
        return int(self.counts.sum())

    @cached_property
    def _sums(self) -> Longs:
        return _sums(self.counts)

    def shares_in(self, boxes: Floats) -> Floats:
        """Return the share of messages in the cells that each box touches."""
        n = len(self.counts)
        x0, y0 = self._rows(boxes[:, 0], 0, n), self._rows(boxes[:, 1], 1, n)
        x1, y1 = self._rows(boxes[:, 2], 0, n) + 1, self._rows(boxes[:, 3], 1, n) + 1
        return _within(self._sums, x0, y0, x1, y1) / max(1, self.n)

    def within(self, boxes: Floats) -> Floats:
        """Return the parts of boxes inside the extent."""
        low, high = np.tile(self.extent[:2], 2), np.tile(self.extent[2:], 2)
        return np.clip(boxes, low, high)

    def dependency_boxes(self, footprints: Footprints, shares: Floats) -> Floats:
        """Return the area that each subscription depends on, given the share of messages with one of its terms."""
        keeps = footprints.ks > 0
        boxes = np.where(keeps[:, None], anywhere(len(footprints)), footprints.boxes)
        needed = np.where(keeps, footprints.ks / np.clip(shares, 1e-12, 1.0), np.inf)
        open_ = np.flatnonzero(needed <= self.n)
        counts, n, sizes = self.counts.astype(np.int64), len(self.counts), self.extent[2:] - self.extent[:2]
        while n > 1:
            xs, ys = self._rows(footprints.xs[open_], 0, n), self._rows(footprints.ys[open_], 1, n)
            least, most = [np.maximum(at - 1, 0) for at in (xs, ys)], [np.minimum(at + 2, n) for at in (xs, ys)]
            enough = _within(_sums(counts), *least, *most) >= needed[open_]
            rows, reach = open_[enough], 1.5 * sizes / n
            centres = np.column_stack([footprints.xs[rows], footprints.ys[rows]])
            boxes[rows] = np.concatenate([centres - reach, centres + reach], axis=1)
            open_ = open_[~enough]
            n //= 2
            counts = counts.reshape(n, 2, n, 2).sum(axis=(1, 3))
        return boxes

    def _rows(self, points: Floats, axis: int, n: int) -> Longs:
        """Return the row of cells, out of n, of each point."""
        low, high = self.extent[axis], self.extent[axis + 2]
        share = (np.clip(points, low, high) - low) / max(high - low, 1e-300)
        rows: Longs = np.minimum(n - 1, (share * n).astype(np.int64))
        return rows


def around_all(boxes: Floats) -> Floats:
    """Return the bounding box of boxes, at least one."""
    return np.concatenate([boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)])


def quarters(xs: Floats, ys: Floats, box: Floats) -> tuple[Longs, Floats]:
    """Return the quarter of a box that each point lies in, and the four quarters."""
    xmin, ymin, xmax, ymax = box
    x, y = (xmin + xmax) / 2, (ymin + ymax) / 2
    kids = [[xmin, ymin, x, y], [x, ymin, xmax, y], [xmin, y, x, ymax], [x, y, xmax, ymax]]
    return (xs > x).astype(np.int64) + 2 * (ys > y), np.array(kids)


def _sums(counts: npt.NDArray[np.integer]) -> Longs:
    sums = np.zeros((counts.shape[0] + 1, counts.shape[1] + 1), np.int64)
    sums[1:, 1:] = np.cumsum(np.cumsum(counts, axis=0, dtype=np.int64), axis=1)
    return sums


def _within(sums: Longs, x0: Longs, y0: Longs, x1: Longs, y1: Longs) -> Longs:
    found: Longs = sums[y1, x1] - sums[y0, x1] - sums[y1, x0] + sums[y0, x0]
    return found
