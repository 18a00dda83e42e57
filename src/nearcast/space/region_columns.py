"""Regions as columns: flat arrays of a region, or none, per row.

    codes      row  -> NO_REGION, BOX, CIRCLE or POLYGONS
    boxes      row  -> sides of a box, extent of polygons
    circles    row  -> center and radius
    rings      row  -> rings -> points, in CSR form; the shell of each polygon, then its holes

Cost: 57 bytes per row, and 16 per point. WKB is read by a kernel and validated by Shapely as arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.errors import InvalidInput
from nearcast.ragged import positions, starts
from nearcast.space.box import Box
from nearcast.space.region import LARGEST_COORDINATE, Circle, Region, Ring, polygons_unchecked
from nearcast.space.space import Space

__all__ = ["BOX", "CIRCLE", "NO_REGION", "POLYGONS", "RegionColumns"]

NO_REGION, BOX, CIRCLE, POLYGONS = range(4)
"""What a row holds."""

Floats = npt.NDArray[np.float64]
_FINITE = f"must have finite coordinates in [-{LARGEST_COORDINATE:g}, {LARGEST_COORDINATE:g}]"
_CLOSED = "must have rings of at least 4 points, of which the last equals the first"
_UNREADABLE = {
    1: "must be well-formed WKB",
    2: "must be a POLYGON or MULTIPOLYGON",
    3: "must not be empty",
    4: _CLOSED,
}


class _Rings(NamedTuple):
    """Rings of rows, in CSR form."""

    ring_indptr: npt.NDArray[np.int64]
    point_indptr: npt.NDArray[np.int64]
    points: Floats
    is_shell: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class RegionColumns:
    """Regions by row.

    >>> columns = RegionColumns.of([Box(0, 0, 2, 1), None, Circle((5, 5), 1)])
    >>> columns.codes.tolist(), columns.region(2)
    ([1, 0, 2], Circle(center=(5.0, 5.0), radius=1.0))
    """

    codes: npt.NDArray[np.int8]
    """int8 (n_rows,): NO_REGION, BOX, CIRCLE or POLYGONS."""
    boxes: Floats
    """float64 (n_rows, 4): xmin, ymin, xmax, ymax of a box, or the extent of polygons; else 0."""
    circles: Floats
    """float64 (n_rows, 3): x and y of the center, and the radius; else 0."""
    ring_indptr: npt.NDArray[np.int64]
    """int64 (n_rows + 1,): the first ring of each row."""
    point_indptr: npt.NDArray[np.int64]
    """int64 (n_rings + 1,): the first point of each ring."""
    points: Floats
    """float64 (n_points, 2): x and y; the last point of a ring equals its first."""
    is_shell: npt.NDArray[np.bool_]
    """bool (n_rings,): whether a polygon begins with the ring."""

    def __len__(self) -> int:
        return len(self.codes)

    @classmethod
    def of(cls, regions: Sequence[Region | None]) -> RegionColumns:
        """Return regions as columns."""
        n = len(regions)
        codes, boxes, circles = np.zeros(n, np.int8), np.zeros((n, 4)), np.zeros((n, 3))
        rings: list[Ring] = []
        n_rings, is_shell = [0], []
        for row, region in enumerate(regions):
            if isinstance(region, Box):
                codes[row], boxes[row] = BOX, region.as_tuple()
            elif isinstance(region, Circle):
                codes[row], circles[row] = CIRCLE, (*region.center, region.radius)
            elif region is not None:
                codes[row], boxes[row] = POLYGONS, region.extent
                for polygon in region.polygons:
                    rings.extend(polygon.rings)
                    is_shell.extend([True] + [False] * len(polygon.holes))
            n_rings.append(len(rings))
        n_points = np.cumsum([0, *map(len, rings)], dtype=np.int64)
        points = np.array([point for ring in rings for point in ring], np.float64).reshape(-1, 2)
        return cls(codes, boxes, circles, np.array(n_rings, np.int64), n_points, points, np.array(is_shell, np.bool_))

    @classmethod
    def without(cls, n: int) -> RegionColumns:
        """Return rows without a region."""
        return cls(np.zeros(n, np.int8), np.zeros((n, 4)), np.zeros((n, 3)), *_no_rings(n))

    @classmethod
    def from_boxes(cls, boxes: Floats) -> RegionColumns:
        """Return boxes, as rows of xmin, ymin, xmax, ymax; rows with a NaN have no region."""
        given = np.array(boxes, np.float64).reshape(-1, 4)
        exists = ~np.asarray(np.isnan(given).any(axis=1))
        codes = np.where(exists, BOX, NO_REGION).astype(np.int8)
        return cls(codes, np.where(exists[:, None], given, 0.0), np.zeros((len(codes), 3)), *_no_rings(len(codes)))

    @classmethod
    def from_circles(cls, circles: Floats) -> RegionColumns:
        """Return circles, as rows of x, y, radius; rows with a NaN have no region."""
        given = np.array(circles, np.float64).reshape(-1, 3)
        exists = ~np.asarray(np.isnan(given).any(axis=1))
        codes = np.where(exists, CIRCLE, NO_REGION).astype(np.int8)
        return cls(codes, np.zeros((len(codes), 4)), np.where(exists[:, None], given, 0.0), *_no_rings(len(codes)))

    @classmethod
    def from_wkb(
        cls, column: pa.Array | pa.ChunkedArray | Sequence[bytes | None], *, max_points: int | None = None
    ) -> RegionColumns:
        """Return polygons of a column of WKB; null is no region. Raise `InvalidInput` for the first bad row."""
        columns, errors = cls.read_wkb(column, max_points=max_points)
        if errors:
            row, error = min(errors.items())
            raise error.about(f"row {row}")
        return columns

    @classmethod
    def read_wkb(
        cls,
        column: pa.Array | pa.ChunkedArray | Sequence[bytes | None],
        *,
        field: str = "region",
        max_points: int | None = None,
        validate: bool = True,
    ) -> tuple[RegionColumns, dict[int, InvalidInput]]:
        """Return polygons of a column of WKB, and an error for each bad row; such a row has no region.

        What was validated before need not be validated again.

        >>> columns, errors = RegionColumns.read_wkb([None, b"junk"])
        >>> columns.codes.tolist(), str(errors[1])
        ([0, 0], "region must be well-formed WKB; got b'junk'")
        """
        cells = _as_binary(column)
        rings, faults = _read(cells, np.iinfo(np.int64).max if max_points is None else max_points)
        rules: dict[int, tuple[str, Any]] = {}
        for row in np.flatnonzero(faults).tolist():
            too_many = f"must have at most {max_points} points"
            rules[row] = _UNREADABLE.get(int(faults[row]), too_many), cells[row].as_py()
        if validate:
            rules |= _invalid(rings)
        codes = np.where(np.diff(rings.ring_indptr) > 0, POLYGONS, NO_REGION).astype(np.int8)
        columns = cls(codes, _extents(rings), np.zeros((len(codes), 3)), *rings)
        if rules:
            kept = np.arange(len(codes))
            kept[list(rules)] = -1
            columns = columns.take(kept)
        return columns, {row: InvalidInput(field, *rule) for row, rule in rules.items()}

    def region(self, row: int) -> Region | None:
        """Return the region of a row."""
        code = self.codes[row]
        if code == BOX:
            return Box(*self.boxes[row].tolist())
        if code == CIRCLE:
            x, y, radius = self.circles[row].tolist()
            return Circle((x, y), radius)
        if code == NO_REGION:
            return None
        first, stop = self.ring_indptr[row : row + 2].tolist()
        ends = self.point_indptr[first : stop + 1].tolist()
        polygons: list[list[tuple[tuple[float, float], ...]]] = []
        for shell, (a, b) in zip(self.is_shell[first:stop].tolist(), pairwise(ends), strict=True):
            if shell:
                polygons.append([])
            polygons[-1].append(tuple((x, y) for x, y in self.points[a:b].tolist()))
        return polygons_unchecked(polygons)

    def wkb(self, row: int) -> bytes:
        """Return the polygons of a row as WKB.

        >>> import shapely
        >>> wkb = shapely.to_wkb(shapely.from_wkt("POLYGON ((0 0, 4 0, 0 4, 0 0))"))
        >>> RegionColumns.from_wkb([wkb]).wkb(0) == wkb
        True
        """
        polygons: list[list[bytes]] = []
        for ring in range(int(self.ring_indptr[row]), int(self.ring_indptr[row + 1])):
            if self.is_shell[ring]:
                polygons.append([])
            points = self.points[self.point_indptr[ring] : self.point_indptr[ring + 1]]
            polygons[-1].append(len(points).to_bytes(4, "little") + points.astype("<f8").tobytes())
        made = [_wkb_head(3, len(rings)) + b"".join(rings) for rings in polygons]
        return made[0] if len(made) == 1 else _wkb_head(6, len(made)) + b"".join(made)

    def take(self, rows: npt.ArrayLike) -> RegionColumns:
        """Return some rows, in any order; a negative row gives no region."""
        chosen = np.asarray(rows, np.int64)
        if len(self) == 0:
            return RegionColumns.joined([RegionColumns.of([None])] * len(chosen))
        exists = chosen >= 0
        chosen = np.where(exists, chosen, 0)
        n_rings = np.where(exists, np.diff(self.ring_indptr)[chosen], 0)
        rings, _ = positions(self.ring_indptr, chosen[exists])
        points, point_indptr = positions(self.point_indptr, rings)
        return RegionColumns(
            np.where(exists, self.codes[chosen], NO_REGION).astype(np.int8),
            np.where(exists[:, None], self.boxes[chosen], 0.0),
            np.where(exists[:, None], self.circles[chosen], 0.0),
            starts(n_rings),
            point_indptr,
            self.points[points],
            self.is_shell[rings],
        )

    @classmethod
    def joined(cls, parts: Sequence[RegionColumns]) -> RegionColumns:
        """Return all rows of some columns, one after the other.

        >>> parts = RegionColumns.of([None]), RegionColumns.of([Box(0, 0, 1, 1)])
        >>> [RegionColumns.joined(parts).region(row) for row in range(2)]
        [None, Box(xmin=0.0, ymin=0.0, xmax=1.0, ymax=1.0)]
        """
        if not parts:
            return RegionColumns.of([])
        n_rings = np.concatenate([np.diff(part.ring_indptr) for part in parts])
        n_points = np.concatenate([np.diff(part.point_indptr) for part in parts])
        return RegionColumns(
            np.concatenate([part.codes for part in parts]),
            np.concatenate([part.boxes for part in parts]),
            np.concatenate([part.circles for part in parts]),
            starts(n_rings),
            starts(n_points),
            np.concatenate([part.points for part in parts]),
            np.concatenate([part.is_shell for part in parts]),
        )

    def bounding_boxes(self, space: Space) -> Floats:
        """Return `space.bounding_box` of each row as xmin, ymin, xmax, ymax; without a region, the bounds."""
        bounds = space.bounds
        boxes = self.boxes.copy()
        wraps = (self.codes == BOX) & (boxes[:, 0] > boxes[:, 2])
        boxes[wraps, 0], boxes[wraps, 2] = bounds.xmin, bounds.xmax
        made = space.clipped(boxes)
        is_circle = self.codes == CIRCLE
        x, y, radius = self.circles[is_circle].T
        made[is_circle] = space.reaches(x, y, radius)
        made[self.codes == NO_REGION] = bounds.as_tuple()
        return made

    def is_allowed(self, space: Space) -> npt.NDArray[np.bool_]:
        """Return whether the values of each row are those of a region that `space.check_region` accepts."""
        x, y, radius = self.circles.T
        xmin, ymin, xmax, ymax = self.boxes.T
        on_globe = (np.abs(xmin) <= 180) & (np.abs(xmax) <= 180) & (np.abs(ymin) <= 90) & (np.abs(ymax) <= 90)
        wraps_well = on_globe if space.metric == "haversine" else np.zeros(len(self), np.bool_)
        is_box = np.isfinite(self.boxes).all(axis=1) & (ymin <= ymax) & ((xmin <= xmax) | wraps_well)
        is_circle = np.isfinite(self.circles).all(axis=1) & (radius >= 0)
        if space.metric == "haversine":
            is_circle &= (np.abs(x) <= 180) & (np.abs(y) <= 90)
        return np.where(self.codes == BOX, is_box, np.where(self.codes == CIRCLE, is_circle, True))


def _no_rings(n: int) -> _Rings:
    return _Rings(np.zeros(n + 1, np.int64), np.zeros(1, np.int64), np.zeros((0, 2)), np.zeros(0, np.bool_))


def _wkb_head(code: int, count: int) -> bytes:
    return b"\x01" + code.to_bytes(4, "little") + count.to_bytes(4, "little")


def _as_binary(column: pa.Array | pa.ChunkedArray | Sequence[bytes | None]) -> pa.Array:
    """Return a column as one array of `large_binary`."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not isinstance(column, pa.Array):
        column = pa.array(column, pa.large_binary())
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.large_binary())


def _read(cells: pa.Array, max_points: int) -> tuple[_Rings, npt.NDArray[np.uint8]]:
    """Return the rings of rows of WKB, and what is wrong with each row."""
    from nearcast.space._kernels.wkb import RingRows, WkbRows, read_wkb

    n = len(cells)
    if n == 0:
        return _no_rings(0), np.zeros(0, np.uint8)
    _, offsets, data = cells.buffers()
    ends = np.frombuffer(offsets, np.int64)[cells.offset : cells.offset + n + 1]
    stops = np.where(cells.is_null().to_numpy(zero_copy_only=False), -1, ends[1:])
    first, last = int(ends[0]), int(ends[-1])
    # Kernels take writable arrays: the bytes are copied once.
    held = np.zeros(0, np.uint8) if last == first else np.frombuffer(data, np.uint8)[first:last].copy()
    rows = WkbRows(held, ends[:-1] - first, np.where(stops < 0, -1, stops - first))
    most_rings, most_points = len(held) // 68 + 2, len(held) // 16 + 1
    points = np.empty((most_points, 2), "<f8")
    out = RingRows(
        np.zeros(n, np.uint8),
        np.zeros(n + 1, np.int64),
        np.zeros(most_rings + 1, np.int64),
        np.zeros(most_rings, np.bool_),
        points.reshape(-1).view(np.uint8),
    )
    n_rings, n_points = read_wkb(rows, out, max_points)
    point_indptr, is_shell = out.point_indptr[: n_rings + 1].copy(), out.is_shell[:n_rings].copy()
    return _Rings(out.ring_indptr, point_indptr, points[:n_points].astype(np.float64), is_shell), out.faults


def _extents(rings: _Rings) -> Floats:
    """Return xmin, ymin, xmax, ymax of each row; zeros for a row without rings."""
    boxes = np.zeros((len(rings.ring_indptr) - 1, 4))
    has_rings = np.diff(rings.ring_indptr) > 0
    if has_rings.any():
        firsts = rings.point_indptr[rings.ring_indptr[:-1][has_rings]]
        boxes[has_rings, :2] = np.minimum.reduceat(rings.points, firsts)
        boxes[has_rings, 2:] = np.maximum.reduceat(rings.points, firsts)
    return boxes


def _invalid(rings: _Rings) -> dict[int, tuple[str, Any]]:
    """Return the rule and the value of each row whose polygons are not valid."""
    if len(rings.is_shell) == 0:
        return {}
    import shapely

    row_of_ring = np.repeat(np.arange(len(rings.ring_indptr) - 1), np.diff(rings.ring_indptr))
    row_of_point = np.repeat(row_of_ring, np.diff(rings.point_indptr))
    with np.errstate(invalid="ignore"):
        is_wild = ~(np.abs(rings.points) <= LARGEST_COORDINATE).all(axis=1)
    wild = np.flatnonzero(is_wild)
    found: dict[int, tuple[str, Any]] = {}
    for row, point in zip(row_of_point[wild].tolist(), rings.points[wild].tolist(), strict=True):
        found.setdefault(row, (_FINITE, point))
    ends = rings.points[rings.point_indptr[:-1]], rings.points[rings.point_indptr[1:] - 1]
    is_open = (ends[0] != ends[1]).any(axis=1)
    for row in row_of_ring[is_open].tolist():
        found.setdefault(row, (_CLOSED, "an open ring"))
    good = np.ones(len(rings.ring_indptr) - 1, np.bool_)
    good[list(found)] = False
    good &= np.diff(rings.ring_indptr) > 0
    rows = np.flatnonzero(good)
    if len(rows) == 0:
        return found
    kept = good[row_of_ring]
    ring_ends = starts(np.diff(rings.point_indptr)[kept])
    shells = np.append(np.flatnonzero(rings.is_shell[kept]), int(kept.sum()))
    shell_rows = row_of_ring[kept][shells[:-1]]
    shape_ends = np.append(np.searchsorted(shell_rows, rows), len(shell_rows))
    shapes = shapely.from_ragged_array(
        shapely.GeometryType.MULTIPOLYGON, rings.points[good[row_of_point]], (ring_ends, shells, shape_ends)
    )
    with np.errstate(all="ignore"):  # a reason may name a point that no float64 can hold
        for i in np.flatnonzero(~shapely.is_valid(shapes)).tolist():
            found[int(rows[i])] = "must be a valid polygon", shapely.is_valid_reason(shapes[i])
    return found
