"""Do the paper's indexes of kind `nearest` answer as the reference does, whatever the bars?"""

import os
import random
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from modes import check_passes
from nearcast.model import Cohort, Meaning, Message, MessageBatch, NearestSubscription
from nearcast.social import SocialGraph
from nearcast.space import Box, Space
from nearcast.testing import strategies as world
from nearcast.text import TEXT_SIMILARITIES, Vocabulary

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.baselines.nearest import Grid, Inverted

SMALL = "NEARCAST_TEST_SMALL" in os.environ
"""Set for the pass without compiled code."""
ROUNDS, N, M = (2, 30, 4) if SMALL else (5, 160, 20)

MAKERS = {"inverted": Inverted, "grid": Grid, "grid of few cells": partial(Grid, cells=4)}
SPACES = {
    "plane": world.PLANE,
    "earth": Space.earth(),
    "flat": Space(Box(-3, 10, 5, 11)),
    "dot": Space(Box(0, 0, 0, 0), max_distance=7),
    "huge": Space(Box(-1e308, -1e308, 1e308, 1e308), max_distance=1e300),
}
TERMS = [f"t{i}" for i in range(24)]


class Twin:
    """An index, and beside it what it must know."""

    def __init__(self, make, space, seed):
        self.rng, self.space = random.Random(seed), space
        vocabulary = Vocabulary.with_weights({})
        self.meaning = Meaning(space, vocabulary, SocialGraph([]), TEXT_SIMILARITIES["containment"])
        self.index = make(self.meaning)
        self.scorers, self.bars = {}, {}
        b = space.bounds
        self.centres = [(b.xmin, b.ymin), (b.xmax, b.ymax), (b.xmin, b.ymax), (b.xmin / 2 + b.xmax / 2, b.ymin)]

    def point(self):
        """Near corners and edges, at very different scales, or anywhere."""
        (x, y), b, rng = self.rng.choice(self.centres), self.space.bounds, self.rng
        spread = rng.choice([0.0, 1e-9, 1e-5, 0.01, 0.5, 3.0, 200.0])
        x, y = x + rng.uniform(-spread, spread), y + rng.uniform(-spread, spread)
        return float(min(max(x, b.xmin), b.xmax)), float(min(max(y, b.ymin), b.ymax))

    def words(self, most):
        return [TERMS[min(int(self.rng.expovariate(0.2)), 23)] for _ in range(self.rng.randint(1, most))]

    def batch(self):
        said = [Message("m", self.point(), self.words(9) if self.rng.random() < 0.9 else []) for _ in range(M)]
        return MessageBatch.from_messages(said, vocabulary=self.meaning.vocabulary)

    def insert(self, slots):
        made = [NearestSubscription("s", location=self.point(), keywords=self.words(6), k=1) for _ in slots]
        self.index.insert(np.array(slots, np.int32), Cohort.of(made, self.meaning))
        for slot, one in zip(slots, made, strict=True):
            self.scorers[slot], self.bars[slot] = one.bind(self.meaning), np.inf

    def delete(self, slots):
        self.index.delete(np.array(slots, np.int32))
        for slot in slots:
            del self.scorers[slot], self.bars[slot]

    def move_bars(self, batch):
        """Set most bars: to distances that occur, right beside them, to nothing, to less, or open again."""
        moved, rng = {}, self.rng
        for slot in rng.sample(sorted(self.bars), len(self.bars) * 2 // 3):
            distances = [s for d in batch.documents if (s := self.scorers[slot](d)) is not None]
            exact = rng.choice(distances or [0.5])
            beside = [np.nextafter(exact, np.inf), np.nextafter(exact, -1)]
            moved[slot] = rng.choice([exact, *beside, exact * rng.random(), 0.0, np.inf])
        self.index.set_bars(np.array(list(moved), np.int32), np.array(list(moved.values())))
        self.bars.update(moved)

    def check(self, batch):
        want = {}
        for row, document in enumerate(batch.documents):
            for slot, score_of in self.scorers.items():
                score, bar = score_of(document), self.bars[slot]
                if score is not None and (score < bar or bar == np.inf):
                    want[row, slot] = score
        rows, slots, scores = self.index.match(batch, 0, len(batch))
        got = dict(zip(zip(rows.tolist(), slots.tolist(), strict=True), scores.tolist(), strict=True))
        assert len(got) == len(rows), "a pair was reported twice"
        assert got == want
        work = self.index.work
        assert work.matched <= work.verified <= work.candidates <= work.visited
        return len(want)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_any_space_is_answered_as_the_reference_does(make, space):
    twin, n_found = Twin(make, space, 3), 0
    for _ in range(ROUNDS):
        free = [slot for slot in range(2 * N) if slot not in twin.bars]
        twin.insert(twin.rng.sample(free, N // 2))
        said = twin.batch()
        n_found += twin.check(said)
        twin.move_bars(said)
        n_found += twin.check(said)
        twin.delete(twin.rng.sample(sorted(twin.bars), len(twin.bars) // 3))
        n_found += twin.check(said) + twin.check(twin.batch())
    twin.delete(sorted(twin.bars))
    assert twin.check(twin.batch()) == 0
    assert n_found > 0


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_tiny_buffers_give_the_same_answers_and_count_work_once(make):
    small, large = (Twin(partial(make, room=room), world.GLOBE, 5) for room in (1, 4096))
    for twin in (small, large):
        twin.insert(range(N))
    assert small.check(small.batch()) == large.check(large.batch()) > 1
    assert small.index.work == large.index.work


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_slots_that_are_not_here_have_no_bar_to_set(make):
    twin = Twin(make, world.PLANE, 8)
    twin.insert(range(8))
    twin.delete([3])
    twin.index.set_bars(np.array([3], np.int32), np.array([0.5]))
    twin.index.delete(np.array([3], np.int32))
    assert twin.check(twin.batch()) > 0


def test_a_grid_visits_less_where_balls_are_small():
    visited = {}
    for name, make in MAKERS.items():
        twin = Twin(make, Space(Box(0, 0, 400, 400)), 9)
        twin.insert(range(4 * N))
        twin.index.set_bars(np.arange(4 * N, dtype=np.int32), np.full(4 * N, 2.0))
        twin.bars = dict.fromkeys(twin.bars, 2.0)
        said = twin.batch()
        twin.check(said)  # sweeps what is stale away with the next change
        twin.index.set_bars(np.zeros(0, np.int32), np.zeros(0))
        before = twin.index.work.visited
        twin.check(said)
        visited[name] = twin.index.work.visited - before
    assert visited["grid"] < visited["grid of few cells"] < visited["inverted"]


def test_what_is_stale_goes_after_a_message_has_met_it():
    twin = Twin(Grid, Space.earth(), 10)
    twin.insert(range(N))
    twin.delete(range(1, N))
    everything = MessageBatch.from_messages([Message("m", (0, 0), TERMS)], vocabulary=twin.meaning.vocabulary)
    twin.check(everything)
    twin.index.set_bars(np.zeros(0, np.int32), np.zeros(0))
    before = twin.index.work
    twin.check(everything)
    after = twin.index.work
    assert after.visited - before.visited == after.candidates - before.candidates


@pytest.mark.skipif(SMALL, reason="is one of the passes itself")
def test_all_of_this_holds_uncompiled():
    """Plain Python refuses a place beyond an array by itself, so rivals are not compiled again with bounds checks."""
    check_passes("uncompiled", __file__, NEARCAST_TEST_SMALL="1")
