"""Whether a point lies in the region of a slot, and the grid of edges by which polygons decide it.

    lines      slot -> a line of 8 words, which one cache line holds:
               box         xmin, ymin, xmax, ymax | - | - | - | kind
               circle      x, y, radius, half its width in degrees | cos, sin of the latitude | reach | kind
               polygons    the extent, as of a box | cells inside, cells outside | runs | kind, columns and rows
    points     [ x0, y0, x1, y1, ... of all rings | the next run ... ]
    cells      [ number of points | start of cell 0, 1, ... and the end | edges of cell 0, edges of cell 1, ... ]
               an edge is the number of the point where it starts; a start is twice a position in the run, plus 1 if
               the corner of the cell is inside

A coarse grid of 8 x 8 cells over the extent says for each whether all of it is inside, or outside, so that the line
alone decides about most points. For the others, the extent is divided into more cells, and each knows the edges that
touch it. A cell holds its lower and left side, and its lower left corner, shifted by an infinitely small step to the
right and a far smaller one up, is inside or outside:

     y1 ┌───────────┐
        │   \\       │    From the corner go up to the height of p, then right to p. Each edge crossed changes
      y │....\\.p    │    sides, and all edges that this path can cross touch the cell. A point on an edge is
        │:    \\     │    inside. With the shift no path meets an end of an edge, so each crossing is counted
     y0 │:_____\\____│    once, whatever touches what.
        x0          x1

So the cost depends on the edges near the point, not on their number: most cells of a large polygon have none.
Decisions are exact, because the sides of edges are (see `orientation`).
"""

from __future__ import annotations

from math import nan, sin
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch
from nearcast.space import metric
from nearcast.space._kernels.orientation import orientation, shifted_orientation
from nearcast.space.metric import EARTH_RADIUS_M

FREE, PLAIN_BOX, WRAPPING_BOX, PLANE_CIRCLE, EARTH_CIRCLE, EDGES = range(6)
"""What a slot holds."""
LINE = 8
"""Words of a line."""
INSIDE, OUTSIDE, RUNS = 4, 5, 6
"""Words of polygons: the cells of the coarse grid as bits; the start in `points`, and 2^32 times that in `cells`."""
COARSE = 8
"""Cells of the coarse grid along an axis."""
COS, SIN, REACH = 4, 5, 6
"""Words of a circle on the earth; the reach is the square of the sine of half the angle that its radius spans."""
KIND = 7
"""The kind, plus 2^8 times the columns and 2^36 times the rows of a grid."""
N_POINTS, FIRST_CELL = 0, 1
"""Positions in a run of cells."""
TINY = 1e-300
"""Extents that are smaller have no inverse, and all points in their first cell."""
_MOST_FETCHED = 16
_LOW = (1 << 32) - 1
_AXIS = (1 << 28) - 1
_DEGREES_PER_METRE = 57.29577951308232 / EARTH_RADIUS_M
_RADIANS_PER_DEGREE = 0.017453292519943295
_DEGREES_OF_SLACK = 1.2e-5  # more than `Space.half_sides` allows for rounding
_NEAR_DEGREES = 5.0
_DOUBT = 1e-6  # of the terms of the haversine: a hundred times the error of the series, and of the formula itself
_LEAST_METRES = 10.0  # below, differences of coordinates are too inexact for `_DOUBT`

euclidean, haversine = kernel(metric.euclidean), kernel(metric.haversine)


class RegionArrays(NamedTuple):
    """Regions by slot."""

    lines: NDArray[np.int64]
    """int64 (n_slots, LINE): a region, or FREE as its kind."""
    shapes: NDArray[np.float64]
    """float64 (n_slots, LINE): the same bytes, to read words as numbers."""
    points: NDArray[np.float64]
    """float64 (n,): runs of points; the next free block in the first item of a free one."""
    cells: NDArray[np.int32]
    """int32 (n,): runs of cells; the next free block in the first item of a free one."""
    point_state: NDArray[np.int64]
    """int64 (STATE,): the blocks of `points`, see `blocks`."""
    cell_state: NDArray[np.int64]
    """int64 (STATE,): the blocks of `cells`."""


@kernel(inline=True)
def kind_of(regions: RegionArrays, slot: int) -> int:
    """Return what a slot holds."""
    return int(regions.lines[slot, KIND]) & 255


@kernel(inline=True)
def grid_of(regions: RegionArrays, slot: int) -> tuple[int, int]:
    """Return the columns and the rows of the grid of polygons."""
    word = int(regions.lines[slot, KIND])
    return (word >> 8) & _AXIS, word >> 36


@kernel(inline=True)
def runs_of(regions: RegionArrays, slot: int) -> tuple[int, int]:
    """Return where the points and the cells of polygons begin."""
    word = int(regions.lines[slot, RUNS])
    return word & _LOW, word >> 32


@kernel
def cell_at(value: float, least: float, size: float, per_size: float, n: int) -> int:
    """Return the last of n cells along an axis that starts at or below a value, which is at least `least`."""
    cell = min(int((value - least) * per_size), n - 1)
    while cell > 0 and least + cell * size > value:
        cell -= 1
    while cell + 1 < n and least + (cell + 1) * size <= value:
        cell += 1
    return cell


@kernel
def crosses_row(ax: float, ay: float, bx: float, by: float, x: float, y: float, x0: float, side: int) -> bool:
    """Return whether an edge crosses the path from (x0, y) to (x, y), given the side of it on which (x, y) lies."""
    if (ay > y) == (by > y):
        return False
    rises = by > ay
    is_left = (side > 0) != rises
    return is_left != ((shifted_orientation(ax, ay, bx, by, x0, y) > 0) != rises)


@kernel
def crosses_column(ax: float, ay: float, bx: float, by: float, x0: float, y0: float, y: float) -> bool:
    """Return whether an edge crosses the path from (x0, y0) to (x0, y)."""
    if (ax > x0) == (bx > x0) or (ay < y0 and by < y0) or (ay > y and by > y):
        return False
    return shifted_orientation(ax, ay, bx, by, x0, y0) != shifted_orientation(ax, ay, bx, by, x0, y)


@kernel(inline=True)
def cells_per(n: int, extent: float) -> float:
    """Return how many of n cells along an axis there are to a unit."""
    return n / extent if extent > TINY else 0.0


@kernel(inline=True)
def side_by_coarse_grid(regions: RegionArrays, slot: int, x: float, y: float) -> int:
    """Return whether a point of the extent lies in the polygons of a slot: 1, 0, or -1 if edges must decide."""
    shape = regions.shapes[slot]
    width, height = float(shape[2]) - float(shape[0]), float(shape[3]) - float(shape[1])
    column = cell_at(x, shape[0], width / COARSE, cells_per(COARSE, width), COARSE)
    cell = cell_at(y, shape[1], height / COARSE, cells_per(COARSE, height), COARSE) * COARSE + column
    return int(2 * ((regions.lines[slot, INSIDE] >> cell) & 1) + ((regions.lines[slot, OUTSIDE] >> cell) & 1) - 1)


@kernel(inline=True)
def cell_of_point(regions: RegionArrays, slot: int, x: float, y: float) -> int:
    """Return where the cell of a point of the extent stands in `cells`, given the slot of polygons."""
    shape = regions.shapes[slot]
    n_columns, n_rows = grid_of(regions, slot)
    across, up = float(shape[2]) - float(shape[0]), float(shape[3]) - float(shape[1])
    column = cell_at(x, shape[0], across / n_columns, cells_per(n_columns, across), n_columns)
    row = cell_at(y, shape[1], up / n_rows, cells_per(n_rows, up), n_rows)
    return runs_of(regions, slot)[1] + FIRST_CELL + row * n_columns + column


@kernel(inline=True)
def edges_cover(regions: RegionArrays, slot: int, cell: int, x: float, y: float) -> bool:
    """Return whether a point lies in the polygons of a slot, by the edges of its cell, see `cell_of_point`."""
    shape, points, cells = regions.shapes[slot], regions.points, regions.cells
    n_columns, n_rows = grid_of(regions, slot)
    run, head = runs_of(regions, slot)
    xmin, ymin = float(shape[0]), float(shape[1])
    row = (cell - head - FIRST_CELL) // n_columns
    column = cell - head - FIRST_CELL - row * n_columns
    x0 = xmin + column * ((float(shape[2]) - xmin) / n_columns)
    y0 = ymin + row * ((float(shape[3]) - ymin) / n_rows)
    is_inside = (cells[cell] & 1) == 1
    for at in range(head + (cells[cell] >> 1), head + (cells[cell + 1] >> 1)):
        place = run + 2 * cells[at]
        ax, ay, bx, by = points[place], points[place + 1], points[place + 2], points[place + 3]
        if (ax > x and bx > x) or (ay > y and by > y):  # the path ends before it
            continue
        if ay >= y or by >= y:
            side = orientation(ax, ay, bx, by, x, y)
            if side == 0 and (ax >= x or bx >= x):
                return True
            if crosses_row(ax, ay, bx, by, x, y, x0, side):
                is_inside = not is_inside
        if crosses_column(ax, ay, bx, by, x0, y0, y):
            is_inside = not is_inside
    return bool(is_inside)


@kernel(inline=True)
def prefetch_line(regions: RegionArrays, slot: int) -> None:
    """Prefetch the line of a region."""
    if slot < regions.lines.shape[0]:
        prefetch(regions.lines, slot)


@kernel(inline=True)
def prefetch_edges(regions: RegionArrays, slot: int, cell: int) -> None:
    """Prefetch the edges of a cell of polygons; the cell has arrived."""
    prefetch(regions.cells, runs_of(regions, slot)[1] + (regions.cells[cell] >> 1))


@kernel(inline=True)
def prefetch_points(regions: RegionArrays, slot: int, cell: int) -> None:
    """Prefetch the points of the edges of a cell of polygons; the edges have arrived."""
    run, head = runs_of(regions, slot)
    first, end = regions.cells[cell] >> 1, regions.cells[cell + 1] >> 1
    for at in range(head + first, head + min(end, first + _MOST_FETCHED)):
        prefetch(regions.points, run + 2 * regions.cells[at])


@kernel
def reach_of(radius: float) -> float:
    """Return the reach of a circle on the earth, or NaN if `is_near` must not decide about it."""
    if not (_LEAST_METRES <= radius <= _NEAR_DEGREES / _DEGREES_PER_METRE):
        return nan
    half = sin(0.5 * radius / EARTH_RADIUS_M)
    return half * half


@kernel(inline=True)
def is_near(shape: NDArray[np.float64], north: float, east: float) -> int:
    """Return whether a point so many degrees from the center lies in a circle on the earth: 1, 0, or -1 in doubt.

    The haversine formula is evaluated by series, which need no sine: sin^2 t is t^2 - t^4 / 3 up to 2 t^6 / 45, and
    the cosine of the latitude of the point follows from those of the center.
    """
    if not (north * north < _NEAR_DEGREES * _NEAR_DEGREES and east * east < _NEAR_DEGREES * _NEAR_DEGREES):
        return -1
    up, over = north * _RADIANS_PER_DEGREE, 0.5 * east * _RADIANS_PER_DEGREE
    up_2, over_2 = up * up, over * over
    cos_up = 1.0 - up_2 * (0.5 - up_2 * (1.0 / 24.0 - up_2 / 720.0))
    sin_up = up * (1.0 - up_2 * (1.0 / 6.0 - up_2 / 120.0))
    half_2 = 0.25 * up_2
    upright = half_2 * (1.0 - half_2 * (1.0 / 3.0 - half_2 * (2.0 / 45.0)))
    across = shape[COS] * over_2 * (1.0 - over_2 * (1.0 / 3.0 - over_2 * (2.0 / 45.0)))
    found = upright + (shape[COS] * cos_up - shape[SIN] * sin_up) * across
    doubt = _DOUBT * (upright + across)
    if found + doubt < shape[REACH]:
        return 1
    return 0 if found - doubt > shape[REACH] else -1


@kernel(inline=True)
def circle_covers(shape: NDArray[np.float64], on_earth: bool, x: float, y: float) -> bool:
    """Return whether a point lies in a circle, bit for bit as `Space.covers` does."""
    center_x, center_y, radius = float(shape[0]), float(shape[1]), float(shape[2])  # NumPy scalars warn of overflow
    if not on_earth:
        return euclidean(center_x, center_y, x, y) <= radius
    if abs(y - center_y) > radius * _DEGREES_PER_METRE + _DEGREES_OF_SLACK:
        return False
    across = abs(x - center_x)
    if min(across, 360.0 - across) > shape[3]:
        return False
    decided = is_near(shape, y - center_y, x - center_x)
    return bool(decided == 1) if decided >= 0 else haversine(center_x, center_y, x, y) <= radius


@kernel(inline=True)
def side_by_line(regions: RegionArrays, slot: int, x: float, y: float) -> int:
    """Return whether a point lies in the region of a slot, by its line: 1, 0, or -1 if edges must decide.

    A slot without a region covers every point.
    """
    if slot >= regions.lines.shape[0]:
        return 1
    kind = kind_of(regions, slot)
    if kind == FREE:
        return 1
    x, y = float(x), float(y)
    if kind in (PLANE_CIRCLE, EARTH_CIRCLE):
        return int(circle_covers(regions.shapes[slot], kind == EARTH_CIRCLE, x, y))
    xmin, xmax = regions.shapes[slot, 0], regions.shapes[slot, 2]
    if y < regions.shapes[slot, 1] or y > regions.shapes[slot, 3]:
        return 0
    if kind == WRAPPING_BOX:
        return int(x >= xmin or x <= xmax)
    if x < xmin or x > xmax:
        return 0
    return 1 if kind == PLAIN_BOX else side_by_coarse_grid(regions, slot, x, y)


@kernel(inline=True)
def region_covers(regions: RegionArrays, slot: int, x: float, y: float) -> bool:
    """Return whether a point lies in the region of a slot; a slot without a region covers every point."""
    side = side_by_line(regions, slot, x, y)
    if side >= 0:
        return side == 1
    x, y = float(x), float(y)
    return edges_cover(regions, slot, cell_of_point(regions, slot, x, y), x, y)


@kernel
def filter_by_region(
    regions: RegionArrays, slot: int, xs: NDArray[np.float64], ys: NDArray[np.float64], out: NDArray[np.bool_]
) -> int:
    """Write for each point whether it lies in the region of a slot; return how many do."""
    n = 0
    for i in range(xs.size):
        out[i] = region_covers(regions, slot, xs[i], ys[i])
        n += out[i]
    return n
