"""Two metrics as plain scalar functions.

Each metric is three functions over coordinates: the distance between two points, and the nearest and farthest
distance from a point to a closed box. They use nothing but `math`, so that kernels compile them as they stand and
compiled and interpreted code agree to the last bit.

`nearest` never overestimates and `farthest` never underestimates what `distance` returns for any point of the box.
For the plane this holds exactly, because every rounding step is monotonic; on the sphere a small slack pays for
rounding (10 nanometres and a part in 10^12; one metre close to the antipode, where the haversine formula itself is
only good to centimetres).

On the sphere x is longitude and y latitude, in degrees. Boxes do not wrap, but the shortest way to one may lead
across the antimeridian or over a pole:

    lon -180                      0                       180
     |  [box]                                          p  |        p -> box goes right, across 180
"""

from __future__ import annotations

from collections.abc import Callable
from math import asin, atan2, cos, pi, radians, sin, sqrt
from typing import NamedTuple

EARTH_RADIUS_M = 6_371_008.8
HALF_CIRCUMFERENCE_M = pi * EARTH_RADIUS_M


def euclidean(ax: float, ay: float, bx: float, by: float) -> float:
    """Return the straight-line distance.

    >>> euclidean(0, 0, 3, 4)
    5.0
    """
    dx = ax - bx
    dy = ay - by
    return sqrt(dx * dx + dy * dy)


def euclidean_nearest(px: float, py: float, xmin: float, ymin: float, xmax: float, ymax: float) -> float:
    """Return the distance from a point to the nearest point of a box; never overestimates."""
    dx = max(xmin - px, 0.0, px - xmax)
    dy = max(ymin - py, 0.0, py - ymax)
    return sqrt(dx * dx + dy * dy)


def euclidean_farthest(px: float, py: float, xmin: float, ymin: float, xmax: float, ymax: float) -> float:
    """Return the distance from a point to the farthest point of a box; never underestimates."""
    dx = max(abs(px - xmin), abs(px - xmax))
    dy = max(abs(py - ymin), abs(py - ymax))
    return sqrt(dx * dx + dy * dy)


def haversine(ax: float, ay: float, bx: float, by: float) -> float:
    """Return the great-circle distance in metres between two (longitude, latitude) points in degrees.

    >>> round(haversine(-0.1278, 51.5074, 2.3522, 48.8566))      # London to Paris
    343557
    """
    half_dlat = sin(radians(by - ay) * 0.5)
    half_dlon = sin(radians(bx - ax) * 0.5)
    a = half_dlat * half_dlat + cos(radians(ay)) * cos(radians(by)) * half_dlon * half_dlon
    return 2.0 * EARTH_RADIUS_M * asin(min(1.0, sqrt(a)))


def _to_meridian(px: float, py: float, x: float, ymin: float, ymax: float) -> float:
    """Return the distance to the piece of the meridian `x` between two latitudes.

    Along a meridian, cos(distance) = A sin(lat) + B cos(lat) is one hump of a sine: the best latitude is its top if
    that lies inside, else one of the ends.
    """
    best = min(haversine(px, py, x, ymin), haversine(px, py, x, ymax))
    lat = radians(py)
    top = atan2(sin(lat), cos(lat) * cos(radians(x - px))) * (180.0 / pi)
    if ymin < top < ymax:
        best = min(best, haversine(px, py, x, top))
    return best


def haversine_nearest(px: float, py: float, xmin: float, ymin: float, xmax: float, ymax: float) -> float:
    """Return the great-circle distance in metres to the nearest point of a box; never overestimates.

    >>> box = (-180, -10, -170, 10)
    >>> haversine_nearest(179, 0, *box) < haversine(0, 0, 1.0001, 0)       # one degree, across the antimeridian
    True
    """
    if xmin <= px <= xmax or xmin <= px - 360.0 <= xmax or xmin <= px + 360.0 <= xmax:
        if ymin <= py <= ymax:
            return 0.0
        # No great circle is shorter than its difference in latitude, and due north or south reaches it.
        metres = radians(max(ymin - py, py - ymax)) * EARTH_RADIUS_M
    else:
        metres = min(_to_meridian(px, py, xmin, ymin, ymax), _to_meridian(px, py, xmax, ymin, ymax))
    slack = 1e-8 + 1e-12 * metres if metres < 0.9 * HALF_CIRCUMFERENCE_M else 1.0
    return max(0.0, metres - slack)


def haversine_farthest(px: float, py: float, xmin: float, ymin: float, xmax: float, ymax: float) -> float:
    """Return the great-circle distance in metres to the farthest point of a box; never underestimates.

    What is farthest from a point is nearest to its antipode.
    """
    antipode = px + 180.0 if px <= 0.0 else px - 180.0
    metres = HALF_CIRCUMFERENCE_M - haversine_nearest(antipode, -py, xmin, ymin, xmax, ymax)
    slack = 1e-8 + 1e-12 * metres if metres < 0.9 * HALF_CIRCUMFERENCE_M else 1.0
    return min(HALF_CIRCUMFERENCE_M, metres + slack)


class Metric(NamedTuple):
    """A metric: distance, and bounds of it for boxes."""

    name: str
    distance: Callable[[float, float, float, float], float]
    nearest: Callable[[float, float, float, float, float, float], float]
    farthest: Callable[[float, float, float, float, float, float], float]


METRICS = (
    Metric("euclidean", euclidean, euclidean_nearest, euclidean_farthest),
    Metric("haversine", haversine, haversine_nearest, haversine_farthest),
)
