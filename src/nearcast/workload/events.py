"""Events: messages that report the same thing again, in the words of a form, at points that repeat, in bursts.

    event      a category of a few      the words of its form, which all events of the category may use
               a point                  one of the sites where events happen again and again, or a new one
               words of its own         by the law of the workload
    message    an event, or a revision of one that was published shortly before: same point, same words, a few more

        position   0  1  2  3  4  5  6 ...          a message revises the one `lag` positions earlier, or is new
        event      a  b  a  c  a  c  d

Few words are in most messages, and whole texts repeat. Times are irregular: the gaps between messages follow a
log-normal law, and once in a block of `BLOCK` messages the stream is silent for `silence` of the time that the block
takes. A block takes as long as with regular messages, so the rate is that of the workload.

The defaults are those of 264,797 road incidents of New South Wales, as they were published from 2020 to 2024: 32
different words per message, of which the most frequent is in 74 %, the tenth in 43 % and the hundredth in 6 %; 51 %
of the messages lie at a point of an earlier one, half of these within 20 messages of it; 3 % repeat text and point;
of gaps with a mean of 1, the median is 0.45 and one in a hundred is above 8.8.

Revisions stay within a block, so that each block follows from the seed and its number alone.

Cost: some 5 us per message.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from nearcast.errors import require
from nearcast.workload.cities import Cities, Points
from nearcast.workload.sample import TermRanks
from nearcast.workload.streams import generator
from nearcast.workload.zipf import Zipf

Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_CATEGORIES = Zipf(25, exponent=0.8, shift=1.0)
_SITES = Zipf(4_000, exponent=0.7, shift=5.0)
_LEAST_FREQUENT = 0.02  # of the words of forms


@dataclass(frozen=True)
class Events:
    """How messages repeat.

    >>> events = Events()
    >>> events.origins(np.random.default_rng(3), 6).tolist()
    [0, 1, 2, 3, 0, 5]
    """

    categories: Zipf = _CATEGORIES
    """How frequent each category is."""
    form_words: int = 120
    """Words that forms use; the most frequent words of the workload."""
    most_frequent: float = 0.74
    """The share of messages with the most frequent of them."""
    half: float = 21.0
    """After so many of these words the share has halved."""
    sites: Zipf = _SITES
    """How many events each site has."""
    at_sites: float = 0.25
    """The share of events at a site."""
    revised: float = 0.42
    """The share of messages that revise an earlier one."""
    lag: float = 12.0
    """The mean number of messages until a revision is published."""
    verbatim: float = 0.08
    """The share of revisions that change no word."""
    spread: float = 1.26
    """The standard deviation of the logarithm of a gap."""
    silence: float = 0.05
    """The share of time in which the stream is silent at a stretch."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("most_frequent", "at_sites", "revised", "verbatim", "silence"):
                require(0 <= value < 1, field.name, "must be in [0, 1)", value, subject="events")
            elif field.name == "lag":
                require(1 <= value < np.inf, field.name, "must be finite and 1 or more", value, subject="events")
            elif field.name in ("half", "spread"):
                require(0 < value < np.inf, field.name, "must be finite and above 0", value, subject="events")
        require(self.form_words >= 1, "form_words", "must be 1 or more", self.form_words, subject="events")

    def origins(self, rng: np.random.Generator, n: int) -> Ints:
        """Return for each of `n` messages the one that it revises, or itself."""
        lags = 1 + np.floor(rng.exponential(self.lag - 1.0, n)).astype(np.int64)
        before = np.arange(n) - lags
        origins: Ints = np.where((rng.random(n) < self.revised) & (before >= 0), before, np.arange(n))
        return origins

    def place(self, rng: np.random.Generator, points: Points, *, cities: Cities, seed: int) -> Points:
        """Return points of which some lie at sites instead."""
        n = len(points[0])
        are_known, numbers = rng.random(n) < self.at_sites, self.sites.draw(rng.random(n))
        xs, ys = _sites(cities, self.sites.size, seed)
        return np.where(are_known, xs[numbers], points[0]), np.where(are_known, ys[numbers], points[1])

    def write(self, rng: np.random.Generator, own: TermRanks, *, size: int, seed: int) -> TermRanks:
        """Return the terms of events with those of their forms, given their own by the law of the workload."""
        n = len(own)
        forms = _forms(self, seed)[self.categories.draw(rng.random(n))]
        owners, words = np.nonzero(forms & (rng.random((n, self.form_words)) < np.sqrt(self._shares())))
        of_forms = TermRanks(np.searchsorted(owners, np.arange(n + 1)), words)
        return of_forms.followed_by(self._behind_forms(own, size))

    def revise(
        self, rng: np.random.Generator, texts: TermRanks, more: TermRanks, origins: Ints, *, size: int
    ) -> TermRanks:
        """Return the texts of messages, given those of as many events and the terms that revisions may add."""
        revises = origins != np.arange(len(origins))
        adds = revises & (rng.random(len(origins)) >= self.verbatim)
        rows = np.flatnonzero(adds)
        none = TermRanks(np.zeros(len(origins) + 1, np.int64), np.zeros(0, np.int64))
        added = none.put(rows, self._behind_forms(more.take(rows), size))
        return texts.take(first_origins(origins)).followed_by(added)

    def gaps(self, rng: np.random.Generator, n: int) -> Floats:
        """Return the time before each of `n` messages, as shares of the time that all of them take."""
        gaps = rng.lognormal(0.0, self.spread, n)
        gaps *= (1.0 - self.silence) / gaps.sum()
        gaps[int(rng.random() * n)] += self.silence
        return gaps

    def _behind_forms(self, own: TermRanks, size: int) -> TermRanks:
        """Return terms with ranks behind the words of forms."""
        return TermRanks(own.indptr, (own.ranks + self.form_words) % size)

    def _shares(self) -> Floats:
        """Return the share of messages that have each word of forms."""
        rank = np.arange(self.form_words)
        shares: Floats = _LEAST_FREQUENT + (self.most_frequent - _LEAST_FREQUENT) * 0.5 ** (rank / self.half)
        return np.minimum(shares, 1.0)


def first_origins(origins: Ints) -> Ints:
    """Return the message in which the event of each message was published first.

    >>> first_origins(np.array([0, 0, 1, 3, 2])).tolist()
    [0, 0, 0, 3, 0]
    """
    firsts = origins
    while True:
        further: Ints = firsts[firsts]
        if (further == firsts).all():
            return firsts
        firsts = further


@lru_cache(maxsize=16)
def _sites(cities: Cities, n: int, seed: int) -> Points:
    xs, ys, _ = cities.draw(generator(seed, "events/sites"), n, seed=seed)
    return xs, ys


@lru_cache(maxsize=16)
def _forms(events: Events, seed: int) -> Flags:
    """Return which words the form of each category has."""
    draws = generator(seed, "events/forms").random((events.categories.size, events.form_words))
    forms: Flags = draws < np.sqrt(events._shares())
    return forms
