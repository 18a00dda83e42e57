"""Regions as JSON: what clients send, what the journal stores, and what maps draw.

    [xmin, ymin, xmax, ymax]                                                        a box
    {"type": "Polygon" or "MultiPolygon", "coordinates": [...]}                     polygons, as in GeoJSON
    {"type": "Feature", "geometry": {"type": "Point", "coordinates": [x, y]},
     "properties": {"radius": 500}}                                                 a circle

GeoJSON has no circles, so one is a feature whose properties hold the radius.
"""

from __future__ import annotations

from typing import Any

from nearcast.space import Box, Circle, Region, Space
from nearcast.space.region import polygons_unchecked
from nearcast.space.region_formats import to_geojson

RegionJson = Any
"""A region in one of the forms above."""


def region_json(value: Any) -> Any:
    """Return other GeoJSON of a region in its form above, and anything else unchanged.

    >>> region_json({"type": "Point", "coordinates": [1, 2], "radius": 3})["properties"]
    {'radius': 3}
    """
    match value:
        case {"type": "Feature", "geometry": {"type": "Polygon" | "MultiPolygon"} as geometry}:
            return geometry
        case {"type": "Point", "coordinates": at, "radius": radius}:
            return circle_json(at, radius)
    return value


def circle_json(at: Any, radius: Any) -> RegionJson:
    """Return a circle."""
    return {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": at},
        "properties": {"radius": radius},
    }


def geometry_of(region: RegionJson) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the GeoJSON geometry of a region, and the properties that it needs.

    >>> geometry_of(circle_json([1, 2], 3))
    ({'type': 'Point', 'coordinates': [1, 2]}, {'radius': 3})
    """
    if isinstance(region, list):
        return to_geojson(Box(*region)), {}
    if region["type"] == "Feature":
        return region["geometry"], region["properties"]
    return region, {}


def extent_of(region: RegionJson, space: Space) -> tuple[float, float, float, float]:
    """Return xmin, ymin, xmax and ymax of a box that contains every point of a valid region in a space."""
    if isinstance(region, list) and region[0] <= region[2]:
        return tuple(region)
    return space.bounding_box(_region_of(region)).as_tuple()


def _region_of(region: RegionJson) -> Region:
    """Return a region that was checked before."""
    if isinstance(region, list):
        return Box(*region)
    geometry, properties = geometry_of(region)
    coordinates = geometry["coordinates"]
    if properties:
        return Circle(tuple(coordinates[:2]), properties["radius"])
    areas = coordinates if geometry["type"] == "MultiPolygon" else [coordinates]
    return polygons_unchecked([[[(at[0], at[1]) for at in ring] for ring in rings] for rings in areas])
