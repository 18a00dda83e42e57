"""Reads polygons from WKB: ISO and extended, in either byte order; heights, measures and an SRID are skipped.

    geometry   order uint8 | code uint32 | SRID uint32?          1: little endian, 0: big; code 3: polygon, 6: multi
               polygon: number of rings | rings                  ring: number of points | points
               multi-polygon: number of polygons | geometries

A row may say anything: every number is checked against the bytes that are left, and nothing recurses.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel

POLYGON, MULTI_POLYGON = 3, 6
VALID, MALFORMED, OTHER_TYPE, EMPTY, SHORT_RING, TOO_MANY_POINTS = range(6)
"""What a row is."""
AT, N_RINGS, N_POINTS, ORDER, WIDTH = range(5)
"""Positions in the state of a reader: the next byte, rings and points written, byte order, bytes of a point."""
STATE = 5
LEAST_RING = 4
"""Points of the shortest ring, a triangle."""
_HAS_Z, _HAS_M, _HAS_SRID = 1 << 31, 1 << 30, 1 << 29


class WkbRows(NamedTuple):
    """Rows of WKB."""

    data: NDArray[np.uint8]
    """uint8 (n_bytes,): the bytes of all rows."""
    starts: NDArray[np.int64]
    """int64 (n_rows,): the first byte of each."""
    stops: NDArray[np.int64]
    """int64 (n_rows,): the byte after the last of each; -1 where there is no region."""


class RingRows(NamedTuple):
    """What is read; long enough for all rows."""

    faults: NDArray[np.uint8]
    """uint8 (n_rows,): VALID, or what is wrong; a wrong row has no rings."""
    ring_indptr: NDArray[np.int64]
    """int64 (n_rows + 1,): the first ring of each row."""
    point_indptr: NDArray[np.int64]
    """int64 (n_rings + 1,): the first point of each ring."""
    is_shell: NDArray[np.bool_]
    """bool (n_rings,): whether a polygon begins with the ring."""
    points: NDArray[np.uint8]
    """uint8 (16 * n_points,): the bytes of x and y of each point, little endian."""


@kernel
def _number(data: NDArray[np.uint8], at: int, order: int) -> int:
    """Return the uint32 at a byte."""
    value = 0
    for i in range(4):
        place = 3 - i if order == 1 else i
        value = value * 256 + int(data[at + place])
    return value


@kernel
def _open(rows: WkbRows, row: int, state: NDArray[np.int64]) -> int:
    """Read the head of a geometry; return its type, or -1 if it is malformed."""
    at = state[AT]
    if rows.stops[row] - at < 5 or rows.data[at] > 1:
        return -1
    order = int(rows.data[at])
    code = _number(rows.data, at + 1, order)
    at += 5
    if code & _HAS_SRID:
        at += 4
    extra = (1 if code & _HAS_Z else 0) + (1 if code & _HAS_M else 0)
    kind = code & 0x1FFFFFFF
    thousands = kind // 1000
    if thousands > 3 or (thousands > 0 and extra > 0):
        return -1
    if thousands > 0:
        extra = 2 if thousands == 3 else 1
    state[AT], state[ORDER], state[WIDTH] = at, order, 8 * (2 + extra)
    return kind - 1000 * thousands


@kernel
def _count(rows: WkbRows, row: int, state: NDArray[np.int64]) -> int:
    """Read a number of parts; return -1 if the row is too short for as many parts of four bytes."""
    at = state[AT]
    if rows.stops[row] - at < 4:
        return -1
    n = _number(rows.data, at, state[ORDER])
    state[AT] = at + 4
    return n if 4 * n <= rows.stops[row] - at - 4 else -1


@kernel
def _read_ring(rows: WkbRows, row: int, out: RingRows, state: NDArray[np.int64]) -> int:
    """Read the points of a ring; return a fault."""
    n = _count(rows, row, state)
    width, little = state[WIDTH], state[ORDER] == 1
    if n < 0 or n * width > rows.stops[row] - state[AT]:
        return MALFORMED
    if n < LEAST_RING:
        return EMPTY if n == 0 else SHORT_RING
    to = 16 * state[N_POINTS]
    for i in range(n):
        at = state[AT] + i * width
        for half in range(0, 16, 8):
            for byte in range(8):
                out.points[to + half + byte] = rows.data[at + half + (byte if little else 7 - byte)]
        to += 16
    state[AT] += n * width
    state[N_POINTS] += n
    state[N_RINGS] += 1
    out.point_indptr[state[N_RINGS]] = state[N_POINTS]
    return VALID


@kernel
def _read_polygon(rows: WkbRows, row: int, out: RingRows, state: NDArray[np.int64]) -> int:
    """Read the rings of a polygon; return a fault."""
    n = _count(rows, row, state)
    if n < 0:
        return MALFORMED
    for i in range(n):
        out.is_shell[state[N_RINGS]] = i == 0
        fault = _read_ring(rows, row, out, state)
        if fault != VALID:
            return fault
    return VALID if n > 0 else EMPTY


@kernel
def _read_row(rows: WkbRows, row: int, out: RingRows, state: NDArray[np.int64]) -> int:
    """Read a polygon or a multi-polygon; return a fault."""
    kind = _open(rows, row, state)
    if kind == POLYGON:
        fault = _read_polygon(rows, row, out, state)
    elif kind == MULTI_POLYGON:
        n = _count(rows, row, state)
        fault = MALFORMED if n < 0 else EMPTY if n == 0 else VALID
        for _ in range(n):
            if _open(rows, row, state) != POLYGON:
                return MALFORMED
            fault = _read_polygon(rows, row, out, state)
            if fault != VALID:
                return fault
    else:
        return MALFORMED if kind < 0 else OTHER_TYPE
    return MALFORMED if fault == VALID and state[AT] != rows.stops[row] else fault


@kernel(allocates=True)
def read_wkb(rows: WkbRows, out: RingRows, max_points: int) -> tuple[int, int]:
    """Read all rows; return the number of rings and of points."""
    state = np.zeros(STATE, np.int64)
    out.point_indptr[0] = 0
    for row in range(rows.starts.size):
        n_rings, n_points = state[N_RINGS], state[N_POINTS]
        out.ring_indptr[row] = n_rings
        out.faults[row] = VALID
        state[AT] = rows.starts[row]
        if rows.stops[row] < 0:
            continue
        fault = _read_row(rows, row, out, state)
        if fault == VALID and state[N_POINTS] - n_points > max_points:
            fault = TOO_MANY_POINTS
        if fault != VALID:
            out.faults[row] = fault
            state[N_RINGS], state[N_POINTS] = n_rings, n_points
    out.ring_indptr[rows.starts.size] = state[N_RINGS]
    return state[N_RINGS], state[N_POINTS]
