"""What is a score, and how far does a subscription reach? Quick formulas, exact ones, and bounds."""

from __future__ import annotations

from math import asin, cos, inf, nan, pi, radians, sin, sqrt

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel
from nearcast.index._kernels.similarity.layout import (
    EARTH_RADIUS_M,
    MARGIN,
    SLACK,
    Records,
    SimilarityParams,
    containment,
    cosine,
    dice,
    haversine,
    jaccard,
    overlap,
)


@kernel
def text_of(
    which: int, shared: int, shared_weight: float, n: int, weight: float, message: tuple[int, float]
) -> float:
    """Return the text similarity, by the place of the function in `TEXT_SIMILARITIES`."""
    if which == 0:
        return containment(shared, shared_weight, n, weight, message[0], message[1])
    if which == 1:
        return overlap(shared, shared_weight, n, weight, message[0], message[1])
    if which == 2:
        return jaccard(shared, shared_weight, n, weight, message[0], message[1])
    if which == 3:
        return dice(shared, shared_weight, n, weight, message[0], message[1])
    return cosine(shared, shared_weight, n, weight, message[0], message[1])


@kernel
def upper_bound_text(which: int, shared: int, shared_weight: float, n: int, weight: float) -> float:
    """Return the most text can bring if a message shares these terms at most; never underestimates.

    The best message holds nothing else: all five functions fall with what the message holds beside.
    """
    return text_of(which, shared, shared_weight, n, weight, (shared, shared_weight))


@kernel
def arc(squared_chord: float) -> float:
    """Return the angle of a chord of the unit circle, to 1e-15 of its length."""
    h = squared_chord * 0.25
    if h > 0.01:
        return 2.0 * asin(min(1.0, sqrt(h)))
    tail = h * (105.0 / 3456.0 + h * (945.0 / 42240.0 + h * (10395.0 / 599040.0)))
    return sqrt(squared_chord) * (1.0 + h * (1.0 / 6.0 + h * (3.0 / 40.0 + h * (15.0 / 336.0 + tail))))


@kernel
def quick_near(params: SimilarityParams, squared: float) -> float:
    """Return nearness of the squared distance of two points, to well within the margin.

    NaN where the chord is not good enough: close to the antipode, and where a metre is far.
    """
    if not params.on_sphere:
        return max(0.0, 1.0 - sqrt(squared) * params.near_a_unit)
    if params.is_fine and squared < 3.9:
        return max(0.0, 1.0 - arc(squared) * params.near_a_unit)
    return nan


@kernel
def true_near(params: SimilarityParams, records: Records, slot: int, point: NDArray[np.float64]) -> float:
    """Return nearness by the metric of the space."""
    x, y = records.floats[slot, 3], records.floats[slot, 4]
    if params.on_sphere:
        distance = haversine(x, y, point[3], point[4])
    else:
        dx, dy = x - point[3], y - point[4]
        distance = sqrt(dx * dx + dy * dy)
    return max(0.0, 1.0 - distance / params.max_distance)


@kernel
def is_clear(score: float, tau: float) -> bool:
    """Say whether rounding cannot change the decision; NaN never is."""
    return abs(score - tau) > MARGIN


@kernel
def set_point(params: SimilarityParams, x: float, y: float, out: NDArray[np.float64]) -> None:
    """Write the point in which distances are chords: a unit vector, or the plane itself."""
    if params.on_sphere:
        lon, lat = radians(x), radians(y)
        out[0], out[1], out[2] = cos(lat) * cos(lon), cos(lat) * sin(lon), sin(lat)
    else:
        out[0], out[1], out[2] = x, y, 0.0
    out[3], out[4] = x, y


@kernel
def to_frame(params: SimilarityParams, point: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Write the point in the frame of cells and postings."""
    if params.on_sphere:
        out[0], out[1], out[2] = point[0], point[1], point[2]
    else:
        out[0], out[1], out[2] = (point[0] - params.x0) * params.scale, (point[1] - params.y0) * params.scale, 0.0


@kernel
def reach_of(params: SimilarityParams, missing: float, share: float) -> float:
    """Return how far in the frame a message may be if nearness has to bring `missing` and counts with `share`.

    Never underestimates; inf if distance does not matter, -1 if nearness cannot bring it.
    """
    missing -= MARGIN
    if missing <= 0.0:
        return inf
    if missing > share:
        return -1.0
    distance = (1.0 - missing / share) * params.max_distance
    if params.on_sphere:
        return 2.0 * sin(min(distance / EARTH_RADIUS_M, pi) * 0.5) + SLACK
    return distance * params.scale + SLACK


@kernel
def squared_reach(reach: float) -> float:
    """Return the square as postings hold it, with room for rounding; -1 stays below any square."""
    return min(reach * reach * (1.0 + 1e-6), 1e30) if reach >= 0.0 else -1.0
