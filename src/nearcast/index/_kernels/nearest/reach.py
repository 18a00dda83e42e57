"""Reach of a threshold in the frame, and the exact distance."""

from __future__ import annotations

from math import pi, sin

from nearcast._jit import kernel
from nearcast.index._kernels.nearest.layout import UNREACHABLE
from nearcast.index._kernels.shared.projection import CHORD_SLACK, Projection
from nearcast.model._kernels.profiles import euclidean, haversine
from nearcast.space.metric import EARTH_RADIUS_M

_MARGIN = 1e-6  # several times the relative error of a chord in float32
_LONGEST_CHORD = 4.0  # no two points of the frame are as far apart


@kernel
def squared_reach(projection: Projection, threshold: float) -> float:
    """Return the square of a chord within which all points nearer than a threshold lie, also in float32.

    Never underestimates. Nearer on the globe is a shorter chord, so one number serves both metrics.
    """
    if threshold <= 0.0:
        return UNREACHABLE
    if projection.on_sphere:
        chord = 2.0 * sin(min(threshold * (0.5 / EARTH_RADIUS_M), 0.5 * pi))
    else:
        chord = min(threshold * projection.scale, _LONGEST_CHORD)
    reach = chord * (1.0 + _MARGIN) + CHORD_SLACK
    return reach * reach


@kernel
def exact_distance(on_sphere: bool, ax: float, ay: float, bx: float, by: float) -> float:
    """Return the distance, bit for bit that of the space."""
    ax, ay, bx, by = float(ax), float(ay), float(bx), float(by)  # uncompiled, NumPy scalars warn of overflow
    return haversine(ax, ay, bx, by) if on_sphere else euclidean(ax, ay, bx, by)
