"""Regions from and to GeoJSON, WKT and WKB.

    as_region    Box, Circle, Polygon, MultiPolygon              as they are
                 {"type": "Polygon" | "MultiPolygon", ...}       GeoJSON; also a Feature with such a geometry
                 {"type": "Point", ...} with a radius            a circle: the radius stands in the properties of the
                                                                 Feature, or beside the coordinates
                 "POLYGON ((0 0, 4 0, 0 4))"                     WKT
                 b"\\x01\\x03...", "0103..."                       WKB, also with an SRID and in hexadecimal digits
                 what has __geo_interface__                      Shapely, geopandas, fiona, ...

Coordinates are taken as they are: there is no transformation, an SRID or `crs` is ignored, and so are heights.
Anything else raises `InvalidInput`. No parser recurses, and validity is only computed for a limited number of points,
since it may take time in proportion to their square.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from nearcast.errors import InvalidInput, require
from nearcast.space.box import Box
from nearcast.space.region import REGION_TYPES, Circle, MultiPolygon, Polygon, Region, is_list

__all__ = ["MAX_POINTS", "as_region", "to_geojson", "to_wkb"]

MAX_POINTS = 10_000
"""The most points of a region unless the caller allows more; validating 10,000 takes a second at worst."""

_ALLOWED = (
    "must be a Box, Circle, Polygon or MultiPolygon, or such a region as GeoJSON, WKT, WKB or __geo_interface__"
)
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2})+")
_WKT = re.compile(r"\s*(MULTI)?POLYGON\s*(Z|M|ZM)?\s*\(", re.IGNORECASE | re.ASCII)


def as_region(value: Any, *, field: str = "region", subject: str = "", max_points: int | None = MAX_POINTS) -> Region:
    """Return the region that a value stands for, or raise `InvalidInput`.

    >>> as_region({"type": "Point", "coordinates": [13.4, 52.5], "radius": 500})
    Circle(center=(13.4, 52.5), radius=500.0)
    >>> as_region("POLYGON ((0 0, 4 0, 0 4, 0 0))").shell
    ((0.0, 0.0), (4.0, 0.0), (0.0, 4.0), (0.0, 0.0))
    >>> as_region("POLYGON ((0 0, 1 1, 1 0, 0 1, 0 0))", subject="subscription 's'")
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: region must be a valid polygon; got 'Self-intersection[0.5 0.5]' (subscription 's')
    """
    try:
        made = _made(value, max_points)
    except _Refused as refusal:
        raise InvalidInput(field, refusal.rule, refusal.value, subject=subject) from None
    except InvalidInput as error:
        what = "a valid polygon" if error.rule == "must be valid" else f"a region whose {error.field} {error.rule}"
        raise InvalidInput(field, f"must be {what}", error.value, subject=subject) from None
    return made


def to_geojson(region: Region) -> dict[str, Any]:
    """Return a region as a GeoJSON geometry, which `as_region` reads.

    A box becomes a Polygon, a box across the antimeridian a MultiPolygon that is cut there, as RFC 7946 asks; a box
    without area becomes a ring without area, which is no valid polygon. GeoJSON has no circles: one becomes a Point
    with an additional member `radius`.

    >>> to_geojson(Circle((13.4, 52.5), 500))
    {'type': 'Point', 'coordinates': [13.4, 52.5], 'radius': 500.0}
    >>> to_geojson(Box(0, 0, 2, 1))
    {'type': 'Polygon', 'coordinates': [[[0.0, 0.0], [2.0, 0.0], [2.0, 1.0], [0.0, 1.0], [0.0, 0.0]]]}
    """
    if isinstance(region, Circle):
        return {"type": "Point", "coordinates": list(region.center), "radius": region.radius}
    if isinstance(region, Box):
        halves = region.halves()
        areas = [[_corners(half)] for half in halves if half.xmin < half.xmax] or [[_corners(halves[0])]]
    else:
        areas = [[list(map(list, ring)) for ring in polygon.rings] for polygon in region.polygons]
    if isinstance(region, MultiPolygon) or (isinstance(region, Box) and region.wraps):
        return {"type": "MultiPolygon", "coordinates": areas}
    return {"type": "Polygon", "coordinates": areas[0]}


def to_wkb(region: Region) -> bytes:
    """Return a box or polygons as WKB of GeoJSON's geometry; a circle has none.

    >>> as_region(to_wkb(Polygon([(0, 0), (4, 0), (0, 4)]))) == Polygon([(0, 0), (4, 0), (0, 4)])
    True
    """
    require(not isinstance(region, Circle), "region", "must be a box or polygons to be written as WKB", region)
    geometry = to_geojson(region)
    is_multi = geometry["type"] == "MultiPolygon"
    areas = geometry["coordinates"] if is_multi else [geometry["coordinates"]]
    polygons = [_head(3, len(rings)) + b"".join(map(_ring_bytes, rings)) for rings in areas]
    return _head(6, len(polygons)) + b"".join(polygons) if is_multi else polygons[0]


class _Refused(Exception):
    """A value is no region."""

    def __init__(self, rule: str, value: Any) -> None:
        super().__init__(rule)
        self.rule, self.value = rule, value


def _made(value: Any, max_points: int | None) -> Region:
    if isinstance(value, REGION_TYPES):
        if isinstance(value, (Polygon, MultiPolygon)):
            _check_size(value.rings, max_points)
        return value
    if isinstance(value, str) and _HEX.fullmatch(value) is not None:
        return _of_wkb(bytes.fromhex(value), max_points)
    if isinstance(value, str):
        return _of_wkt(value, max_points)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _of_wkb(bytes(value), max_points)
    if isinstance(value, Mapping):
        return _of_geojson(value, max_points)
    try:
        interface = getattr(value, "__geo_interface__", None)
    except Exception as error:  # whatever a foreign property raises
        raise _Refused("must have a __geo_interface__ that can be read", type(error).__name__) from None
    if not isinstance(interface, Mapping):
        raise _Refused(_ALLOWED, value)
    return _of_geojson(interface, max_points)


def _of_geojson(value: Mapping[str, Any], max_points: int | None) -> Region:
    geometry, properties = value, value
    if value.get("type") == "Feature":
        geometry, properties = value.get("geometry") or {}, value.get("properties") or {}
        if not isinstance(geometry, Mapping) or not isinstance(properties, Mapping):
            raise _Refused("must be a Feature with a geometry and properties", _kind(geometry))
    kind, coordinates = geometry.get("type"), cast("Any", geometry.get("coordinates"))
    if kind == "Point":
        radius = properties.get("radius", geometry.get("radius"))
        if radius is None:
            raise _Refused("must have a radius in its properties or beside its coordinates if it is a Point", kind)
        if not is_list(coordinates):
            raise _Refused("must be a circle around a pair of numbers", coordinates)
        return Circle(tuple(coordinates[:2]) if len(coordinates) in (3, 4) else tuple(coordinates), radius)
    if kind not in ("Polygon", "MultiPolygon"):
        raise _Refused("must be a GeoJSON Polygon, MultiPolygon, or Point with a radius, or a Feature of one", kind)
    areas: Any = [coordinates] if kind == "Polygon" else coordinates
    if not is_list(areas) or not all(is_list(rings) and all(map(is_list, rings)) for rings in areas):
        raise _Refused(f"must be a {kind} whose coordinates are lists of rings of points", _kind(coordinates))
    if not len(areas) or not all(len(rings) for rings in areas):
        raise _Refused("must not be empty", kind)
    _check_size((ring for rings in areas for ring in rings), max_points)
    made: Any = [[[_flat(point) for point in ring] for ring in rings] for rings in areas]
    polygons = [Polygon(shell, tuple(holes)) for shell, *holes in made]
    return polygons[0] if kind == "Polygon" else MultiPolygon(tuple(polygons))


def _of_wkt(text: str, max_points: int | None) -> Region:
    import shapely

    # Only polygons reach the parser: it recurses into collections, as deep as the text says.
    if _WKT.match(text) is None:
        raise _Refused("must be a POLYGON or MULTIPOLYGON if it is a string", text)
    _check_number(text.count(",") + 1, max_points)
    try:
        shape = shapely.from_wkt(text)
    except (shapely.errors.ShapelyError, ValueError, TypeError) as error:
        raise _Refused("must be well-formed WKT", str(error)) from None
    return _of_geojson(shape.__geo_interface__, max_points)


def _of_wkb(data: bytes, max_points: int | None) -> Region:
    from nearcast.space.region_columns import RegionColumns

    columns, errors = RegionColumns.read_wkb([data], max_points=max_points)
    if errors:
        raise _Refused(errors[0].rule, errors[0].value)
    region = columns.region(0)
    assert region is not None
    return region


def _check_size(rings: Any, max_points: int | None) -> None:
    _check_number(sum(map(len, rings)), max_points)


def _check_number(n_points: int, max_points: int | None) -> None:
    if max_points is not None and n_points > max_points:
        raise _Refused(f"must have at most {max_points} points", n_points)


def _flat(point: Any) -> Any:
    """Return a point without height and measure; what is no point is refused later."""
    return point[:2] if is_list(point) and len(point) in (3, 4) else point


def _kind(value: Any) -> str:
    return type(value).__name__


def _corners(box: Box) -> list[list[float]]:
    west, south, east, north = box.as_tuple()
    return [[west, south], [east, south], [east, north], [west, north], [west, south]]


def _head(code: int, count: int) -> bytes:
    return b"\x01" + code.to_bytes(4, "little") + count.to_bytes(4, "little")


def _ring_bytes(ring: list[list[float]]) -> bytes:
    return len(ring).to_bytes(4, "little") + np.array(ring, "<f8").tobytes()
