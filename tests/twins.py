"""Twins: an index beside the reference scores of its subscriptions; and sources of random data.

source ── subscriptions, messages ──> twin ── insert, delete, set_thresholds, match ──> index
                                        └── the same by the reference scorers ──> must be equal
"""

import os
import random

import numpy as np

from nearcast.model import Message, MessageBatch, ScoringContext, SocialSubscription, SubscriptionBatch
from nearcast.social import SocialGraph
from nearcast.space import Box, Space
from nearcast.testing import strategies
from nearcast.text import TEXT_SIMILARITIES, Vocabulary

SMALL = "NEARCAST_TEST_SMALL" in os.environ
"""Set for the passes without compiled code and with checked bounds."""
ROUNDS, N, M = (2, 40, 6) if SMALL else (6, 200, 25)
"""Rounds of a lifecycle, subscriptions and messages."""
FEW = (2, 30, 4) if SMALL else (5, 160, 20)
"""The same for slow baselines."""

TERMS = [f"t{i}" for i in range(40)]
VOCABULARY = Vocabulary.with_weights({term: i * 0.37 % 3.1 if i % 7 else 0.0 for i, term in enumerate(TERMS)})

PLANE, GLOBE = strategies.PLANE, strategies.GLOBE
EDGES = Space.earth(max_distance=300_000.0)
METRE = Space.earth(max_distance=1.0)
HALF = Space.earth()
FLAT = Space(Box(-3, 10, 5, 11), max_distance=0.5)
DOT = Space(Box(0, 0, 0, 0), max_distance=7)
HUGE = Space(Box(-1e308, -1e308, 1e308, 1e308), max_distance=1e300)
TINY = Space(Box(0, 0, 1e-320, 1e-320), max_distance=1)


def scoring_of(space, text="containment", vocabulary=VOCABULARY, edges=()):
    return ScoringContext(space, vocabulary, SocialGraph(edges), TEXT_SIMILARITIES[text])


class GridSource:
    """Few locations, few terms, dyadic weights: scores often tie. `make(source)` draws a subscription."""

    vocabulary = strategies.vocabulary()

    def __init__(self, space, seed, make):
        self.space, self.rng, self._make = space, random.Random(seed), make

    def point(self):
        return self.rng.choice(strategies.GRID[self.space])

    def terms(self, most=5, least=1):
        return self.rng.choices(strategies.TERMS, k=self.rng.randint(least, most))

    def share(self):
        return self.rng.choice(strategies.SHARES)

    def subscription(self):
        return self._make(self)

    def message(self):
        return Message("m", self.point(), self.rng.choices([*strategies.TERMS, "new"], k=self.rng.randint(0, 6)))


class ClusteredSource:
    """Clusters at very different scales, at corners, poles and the antimeridian; terms of very different weights."""

    vocabulary = VOCABULARY

    def __init__(self, space, seed, make):
        self.space, self.rng, self._make = space, random.Random(seed), make
        b = space.bounds
        self.centres = [(b.xmin, b.ymin), (b.xmax, b.ymax), (b.xmin, b.ymin / 2 + b.ymax / 2), (b.xmax, b.ymin)]
        self.centres += [self.anywhere() for _ in range(4)]

    def anywhere(self):
        b, (s, t) = self.space.bounds, (self.rng.random(), self.rng.random())
        return b.xmin * (1 - s) + b.xmax * s, b.ymin * (1 - t) + b.ymax * t

    def point(self):
        (x, y), b = self.rng.choice(self.centres), self.space.bounds
        spread = self.rng.choice([0.0, 1e-9, 1e-5, 0.01, 0.5, 3.0, 200.0])
        x, y = x + self.rng.uniform(-spread, spread), y + self.rng.uniform(-spread, spread)
        if self.space.metric == "haversine" and 180 < abs(x) < 540:
            x -= 360 * np.sign(x)
        return float(min(max(x, b.xmin), b.xmax)), float(min(max(y, b.ymin), b.ymax))

    def terms(self, most=9, least=1):
        n_terms = self.rng.randint(least, most)
        return [TERMS[min(int(self.rng.expovariate(0.12)), len(TERMS) - 1)] for _ in range(n_terms)]

    def share(self):
        return self.rng.choice([0.0, 1.0, 0.9999, self.rng.random(), self.rng.random()])

    def subscription(self):
        return self._make(self)

    def message(self):
        return Message("m", self.point(), self.terms(12) if self.rng.random() < 0.9 else [])


class HotSource(ClusteredSource):
    """Subscriptions that nearly all share a term."""

    vocabulary = Vocabulary.with_weights({"hot": 1.0, "warm": 1.25, "cold": 4.0, "rare": 6.0})

    def terms(self, most=0, least=0):
        return self.rng.choice(["hot", "hot warm", "hot cold", "warm hot cold", "rare hot", "rare"])

    def message(self):
        text = self.rng.choice(["hot", "warm hot", "rare cold hot", "hot hot cold", "cold", ""])
        return Message("m", self.point(), text)


def found(index, batch, start=0, stop=None):
    """Return the matches of an index by row and slot, after checking their form."""
    rows, slots, scores = index.match(batch, start, len(batch) if stop is None else stop)
    assert (rows.dtype, slots.dtype, scores.dtype) == (np.int64, np.int32, np.float64)
    assert np.all(np.diff(rows) >= 0)
    pairs = dict(zip(zip(rows.tolist(), slots.tolist(), strict=True), scores.tolist(), strict=True))
    assert len(pairs) == len(rows), "a pair was reported twice"
    return pairs


class Twin:
    """An index, and beside it the reference scorers and thresholds of its subscriptions."""

    open_threshold = -np.inf
    """Threshold of a subscription that was just inserted."""
    tolerance = 0.0
    """Greatest difference of a score from the reference; 0 means equal to the last bit."""

    def __init__(self, make_index, source, *, scoring=None, seed=0):
        self.rng, self.source = random.Random(seed), source
        self.scoring = scoring or scoring_of(source.space, vocabulary=source.vocabulary)
        self.index = make_index(self.scoring)
        self.scorers, self.thresholds = {}, {}

    def passes(self, score, threshold):
        """Report whether a score must be reported."""
        return score >= threshold

    def threshold_near(self, exact):
        """Draw a threshold: a score that occurs, the next float, any value, or open."""
        beside = [np.nextafter(exact, 9), np.nextafter(exact, -9), exact + 0.01]
        return self.rng.choice([exact, exact, *beside, self.rng.random(), -np.inf, np.inf])

    def batch(self, n=M):
        return self.batch_of([self.source.message() for _ in range(n)])

    def batch_of(self, messages):
        return MessageBatch.from_messages(messages, vocabulary=self.scoring.vocabulary)

    def insert(self, subscriptions):
        """Insert subscriptions by slot, or draw them for some slots."""
        if not isinstance(subscriptions, dict):
            subscriptions = {slot: self.source.subscription() for slot in subscriptions}
        batch = SubscriptionBatch.of(list(subscriptions.values()), self.scoring)
        self.index.insert(np.array(list(subscriptions), np.int32), batch)
        for slot, subscription in subscriptions.items():
            self.scorers[slot] = subscription.bind(self.scoring)
            self.thresholds[slot] = self.open_threshold

    def delete(self, slots):
        self.index.delete(np.array(slots, np.int32))
        for slot in slots:
            del self.scorers[slot], self.thresholds[slot]

    def set_thresholds(self, thresholds):
        slots, values = np.array(list(thresholds), np.int32), np.array(list(thresholds.values()), np.float64)
        self.index.set_thresholds(slots, values)
        self.thresholds.update(thresholds)

    def move_thresholds(self, batch):
        """Set most thresholds to values near scores that occur."""
        moved = {}
        for slot in self.rng.sample(sorted(self.thresholds), max(1, len(self.thresholds) * 2 // 3)):
            scores = [s for d in batch.documents if (s := self.scorers[slot](d)) is not None]
            moved[slot] = self.threshold_near(self.rng.choice(scores or [0.5]))
        self.set_thresholds(moved)

    def expected(self, batch, start=0, stop=None):
        """Return the matches of the reference by row and slot."""
        return {
            (row, slot): score
            for row in range(start, len(batch) if stop is None else stop)
            for slot, score_of in self.scorers.items()
            if (score := score_of(batch.documents[row])) is not None and self.passes(score, self.thresholds[slot])
        }

    def check(self, batch, start=0, stop=None):
        """Match, compare with the reference, and return the matches."""
        want, got = self.expected(batch, start, stop), found(self.index, batch, start, stop)
        if self.tolerance:
            assert set(got) == set(want)
            assert all(abs(got[pair] - want[pair]) <= self.tolerance for pair in want)
        else:
            assert got == want
        work = self.index.work
        assert work.matched <= work.verified <= work.candidates <= work.visited
        return want


class FixedTwin(Twin):
    """The twin of an index whose kind has no thresholds: every scored pair is a match."""

    def passes(self, score, threshold):
        return True

    def move_thresholds(self, batch):
        """Do nothing."""


USERS, PLACES = [f"u{i}" for i in range(40)], [f"p{i}" for i in range(25)]


class SocialSource(ClusteredSource):
    """Users with one place or many; places with users and without, unknown ones, and none at all."""

    def __init__(self, space, seed):
        super().__init__(space, seed, make=None)

    def edges(self):
        rng = self.rng
        return {(user, rng.choice(PLACES[:20])) for user in USERS for _ in range(rng.choice([1, 1, 2, 4, 9]))}

    def subscription(self):
        return SocialSubscription("s", self.point(), self.terms(8), k=1, user=self.rng.choice(USERS))

    def message(self):
        place = self.rng.choice([*PLACES, None, "nowhere"])
        return Message("m", self.point(), self.terms(9, least=0), place=place)


class SocialTwin(Twin):
    """A twin with a social graph, and thresholds up to 3."""

    def __init__(self, make_index, space, seed):
        source = SocialSource(space, seed + 1)
        scoring = scoring_of(space, "dice", source.vocabulary, source.edges())
        super().__init__(make_index, source, scoring=scoring, seed=seed)

    def threshold_near(self, exact):
        return self.rng.choice([super().threshold_near(exact), self.rng.uniform(0, 1.2), self.rng.uniform(1, 3)])


def run_lifecycle(twin, check=lambda: None, *, sizes=(ROUNDS, N, M)):
    """Insert, move thresholds, delete and match in turns, with slots reused; compare after each step."""
    (rounds, n, m), n_found = sizes, 0
    for _ in range(rounds):
        free = [slot for slot in range(2 * n) if slot not in twin.thresholds]
        twin.insert(twin.rng.sample(free, n // 2))
        batch = twin.batch(m)
        n_found += len(twin.check(batch))
        twin.move_thresholds(batch)
        check()
        n_found += len(twin.check(batch))
        twin.delete(twin.rng.sample(sorted(twin.thresholds), len(twin.thresholds) // 3))
        check()
        n_found += len(twin.check(batch)) + len(twin.check(twin.batch(m)))
    twin.delete(sorted(twin.thresholds))
    check()
    assert twin.check(twin.batch(m)) == {}
    assert n_found > 0
