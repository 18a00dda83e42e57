"""Builds the grid of edges of polygons: its size, the edges of each cell, and on which side the corners of cells lie.

An edge touches about 1 + n_columns * |dx| / W + n_rows * |dy| / H cells of a grid over an extent of W by H. With the
sums over all edges, X of |dx| / W and Y of |dy| / H, a grid has about n + n_columns * X + n_rows * Y entries. The
grid with the most cells for m entries beyond n has m / 2X columns and m / 2Y rows: many columns for a comb of upright
teeth, few cells for a star of long rays. m is n times the logarithm of n, so that a run takes at most about n log n,
and there are at most 2n cells: more of them spare edges, each a cache miss, and cost 4 bytes apiece.
"""

from __future__ import annotations

from math import cos, log2, radians, sin, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel
from nearcast._jit.blocks import class_of, give_block, size_of, take_block
from nearcast.space._kernels.orientation import shifted_orientation
from nearcast.space._kernels.regions import (
    COARSE,
    COS,
    EARTH_CIRCLE,
    EDGES,
    FIRST_CELL,
    FREE,
    INSIDE,
    KIND,
    N_POINTS,
    OUTSIDE,
    REACH,
    RUNS,
    SIN,
    TINY,
    RegionArrays,
    cell_at,
    cells_per,
    grid_of,
    kind_of,
    reach_of,
    runs_of,
)

_ROUNDING = 1e-14  # of the coordinates of an edge, many times what its crossing with a line may be off
_CELLS_PER_POINT = 2.0
PLAN = 8
X, Y, PER_X, PER_Y, W, H, COLUMNS, ROWS = range(PLAN)
"""Positions in a plan: the corner of the grid, 1 / width and 1 / height of a cell, its sides, and their numbers."""


@kernel
def set_grid(shape: NDArray[np.float64], columns: int, rows: int, plan: NDArray[np.float64]) -> None:
    """Write the plan of a grid over an extent."""
    width, height = float(shape[2]) - float(shape[0]), float(shape[3]) - float(shape[1])
    plan[X], plan[Y], plan[COLUMNS], plan[ROWS] = shape[0], shape[1], columns, rows
    plan[W], plan[H] = width / columns, height / rows
    plan[PER_X], plan[PER_Y] = cells_per(columns, width), cells_per(rows, height)


@kernel
def plan_grid(
    shape: NDArray[np.float64], points: NDArray[np.float64], ends: NDArray[np.int64], plan: NDArray[np.float64]
) -> None:
    """Choose the grid for rings that end at `ends`."""
    width, height = float(shape[2]) - float(shape[0]), float(shape[3]) - float(shape[1])
    n, sum_x, sum_y, at = float(ends[-1]), 0.0, 0.0, 0
    for end in ends:
        for i in range(at, end - 1):
            sum_x += abs(points[i + 1, 0] - points[i, 0])
            sum_y += abs(points[i + 1, 1] - points[i, 1])
        at = end
    most = max(1.0, n * _CELLS_PER_POINT)
    entries = n * log2(n)
    columns = min(most, max(1.0, entries * width / (2.0 * sum_x))) if sum_x > 0.0 else 1.0
    rows = min(most, max(1.0, entries * height / (2.0 * sum_y))) if sum_y > 0.0 else 1.0
    if columns * rows > most:
        shrink = sqrt(most / (columns * rows))
        columns, rows = max(1.0, columns * shrink), max(1.0, rows * shrink)
        columns, rows = min(columns, most / rows), min(rows, most / columns)
    set_grid(shape, int(columns), int(rows), plan)


@kernel
def _rows_touched(plan: NDArray[np.float64], ay: float, by: float) -> tuple[int, int]:
    """Return the first and the last row of cells that an edge may touch."""
    n = int(plan[ROWS])
    first = cell_at(min(ay, by), plan[Y], plan[H], plan[PER_Y], n)
    return first, cell_at(max(ay, by), plan[Y], plan[H], plan[PER_Y], n)


@kernel
def _columns_touched(
    plan: NDArray[np.float64], row: int, ax: float, ay: float, bx: float, by: float
) -> tuple[int, int]:
    """Return the first and the last column of cells that an edge may touch in a row; over-approximates."""
    least, greatest = min(ax, bx), max(ax, bx)
    low, high = max(min(ay, by), plan[Y] + row * plan[H]), max(ay, by)
    if row + 1 < plan[ROWS]:
        high = min(high, plan[Y] + (row + 1) * plan[H])
    if ay != by and ax != bx:
        x1 = ax + (low - ay) / (by - ay) * (bx - ax)
        x2 = ax + (high - ay) / (by - ay) * (bx - ax)
        slack = _ROUNDING * (abs(ax) + abs(bx)) + TINY
        least, greatest = max(least, min(x1, x2) - slack), min(greatest, max(x1, x2) + slack)
    n = int(plan[COLUMNS])
    first = cell_at(least, plan[X], plan[W], plan[PER_X], n)
    return first, max(first, cell_at(greatest, plan[X], plan[W], plan[PER_X], n))


@kernel
def count_edges(
    plan: NDArray[np.float64], points: NDArray[np.float64], ends: NDArray[np.int64], counts: NDArray[np.int64]
) -> int:
    """Count the edges of each cell; return the sum."""
    at, n_columns, total = 0, int(plan[COLUMNS]), 0
    for end in ends:
        for i in range(at, end - 1):
            ax, ay, bx, by = points[i, 0], points[i, 1], points[i + 1, 0], points[i + 1, 1]
            bottom, top = _rows_touched(plan, ay, by)
            for row in range(bottom, top + 1):
                first, last = _columns_touched(plan, row, ax, ay, bx, by)
                for column in range(first, last + 1):
                    counts[row * n_columns + column] += 1
                total += last + 1 - first
        at = end
    return total


@kernel
def _first_corner_beyond(
    plan: NDArray[np.float64], row: int, columns: tuple[int, int], ax: float, ay: float, bx: float, by: float
) -> int:
    """Return the first column whose corner lies to the right of an edge that crosses the lower side of a row."""
    y = plan[Y] + row * plan[H]
    for column in range(columns[0], columns[1] + 1):
        side = shifted_orientation(ax, ay, bx, by, plan[X] + column * plan[W], y)
        if (side > 0) != (by > ay):
            return column
    return columns[1] + 1


@kernel
def fill_cells(
    plan: NDArray[np.float64],
    points: NDArray[np.float64],
    ends: NDArray[np.int64],
    counts: NDArray[np.int64],
    run: NDArray[np.int32],
) -> None:
    """Write a run of cells; `counts` become places in the run."""
    n_columns, n_cells = int(plan[COLUMNS]), counts.size
    run[N_POINTS] = ends[-1]
    place = FIRST_CELL + n_cells + 1
    for cell in range(n_cells):
        run[FIRST_CELL + cell] = 2 * place
        counts[cell], place = place, place + counts[cell]
    run[FIRST_CELL + n_cells] = 2 * place
    at = 0
    for end in ends:
        for i in range(at, end - 1):
            ax, ay, bx, by = points[i, 0], points[i, 1], points[i + 1, 0], points[i + 1, 1]
            bottom, top = _rows_touched(plan, ay, by)
            for row in range(bottom, top + 1):
                touched = _columns_touched(plan, row, ax, ay, bx, by)
                for cell in range(row * n_columns + touched[0], row * n_columns + touched[1] + 1):
                    run[counts[cell]] = i
                    counts[cell] += 1
                y = plan[Y] + row * plan[H]
                if (ay > y) != (by > y):
                    column = _first_corner_beyond(plan, row, touched, ax, ay, bx, by)
                    if column < n_columns:
                        run[FIRST_CELL + row * n_columns + column] ^= 1  # all corners from here on change sides
        at = end
    for cell in range(1, n_cells):
        if cell % n_columns != 0:
            run[FIRST_CELL + cell] ^= run[FIRST_CELL + cell - 1] & 1


class RegionRows(NamedTuple):
    """Regions to insert, by row."""

    kinds: NDArray[np.int8]
    """int8 (n_rows,): what the slot will hold."""
    shapes: NDArray[np.float64]
    """float64 (n_rows, 4): what the slot will hold."""
    ring_indptr: NDArray[np.int64]
    """int64 (n_rows + 1,): the first ring of each row."""
    point_indptr: NDArray[np.int64]
    """int64 (n_rings + 1,): the first point of each ring."""
    points: NDArray[np.float64]
    """float64 (n_points, 2): x and y."""


@kernel(allocates=True)
def _write_coarse_grid(
    regions: RegionArrays,
    shape: NDArray[np.float64],
    points: NDArray[np.float64],
    ends: NDArray[np.int64],
    slot: int,
) -> None:
    """Write which cells of the coarse grid no edge touches, by the side on which they lie."""
    plan, n_cells = np.empty(PLAN, np.float64), COARSE * COARSE
    set_grid(shape, COARSE, COARSE, plan)
    counts = np.zeros(n_cells, np.int64)
    run = np.empty(FIRST_CELL + n_cells + 1 + count_edges(plan, points, ends, counts), np.int32)
    fill_cells(plan, points, ends, counts, run)
    inside = outside = np.int64(0)
    for cell in range(n_cells):
        first, end = run[FIRST_CELL + cell], run[FIRST_CELL + cell + 1]
        if first >> 1 == end >> 1:
            bit = np.int64(1) << np.int64(cell)
            if first & 1:
                inside |= bit
            else:
                outside |= bit
    regions.lines[slot, INSIDE], regions.lines[slot, OUTSIDE] = inside, outside


@kernel(allocates=True)
def _insert_edges(regions: RegionArrays, rows: RegionRows, row: int, slot: int) -> bool:
    """Write the points and the grid of polygons; return False if there is no room."""
    ring_ends = rows.point_indptr[rows.ring_indptr[row] : rows.ring_indptr[row + 1] + 1]
    ends = ring_ends[1:] - ring_ends[0]
    points = rows.points[ring_ends[0] : ring_ends[-1]]
    plan = np.empty(PLAN, np.float64)
    plan_grid(rows.shapes[row], points, ends, plan)
    counts = np.zeros(int(plan[COLUMNS]) * int(plan[ROWS]), np.int64)
    n_cells = FIRST_CELL + counts.size + 1 + count_edges(plan, points, ends, counts)
    point_class, cell_class = class_of(2 * len(points)), class_of(n_cells)
    run = take_block(regions.point_state, regions.points, point_class, size_of(point_class))
    if run < 0:
        return False
    head = take_block(regions.cell_state, regions.cells, cell_class, size_of(cell_class))
    if head < 0:
        give_block(regions.point_state, regions.points, point_class, run)
        return False
    fill_cells(plan, points, ends, counts, regions.cells[head : head + n_cells])
    for i in range(len(points)):
        regions.points[run + 2 * i], regions.points[run + 2 * i + 1] = points[i, 0], points[i, 1]
    _write_coarse_grid(regions, rows.shapes[row], points, ends, slot)
    regions.lines[slot, RUNS] = run | (head << 32)
    regions.lines[slot, KIND] = (int(plan[COLUMNS]) << 8) | (int(plan[ROWS]) << 36)
    return True


@kernel
def insert_regions(regions: RegionArrays, rows: RegionRows, slots: NDArray[np.int32], start: int) -> int:
    """Insert rows from `start` on, except into slots in use; return the row for which there was no room."""
    for row in range(start, slots.size):
        slot, kind = slots[row], rows.kinds[row]
        if kind == FREE or kind_of(regions, slot) != FREE:
            continue
        if kind == EDGES and not _insert_edges(regions, rows, row, slot):
            return row
        for i in range(4):
            regions.shapes[slot, i] = rows.shapes[row, i]
        if kind == EARTH_CIRCLE:
            latitude = radians(float(rows.shapes[row, 1]))
            regions.shapes[slot, COS], regions.shapes[slot, SIN] = cos(latitude), sin(latitude)
            regions.shapes[slot, REACH] = reach_of(float(rows.shapes[row, 2]))
        regions.lines[slot, KIND] |= kind
    return slots.size


@kernel
def delete_regions(regions: RegionArrays, slots: NDArray[np.int32]) -> None:
    """Delete slots, except for free ones."""
    for slot in slots:
        if slot >= regions.lines.shape[0] or kind_of(regions, slot) == FREE:
            continue
        if kind_of(regions, slot) == EDGES:
            run, head = runs_of(regions, slot)
            n_columns, n_rows = grid_of(regions, slot)
            n_points = int(regions.cells[head + N_POINTS])
            n_cells = int(regions.cells[head + FIRST_CELL + n_columns * n_rows]) >> 1
            give_block(regions.point_state, regions.points, class_of(2 * n_points), run)
            give_block(regions.cell_state, regions.cells, class_of(n_cells), head)
        regions.lines[slot, KIND] = FREE
