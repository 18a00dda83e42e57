"""Where does a point lie in the frame, and how far does a bar reach there? Never less far than it should."""

from __future__ import annotations

from math import cos, pi, radians, sin

from nearcast._jit import kernel
from nearcast.index._kernels.nearest.layout import LONGEST_CHORD, MARGIN, NEVER, SLACK, NearestProjection
from nearcast.space import metric

_A_RADIAN = metric.EARTH_RADIUS_M

euclidean, haversine = kernel(metric.euclidean), kernel(metric.haversine)


@kernel
def to_frame(projection: NearestProjection, x: float, y: float) -> tuple[float, float, float]:
    """Return the point of the frame."""
    if projection.on_sphere:
        lon, lat = radians(x), radians(y)
        return cos(lat) * cos(lon), cos(lat) * sin(lon), sin(lat)
    return (x - projection.x0) * projection.scale, (y - projection.y0) * projection.scale, 0.0


@kernel
def reach_of(projection: NearestProjection, threshold: float) -> float:
    """Return the square of a chord such that whatever is nearer than the bar lies within it, also in float32.

    Nearer on the earth is a shorter chord, so one number serves both metrics.
    """
    if threshold <= 0.0:
        return NEVER  # nothing is nearer than here
    if projection.on_sphere:
        chord = 2.0 * sin(min(threshold * (0.5 / _A_RADIAN), 0.5 * pi))
    else:
        chord = min(threshold * projection.scale, LONGEST_CHORD)
    reach = chord * (1.0 + MARGIN) + SLACK
    return reach * reach


@kernel
def distance(projection: NearestProjection, ax: float, ay: float, bx: float, by: float) -> float:
    """Return the distance, bit for bit that of the space."""
    ax, ay, bx, by = float(ax), float(ay), float(bx), float(by)  # where nothing is compiled: may become infinite
    return haversine(ax, ay, bx, by) if projection.on_sphere else euclidean(ax, ay, bx, by)
