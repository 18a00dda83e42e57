"""Where does a point lie in the frame, and how near can it be?"""

from __future__ import annotations

from math import cos, radians, sin, sqrt

from nearcast._jit import kernel
from nearcast.index._kernels.social.layout import SocialProjection


@kernel
def to_frame(projection: SocialProjection, x: float, y: float) -> tuple[float, float, float]:
    """Return the point of the frame."""
    if projection.on_sphere:
        lon, lat = radians(x), radians(y)
        return cos(lat) * cos(lon), cos(lat) * sin(lon), sin(lat)
    return (x - projection.x0) * projection.scale, (y - projection.y0) * projection.scale, 0.0


@kernel
def upper_bound_near(dx: float, dy: float, dz: float, bend: float, unit: float, margin: float) -> float:
    """Return the nearness of two points of the frame; never underestimates.

    The arc of a chord c is longer than c (1 + c^2 / 24); on the plane the chord is the distance, and the bend 0.
    """
    square = dx * dx + dy * dy + dz * dz
    return max(0.0, 1.0 - sqrt(square) * (1.0 + square * bend) * unit) + margin
