"""How do maps see it? Subscriptions, messages and results as features, which are also taken where JSON is."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from nearcast.service.commands import KIND_OF, Body, fields_of
from nearcast.space import Box, Point

MEDIA_TYPE = "application/geo+json"


def wanted(accept: str) -> bool:
    """Tell whether a client asks for GeoJSON."""
    return MEDIA_TYPE in accept


def collection(features: Iterable[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Return features as one."""
    return {"type": "FeatureCollection", "features": list(features), **more}


def of_subscription(body: Body) -> dict[str, Any]:
    """Return a subscription as a feature: its box, or its point.

    >>> of_subscription({"id": "n1", "kind": "nearest", "location": [1, 2], "keywords": "ramen", "k": 3})["geometry"]
    {'type': 'Point', 'coordinates': [1, 2]}
    """
    where = {name: hint for name, hint in fields_of(KIND_OF[body["kind"]]).items() if hint in (Box, Point)}
    ((name, hint),) = where.items()
    geometry = _polygon(*body[name]) if hint is Box else _point(body[name])
    others = {key: value for key, value in body.items() if key not in ("id", name)}
    return {"type": "Feature", "id": body["id"], "geometry": geometry, "properties": others}


def of_result(result: dict[str, Any]) -> dict[str, Any]:
    """Return a message of a result as a feature."""
    others = {key: value for key, value in result.items() if key != "location"}
    geometry = None if result["location"] is None else _point(result["location"])
    return {"type": "Feature", "id": result["message"], "geometry": geometry, "properties": others}


def plain(value: Any, *, has_id: bool = True) -> Any:
    """Return what a feature says as plain JSON, and anything else as it is; `ValueError` for a geometry of no use.

    >>> plain({"type": "Feature", "id": "m1", "geometry": {"type": "Point", "coordinates": [1, 2]},
    ...        "properties": {"text": "Jazz!"}})
    {'id': 'm1', 'text': 'Jazz!', 'location': [1, 2]}
    """
    if not (isinstance(value, dict) and value.get("type") == "Feature"):
        return value
    properties = value.get("properties") or {}
    if not isinstance(properties, dict):
        raise ValueError("must have properties that are an object")
    said = {key: other for key, other in properties.items() if key != "id"}
    own = {"id": value["id"]} if has_id and "id" in value else {}
    return {**own, **said, **_place(value.get("geometry"))}


def features_of(value: Any) -> Any:
    """Return the features of a collection, and anything else as it is."""
    is_collection = isinstance(value, dict) and value.get("type") == "FeatureCollection"
    return value.get("features") if is_collection else value


def _place(geometry: Any) -> dict[str, Any]:
    match geometry:
        case {"type": "Point", "coordinates": at}:
            return {"location": at}
        case {"type": "Polygon", "coordinates": [[*ring]]}:
            box = _box(ring)
            if box is not None:
                return {"region": box}
    raise ValueError("must have a geometry that is a Point, or a Polygon whose ring is a box along the axes")


def _box(ring: list[Any]) -> list[float] | None:
    """Return the box whose corners a ring goes round, either way and from any of them; None if there is none."""
    corners = [tuple(at) for at in ring if isinstance(at, list) and len(at) == 2]
    if len(ring) != 5 or len(corners) != 5 or not all(isinstance(x, (int, float)) for at in corners for x in at):
        return None
    xs, ys = zip(*corners, strict=True)
    box = [min(xs), min(ys), max(xs), max(ys)]
    whole = [tuple(at) for at in _polygon(*box)["coordinates"][0][:4]]
    sides = pairwise(corners)
    is_box = sorted(corners[:4]) == sorted(whole) and all(a[0] == b[0] or a[1] == b[1] for a, b in sides)
    return box if is_box and corners[0] == corners[4] else None


def _point(at: list[float]) -> dict[str, Any]:
    return {"type": "Point", "coordinates": at}


def _polygon(xmin: float, ymin: float, xmax: float, ymax: float) -> dict[str, Any]:
    ring = [[xmin, ymin], [xmax, ymin], [xmax, ymax], [xmin, ymax], [xmin, ymin]]
    return {"type": "Polygon", "coordinates": [ring]}
