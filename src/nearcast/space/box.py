"""A closed axis-parallel box: the points with xmin <= x <= xmax and ymin <= y <= ymax."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from nearcast.errors import is_finite, require


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
