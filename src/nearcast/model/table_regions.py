"""Regions of tables as columns: those that users give, and those that stored subscriptions hold.

A table gives a region as four sides, as WKB in hexadecimal digits (see `plain_table`), or as a radius around x and y.
GeoJSON and WKT are read row by row.
Stored subscriptions hold, in their `filters`, the four sides of a box, a circle as GeoJSON, or polygons as WKB in
hexadecimal digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.space.region_columns import BOX, CIRCLE, NO_REGION, POLYGONS, RegionColumns
from nearcast.space.region_formats import to_geojson

SIDES = ("xmin", "ymin", "xmax", "ymax")
"""The columns of a box."""

_DIGITS = np.full(256, 255, np.uint8)
_DIGITS[np.frombuffer(b"0123456789abcdefABCDEF", np.uint8)] = [*range(16), *range(10, 16)]

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def read_regions(table: pa.Table, name: str, *, most_points: int | None = None) -> RegionColumns | None:
    """Return the region of each row; None if there is a doubt, and rows have to be read one by one.

    Without a limit of points, regions are known to be valid.

    >>> table = pa.table({"x": [5.0, None], "y": [5.0, None], "radius": [1.0, None]})
    >>> read_regions(table, "region").codes.tolist()
    [2, 0]
    >>> read_regions(pa.table({"region": ["POLYGON ((0 0, 4 0, 0 4, 0 0))"]}), "region") is None
    True
    """
    if not all(_is_readable(table, column, numbers=column != name) for column in (*SIDES, name, "x", "y", "radius")):
        return None
    sides = np.column_stack([_numbers(table, side) for side in SIDES])
    circles = np.column_stack([_numbers(table, column) for column in ("x", "y", "radius")])
    has_box = np.logical_or.reduce([is_given(table, side) for side in SIDES])
    is_circle, has_other = is_given(table, "radius"), is_given(table, name)
    if (has_box.astype(np.int8) + is_circle + has_other > 1).any():
        return None
    if not (np.isfinite(sides[has_box]).all() and np.isfinite(circles[is_circle]).all()):
        return None
    columns = RegionColumns.without(len(table))
    if has_other.any():
        wkb = _wkb_of_digits(table[name].combine_chunks())
        if wkb is None:
            return None
        columns, errors = RegionColumns.read_wkb(wkb, max_points=most_points, validate=most_points is not None)
        if errors:
            return None
    codes = np.select([has_box, is_circle], [BOX, CIRCLE], columns.codes).astype(np.int8)
    boxes = np.where(has_box[:, None], sides, columns.boxes)
    return replace(columns, codes=codes, boxes=boxes, circles=np.where(is_circle[:, None], circles, 0.0))


def rows_of_text(table: pa.Table, name: str) -> Mask:
    """Return the rows that give a region as text other than hexadecimal digits."""
    if not _is_readable(table, name, numbers=False):
        return is_given(table, name)
    if name not in table.column_names or table[name].null_count == len(table):
        return np.zeros(len(table), np.bool_)
    are_digits = pc.match_substring_regex(table[name], "^[0-9A-Fa-f]+$")
    return np.asarray(pc.fill_null(pc.invert(are_digits), False).to_numpy(), np.bool_)


def stored_regions(regions: Mapping[int, Any], sides: Floats) -> RegionColumns:
    """Return the region of each row: of some rows as filters hold it, of the others the sides, none if they are NaN.

    >>> nothing = float("nan")
    >>> stored_regions({1: [2, 2, 3, 3]}, np.array([[0, 0, 1, 1], [nothing] * 4, [nothing] * 4])).codes.tolist()
    [1, 1, 0]
    """
    digits: list[str | None] = [None] * len(sides)
    sides, circles = sides.copy(), np.zeros((len(sides), 3))
    for row, region in regions.items():
        if isinstance(region, str):
            digits[row] = region
        elif isinstance(region, dict):
            circles[row] = *region["coordinates"], region["radius"]
        else:
            sides[row] = region
    wkb = _wkb_of_digits(pa.array(digits, pa.large_string()))
    assert wkb is not None
    columns, _ = RegionColumns.read_wkb(wkb, validate=False)
    is_box = np.asarray(~np.isnan(sides).any(axis=1))
    is_circle = np.zeros(len(sides), np.bool_)
    is_circle[[row for row, region in regions.items() if isinstance(region, dict)]] = True
    codes = np.select([is_box, is_circle], [BOX, CIRCLE], columns.codes).astype(np.int8)
    return replace(columns, codes=codes, boxes=np.where(is_box[:, None], sides, columns.boxes), circles=circles)


def to_stored(regions: RegionColumns) -> Iterable[Any]:
    """Yield the region of each row in the form that stored filters hold, None without one.

    >>> from nearcast.space import Box, Circle
    >>> list(to_stored(RegionColumns.of([Box(0, 0, 2, 1), None, Circle((5, 5), 1)])))
    [[0.0, 0.0, 2.0, 1.0], None, {'type': 'Point', 'coordinates': [5.0, 5.0], 'radius': 1.0}]
    """
    boxes = regions.boxes.tolist()
    for row, code in enumerate(regions.codes.tolist()):
        if code == NO_REGION:
            yield None
        elif code == BOX:
            yield boxes[row]
        elif code == POLYGONS:
            yield regions.wkb(row).hex()
        else:
            region = regions.region(row)
            assert region is not None
            yield to_geojson(region)


def _is_readable(table: pa.Table, name: str, *, numbers: bool) -> bool:
    """Return whether a column is missing or null, or holds numbers, or else strings."""
    if name not in table.column_names or table[name].null_count == len(table):
        return True
    type_ = table.schema.field(name).type
    if numbers:
        return bool(pa.types.is_floating(type_) or pa.types.is_integer(type_))
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _wkb_of_digits(column: pa.Array) -> pa.Array | None:
    """Return hexadecimal digits as bytes; None if some string holds anything else."""
    column = column.cast(pa.large_string())
    n = len(column)
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int64)[column.offset : column.offset + n + 1] if n else np.zeros(1, np.int64)
    lengths, first = np.diff(ends), int(ends[0])
    if (lengths % 2).any():
        return None
    digits = np.zeros(0, np.uint8) if data is None else _DIGITS[np.frombuffer(data, np.uint8)[first : ends[-1]]]
    if (digits > 15).any():
        return None
    held = pa.py_buffer(digits[::2] << 4 | digits[1::2])
    is_valid = column.is_valid().buffers()[1] if column.null_count else None
    return pa.Array.from_buffers(pa.large_binary(), n, [is_valid, pa.py_buffer((ends - first) // 2), held])


def is_given(table: pa.Table, name: str) -> Mask:
    """Return which rows have a value in a column, which may be missing."""
    if name not in table.column_names:
        return np.zeros(len(table), np.bool_)
    return np.asarray(table[name].is_valid().to_numpy(), np.bool_)


def _numbers(table: pa.Table, name: str) -> Floats:
    """Return the numbers of a column, NaN where there is none."""
    if name not in table.column_names or table[name].null_count == len(table):
        return np.full(len(table), np.nan)
    return np.asarray(table[name].cast(pa.float64(), safe=False).to_numpy(), np.float64)
