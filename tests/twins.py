"""Does an index answer as the reference does? Lived through beside one: insert, move bars, delete, match."""

import os
import random
from abc import ABC, abstractmethod

import numpy as np

from nearcast.model import Message, MessageBatch, SubscriptionBatch

SMALL = "NEARCAST_TEST_SMALL" in os.environ
"""Set for the pass without compiled code."""
ROUNDS, N, M = (2, 30, 4) if SMALL else (5, 160, 20)
"""Rounds of a life, subscriptions and messages."""
TERMS = [f"t{i}" for i in range(24)]


class Twin(ABC):
    """An index, and beside it what it must know; what a kind asks and says is its own."""

    open_threshold = -np.inf
    """The bar of who was just inserted."""

    def __init__(self, make, scoring, seed):
        self.rng, self.scoring = random.Random(seed), scoring
        self.index = make(scoring)
        self.scorers, self.thresholds = {}, {}
        b = scoring.space.bounds
        self.centres = [(b.xmin, b.ymin), (b.xmax, b.ymax), (b.xmin, b.ymax), (b.xmin / 2 + b.xmax / 2, b.ymin)]

    @abstractmethod
    def subscription(self):
        """Draw a subscription."""

    def passes(self, score, threshold):
        """Tell whether a score must be reported."""
        return score >= threshold

    def threshold_near(self, exact):
        """Draw a bar: a score that occurs, right beside it, anywhere, or open."""
        beside = [np.nextafter(exact, 9), np.nextafter(exact, -9), exact + 0.01]
        return self.rng.choice([exact, exact, *beside, self.rng.uniform(0, 1), -np.inf, np.inf])

    def point(self):
        """Near corners and edges, at very different scales, or anywhere."""
        (x, y), b, rng = self.rng.choice(self.centres), self.scoring.space.bounds, self.rng
        spread = rng.choice([0.0, 1e-9, 1e-5, 0.01, 0.5, 3.0, 200.0])
        x, y = x + rng.uniform(-spread, spread), y + rng.uniform(-spread, spread)
        return float(min(max(x, b.xmin), b.xmax)), float(min(max(y, b.ymin), b.ymax))

    def words(self, most, least=1):
        return [TERMS[min(int(self.rng.expovariate(0.2)), 23)] for _ in range(self.rng.randint(least, most))]

    def message(self):
        return Message("m", self.point(), self.words(9) if self.rng.random() < 0.9 else [])

    def batch(self):
        said = [self.message() for _ in range(M)]
        return MessageBatch.from_messages(said, vocabulary=self.scoring.vocabulary)

    def insert(self, slots):
        made = [self.subscription() for _ in slots]
        self.index.insert(np.array(slots, np.int32), SubscriptionBatch.of(made, self.scoring))
        for slot, one in zip(slots, made, strict=True):
            self.scorers[slot], self.thresholds[slot] = one.bind(self.scoring), self.open_threshold

    def delete(self, slots):
        self.index.delete(np.array(slots, np.int32))
        for slot in slots:
            del self.scorers[slot], self.thresholds[slot]

    def move_thresholds(self, batch):
        """Set most bars."""
        moved = {}
        for slot in self.rng.sample(sorted(self.thresholds), len(self.thresholds) * 2 // 3):
            scores = [s for d in batch.documents if (s := self.scorers[slot](d)) is not None]
            moved[slot] = self.threshold_near(self.rng.choice(scores or [0.5]))
        self.index.set_thresholds(np.array(list(moved), np.int32), np.array(list(moved.values()), np.float64))
        self.thresholds.update(moved)

    def check(self, batch):
        """Match, hold it against the reference, and return how many pairs there are."""
        want = {
            (row, slot): score
            for row, document in enumerate(batch.documents)
            for slot, score_of in self.scorers.items()
            if (score := score_of(document)) is not None and self.passes(score, self.thresholds[slot])
        }
        rows, slots, scores = self.index.match(batch, 0, len(batch))
        assert np.all(np.diff(rows) >= 0)
        pairs = list(zip(rows.tolist(), slots.tolist(), strict=True))
        assert len(set(pairs)) == len(pairs), "a pair was reported twice"
        assert dict(zip(pairs, scores.tolist(), strict=True)) == want  # scores to the last bit
        work = self.index.work
        assert work.matched <= work.verified <= work.candidates
        return len(want)


def live_through(twin, look=lambda: None):
    """Insert, move bars, delete and match in turns, slots used again; compare after each."""
    n_found = 0
    for _ in range(ROUNDS):
        free = [slot for slot in range(2 * N) if slot not in twin.thresholds]
        twin.insert(twin.rng.sample(free, N // 2))
        said = twin.batch()
        n_found += twin.check(said)
        twin.move_thresholds(said)
        look()
        n_found += twin.check(said)
        twin.delete(twin.rng.sample(sorted(twin.thresholds), len(twin.thresholds) // 3))
        look()
        n_found += twin.check(said) + twin.check(twin.batch())
    twin.delete(sorted(twin.thresholds))
    look()
    assert twin.check(twin.batch()) == 0
    assert n_found > 0
