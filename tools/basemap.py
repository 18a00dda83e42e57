"""Make the base map of the live map, land and borders, from Natural Earth as `world-atlas` provides it.

    python -m tools.basemap land-50m.json countries-50m.json land.json

TopoJSON stores arcs as small steps between rounded points; they become plain GeoJSON, rounded to about a hundred
metres. Natural Earth is in the public domain.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

Point = tuple[float, float]
_DIGITS = 3


def arcs_of(topology: dict[str, Any]) -> list[list[Point]]:
    """Return the arcs of a topology in degrees."""
    (kx, ky), (dx, dy) = topology["transform"]["scale"], topology["transform"]["translate"]
    arcs = []
    for steps in topology["arcs"]:
        x = y = 0
        points = []
        for step_x, step_y in steps:
            x, y = x + step_x, y + step_y
            points.append((round(x * kx + dx, _DIGITS), round(y * ky + dy, _DIGITS)))
        arcs.append(points)
    return arcs


def ring_of(numbers: list[int], arcs: list[list[Point]]) -> list[Point]:
    """Return the points of consecutive arcs; a negative number is an arc in reverse."""
    ring: list[Point] = []
    for number in numbers:
        points = arcs[number] if number >= 0 else arcs[~number][::-1]
        ring += points if not ring else points[1:]
    return ring


def polygons_of(geometry: dict[str, Any], arcs: list[list[Point]]) -> list[list[list[Point]]]:
    """Return all polygons of a geometry."""
    if geometry["type"] == "GeometryCollection":
        return [polygon for part in geometry["geometries"] for polygon in polygons_of(part, arcs)]
    polygons = geometry["arcs"] if geometry["type"] == "MultiPolygon" else [geometry["arcs"]]
    return [[ring_of(ring, arcs) for ring in polygon] for polygon in polygons]


def borders_of(countries: dict[str, Any]) -> list[list[Point]]:
    """Return the arcs that two countries share."""
    owners: dict[int, set[int]] = {}

    def add(parts: Any, owner: int) -> None:
        for part in parts:
            if isinstance(part, list):
                add(part, owner)
            else:
                owners.setdefault(part if part >= 0 else ~part, set()).add(owner)

    for owner, country in enumerate(countries["objects"]["countries"]["geometries"]):
        add(country.get("arcs", []), owner)
    arcs = arcs_of(countries)
    return [arcs[number] for number, countries_of_arc in owners.items() if len(countries_of_arc) > 1]


def main(land_file: str, countries_file: str, out: str) -> None:
    """Write the base map."""
    land, countries = (json.loads(Path(file).read_text()) for file in (land_file, countries_file))
    polygons = polygons_of(land["objects"]["land"], arcs_of(land))
    shapes = {"land": ("MultiPolygon", polygons), "border": ("MultiLineString", borders_of(countries))}
    features = [
        {"type": "Feature", "properties": {"is": name}, "geometry": {"type": kind, "coordinates": coordinates}}
        for name, (kind, coordinates) in shapes.items()
    ]
    Path(out).write_text(json.dumps({"type": "FeatureCollection", "features": features}, separators=(",", ":")))


if __name__ == "__main__":
    main(*sys.argv[1:])
