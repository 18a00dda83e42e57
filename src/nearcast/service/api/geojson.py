"""GeoJSON: subscriptions, messages and results as features; requests may send features instead of plain JSON."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise
from typing import Any

from nearcast.errors import InvalidInput
from nearcast.model import find_kind
from nearcast.service.json_bodies import Body

MEDIA_TYPE = "application/geo+json"
_FIELD_NAMES = {"point": "location", "box": "region"}


def is_accepted(accept: str) -> bool:
    """Return whether an Accept header asks for GeoJSON."""
    return MEDIA_TYPE in accept


def feature_collection(features: Iterable[dict[str, Any]], **members: Any) -> dict[str, Any]:
    """Return features as a collection with further members."""
    return {"type": "FeatureCollection", "features": list(features), **members}


def subscription_feature(body: Body) -> dict[str, Any]:
    """Return a subscription as a feature with its box or point.

    >>> body = {"id": "n1", "kind": "nearest", "location": [1, 2], "keywords": "ramen", "k": 3}
    >>> subscription_feature(body)["geometry"]
    {'type': 'Point', 'coordinates': [1, 2]}
    """
    ((form, name),) = _spatial_fields(body["kind"]).items()
    geometry = _polygon(*body[name]) if form == "box" else _point(body[name])
    properties = {key: value for key, value in body.items() if key not in ("id", name)}
    return {"type": "Feature", "id": body["id"], "geometry": geometry, "properties": properties}


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
    return {**id_, **fields, **_spatial_value(value.get("geometry"), properties.get("kind"))}


def features_of(value: Any) -> Any:
    """Return the features of a collection, and anything else unchanged."""
    is_collection = isinstance(value, dict) and value.get("type") == "FeatureCollection"
    return value.get("features") if is_collection else value


def _spatial_fields(kind: object) -> dict[str, str]:
    """Return the name of the point or box of a kind, by its form."""
    types = find_kind(kind).field_types()
    return {type_.form: name for name, type_ in types.items() if type_.form in _FIELD_NAMES}


def _spatial_value(geometry: Any, kind: object) -> dict[str, Any]:
    """Return a geometry as the spatial field of a message, or of a subscription of a kind."""
    names = dict(_FIELD_NAMES)
    with suppress(InvalidInput):  # a message has no kind, and an unknown kind is reported with all other errors
        names |= _spatial_fields(kind)
    match geometry:
        case {"type": "Point", "coordinates": at}:
            return {names["point"]: at}
        case {"type": "Polygon", "coordinates": [[*ring]]}:
            box = _box(ring)
            if box is not None:
                return {names["box"]: box}
    raise ValueError("must have a geometry that is a Point, or a Polygon whose ring is an axis-parallel box")


def _box(ring: list[Any]) -> list[float] | None:
    """Return the box that a ring follows, in either direction and from any corner; None for other rings."""
    corners = [tuple(at) for at in ring if isinstance(at, list) and len(at) == 2]
    if len(ring) != 5 or len(corners) != 5 or not all(isinstance(x, (int, float)) for at in corners for x in at):
        return None
    xs, ys = zip(*corners, strict=True)
    box = [min(xs), min(ys), max(xs), max(ys)]
    expected = [tuple(at) for at in _polygon(*box)["coordinates"][0][:4]]
    sides = pairwise(corners)
    is_box = sorted(corners[:4]) == sorted(expected) and all(a[0] == b[0] or a[1] == b[1] for a, b in sides)
    return box if is_box and corners[0] == corners[4] else None


def _point(at: list[float]) -> dict[str, Any]:
    return {"type": "Point", "coordinates": at}


def _polygon(xmin: float, ymin: float, xmax: float, ymax: float) -> dict[str, Any]:
    ring = [[xmin, ymin], [xmax, ymin], [xmax, ymax], [xmin, ymax], [xmin, ymin]]
    return {"type": "Polygon", "coordinates": [ring]}
