"""Clusters: many subscriptions of a view as a few groups, one per cell of a grid.

The sides of a cell are powers of two and its corners are multiples of them. So a view that moves keeps its cells, and
one that zooms in divides them. A subscription counts at the centre of its place, moved into the view.
"""

from __future__ import annotations

from math import ceil, floor, log2
from typing import Any, NamedTuple

from nearcast.space import Box

_MAX_CELLS = 8  # per side of the view, and one more that the view cuts
_SMALLEST = 2.0**-40  # of a cell, relative to the coordinates


class Cluster(NamedTuple):
    """The subscriptions of one cell."""

    n_subscriptions: int
    x: float
    """The mean of the centres."""
    y: float
    xmin: float
    """The extent of the centres."""
    ymin: float
    xmax: float
    ymax: float


def cluster_query(view: Box, condition: str, values: list[Any]) -> tuple[str, list[Any]]:
    """Return the query for the clusters of the subscriptions that meet a condition, and its values."""
    x_first, x_size = _cells(view.xmin, view.xmax)
    y_first, y_size = _cells(view.ymin, view.ymax)
    query = (
        "WITH centres AS MATERIALIZED ("
        " SELECT max(?, min(?, (xmin + xmax) / 2)) AS x, max(?, min(?, (ymin + ymax) / 2)) AS y"
        f" FROM subscriptions WHERE {condition})"
        " SELECT count(*), avg(x), avg(y), min(x), min(y), max(x), max(y) FROM centres"
        " GROUP BY CAST((x - ?) / ? AS INTEGER), CAST((y - ?) / ? AS INTEGER)"
    )
    sides = [view.xmin, view.xmax, view.ymin, view.ymax]
    return query, [*sides, *values, x_first, x_size, y_first, y_size]


def _cells(low: float, high: float) -> tuple[float, float]:
    """Return where the first cell of a side starts, and the size of the cells.

    >>> _cells(1.0, 9.0), _cells(-0.1, 0.8)
    ((1.0, 1.0), (-0.125, 0.125))
    """
    smallest = max(abs(low), abs(high), 1e-290) * _SMALLEST
    size = 2.0 ** ceil(log2(max(high / _MAX_CELLS - low / _MAX_CELLS, smallest)))
    return floor(low / size) * size, size
