"""A space: bounds for locations, a metric, and proximity."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from nearcast.errors import is_finite, require
from nearcast.space.box import Box
from nearcast.space.metric import EARTH_RADIUS_M, HALF_CIRCUMFERENCE_M, METRICS, Metric
from nearcast.space.polygons_cover import polygons_cover
from nearcast.space.region import REGION_TYPES, Circle, Region

Point = tuple[float, float]
Floats = npt.NDArray[np.float64]

_EARTH = Box(-180, -90, 180, 90)
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
        self.bounds.refuse_wrapping(subject="space")
        require(
            self.metric in _METRIC_OF,
            "metric",
            f"must be one of {sorted(_METRIC_OF)}",
            self.metric,
            subject="space",
        )
        object.__setattr__(self, "_metric", _METRIC_OF[self.metric])
        if self.metric == "haversine":
            corners = ((self.bounds.xmin, self.bounds.ymin), (self.bounds.xmax, self.bounds.ymax))
            require(
                all(_EARTH.contains(*corner) for corner in corners),
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
        return cls(_EARTH, metric="haversine", max_distance=max_distance)

    def distance(self, a: Point, b: Point) -> float:
        """Return the distance between two points."""
        return self._metric.distance(a[0], a[1], b[0], b[1])

    def near(self, a: Point, b: Point) -> float:
        """Return proximity: 1 at the same point, falling to 0 at `max_distance` and staying there."""
        return max(0.0, 1.0 - self._metric.distance(a[0], a[1], b[0], b[1]) / self.max_distance)

    def nearest(self, point: Point, box: Box) -> float:
        """Return the distance to the nearest point of a box; never overestimates."""
        return min(self._metric.nearest(point[0], point[1], *half.as_tuple()) for half in box.halves())

    def farthest(self, point: Point, box: Box) -> float:
        """Return the distance to the farthest point of a box; never underestimates."""
        return max(self._metric.farthest(point[0], point[1], *half.as_tuple()) for half in box.halves())

    def check_region(self, region: Region, field: str = "region", subject: str = "") -> None:
        """Raise `InvalidInput` for a region that this space cannot have; regions may reach beyond the bounds.

        >>> Space(Box(0, 0, 3, 4)).check_region(Box(2, 0, 1, 1))
        Traceback (most recent call last):
            ...
        nearcast.errors.InvalidInput: region must have xmin <= xmax on a plane; got Box(xmin=2.0, ...)
        """
        allowed = "must be a Box, Circle, Polygon or MultiPolygon"
        require(isinstance(region, REGION_TYPES), field, allowed, region, subject=subject)
        on_earth = self.metric == "haversine"
        if isinstance(region, Box) and region.wraps:
            require(on_earth, field, "must have xmin <= xmax on a plane", region, subject=subject)
            corners = (region.xmin, region.ymin), (region.xmax, region.ymax)
            rule = "must have longitudes in [-180, 180] and latitudes in [-90, 90] where it crosses the antimeridian"
            require(all(_EARTH.contains(*corner) for corner in corners), field, rule, region, subject=subject)
        if isinstance(region, Circle) and on_earth:
            rule = "must have its center at a longitude in [-180, 180] and a latitude in [-90, 90]"
            require(_EARTH.contains(*region.center), field, rule, region, subject=subject)

    def covers(self, region: Region, point: Point) -> bool:
        """Return whether a point lies in a region; regions are closed, so points on the boundary do.

        The edges of a polygon are straight lines in coordinates, and the decision is exact. A circle holds the points
        at a distance of at most its radius.

        >>> Space(Box(0, 0, 9, 9)).covers(Circle((0, 0), radius=5), (3, 4))
        True
        """
        if isinstance(region, Box):
            return region.contains(*point)
        if isinstance(region, Circle):
            return self.distance(region.center, point) <= region.radius
        return polygons_cover(region.rings, *point)

    def bounding_box(self, region: Region) -> Box:
        """Return a plain box that contains every point of the bounds in a region; over-approximates.

        It lies in the bounds. A box across the antimeridian gives all longitudes, a region outside the bounds a line
        or a point at their edge.

        >>> Space.earth().bounding_box(Box(177, -19, -178, -16))
        Box(xmin=-180.0, ymin=-19.0, xmax=180.0, ymax=-16.0)
        """
        if isinstance(region, Circle):
            return self.reach(region.center, region.radius)
        xmin, ymin, xmax, ymax = region.as_tuple() if isinstance(region, Box) else region.extent
        if xmin > xmax:
            xmin, xmax = self.bounds.xmin, self.bounds.xmax
        return Box(*self.clipped(np.array([[xmin, ymin, xmax, ymax]]))[0].tolist())

    def clipped(self, boxes: Floats) -> Floats:
        """Return boxes, rows of xmin, ymin, xmax, ymax, cut to the bounds; those outside become lines or points."""
        b = self.bounds
        return np.clip(boxes, (b.xmin, b.ymin, b.xmin, b.ymin), (b.xmax, b.ymax, b.xmax, b.ymax))

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
        dxs, dys = self.half_sides(xs, ys, radii)
        if self.metric == "haversine":
            dxs = np.where((xs - dxs < -180) | (xs + dxs > 180), 360.0, dxs)
        with np.errstate(over="ignore"):
            sides = xs - dxs, ys - dys, xs + dxs, ys + dys
        return self.clipped(np.column_stack(sides))

    def half_sides(self, xs: Floats, ys: Floats, radii: Floats) -> tuple[Floats, Floats]:
        """Return how far circles reach along both axes; over-approximates. On the earth all the way round is 360."""
        with np.errstate(over="ignore"):  # beyond the largest number is everywhere
            if self.metric == "euclidean":
                # The last term: the square of a smaller difference is 0, and so is the distance.
                dxs = radii * (1 + 1e-12) + 1e-12 * np.maximum(np.abs(xs), np.abs(ys)) + 1e-150
                return dxs, dxs
            # Close to the antipode the haversine formula is only good to centimetres.
            slack = np.where(radii > 0.9 * HALF_CIRCUMFERENCE_M, 2e-7, 1e-9)
            angles = np.minimum(radii / EARTH_RADIUS_M, np.pi) + slack
        dys = np.degrees(angles)
        over = (angles >= np.pi / 2) | (np.abs(ys) + dys >= 90)
        flat = np.cos(np.radians(np.where(over, 0.0, ys)))
        dxs = np.degrees(np.arcsin(np.minimum(1.0, np.sin(np.where(over, 0.0, angles)) / flat))) + 1e-9
        return np.where(over, 360.0, dxs), dys

    def _diagonal(self) -> float:
        b = self.bounds
        if self.metric == "haversine" and b.xmax - b.xmin > 180:
            return HALF_CIRCUMFERENCE_M  # corner to corner would be the short way round
        return self._metric.distance(b.xmin, b.ymin, b.xmax, b.ymax)
