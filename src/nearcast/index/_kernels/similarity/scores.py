"""Scores and reaches: fast formulas, exact ones, and bounds."""

from __future__ import annotations

from math import asin, inf, nan, pi, sin, sqrt

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel
from nearcast.index._kernels.shared.projection import CHORD_SLACK, Projection, scale_point, unit_vector
from nearcast.index._kernels.similarity.layout import MARGIN, SimilarityParams, SimilarityRecords
from nearcast.model._kernels.profiles import near
from nearcast.space.metric import EARTH_RADIUS_M
from nearcast.text import similarity as text

containment, overlap, jaccard = kernel(text.containment), kernel(text.overlap), kernel(text.jaccard)
dice, cosine = kernel(text.dice), kernel(text.cosine)


@kernel
def text_similarity(
    which: int, shared: int, shared_weight: float, n: int, weight: float, message: tuple[int, float]
) -> float:
    """Return the text similarity by the function at a position of `TEXT_SIMILARITIES`.

    `message` is the number of its terms and their weight.
    """
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
    """Return the greatest text similarity of a message that shares these terms at most; never underestimates.

    The best message has no other terms: all five functions fall with every further term of the message.
    """
    return text_similarity(which, shared, shared_weight, n, weight, (shared, shared_weight))


@kernel
def arc(squared_chord: float) -> float:
    """Return the angle of a chord of the unit circle, with a relative error of 1e-15."""
    h = squared_chord * 0.25
    if h > 0.01:
        return 2.0 * asin(min(1.0, sqrt(h)))
    tail = h * (105.0 / 3456.0 + h * (945.0 / 42240.0 + h * (10395.0 / 599040.0)))
    return sqrt(squared_chord) * (1.0 + h * (1.0 / 6.0 + h * (3.0 / 40.0 + h * (15.0 / 336.0 + tail))))


@kernel
def fast_near(params: SimilarityParams, squared: float) -> float:
    """Return the nearness at a squared distance, with an error well below the margin.

    NaN where the chord is not precise enough: close to the antipode, and where `max_distance` is about a metre.
    """
    if not params.projection.on_sphere:
        return max(0.0, 1.0 - sqrt(squared) * params.near_per_unit)
    if params.is_fine and squared < 3.9:
        return max(0.0, 1.0 - arc(squared) * params.near_per_unit)
    return nan


@kernel
def exact_near(projection: Projection, records: SimilarityRecords, slot: int, point: NDArray[np.float64]) -> float:
    """Return the nearness by the metric of the space."""
    x, y = records.floats[slot, 3], records.floats[slot, 4]
    return near(x, y, point[3], point[4], projection.on_sphere, projection.max_distance)


@kernel
def mixed_score(delta: float, similarity: float, nearness: float) -> float:
    """Return the score of kind `similarity`."""
    return delta * similarity + (1.0 - delta) * nearness


@kernel
def is_clear(score: float, tau: float) -> bool:
    """Return whether a score is too far from tau for rounding to change the decision; NaN is not."""
    return abs(score - tau) > MARGIN


@kernel
def set_point(projection: Projection, x: float, y: float, out: NDArray[np.float64]) -> None:
    """Write a point as records hold it: a unit vector, or the plane itself; then x and y."""
    if projection.on_sphere:
        out[0], out[1], out[2] = unit_vector(x, y)
    else:
        out[0], out[1], out[2] = x, y, 0.0
    out[3], out[4] = x, y


@kernel
def set_frame(projection: Projection, point: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Write a point of a record in the frame of cells and postings; on the globe they are the same."""
    if projection.on_sphere:
        out[0], out[1], out[2] = point[0], point[1], point[2]
    else:
        out[0], out[1], out[2] = scale_point(projection, point[0], point[1])


@kernel
def reach_of_nearness(params: SimilarityParams, missing: float, share: float) -> float:
    """Return the greatest distance in the frame at which `share` times nearness is at least `missing`.

    Never underestimates; inf if distance does not matter, -1 if no nearness suffices.
    """
    missing -= MARGIN
    if missing <= 0.0:
        return inf
    if missing > share:
        return -1.0
    distance = (1.0 - missing / share) * params.projection.max_distance
    if params.projection.on_sphere:
        return 2.0 * sin(min(distance / EARTH_RADIUS_M, pi) * 0.5) + CHORD_SLACK
    return distance * params.projection.scale + CHORD_SLACK


@kernel
def squared_reach(reach: float) -> float:
    """Return the square of a reach as postings hold it, widened for rounding; -1, below any square, for none."""
    return min(reach * reach * (1.0 + 1e-6), 1e30) if reach >= 0.0 else -1.0
