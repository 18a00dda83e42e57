"""Projection of a space into a common frame in which distance is the length of a chord.

    plane    (x, y) -> ((x - x0) * scale, (y - y0) * scale, 0)      within [-1, 1] along each axis
    globe    (longitude, latitude) -> unit vector                   no antimeridian and no pole

A shorter chord is a shorter distance under both metrics, so one comparison of squared chords serves both. Nearness
needs the arc of a chord c, which is c (1 + c^2 / 24 + 3 c^4 / 640 + ...). The series cut off after any term is too
short, so the nearness computed from it never underestimates.
"""

from __future__ import annotations

from math import cos, radians, sin, sqrt
from typing import Any, NamedTuple

import numpy as np

from nearcast._jit import kernel
from nearcast.space import Space
from nearcast.space.metric import EARTH_RADIUS_M

CHORD_SLACK = 2.5e-7
"""Error of a chord between two points of the frame in float32: 3e-8 per coordinate, and rounding on the way."""
BEND, BEND_MORE = 1.0 / 24.0, 3.0 / 640.0
"""Coefficients of the series of the arc; both are 0 on the plane."""
_MAX_SCALE = 1e300  # keeps points of the frame finite
_ROUNDING = 2.0**-46  # relative error of a coordinate of the frame in float64
_ZERO, _ONE, _SLACK = np.float32(0.0), np.float32(1.0), np.float32(CHORD_SLACK)


class Projection(NamedTuple):
    """Constants of the frame of one space; fixed for the life of an index."""

    on_sphere: bool
    max_distance: float
    x0: float
    y0: float
    scale: float
    """Units of the frame per unit of the plane; 1 on the globe."""
    unit: float
    """Nearness lost per unit of chord in the frame."""
    margin: float
    """Error of `upper_bound_near` in float64, which it adds."""


def project(space: Space, *, most_unit: float = 1e300) -> Projection:
    """Return the projection of a space. `most_unit` caps `unit`, so that kernels in float32 stay finite."""
    bounds, on_sphere = space.bounds, space.metric == "haversine"
    half = max(bounds.xmax * 0.5 - bounds.xmin * 0.5, bounds.ymax * 0.5 - bounds.ymin * 0.5)
    unit = min((EARTH_RADIUS_M if on_sphere else half) / space.max_distance, most_unit)
    return Projection(
        on_sphere=on_sphere,
        max_distance=space.max_distance,
        x0=bounds.xmin * 0.5 + bounds.xmax * 0.5,
        y0=bounds.ymin * 0.5 + bounds.ymax * 0.5,
        scale=1.0 if on_sphere or half <= 0.0 else min(1.0 / half, _MAX_SCALE),
        unit=unit,
        margin=1e-12 + unit * _ROUNDING,
    )


@kernel
def unit_vector(longitude: float, latitude: float) -> tuple[float, float, float]:
    """Return the unit vector of a point given in degrees."""
    lon, lat = radians(longitude), radians(latitude)
    return cos(lat) * cos(lon), cos(lat) * sin(lon), sin(lat)


@kernel
def scale_point(projection: Projection, x: float, y: float) -> tuple[float, float, float]:
    """Return the point of the frame of a point of the plane."""
    return (x - projection.x0) * projection.scale, (y - projection.y0) * projection.scale, 0.0


@kernel
def to_frame(projection: Projection, x: float, y: float) -> tuple[float, float, float]:
    """Return the point of the frame."""
    return unit_vector(x, y) if projection.on_sphere else scale_point(projection, x, y)


@kernel
def upper_bound_near(dx: float, dy: float, dz: float, bend: float, unit: float, margin: float) -> float:
    """Return the nearness of two points of the frame from their difference, in float64; never underestimates."""
    square = dx * dx + dy * dy + dz * dz
    return max(0.0, 1.0 - sqrt(square) * (1.0 + square * bend) * unit) + margin


@kernel
def upper_bound_near_f32(squared: Any, unit: Any, bend: Any, bend_more: Any) -> Any:
    """Return the nearness at a squared chord, all in float32; never underestimates except for rounding.

    The caller adds a margin for the rounding.
    """
    chord = max(_ZERO, np.float32(sqrt(squared)) - _SLACK)
    square = chord * chord
    return max(_ZERO, _ONE - chord * (_ONE + square * (bend + square * bend_more)) * unit)
