"""A closed axis-parallel box: the points with xmin <= x <= xmax and ymin <= y <= ymax."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from math import asin, cos, degrees, radians, sin
from typing import Self

from nearcast.errors import is_finite, require
from nearcast.space.metric import EARTH_RADIUS_M


@dataclass(frozen=True, slots=True)
class Box:
    """A closed box. It may be a line or a single point, but min may not exceed max.

    >>> Box(0, 0, 2, 1).contains(2, 0.5)
    True
    >>> Box(3, 0, 2, 1)
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: xmin must not exceed xmax; got 3.0 > 2.0
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
        for low, high in (("xmin", "xmax"), ("ymin", "ymax")):
            a, b = getattr(self, low), getattr(self, high)
            require(a <= b, low, f"must not exceed {high}", _Comparison(a, b))

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

    def contains(self, x: float, y: float) -> bool:
        """Return whether a point lies in the closed box."""
        return self.xmin <= x <= self.xmax and self.ymin <= y <= self.ymax

    def as_tuple(self) -> tuple[float, float, float, float]:
        """Return (xmin, ymin, xmax, ymax)."""
        return astuple(self)


class _Comparison(tuple[float, float]):
    """Two values in the wrong order, for an error message."""

    def __new__(cls, low: float, high: float) -> _Comparison:
        return super().__new__(cls, (low, high))

    def __repr__(self) -> str:
        return f"{self[0]!r} > {self[1]!r}"
