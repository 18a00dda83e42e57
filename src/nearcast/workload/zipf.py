"""A Zipf-Mandelbrot law, drawn by inverting its cumulative weights.

    p(r) ~ 1 / (r + shift)^exponent      r = 1, 2, ... size; ranks are returned from 0, the most frequent first

`shift` flattens the head: without it the first words would be stop words, in every second message. Terms, cities,
places and check-ins all follow such a law.

Drawing from a law that is cut off at a lower rank is the same search in a prefix of the same table, so a growing
vocabulary costs nothing.

Cost: 8 bytes per rank, once per process; a draw is one binary search.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from nearcast.errors import require

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Zipf:
    """A Zipf-Mandelbrot law over `size` ranks.

    >>> law = Zipf(size=1000, exponent=1.0, shift=0.0)
    >>> law.draw(np.array([0.0, 0.5, 0.999])).tolist()
    [0, 23, 992]
    >>> law.draw(np.array([0.0, 0.5, 0.999]), sizes=np.array([10, 10, 10])).tolist()
    [0, 1, 9]
    """

    size: int
    exponent: float = 1.0
    shift: float = 0.0

    def __post_init__(self) -> None:
        require(self.size >= 1, "size", "must be 1 or more", self.size, subject="zipf")
        require(self.exponent >= 0, "exponent", "must be 0 or more", self.exponent, subject="zipf")
        require(self.shift > -1, "shift", "must be above -1", self.shift, subject="zipf")

    def cumulative(self) -> Floats:
        """Return the sums of the weights up to each rank; not normalised."""
        return _cumulative(self)

    def draw(self, uniforms: Floats, *, sizes: Ints | None = None) -> Ints:
        """Return a rank for each number in [0, 1); with `sizes`, from the law cut off after that many ranks."""
        cumulative = self.cumulative()
        totals = cumulative[-1] if sizes is None else cumulative[sizes - 1]
        return invert(cumulative, uniforms * totals)


def invert(cumulative: Floats, heights: Floats) -> Ints:
    """Return, for each height, the first index whose cumulative weight lies above it.

    >>> invert(np.array([1.0, 1.0, 3.0]), np.array([0.2, 1.0, 2.9])).tolist()
    [0, 2, 2]
    """
    return np.searchsorted(cumulative, heights, side="right").astype(np.int64, copy=False)


@lru_cache(maxsize=16)
def _cumulative(law: Zipf) -> Floats:
    weights = np.arange(1, law.size + 1, dtype=np.float64)
    weights += law.shift
    np.power(weights, -law.exponent, out=weights)
    np.cumsum(weights, out=weights)
    weights.flags.writeable = False
    return weights
