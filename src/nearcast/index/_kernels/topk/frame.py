"""Where does a point lie in the frame, and how near can it be? Chords in float32 that never overestimate."""

from __future__ import annotations

from math import cos, radians, sin, sqrt
from typing import Any

import numpy as np

from nearcast._jit import kernel
from nearcast.index._kernels.topk.layout import SLACK, TopKProjection

_ZERO, _ONE, _SLACK = np.float32(0.0), np.float32(1.0), np.float32(SLACK)


@kernel
def to_frame(projection: TopKProjection, x: float, y: float) -> tuple[float, float, float]:
    """Return the point of the frame."""
    if projection.on_sphere:
        lon, lat = radians(x), radians(y)
        return cos(lat) * cos(lon), cos(lat) * sin(lon), sin(lat)
    return (x - projection.x0) * projection.scale, (y - projection.y0) * projection.scale, 0.0


@kernel
def upper_bound_near(squared: Any, unit: Any, bend: Any, bend_more: Any) -> Any:
    """Return the nearness of two points of the frame, all in float32; never underestimates but for rounding.

    The arc of a chord c is c (1 + c^2 / 24 + 3 c^4 / 640 + ...): cut off there it is too short. On the plane the
    chord is the distance, and the bends are 0.
    """
    chord = max(_ZERO, np.float32(sqrt(squared)) - _SLACK)
    square = chord * chord
    return max(_ZERO, _ONE - chord * (_ONE + square * (bend + square * bend_more)) * unit)
