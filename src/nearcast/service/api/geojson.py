"""GeoJSON: subscriptions, messages and results as features; requests may send features instead of plain JSON."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise
from typing import Any

from nearcast.errors import InvalidInput
from nearcast.model import find_kind
from nearcast.service.json_bodies import Body
from nearcast.service.region_json import circle_json, geometry_of

MEDIA_TYPE = "application/geo+json"
_PLACE = ("location", "point")
"""The name and the form of the place of a message."""


def is_accepted(accept: str) -> bool:
    """Return whether an Accept header asks for GeoJSON."""
    return MEDIA_TYPE in accept


def feature_collection(features: Iterable[dict[str, Any]], **members: Any) -> dict[str, Any]:
    """Return features as a collection with further members."""
    return {"type": "FeatureCollection", "features": list(features), **members}


def subscription_feature(body: Body) -> dict[str, Any]:
    """Return a subscription as a feature with its region or point; the radius of a circle is a property.

    >>> body = {"id": "n1", "kind": "nearest", "location": [1, 2], "keywords": "ramen", "k": 3}
    >>> subscription_feature(body)["geometry"]
    {'type': 'Point', 'coordinates': [1, 2]}
    """
    name, form = _place(body["kind"])
    geometry, properties = geometry_of(body[name]) if form == "region" else (_point(body[name]), {})
    fields = {key: value for key, value in body.items() if key not in ("id", name)}
    return {"type": "Feature", "id": body["id"], "geometry": geometry, "properties": fields | properties}


def result_feature(result: dict[str, Any]) -> dict[str, Any]:
    """Return a message of a result as a feature."""
    properties = {key: value for key, value in result.items() if key != "location"}
    geometry = None if result["location"] is None else _point(result["location"])
    return {"type": "Feature", "id": result["message"], "geometry": geometry, "properties": properties}


def plain_body(value: Any, *, has_id: bool = True) -> Any:
    """Return a feature as plain JSON, and anything else unchanged; raise `ValueError` for an unusable geometry.

    >>> plain_body({"type": "Feature", "id": "m1", "geometry": {"type": "Point", "coordinates": [1, 2]},
    ...             "properties": {"text": "Jazz!"}})
    {'id': 'm1', 'text': 'Jazz!', 'location': [1, 2]}
    """
    if not (isinstance(value, dict) and value.get("type") == "Feature"):
        return value
    properties = value.get("properties") or {}
    if not isinstance(properties, dict):
        raise ValueError("must have properties that are an object")
    fields = {key: other for key, other in properties.items() if key != "id"}
    id_ = {"id": value["id"]} if has_id and "id" in value else {}
    name, form = _PLACE
    with suppress(InvalidInput):  # a message has no kind, and an unknown kind is reported with all other errors
        name, form = _place(properties.get("kind"))
    if form == "region":
        return {**id_, **fields, name: _region(value.get("geometry"), fields)}
    match value.get("geometry"):
        case {"type": "Point", "coordinates": at}:
            return {**id_, **fields, name: at}
    raise ValueError("must have a geometry that is a Point")


def features_of(value: Any) -> Any:
    """Return the features of a collection, and anything else unchanged."""
    is_collection = isinstance(value, dict) and value.get("type") == "FeatureCollection"
    return value.get("features") if is_collection else value


def _place(kind: object) -> tuple[str, str]:
    """Return the name and the form of the point or region that a kind has besides its filters."""
    types = find_kind(kind).field_types()
    places = ((name, one.form) for name, one in types.items() if not one.is_optional)
    return next((place for place in places if place[1] in ("point", "region")), _PLACE)


def _region(geometry: Any, fields: dict[str, Any]) -> Any:
    """Return a geometry as a region; that of a point takes the radius from the other fields."""
    match geometry:
        case {"type": "Point", "coordinates": at} if "radius" in fields:
            return circle_json(at, fields.pop("radius"))
        case {"type": "Polygon", "coordinates": [[*ring]]} if (box := _box(ring)) is not None:
            return box
        case {"type": "Polygon" | "MultiPolygon"}:
            return geometry
    raise ValueError("must have a geometry that is a Polygon, a MultiPolygon, or a Point with the property radius")


def _box(ring: list[Any]) -> list[float] | None:
    """Return the box that a ring follows, in either direction and from any corner; None for other rings."""
    corners = [tuple(at) for at in ring if isinstance(at, list) and len(at) == 2]
    if len(ring) != 5 or len(corners) != 5 or not all(isinstance(x, (int, float)) for at in corners for x in at):
        return None
    xs, ys = zip(*corners, strict=True)
    xmin, ymin, xmax, ymax = min(xs), min(ys), max(xs), max(ys)
    expected = [(xmin, ymin), (xmax, ymin), (xmax, ymax), (xmin, ymax)]
    sides = pairwise(corners)
    is_box = sorted(corners[:4]) == sorted(expected) and all(a[0] == b[0] or a[1] == b[1] for a, b in sides)
    return [xmin, ymin, xmax, ymax] if is_box and corners[0] == corners[4] else None


def _point(at: list[float]) -> dict[str, Any]:
    return {"type": "Point", "coordinates": at}
