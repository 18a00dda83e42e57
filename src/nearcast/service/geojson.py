"""How do maps see it? Subscriptions and results as features."""

from __future__ import annotations

from collections.abc import Iterable
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


def _point(at: list[float]) -> dict[str, Any]:
    return {"type": "Point", "coordinates": at}


def _polygon(xmin: float, ymin: float, xmax: float, ymax: float) -> dict[str, Any]:
    ring = [[xmin, ymin], [xmax, ymin], [xmax, ymax], [xmin, ymax], [xmin, ymin]]
    return {"type": "Polygon", "coordinates": [ring]}
