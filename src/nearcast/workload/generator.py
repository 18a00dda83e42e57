"""Generated streams of messages that stand in for the data sets of the papers.

Each number is a field of `Workload`.

    name      after                                   terms / message    vocabulary    written in
    tweets    TWEETS of Skype, table 3                9                  1.7 M         400 cities
    places    Place of DkM-SKS, table 1               3                  54 k          2,000 towns, much countryside
    reviews   YELP of Skype, table 3                  37                 85 k          100 cities
    drift     nothing recorded, see below             9                  200 k         400 cities, wandering hot spots
    incidents road incidents as published, see below  32                 20 k          60 cities, sites that repeat

Terms follow a Zipf-Mandelbrot law without stop words; the number of terms is 1 + a negative binomial; a term occurs
at most once per message. A share of the terms (`phrases`) is followed by its partner, the term of rank r ^ 1: words
of real texts occur together, and without partners an AND of two terms of one message would match next to nothing.
Partners are equally frequent, so the law of single terms stays.

The vocabulary of `tweets` grows by Heaps' law. Message i uses the first

    size * min(1, ((i + lead) / archive) ** heaps)        terms

so that new terms keep coming until message `archive`, the size of the paper's data set. A *random message*, from
which subscriptions are made, is one of that archive: its number is uniform below `archive`.

`tweets` is calibrated to a stream measured elsewhere. The first 300 messages of seeds 0 to 2 had

    boolean q1, 5 M subscriptions       113 to 121 matches per message, 0.4 of them of an AND
        under the least frequent term   350 to 400 postings visited in the message's cell of 64 x 64
    similarity, max_distance 500 km     0.51 to 0.60 % of the subscriptions match a message

and the most frequent term is in 3 % of the messages. A million messages later, matches and visits have fallen by a
tenth.

`drift` changes with time: half of its messages lie around three hot spots that wander from city to city in about an
hour, a third is about topics that come and go, see `nearcast.workload.drift`. Subscriptions are made from random
messages of the whole archive, so they are where hot spots were or will be. Messages of a community lie at its places,
and do not drift.

`incidents` has the statistics of a recorded stream: texts and points that repeat, a few words that most messages
have, revisions of the same event, bursts and silences, see `nearcast.workload.events`. Subscriptions are made from
random events.

Message i of a seed is always the same, see `streams`. Cost of a million messages on one core: 3 s for tweets, 1 s for
places, 9 s for reviews; 50 MB of tables for tweets, built once per process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.errors import require
from nearcast.space import Box, Space
from nearcast.text import Vocabulary
from nearcast.workload.cities import Cities, Points
from nearcast.workload.columns import MESSAGES, fill, named, numbered
from nearcast.workload.community import Community, gather
from nearcast.workload.drift import Drift
from nearcast.workload.events import Events, first_origins
from nearcast.workload.sample import MessageSample, TermRanks, start_of
from nearcast.workload.streams import BLOCK, cut, generator
from nearcast.workload.subscriptions import subscribe
from nearcast.workload.words import words
from nearcast.workload.zipf import Zipf

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_EPOCH_US = 1_704_067_200_000_000  # 2024-01-01T00:00:00Z, the time of message 0
_US = 1_000_000


@dataclass(frozen=True)
class Workload:
    """A seeded stream of messages and subscriptions, without end and without state.

    >>> tweets = make("tweets", seed=7)
    >>> table = next(tweets.messages(100))
    >>> table.num_rows, table["id"][0].as_py(), table["at"][0].as_py().isoformat()
    (100, 'm0', '2024-01-01T00:00:00+00:00')
    >>> next(tweets.messages(1, start=42)).equals(table.slice(42, 1))
    True
    """

    name: str
    words: Zipf  # frequency of each term, by rank
    cities: Cities
    terms_mean: float  # terms per message, repetitions included
    terms_shape: int  # of the negative binomial: the greater, the more similar the lengths
    phrases: float  # the probability that a term is followed by its partner
    archive: int  # messages of the data set that the workload stands for
    heaps: float = 0.0  # exponent of the growth of the vocabulary; 0: all terms exist from the start
    lead: int = 100_000  # messages before message 0
    rate: float = 1_000.0  # messages per second
    drift: Drift | None = None  # how messages change with time
    events: Events | None = None  # how messages repeat; terms and their law are those of an event besides its form
    seed: int = 0

    def __post_init__(self) -> None:
        def check(ok: bool, field: str, rule: str) -> None:
            require(ok, field, rule, getattr(self, field), subject=f"workload {self.name!r}")

        check(self.terms_mean >= 1, "terms_mean", "must be 1 or more")
        check(self.terms_shape >= 1, "terms_shape", "must be 1 or more")
        check(0 <= self.phrases < 1, "phrases", "must be in [0, 1)")
        check(self.archive >= 1, "archive", "must be 1 or more")
        check(0 <= self.heaps <= 1, "heaps", "must be in [0, 1]")
        check(self.lead >= 1, "lead", "must be 1 or more")
        check(0 < self.rate <= _US, "rate", "must be above 0 and at most 1,000,000, one message a microsecond")
        seed = self.seed
        check(isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0, "seed", "must be an integer >= 0")

    @property
    def bounds(self) -> Box:
        """Return the bounds of the messages."""
        return self.cities.bounds

    def space(self, *, max_distance: float | None = None) -> Space:
        """Return the space of the messages: the earth, within the bounds.

        >>> make("tweets").space(max_distance=500_000).metric
        'haversine'
        """
        return Space(self.bounds, metric="haversine", max_distance=max_distance)  # type: ignore[arg-type]

    def vocabulary(self, *, sample: int = 100_000) -> Vocabulary:
        """Return document frequencies counted in a random sample of the archive.

        >>> vocabulary = make("places").vocabulary(sample=1_000)
        >>> vocabulary.idf("ba") < vocabulary.idf("unheard-of")
        True
        """
        require(sample >= 1, "sample", "must be 1 or more", sample)
        return _vocabulary(self, sample)

    def terms(self) -> pa.StringArray:
        """Return every term the stream may hold, the most frequent first."""
        return words(self.words.size)

    def terms_at(self, message: int) -> int:
        """Return the number of terms that a message may use.

        >>> [make("tweets").terms_at(i) for i in (0, 1_000_000, 100_000_000)]
        [72941, 346642, 1700000]
        """
        return int(self._sizes(np.array([message]))[0])

    def messages(
        self, n: int, *, start: int = 0, block: int = BLOCK, community: Community | None = None
    ) -> Iterator[pa.Table]:
        """Yield messages start to start + n, `block` rows per table; those of a community lie at its places."""
        return cut(lambda number: self._block(number, community), n, start=start, block=block)

    def subscriptions(
        self,
        kind: str,
        n: int,
        *,
        start: int = 0,
        k: int | None = None,
        queries: str = "q1",
        block: int = BLOCK,
        community: Community | None = None,
    ) -> Iterator[pa.Table]:
        """Yield subscriptions start to start + n of a kind; see `nearcast.workload.subscriptions`."""
        return subscribe(self, kind, n, start=start, k=k, queries=queries, block=block, community=community)

    def social(self, users: int, *, places: int | None = None, seed: int | None = None) -> Community:
        """Return users that check in at places of these cities; see `nearcast.workload.community`."""
        return gather(self.cities, users, places=places, seed=self.seed if seed is None else seed)

    def sample(self, rng: np.random.Generator, n: int) -> MessageSample:
        """Draw random messages of the archive."""
        xs, ys, _ = self.cities.draw(rng, n, seed=self.seed)
        positions = (rng.random(n) * self.archive).astype(np.int64)
        return MessageSample(*self._placed(rng, (xs, ys), positions), self._write(rng, positions))

    def _block(self, number: int, community: Community | None) -> pa.Table:
        first = number * BLOCK
        positions = np.arange(first, first + BLOCK)
        written = generator(self.seed, f"{self.name}/texts", number)
        texts = self._write(written, positions)
        firsts = np.arange(BLOCK)  # the messages at whose points messages lie
        if self.events is not None:
            origins = self.events.origins(generator(self.seed, f"{self.name}/events", number), BLOCK)
            firsts = first_origins(origins)
            added = self._draw_terms(written, positions, np.ones(BLOCK, np.int64))
            texts = self.events.revise(written, texts, added, origins, size=self.words.size)
        where = generator(self.seed, f"{self.name}/where", number)
        columns = {
            "id": numbered("m", first, BLOCK),
            "text": texts.spelt(self.terms()),
            "at": pa.array(_EPOCH_US + np.floor(self._times(number) * (_US / self.rate)).astype(np.int64)).cast(
                MESSAGES.field("at").type
            ),
        }
        if community is None:
            xs, ys, _ = self.cities.draw(where, BLOCK, seed=self.seed)
            xs, ys = self._placed(where, (xs, ys), positions)
            columns["x"], columns["y"] = xs[firsts], ys[firsts]
        else:
            places = community.visit(where, BLOCK)[firsts]
            columns["x"], columns["y"] = community.xs[places], community.ys[places]
            columns["place"] = named("p", places)
        return fill(MESSAGES, BLOCK, columns)

    def _times(self, number: int) -> Floats:
        """Return the times of the messages of a block, in messages of a regular stream."""
        first = number * BLOCK
        if self.events is None:
            return np.arange(first, first + BLOCK, dtype=np.float64)
        gaps = self.events.gaps(generator(self.seed, f"{self.name}/times", number), BLOCK)
        times: Floats = first + BLOCK * np.minimum(1.0, np.cumsum(gaps) - gaps[0])
        return times

    def _placed(self, rng: np.random.Generator, points: Points, positions: Ints) -> Points:
        """Return points, with those of hot spots at some positions of the stream, and those of sites."""
        if self.events is not None:
            points = self.events.place(rng, points, cities=self.cities, seed=self.seed)
        if self.drift is not None:
            points = self.drift.place(rng, points, positions, cities=self.cities, seed=self.seed)
        return points

    def _sizes(self, positions: Ints) -> Ints:
        """Return the number of terms available to the message at each position."""
        grown = ((positions + self.lead) / self.archive) ** self.heaps
        sizes: Ints = np.maximum(1, self.words.size * np.minimum(1.0, grown)).astype(np.int64)
        return sizes

    def _write(self, rng: np.random.Generator, positions: Ints) -> TermRanks:
        """Return the terms of messages at some positions of the stream."""
        texts = self._draw_terms(rng, positions, self._count(rng, len(positions)))
        if self.events is None:
            return texts
        return self.events.write(rng, texts, size=self.words.size, seed=self.seed)

    def _draw_terms(self, rng: np.random.Generator, positions: Ints, counts: Ints) -> TermRanks:
        """Return so many terms by the law of the workload for messages at some positions, each term once."""
        n = len(positions)
        indptr = start_of(counts)
        sizes = np.repeat(self._sizes(positions), counts)
        ranks = self.words.draw(rng.random(len(sizes)), sizes=sizes)
        follows = rng.random(len(sizes)) < self.phrases
        follows[indptr[:-1]] = False  # the first term of a message has no predecessor
        follows[1:] &= ~follows[:-1]
        at = np.flatnonzero(follows)
        partners = ranks[at - 1] ^ 1
        ranks[at] = np.where(partners < sizes[at], partners, ranks[at])
        if self.drift is not None:
            owners = np.repeat(np.arange(n), counts)
            of_messages = self._sizes(positions)
            ranks = self.drift.write(rng, ranks, owners, positions, sizes=of_messages, seed=self.seed)
        return TermRanks(indptr, ranks).distinct()

    def _count(self, rng: np.random.Generator, n: int) -> Ints:
        """Return the number of terms of each message: 1 + a sum of geometric numbers, which is negative binomial."""
        if self.terms_mean == 1:
            return np.ones(n, dtype=np.int64)
        success = self.terms_shape / (self.terms_shape + self.terms_mean - 1)
        failures = np.floor(np.log(1.0 - rng.random((self.terms_shape, n))) / np.log(1.0 - success))
        counts: Ints = 1 + failures.sum(axis=0).astype(np.int64)
        return counts


_AMERICA = Box(-125.0, 24.5, -66.5, 49.5)

WORKLOADS = (
    Workload(
        name="tweets",
        words=Zipf(1_700_000, exponent=1.0, shift=35.0),
        cities=Cities(_AMERICA, sizes=Zipf(400, exponent=0.9), spread_m=20e3, spread_min_m=3e3, rural=0.05),
        terms_mean=9.0,
        terms_shape=4,
        phrases=0.2,
        archive=12_700_000,
        heaps=0.65,
    ),
    Workload(
        name="places",
        words=Zipf(53_931, exponent=1.0, shift=10.0),
        cities=Cities(_AMERICA, sizes=Zipf(2_000, exponent=0.8), spread_m=40e3, spread_min_m=5e3, rural=0.2),
        terms_mean=2.94,
        terms_shape=4,
        phrases=0.2,
        archive=9_356_750,
    ),
    Workload(
        name="reviews",
        words=Zipf(85_000, exponent=1.0, shift=100.0),
        cities=Cities(_AMERICA, sizes=Zipf(100, exponent=0.8), spread_m=20e3, spread_min_m=5e3, rural=0.02),
        terms_mean=37.0,
        terms_shape=2,
        phrases=0.2,
        archive=1_600_000,
    ),
    Workload(
        name="drift",
        words=Zipf(200_000, exponent=1.0, shift=35.0),
        cities=Cities(_AMERICA, sizes=Zipf(400, exponent=0.9), spread_m=20e3, spread_min_m=3e3, rural=0.05),
        terms_mean=9.0,
        terms_shape=4,
        phrases=0.2,
        archive=40_000_000,
        drift=Drift(
            hot=0.5, spots=3, spread_m=30e3, stay=4_000_000, topical=1 / 3, topics=20, topic_terms=12, life=1_000_000
        ),
    ),
    Workload(
        name="incidents",
        words=Zipf(20_000, exponent=1.2, shift=60.0),
        cities=Cities(
            Box(141.0, -37.6, 153.7, -28.1), sizes=Zipf(60, exponent=1.4), spread_m=25e3, spread_min_m=3e3, rural=0.1
        ),
        terms_mean=9.0,
        terms_shape=1,
        phrases=0.2,
        archive=264_797,
        events=Events(),
    ),
)


def make(name: str, *, seed: int = 0, rate: float | None = None) -> Workload:
    """Return a workload by name.

    >>> make("reviews", seed=3).seed
    3
    >>> make("novels")
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: workload must be one of tweets, places, reviews, drift, incidents; got 'novels'
    """
    named_so = {workload.name: workload for workload in WORKLOADS}
    require(name in named_so, "workload", f"must be one of {', '.join(named_so)}", name)
    found = named_so[name]
    return replace(found, seed=seed, rate=found.rate if rate is None else rate)


@lru_cache(maxsize=4)
def _vocabulary(workload: Workload, sample: int) -> Vocabulary:
    counted = np.zeros(workload.words.size, dtype=np.int64)
    for number, first in enumerate(range(0, sample, BLOCK)):
        rng = generator(workload.seed, f"{workload.name}/vocabulary", number)
        texts = workload.sample(rng, BLOCK).texts
        n = min(BLOCK, sample - first)
        np.add.at(counted, texts.ranks[: texts.indptr[n]], 1)
    ranks = np.flatnonzero(counted)
    spelt = workload.terms().take(pa.array(ranks)).to_pylist()
    return Vocabulary(documents=sample, frequencies=dict(zip(spelt, counted[ranks].tolist(), strict=True)))
