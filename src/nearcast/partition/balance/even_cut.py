"""Cuts of leaves that are too heavy to move as a whole: the granularity of PS2Stream's grid^t follows the load.

The paper chooses the size of its cells once. Here a leaf is cut where it becomes a hot spot, so that cells are small
where load is and there are few of them. A cut divides the load evenly; of both axes the one counts whose cut crosses
fewer boxes, since a subscription across it may live in two shards afterwards.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nearcast.partition.balance.cells import LeafPoints
from nearcast.partition.balance.steps import Cut

Floats = npt.NDArray[np.float64]

_PLACES = 64  # candidate positions per cut


def even_cut(leaf: int, points: LeafPoints) -> Cut | None:
    """Return the cut of a leaf, given what it holds, into two of about the same load; None if it cannot be cut."""
    best: tuple[int, int, float] | None = None  # boxes that the cut crosses, axis, value
    for axis, places in ((0, points.xs), (1, points.ys)):
        found = _even(places, points.loads, points.boxes[:, axis], points.boxes[:, axis + 2])
        if found is not None and (best is None or found[0] < best[0]):
            best = (found[0], axis, found[1])
    return None if best is None else Cut(leaf, best[1], best[2])


def _even(points: Floats, loads: Floats, lows: Floats, highs: Floats) -> tuple[int, float] | None:
    """Return how many boxes cross the cut that divides the loads of points evenly, and its position between them."""
    order = np.argsort(points, kind="stable")
    points, sums = points[order], np.concatenate([[0.0], np.cumsum(loads[order])])
    values = np.unique(points)[:-1]
    if not len(values):
        return None
    values = values[np.unique(np.linspace(0, len(values) - 1, _PLACES).astype(np.int64))]
    low = sums[np.searchsorted(points, values, side="right")]
    at = int(np.argmin(np.abs(2 * low - sums[-1])))
    value = float(values[at])
    return int(np.count_nonzero((lows <= value) & (highs > value))), value
