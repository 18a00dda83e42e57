"""Selections of cells to move: PS2Stream's minimum cost migration (section V-A, definition 4).

    given       cells with a load and a size in bytes, and tau, the load to move
    selected    rows of cells whose loads add up to at least tau; the sum of their sizes is the cost

    dp    the least cost, by dynamic programming over sizes (section V-A.1)
    gr    greedy: cells by size per load, and the cheapest cell that completes a prefix of them (section V-A.2)
    si    the largest cells first (section VI-D, a baseline)
    ra    cells in random order (section VI-D, a baseline)

The problem is NP-hard (theorem 2), and `dp` takes time and memory in proportion to the number of cells times the cost
of the solution of `gr`, its bound P. Departures from the paper: `dp` keeps one row of loads and one bit per cell and
size instead of a table of loads, and where even these bits exceed `MOST_BITS` it counts sizes in units of several
bytes, rounded up. Its cost then exceeds the least by less than one unit for each cell of the cheapest selection.

Cells without load are never selected by `dp` and `gr`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from nearcast.errors import require

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]

Selection = Callable[..., Longs]
"""A function of loads, with the keywords `sizes` and `tau`; it returns rows of cells, ascending."""

MOST_BITS = 2**31
"""The most bits that `dp` remembers its choices in: a quarter of a gigabyte."""


def select_dp(loads: Floats, *, sizes: Longs, tau: float, most_bits: int = MOST_BITS) -> Longs:
    """Return the cells with the least cost.

    >>> select_dp(np.array([6.0, 5.0, 5.0]), sizes=np.array([4, 3, 3]), tau=10.0).tolist()
    [1, 2]
    """
    from nearcast.partition._kernels.selection import fill_loads, trace_cells

    _check(loads, sizes, tau)
    rows = np.flatnonzero(loads > 0)
    loads, sizes = np.ascontiguousarray(loads[rows]), sizes[rows]
    bound = int(sizes[_greedy(loads, sizes, tau)].sum())
    unit = max(1, -(-len(rows) * (bound + 1) // most_bits))
    units = -(-sizes // unit)
    most = int(units[_greedy(loads, units, tau)].sum())
    best, taken = np.zeros(most + 1), np.zeros((len(rows), most // 8 + 1), np.uint8)
    fill_loads(loads, units, best, taken)
    enough = np.flatnonzero(best >= tau)
    chosen = np.zeros(len(rows), np.bool_)
    trace_cells(taken, units, int(enough[0]) if len(enough) else most, chosen)
    return rows[chosen]


def select_gr(loads: Floats, *, sizes: Longs, tau: float) -> Longs:
    """Return the cheapest of the candidates that a scan of cells by size per load meets.

    >>> select_gr(np.array([6.0, 5.0, 5.0]), sizes=np.array([4, 3, 3]), tau=10.0).tolist()
    [1, 2]
    """
    _check(loads, sizes, tau)
    rows = np.flatnonzero(loads > 0)
    return rows[_greedy(loads[rows], sizes[rows], tau)]


def select_si(loads: Floats, *, sizes: Longs, tau: float) -> Longs:
    """Return the largest cells.

    >>> select_si(np.array([6.0, 5.0, 5.0]), sizes=np.array([4, 3, 3]), tau=10.0).tolist()
    [0, 1]
    """
    _check(loads, sizes, tau)
    return _until(np.argsort(-sizes, kind="stable"), loads, tau)


def select_ra(loads: Floats, *, sizes: Longs, tau: float, seed: int = 0) -> Longs:
    """Return random cells, the same ones for a seed."""
    _check(loads, sizes, tau)
    return _until(np.random.default_rng(seed).permutation(len(loads)), loads, tau)


SELECTIONS: Mapping[str, Selection] = {"dp": select_dp, "gr": select_gr, "si": select_si, "ra": select_ra}
"""All selections by name."""


def selection_named(name: str) -> Selection:
    """Return a selection; raise `InvalidInput` if there is none of that name."""
    require(name in SELECTIONS, "selection", f"must be one of {', '.join(SELECTIONS)}", name)
    return SELECTIONS[name]


def _greedy(loads: Floats, sizes: Longs, tau: float) -> Longs:
    from nearcast.partition._kernels.selection import scan_greedily

    order = np.argsort(sizes / loads, kind="stable")
    are_small = np.zeros(len(order), np.bool_)
    last = scan_greedily(loads[order], sizes[order], tau, are_small)
    if last >= 0:
        are_small[last:] = False
        are_small[last] = True
    return np.sort(order[are_small])


def _until(order: Longs, loads: Floats, tau: float) -> Longs:
    """Return the first cells of an order whose loads add up to tau, all of them if rounding keeps the sum below."""
    n = int(np.searchsorted(np.cumsum(loads[order]), tau)) + 1
    return np.sort(order[:n])


def _check(loads: Floats, sizes: Longs, tau: float) -> None:
    require(len(loads) == len(sizes), "sizes", f"must hold one size for each of {len(loads)} cells", len(sizes))
    for name, values in (("loads", loads), ("sizes", sizes)):
        bad = ~(values >= 0) | ~np.isfinite(values)
        require(not bad.any(), name, "must be finite and 0 or more", values[bad][:1].tolist())
    rule = "must be above 0 and at most the load of all cells"
    require(0 < tau <= float(loads.sum()), "tau", rule, tau)
