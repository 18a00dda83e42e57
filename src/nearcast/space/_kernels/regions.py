"""Whether a point lies in the region of a slot, and the grid of edges by which polygons decide it.

    kinds      slot -> FREE, PLAIN_BOX, WRAPPING_BOX, PLANE_CIRCLE, EARTH_CIRCLE or EDGES
    shapes     slot -> sides of a box | center, radius, reach in longitude | extent of polygons
    runs       slot -> start of its points and start of its cells
    points     [ w, h, 1/w, 1/h | x0, y0, x1, y1, ... of all rings | the next run ... ]     cells are w wide, h high
    cells      [ columns, rows, points | start of cell 0, 1, ... and the end | edges of cell 0, edges of cell 1, ... ]
               an edge is the number of the point where it starts; a start is twice a position in the run, plus 1 if
               the corner of the cell is inside

The extent of polygons is divided into cells, and each knows the edges that touch it. A cell holds its lower and left
side, and its lower left corner, shifted by an infinitely small step to the right and a far smaller one up, is inside
or outside:

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

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch
from nearcast.space import metric
from nearcast.space._kernels.orientation import orientation, shifted_orientation
from nearcast.space.metric import EARTH_RADIUS_M

FREE, PLAIN_BOX, WRAPPING_BOX, PLANE_CIRCLE, EARTH_CIRCLE, EDGES = range(6)
"""What a slot holds."""
POINT_RUN, CELL_RUN = 0, 1
"""Columns of `runs`."""
WIDTH, HEIGHT, PER_WIDTH, PER_HEIGHT, FIRST_POINT = range(5)
"""Positions in a run of points."""
N_COLUMNS, N_ROWS, N_POINTS, FIRST_CELL = range(4)
"""Positions in a run of cells."""
_DEGREES_PER_METRE = 57.29577951308232 / EARTH_RADIUS_M
_DEGREES_OF_SLACK = 1.2e-5  # more than `Space.half_sides` allows for rounding

euclidean, haversine = kernel(metric.euclidean), kernel(metric.haversine)


class RegionArrays(NamedTuple):
    """Regions by slot."""

    kinds: NDArray[np.int8]
    """int8 (n_slots,): FREE for a slot without a region, else its kind."""
    shapes: NDArray[np.float64]
    """float64 (n_slots, 4): xmin, ymin, xmax, ymax; of a circle x, y, radius, and half its width in degrees."""
    runs: NDArray[np.int32]
    """int32 (n_slots, 2): of polygons, the start of their run in `points` and in `cells`, or -1."""
    points: NDArray[np.float64]
    """float64 (n,): runs of points; the next free block in the first item of a free one."""
    cells: NDArray[np.int32]
    """int32 (n,): runs of cells; the next free block in the first item of a free one."""
    point_state: NDArray[np.int64]
    """int64 (STATE,): the blocks of `points`, see `blocks`."""
    cell_state: NDArray[np.int64]
    """int64 (STATE,): the blocks of `cells`."""


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
def edges_cover(regions: RegionArrays, slot: int, x: float, y: float) -> bool:
    """Return whether a point of the extent lies in the polygons of a slot."""
    xmin, ymin = regions.shapes[slot, 0], regions.shapes[slot, 1]
    run, head = int(regions.runs[slot, POINT_RUN]), int(regions.runs[slot, CELL_RUN])
    points, cells = regions.points, regions.cells
    width, height = points[run + WIDTH], points[run + HEIGHT]
    n_columns = cells[head + N_COLUMNS]
    column = cell_at(x, xmin, width, points[run + PER_WIDTH], n_columns)
    row = cell_at(y, ymin, height, points[run + PER_HEIGHT], cells[head + N_ROWS])
    x0, y0 = xmin + column * width, ymin + row * height
    cell = head + FIRST_CELL + row * n_columns + column
    is_inside = (cells[cell] & 1) == 1
    for at in range(head + (cells[cell] >> 1), head + (cells[cell + 1] >> 1)):
        place = run + FIRST_POINT + 2 * cells[at]
        ax, ay, bx, by = points[place], points[place + 1], points[place + 2], points[place + 3]
        side = 0
        if (ay <= y or by <= y) and (ay >= y or by >= y):
            side = orientation(ax, ay, bx, by, x, y)
            if side == 0 and (ax <= x or bx <= x) and (ax >= x or bx >= x):
                return True
            if crosses_row(ax, ay, bx, by, x, y, x0, side):
                is_inside = not is_inside
        if crosses_column(ax, ay, bx, by, x0, y0, y):
            is_inside = not is_inside
    return bool(is_inside)


@kernel(inline=True)
def prefetch_shape(regions: RegionArrays, slot: int) -> None:
    """Prefetch the kind and the shape of a region."""
    if slot < regions.kinds.size:
        prefetch(regions.kinds, slot)
        prefetch(regions.shapes, slot)
        prefetch(regions.runs, slot)


@kernel(inline=True)
def prefetch_grid(regions: RegionArrays, slot: int) -> None:
    """Prefetch where polygons say how their grid is divided; their shape has arrived."""
    if slot < regions.kinds.size and regions.kinds[slot] == EDGES:
        prefetch(regions.points, regions.runs[slot, POINT_RUN])
        prefetch(regions.cells, regions.runs[slot, CELL_RUN])


@kernel(inline=True)
def _cell_near(regions: RegionArrays, slot: int, x: float, y: float) -> int:
    """Return the position of the cell of a point in polygons, up to rounding; -1 for other regions and points."""
    if slot >= regions.kinds.size or regions.kinds[slot] != EDGES:
        return -1
    x, y = x - regions.shapes[slot, 0], y - regions.shapes[slot, 1]
    if not (x >= 0.0 and y >= 0.0):
        return -1
    run, head = int(regions.runs[slot, POINT_RUN]), int(regions.runs[slot, CELL_RUN])
    n_columns, n_rows = regions.cells[head + N_COLUMNS], regions.cells[head + N_ROWS]
    column = min(x * regions.points[run + PER_WIDTH], n_columns - 1.0)
    row = min(y * regions.points[run + PER_HEIGHT], n_rows - 1.0)
    return head + FIRST_CELL + int(row) * int(n_columns) + int(column)


@kernel(inline=True)
def prefetch_cell(regions: RegionArrays, slot: int, x: float, y: float) -> None:
    """Prefetch the cell of a point in polygons; their grid has arrived."""
    cell = _cell_near(regions, slot, x, y)
    if cell >= 0:
        prefetch(regions.cells, cell)


@kernel(inline=True)
def prefetch_edges(regions: RegionArrays, slot: int, x: float, y: float) -> None:
    """Prefetch the edges of the cell of a point in polygons; the cell has arrived."""
    cell = _cell_near(regions, slot, x, y)
    if cell >= 0:
        prefetch(regions.cells, regions.runs[slot, CELL_RUN] + (regions.cells[cell] >> 1))


@kernel(inline=True)
def prefetch_points(regions: RegionArrays, slot: int, x: float, y: float) -> None:
    """Prefetch the points of the first and the last edge in the cell of a point; its edges have arrived."""
    cell = _cell_near(regions, slot, x, y)
    if cell >= 0:
        head, run = regions.runs[slot, CELL_RUN], regions.runs[slot, POINT_RUN] + FIRST_POINT
        first, end = regions.cells[cell] >> 1, regions.cells[cell + 1] >> 1
        if first < end:
            prefetch(regions.points, run + 2 * regions.cells[head + first])
            prefetch(regions.points, run + 2 * regions.cells[head + end - 1])


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
    return haversine(center_x, center_y, x, y) <= radius


@kernel(inline=True)
def region_covers(regions: RegionArrays, slot: int, x: float, y: float) -> bool:
    """Return whether a point lies in the region of a slot; a slot without a region covers every point."""
    if slot >= regions.kinds.size:
        return True
    kind = regions.kinds[slot]
    if kind == FREE:
        return True
    x, y = float(x), float(y)
    if kind in (PLANE_CIRCLE, EARTH_CIRCLE):
        return circle_covers(regions.shapes[slot], kind == EARTH_CIRCLE, x, y)
    xmin, xmax = regions.shapes[slot, 0], regions.shapes[slot, 2]
    if y < regions.shapes[slot, 1] or y > regions.shapes[slot, 3]:
        return False
    if kind == WRAPPING_BOX:
        return bool(x >= xmin or x <= xmax)
    if x < xmin or x > xmax:
        return False
    return bool(kind == PLAIN_BOX or edges_cover(regions, slot, x, y))


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
