"""A closed axis-parallel box: the points with xmin <= x <= xmax and ymin <= y <= ymax.

On the earth, a box with xmin > xmax crosses the antimeridian: it wraps, and holds the points with x >= xmin or x <=
xmax.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from math import asin, cos, degrees, radians, sin
from typing import Self

from nearcast.errors import is_finite, require
from nearcast.space.metric import EARTH_RADIUS_M


@dataclass(frozen=True, slots=True)
class Box:
    """A closed box. It may be a line or a single point. With xmin > xmax it crosses the antimeridian.

    >>> Box(0, 0, 2, 1).contains(2, 0.5)
    True
    >>> fiji = Box(177, -19, -178, -16)
    >>> fiji.wraps, fiji.contains(179, -17), fiji.contains(-179, -17), fiji.contains(0, -17)
    (True, True, True, False)
    >>> Box(0, 3, 1, 2)
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: ymin must not exceed ymax; got 3.0 > 2.0
    """

    xmin: float
    ymin: float
    xmax: float
    ymax: float

    def __post_init__(self) -> None:
        for name in ("xmin", "ymin", "xmax", "ymax"):
            value = getattr(self, name)
            require(
                is_finite(value),
                name,
                "must be a finite number",
                value,
                subject="box",
            )
            object.__setattr__(self, name, float(value))
        require(self.ymin <= self.ymax, "ymin", "must not exceed ymax", _Comparison(self.ymin, self.ymax))

    @classmethod
    def around(cls, point: tuple[float, float], metres: float) -> Self:
        """Return the smallest box on the earth that holds all points within a distance of a (longitude, latitude).

        >>> box = Box.around((13.4, 52.5), 1_000)
        >>> [round(side, 4) for side in box.as_tuple()]
        [13.3852, 52.491, 13.4148, 52.509]
        """
        x, y = point
        require(is_finite(x) and abs(x) <= 180, "longitude", "must be in [-180, 180]", x, subject="box")
        require(is_finite(y) and abs(y) <= 90, "latitude", "must be in [-90, 90]", y, subject="box")
        require(is_finite(metres) and metres >= 0, "metres", "must be 0 or more", metres, subject="box")
        angle = metres / EARTH_RADIUS_M
        south, north = y - degrees(angle), y + degrees(angle)
        if south <= -90 or north >= 90:  # it holds a pole
            return cls(-180.0, max(south, -90.0), 180.0, min(north, 90.0))
        across = degrees(asin(min(1.0, sin(angle) / cos(radians(y)))))
        crosses = x - across < -180 or x + across > 180
        require(
            not crosses, "metres", "must not reach across the antimeridian", metres, subject=f"box around {point}"
        )
        return cls(x - across, south, x + across, north)

    @property
    def wraps(self) -> bool:
        """Whether the box crosses the antimeridian: xmin exceeds xmax."""
        return self.xmin > self.xmax

    def refuse_wrapping(self, *, subject: str = "") -> None:
        """Raise `InvalidInput` if the box crosses the antimeridian, where only a plain box will do."""
        require(not self.wraps, "xmin", "must not exceed xmax", _Comparison(self.xmin, self.xmax), subject=subject)

    def halves(self) -> tuple[Box, ...]:
        """Return the box itself, or the two plain boxes on both sides of the antimeridian.

        >>> Box(177, -19, -178, -16).halves()
        (Box(xmin=177.0, ymin=-19.0, xmax=180.0, ymax=-16.0), Box(xmin=-180.0, ymin=-19.0, xmax=-178.0, ymax=-16.0))
        """
        if not self.wraps:
            return (self,)
        return (
            Box(self.xmin, self.ymin, max(self.xmin, 180.0), self.ymax),
            Box(min(self.xmax, -180.0), self.ymin, self.xmax, self.ymax),
        )

    def contains(self, x: float, y: float) -> bool:
        """Return whether a point lies in the closed box."""
        if not self.ymin <= y <= self.ymax:
            return False
        if self.wraps:
            return x >= self.xmin or x <= self.xmax
        return self.xmin <= x <= self.xmax

    def as_tuple(self) -> tuple[float, float, float, float]:
        """Return (xmin, ymin, xmax, ymax)."""
        return astuple(self)


class _Comparison(tuple[float, float]):
    """Two values in the wrong order, for an error message."""

    def __new__(cls, low: float, high: float) -> _Comparison:
        return super().__new__(cls, (low, high))

    def __repr__(self) -> str:
        return f"{self[0]!r} > {self[1]!r}"
