"""Regions: a box, a circle, or polygons with holes.

All are closed: a point on the boundary is inside. What a region holds depends on the space: see `Space.covers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from nearcast.errors import InvalidInput, is_finite, require
from nearcast.space.box import Box

__all__ = ["LARGEST_COORDINATE", "REGION_TYPES", "Circle", "MultiPolygon", "Polygon", "Region", "Ring"]

Ring = Sequence[tuple[float, float]]
"""Points, of which the last one equals the first."""

LARGEST_COORDINATE = 1e150
"""The largest coordinate of a polygon, on either side of 0: areas must not overflow where Shapely validates."""


@dataclass(frozen=True, slots=True)
class Circle:
    """All points at a distance of at most `radius`, in units of the space: metres on the earth.

    >>> Circle((13.4, 52.5), radius=500)
    Circle(center=(13.4, 52.5), radius=500.0)
    >>> Circle((0, 0), radius=-1)
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: radius must be a finite number of 0 or more; got -1 (circle)
    """

    center: tuple[float, float]
    radius: float

    def __post_init__(self) -> None:
        center = self.center
        is_pair = isinstance(center, (tuple, list, np.ndarray)) and len(center) == 2
        rule = "must be a pair of finite numbers"
        require(is_pair and all(is_finite(value) for value in center), "center", rule, center, subject="circle")
        is_valid = is_finite(self.radius) and self.radius >= 0
        require(is_valid, "radius", "must be a finite number of 0 or more", self.radius, subject="circle")
        object.__setattr__(self, "center", (float(center[0]), float(center[1])))
        object.__setattr__(self, "radius", float(self.radius))


@dataclass(frozen=True, slots=True)
class Polygon:
    """The area within a ring of points and outside all holes; its edges are straight lines in coordinates.

    A ring may repeat its first point at the end, and always does once it is part of a polygon.

    >>> Polygon([(0, 0), (4, 0), (0, 4)]).shell
    ((0.0, 0.0), (4.0, 0.0), (0.0, 4.0), (0.0, 0.0))
    >>> Polygon([(0, 0), (1, 1), (1, 0), (0, 1)])
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: polygon must be valid; got 'Self-intersection[0.5 0.5]'
    """

    shell: Ring
    holes: Sequence[Ring] = ()
    extent: tuple[float, float, float, float] = field(init=False, repr=False, compare=False)
    """The least and greatest coordinates: xmin, ymin, xmax, ymax."""

    def __post_init__(self) -> None:
        holes = self.holes
        require(is_list(holes), "holes", "must be a list of rings", holes, subject="polygon")
        object.__setattr__(self, "shell", _ring(self.shell, "shell"))
        object.__setattr__(self, "holes", tuple(_ring(hole, "holes") for hole in holes))
        object.__setattr__(self, "extent", _extent(self.shell))
        _check_valid((self,), "polygon")

    @property
    def rings(self) -> tuple[Ring, ...]:
        """The shell and the holes."""
        return (self.shell, *self.holes)

    @property
    def polygons(self) -> tuple[Polygon, ...]:
        """The polygon itself, as of a `MultiPolygon`."""
        return (self,)


@dataclass(frozen=True, slots=True)
class MultiPolygon:
    """The union of polygons that touch each other at points only.

    >>> triangles = Polygon([(0, 0), (1, 0), (0, 1)]), Polygon([(1, 0), (2, 0), (2, 1)])
    >>> len(MultiPolygon(triangles).rings)
    2
    """

    polygons: Sequence[Polygon]
    extent: tuple[float, float, float, float] = field(init=False, repr=False, compare=False)
    """The least and greatest coordinates: xmin, ymin, xmax, ymax."""

    def __post_init__(self) -> None:
        polygons = self.polygons
        is_valid = is_list(polygons) and len(polygons) > 0 and all(isinstance(one, Polygon) for one in polygons)
        require(is_valid, "polygons", "must be a list of at least one Polygon", polygons, subject="multipolygon")
        object.__setattr__(self, "polygons", tuple(polygons))
        object.__setattr__(self, "extent", _joint_extent(polygons))
        if len(polygons) > 1:
            _check_valid(self.polygons, "polygons")

    @property
    def rings(self) -> tuple[Ring, ...]:
        """The shells and holes of all polygons."""
        return tuple(chain.from_iterable(one.rings for one in self.polygons))


Region = Box | Circle | Polygon | MultiPolygon
REGION_TYPES = (Box, Circle, Polygon, MultiPolygon)


def polygons_unchecked(polygons: Sequence[Sequence[Ring]]) -> Polygon | MultiPolygon:
    """Return polygons of closed rings that are known to be valid: the shell of each, and its holes."""
    made = []
    for shell, *holes in polygons:
        one = object.__new__(Polygon)
        for name, value in (("shell", shell), ("holes", tuple(holes)), ("extent", _extent(shell))):
            object.__setattr__(one, name, value)
        made.append(one)
    if len(made) == 1:
        return made[0]
    many = object.__new__(MultiPolygon)
    object.__setattr__(many, "polygons", tuple(made))
    object.__setattr__(many, "extent", _joint_extent(made))
    return many


def is_list(value: Any) -> bool:
    """Return whether a value is a list or an array of anything."""
    return isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, (str, bytes, bytearray, memoryview))


def _ring(points: Any, name: str) -> Ring:
    """Return a closed ring of floats, or raise `InvalidInput`."""
    require(is_list(points), name, "must be a list of points", points, subject="polygon")
    given = points.tolist() if isinstance(points, np.ndarray) else points
    ring = []
    for point in given:
        is_pair = is_list(point) and len(point) == 2 and all(is_finite(value) for value in point)
        require(is_pair, name, "must hold pairs of finite numbers", point, subject="polygon")
        ring.append((float(point[0]), float(point[1])))
    if len(set(ring)) < 3:
        raise InvalidInput(name, "must have at least 3 different points", len(set(ring)), subject="polygon")
    largest = max(map(abs, chain.from_iterable(ring)))
    rule = f"must have coordinates in [-{LARGEST_COORDINATE:g}, {LARGEST_COORDINATE:g}]"
    require(largest <= LARGEST_COORDINATE, name, rule, largest, subject="polygon")
    if ring[0] != ring[-1]:
        ring.append(ring[0])
    return tuple(ring)


def _extent(ring: Ring) -> tuple[float, float, float, float]:
    xs, ys = zip(*ring, strict=True)
    return min(xs), min(ys), max(xs), max(ys)


def _joint_extent(polygons: Sequence[Polygon]) -> tuple[float, float, float, float]:
    xmins, ymins, xmaxs, ymaxs = zip(*(one.extent for one in polygons), strict=True)
    return min(xmins), min(ymins), max(xmaxs), max(ymaxs)


def _check_valid(polygons: Sequence[Polygon], name: str) -> None:
    """Raise `InvalidInput` with the reason unless the polygons are valid together."""
    import shapely

    shapes = [shapely.Polygon(one.shell, one.holes) for one in polygons]
    shape = shapes[0] if len(shapes) == 1 else shapely.MultiPolygon(shapes)
    with np.errstate(all="ignore"):  # the reason may name a point that no float64 can hold
        if not shapely.is_valid(shape):
            raise InvalidInput(name, "must be valid", shapely.is_valid_reason(shape))
