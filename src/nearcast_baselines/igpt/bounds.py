"""The spatial bounds of section 5.1.2, and their relation to thresholds.

Where the paper divides by 1 - alpha or alpha, the divisor here is at least 1 / 1024, which loosens a bound.
"""

from __future__ import annotations

from math import asin, cos, pi, radians, sin, sqrt

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel
from nearcast.space import metric
from nearcast.space.metric import EARTH_RADIUS_M
from nearcast_baselines.igpt.layout import COSINE, MIN_COSINE, SINE, Leaves
from nearcast_baselines.topk_base import LEAST, IndexContext, threshold_of_bound

_SLACK = 1e-13  # rounding of a chord
_BEND, _BEND_MORE = 1.0 / 24.0, 3.0 / 640.0

nearest = kernel(metric.euclidean_nearest)


@kernel
def kept_text(alpha: float) -> float:
    """Return the divisor of bounds in place of 1 - alpha; never less than it."""
    return max(1.0 - alpha, LEAST)


@kernel
def needed_near(threshold: float, alpha: float) -> float:
    """Return the least nearness with which a perfect text reaches a threshold (equation 8); never overestimates."""
    return (threshold_of_bound(threshold) - (1.0 - alpha)) / max(alpha, LEAST)


@kernel
def set_box(leaves: Leaves, leaf: int, xmin: float, ymin: float, xmax: float, ymax: float) -> None:
    """Set the box of a leaf, and the angles of its outer bound on the sphere."""
    box, angles = leaves.boxes[leaf], leaves.angles[leaf]
    box[0], box[1], box[2], box[3] = xmin, ymin, xmax, ymax
    for side in range(4):
        half = (
            radians(box[side] % 720.0) * 0.5
        )  # on the plane, where coordinates are unbounded, the angles are not used
        angles[SINE + side], angles[COSINE + side] = sin(half), cos(half)
    angles[MIN_COSINE] = max(0.0, min(cos(radians(ymin % 720.0)), cos(radians(ymax % 720.0))))


@kernel
def lost_inside(context: IndexContext, box: NDArray[np.float64], x: float, y: float) -> float:
    """Return the nearness lost between a point and the border of its box; never overestimates."""
    x, y, xmin, ymin, xmax, ymax = float(x), float(y), float(box[0]), float(box[1]), float(box[2]), float(box[3])
    dx, dy = min(x - xmin, xmax - x), min(y - ymin, ymax - y)
    if not context.on_sphere:
        gap = max(0.0, min(dx, dy))
        return sqrt(gap * gap) / context.max_distance  # underflows to 0 where a distance does
    lat = radians(y)
    across = asin(cos(lat) * sin(radians(dx))) if dx < 90.0 else 0.5 * pi - abs(lat)
    return max(0.0, min(across, radians(dy)) - _SLACK) * EARTH_RADIUS_M / context.max_distance


@kernel
def lost_outside(
    boxes: NDArray[np.float64],
    angles: NDArray[np.float64],
    leaf: int,
    point: NDArray[np.float64],
    on_sphere: bool,
    unit: float,
) -> float:
    """Return the distance from a message to a leaf in units, 0 inside; never overestimates.

    `point` is x and y, sine and cosine of half of each, and the cosine of y. On the sphere the haversine of the
    distance is at least that of the differences to the nearest edges, with the least cosine of the box.
    """
    x, y = point[0], point[1]
    xmin, ymin = float(boxes[leaf, 0]), float(boxes[leaf, 1])
    xmax, ymax = float(boxes[leaf, 2]), float(boxes[leaf, 3])
    if not on_sphere:
        return nearest(float(x), float(y), xmin, ymin, xmax, ymax) / unit
    along, across = 0.0, 0.0
    if y < ymin or y > ymax:
        side = 1 if y < ymin else 3
        along = point[4] * angles[leaf, COSINE + side] - point[5] * angles[leaf, SINE + side]
    if x < xmin or x > xmax:
        left = abs(point[2] * angles[leaf, COSINE] - point[3] * angles[leaf, SINE])
        right = abs(point[2] * angles[leaf, COSINE + 2] - point[3] * angles[leaf, SINE + 2])
        across = min(left, right)
    chord = 2.0 * sqrt(along * along + point[6] * angles[leaf, MIN_COSINE] * across * across)
    chord = max(0.0, chord - _SLACK)
    square = chord * chord
    return chord * (1.0 + square * (_BEND + square * _BEND_MORE)) * EARTH_RADIUS_M / unit
