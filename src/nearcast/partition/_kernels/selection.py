"""Kernels of `nearcast.partition.balance.selection`: a scan of sorted cells, and a table of loads by size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel


@kernel
def scan_greedily(
    loads: NDArray[np.float64], sizes: NDArray[np.int64], tau: float, are_small: NDArray[np.bool_]
) -> int:
    """Return the cell that completes the cheapest candidate solution, or -1 if no cell reaches tau.

    The candidate of a cell is the cell with all small cells before it. A cell is small, and marked in `are_small`, if
    the load of the small cells up to it stays below tau.
    """
    best, best_size = -1, np.int64(0)
    load, size = 0.0, np.int64(0)
    for cell in range(loads.size):
        if load + loads[cell] < tau:
            are_small[cell] = True
            load += loads[cell]
            size += sizes[cell]
        elif best < 0 or size + sizes[cell] < best_size:
            best, best_size = cell, size + sizes[cell]
    return best


@kernel
def fill_loads(
    loads: NDArray[np.float64], units: NDArray[np.int64], best: NDArray[np.float64], taken: NDArray[np.uint8]
) -> None:
    """Compute the greatest load of cells whose sizes add up to at most j, for all j.

    `best` has one entry per size, zero at first. Bit j of row i of `taken` is set if the best choice among the first
    i + 1 cells for size j holds cell i.
    """
    for cell in range(loads.size):
        load, unit = loads[cell], units[cell]
        bits = taken[cell]
        for size in range(best.size - 1, unit - 1, -1):
            with_it = best[size - unit] + load
            if with_it > best[size]:
                best[size] = with_it
                bits[size >> 3] |= np.uint8(1 << (size & 7))


@kernel
def trace_cells(taken: NDArray[np.uint8], units: NDArray[np.int64], size: int, chosen: NDArray[np.bool_]) -> None:
    """Mark the cells of the best choice for a size."""
    for cell in range(units.size - 1, -1, -1):
        if taken[cell, size >> 3] >> (size & 7) & 1:
            chosen[cell] = True
            size -= units[cell]
