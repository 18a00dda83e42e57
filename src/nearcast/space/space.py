"""A space: bounds for locations, a metric, and proximity."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from nearcast.errors import is_finite, require
from nearcast.space.box import Box
from nearcast.space.metric import EARTH_RADIUS_M, HALF_CIRCUMFERENCE_M, METRICS, Metric

Point = tuple[float, float]
Floats = npt.NDArray[np.float64]

_METRIC_OF = {metric.name: metric for metric in METRICS}


@dataclass(frozen=True)
class Space:
    """Bounds, a metric, and the distance at which proximity reaches zero.

    >>> plane = Space(Box(0, 0, 3, 4))
    >>> plane.max_distance
    5.0
    >>> plane.near((0, 0), (0, 1))
    0.8

    On the earth a point is (longitude, latitude) in degrees, and distances are metres:

    >>> earth = Space.earth(max_distance=10_000)
    >>> round(earth.distance((13.40, 52.52), (13.45, 52.52)))
    3383
    """

    bounds: Box
    metric: str = "euclidean"
    max_distance: float = field(default=None)  # type: ignore[assignment]  # the diagonal unless given
    _metric: Metric = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require(isinstance(self.bounds, Box), "bounds", "must be a Box", self.bounds, subject="space")
        require(
            self.metric in _METRIC_OF,
            "metric",
            f"must be one of {sorted(_METRIC_OF)}",
            self.metric,
            subject="space",
        )
        object.__setattr__(self, "_metric", _METRIC_OF[self.metric])
        if self.metric == "haversine":
            inside = Box(-180, -90, 180, 90)
            corners = ((self.bounds.xmin, self.bounds.ymin), (self.bounds.xmax, self.bounds.ymax))
            require(
                all(inside.contains(*corner) for corner in corners),
                "bounds",
                "must lie within longitude [-180, 180] and latitude [-90, 90]",
                self.bounds,
                subject="space",
            )
        if self.max_distance is None:
            object.__setattr__(self, "max_distance", self._diagonal())
        require(
            is_finite(self.max_distance) and self.max_distance > 0,
            "max_distance",
            "must be a finite number above 0",
            self.max_distance,
            subject="space",
        )
        object.__setattr__(self, "max_distance", float(self.max_distance))

    @classmethod
    def earth(cls, *, max_distance: float = HALF_CIRCUMFERENCE_M) -> Space:
        """Return the whole earth, in metres; set `max_distance` to the distance that still counts as near."""
        return cls(Box(-180, -90, 180, 90), metric="haversine", max_distance=max_distance)

    def distance(self, a: Point, b: Point) -> float:
        """Return the distance between two points."""
        return self._metric.distance(a[0], a[1], b[0], b[1])

    def near(self, a: Point, b: Point) -> float:
        """Return proximity: 1 at the same point, falling to 0 at `max_distance` and staying there."""
        return max(0.0, 1.0 - self._metric.distance(a[0], a[1], b[0], b[1]) / self.max_distance)

    def nearest(self, point: Point, box: Box) -> float:
        """Return the distance to the nearest point of a box; never overestimates."""
        return self._metric.nearest(point[0], point[1], box.xmin, box.ymin, box.xmax, box.ymax)

    def farthest(self, point: Point, box: Box) -> float:
        """Return the distance to the farthest point of a box; never underestimates."""
        return self._metric.farthest(point[0], point[1], box.xmin, box.ymin, box.xmax, box.ymax)

    def reach(self, point: Point, radius: float) -> Box:
        """Return a box that contains every point of the bounds within `radius`; over-approximates.

        On the earth, a reach across the antimeridian or over a pole takes all longitudes: boxes do not wrap.

        >>> Space(Box(0, 0, 10, 10)).reach((1, 5), 2).contains(0, 7)
        True
        """
        x, y, reached = np.array([point[0]]), np.array([point[1]]), np.array([radius])
        return Box(*self.reaches(x, y, reached)[0].tolist())

    def reaches(self, xs: Floats, ys: Floats, radii: Floats) -> Floats:
        """Return `reach` for many points, as rows of xmin, ymin, xmax, ymax."""
        if self.metric == "euclidean":
            # The last term: the square of a smaller difference is 0, and so is the distance.
            dxs = dys = radii * (1 + 1e-12) + 1e-12 * np.maximum(np.abs(xs), np.abs(ys)) + 1e-150
        else:
            angles = radii / EARTH_RADIUS_M + 1e-9
            dys = np.degrees(angles)
            over = (angles >= np.pi / 2) | (np.abs(ys) + dys >= 90)
            flat = np.cos(np.radians(np.where(over, 0.0, ys)))
            dxs = np.degrees(np.arcsin(np.minimum(1.0, np.sin(np.where(over, 0.0, angles)) / flat))) + 1e-9
            dxs[over | (xs - dxs < -180) | (xs + dxs > 180)] = 360.0
        b = self.bounds
        return np.column_stack(
            [
                np.clip(xs - dxs, b.xmin, b.xmax),
                np.clip(ys - dys, b.ymin, b.ymax),
                np.clip(xs + dxs, b.xmin, b.xmax),
                np.clip(ys + dys, b.ymin, b.ymax),
            ]
        )

    def _diagonal(self) -> float:
        b = self.bounds
        if self.metric == "haversine" and b.xmax - b.xmin > 180:
            return HALF_CIRCUMFERENCE_M  # corner to corner would be the short way round
        return self._metric.distance(b.xmin, b.ymin, b.xmax, b.ymax)
