"""Drift: hot spots that wander from city to city, and topics that come and go.

    hot spots    ●───────►●────►●      each is on its way from one random city to the next, a `stay` of messages long
    topics       ▆▆▆▆▆▆ ▆▆▆▆▆▆ ▆▆      each lasts a `life` of messages; then another one takes its place

A share of the messages lies around the hot spots, a share is about one of the topics: half of the terms of such a
message are terms of the topic. All hot spots are at different parts of their ways, and topics begin one after the
other, so the stream changes all the time. Where hot spots are and what topics are about follows from the seed and the
number of the message alone.

Cost: a tenth more than a message without drift.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from nearcast.errors import require
from nearcast.workload.cities import DEGREES_PER_METRE, Cities, Points
from nearcast.workload.streams import generator

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_AT_ONCE = 64  # waypoints, or topics, that are drawn together
_FROM, _TO = 0.0005, 0.02  # ranks of the terms of topics, as shares of the vocabulary: neither stop words nor rare


@dataclass(frozen=True)
class Drift:
    """How messages change with time.

    >>> from nearcast.space import Box
    >>> from nearcast.workload.zipf import Zipf
    >>> drift = Drift(hot=1.0, spots=2, spread_m=0.0, stay=1_000, topical=0.5, topics=3, topic_terms=5, life=500)
    >>> cities = Cities(Box(-125, 24.5, -66.5, 49.5), sizes=Zipf(9), spread_m=20e3, spread_min_m=3e3, rural=0.0)
    >>> xs, ys = drift.spots_at(np.array([0, 500, 1_000]), np.array([0, 0, 0]), cities=cities, seed=1)
    >>> bool(np.isclose(xs[1], (xs[0] + xs[2]) / 2) and np.isclose(ys[1], (ys[0] + ys[2]) / 2))
    True
    """

    hot: float
    """The share of messages around hot spots."""
    spots: int
    """Hot spots at a time."""
    spread_m: float
    """The standard deviation of messages around a hot spot, in metres."""
    stay: int
    """Messages until a hot spot has reached the next city."""
    topical: float
    """The share of messages about a topic."""
    topics: int
    """Topics at a time."""
    topic_terms: int
    """Terms of a topic."""
    life: int
    """Messages until another topic takes the place of one."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("hot", "topical"):
                require(0 <= value <= 1, field.name, "must be in [0, 1]", value, subject="drift")
            elif field.name == "spread_m":
                require(0 <= value < np.inf, field.name, "must be finite and 0 or more", value, subject="drift")
            else:
                ok = isinstance(value, int) and not isinstance(value, bool) and value >= 1
                require(ok, field.name, "must be an integer of 1 or more", value, subject="drift")

    def spots_at(self, positions: Ints, spots: Ints, *, cities: Cities, seed: int) -> tuple[Floats, Floats]:
        """Return where hot spots are at some messages of the stream."""
        way = positions / self.stay + spots / self.spots
        passed = way.astype(np.int64)
        share = way - passed
        ways = [
            _drawn(seed, "spots", self.spots, 1, numbers, spots)[:, 0] * cities.sizes.size
            for numbers in (passed, passed + 1)
        ]
        before, after = (at.astype(np.int64) for at in ways)
        xs, ys = cities.centres(seed)
        return xs[before] + share * (xs[after] - xs[before]), ys[before] + share * (ys[after] - ys[before])

    def place(
        self, rng: np.random.Generator, points: Points, positions: Ints, *, cities: Cities, seed: int
    ) -> Points:
        """Return points of which a share lies around hot spots instead."""
        n = len(positions)
        are_hot, spots = rng.random(n) < self.hot, (rng.random(n) * self.spots).astype(np.int64)
        xs, ys = self.spots_at(positions, spots, cities=cities, seed=seed)
        steps = rng.standard_normal((2, n)) * (self.spread_m * DEGREES_PER_METRE)
        near = cities.rounded(xs + steps[0] / np.cos(np.radians(ys)), ys + steps[1])
        return np.where(are_hot, near[0], points[0]), np.where(are_hot, near[1], points[1])

    def write(
        self, rng: np.random.Generator, ranks: Ints, owners: Ints, positions: Ints, *, sizes: Ints, seed: int
    ) -> Ints:
        """Return the ranks of terms, some of which are those of topics.

        `owners` is the message of each term, `positions` the position of each message, and `sizes` the number of
        terms that each may use.
        """
        n = len(positions)
        are_topical, topics = rng.random(n) < self.topical, (rng.random(n) * self.topics).astype(np.int64)
        numbers = (positions / self.life + topics / self.topics).astype(np.int64)
        of_topics = _drawn(seed, "topics", self.topics, self.topic_terms, numbers, topics)
        chosen = of_topics[owners, (rng.random(len(ranks)) * self.topic_terms).astype(np.int64)]
        about = ((_FROM + chosen * (_TO - _FROM)) * sizes[owners]).astype(np.int64)
        return np.where(are_topical[owners] & (rng.random(len(ranks)) < 0.5), about, ranks)


def _drawn(seed: int, what: str, n_places: int, width: int, numbers: Ints, places: Ints) -> Floats:
    """Return the random numbers of the given waypoints of hot spots, or of the given topics, one row each."""
    blocks, block_of = np.unique(numbers // _AT_ONCE, return_inverse=True)
    tables = np.stack([_block(seed, what, n_places, width, block) for block in blocks.tolist()])
    rows: Floats = tables[block_of, numbers % _AT_ONCE, places]
    return rows


@lru_cache(maxsize=256)
def _block(seed: int, what: str, n_places: int, width: int, number: int) -> Floats:
    return generator(seed, f"drift/{what}", number).random((_AT_ONCE, n_places, width))
