"""Locations of messages: cities of Zipf sizes, and some countryside.

    bounds +---------------------------+        share of a city     Zipf over its rank
           |   o        .  (  @  )   . |        @ spread            from `spread_m` for the largest city down to
           | .    ( o )      .     o   |                            `spread_min_m`, as the root of its share
           +---------------------------+        . countryside       `rural` of all points, uniform in the bounds

A point is a Gaussian step from the centre of its city. Sizes and spreads depend on the rank alone and only the
centres are random, so that the density of a workload hardly depends on the seed. Centres keep three spreads from the
border; points that still fall outside are moved onto it. Coordinates have six decimals, a tenth of a metre.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import degrees

import numpy as np
import numpy.typing as npt

from nearcast.errors import require
from nearcast.space import Box
from nearcast.space.metric import EARTH_RADIUS_M
from nearcast.workload.streams import generator
from nearcast.workload.zipf import Zipf

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Points = tuple[Floats, Floats]
"""The xs and ys of points."""

DEGREES_PER_METRE = degrees(1.0 / EARTH_RADIUS_M)  # of latitude; longitude divides by the cosine of the latitude
_DECIMALS = 6


@dataclass(frozen=True)
class Cities:
    """The number of cities, their inequality and their spread.

    >>> america = Box(-125, 24.5, -66.5, 49.5)
    >>> cities = Cities(america, sizes=Zipf(300, 0.9), spread_m=20e3, spread_min_m=3e3, rural=0.05)
    >>> xs, ys, city_of = cities.draw(generator(1, "doc"), 5, seed=1)
    >>> bool(np.all((xs >= -125) & (xs <= -66.5) & (city_of < 300)))
    True
    """

    bounds: Box
    sizes: Zipf
    spread_m: float
    spread_min_m: float
    rural: float

    def __post_init__(self) -> None:
        ok = 0 <= self.spread_min_m <= self.spread_m
        require(ok, "spread_min_m", "must be between 0 and spread_m", self.spread_min_m, subject="cities")
        require(0 <= self.rural <= 1, "rural", "must be in [0, 1]", self.rural, subject="cities")

    def spreads_m(self) -> Floats:
        """Return the standard deviation of each city, in metres."""
        shares = np.diff(self.sizes.cumulative(), prepend=0.0)
        spreads: Floats = np.maximum(self.spread_m * np.sqrt(shares / shares[0]), self.spread_min_m)
        return spreads

    def centres(self, seed: int) -> tuple[Floats, Floats]:
        """Return the centres of the cities of a seed."""
        return _centres(self, seed)

    def draw(self, rng: np.random.Generator, n: int, *, seed: int) -> tuple[Floats, Floats, Ints]:
        """Return `n` points as xs and ys, and the city of each, -1 for the countryside."""
        centre_xs, centre_ys = self.centres(seed)
        city_of = self.sizes.draw(rng.random(n))
        steps = rng.standard_normal((2, n)) * (self.spreads_m()[city_of] * DEGREES_PER_METRE)
        xs = centre_xs[city_of] + steps[0] / np.cos(np.radians(centre_ys[city_of]))
        ys = centre_ys[city_of] + steps[1]
        rural = rng.random(n) < self.rural
        anywhere_xs, anywhere_ys = scatter(rng, self.bounds, n)
        xs, ys = self.rounded(np.where(rural, anywhere_xs, xs), np.where(rural, anywhere_ys, ys))
        return xs, ys, np.where(rural, -1, city_of)

    def rounded(self, xs: Floats, ys: Floats) -> Points:
        """Return points as messages have them: with six decimals, and within the bounds."""
        return (
            np.clip(np.round(xs, _DECIMALS), self.bounds.xmin, self.bounds.xmax),
            np.clip(np.round(ys, _DECIMALS), self.bounds.ymin, self.bounds.ymax),
        )


def scatter(rng: np.random.Generator, bounds: Box, n: int) -> tuple[Floats, Floats]:
    """Return `n` points uniform in a box."""
    xs, ys = rng.random((2, n))
    return (
        np.clip(np.round(bounds.xmin + xs * (bounds.xmax - bounds.xmin), _DECIMALS), bounds.xmin, bounds.xmax),
        np.clip(np.round(bounds.ymin + ys * (bounds.ymax - bounds.ymin), _DECIMALS), bounds.ymin, bounds.ymax),
    )


@lru_cache(maxsize=16)
def _centres(cities: Cities, seed: int) -> tuple[Floats, Floats]:
    bounds = cities.bounds
    across, along = generator(seed, "cities").random((2, cities.sizes.size))
    margins = np.minimum(3 * cities.spreads_m() * DEGREES_PER_METRE, (bounds.ymax - bounds.ymin) / 2)
    ys = bounds.ymin + margins + along * (bounds.ymax - bounds.ymin - 2 * margins)
    margins = np.minimum(margins / np.cos(np.radians(ys)), (bounds.xmax - bounds.xmin) / 2)
    xs = bounds.xmin + margins + across * (bounds.xmax - bounds.xmin - 2 * margins)
    return xs, ys
