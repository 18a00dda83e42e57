"""Do the paper's indexes of kind `nearest` answer as the reference does, whatever the bars?"""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from modes import check_passes
from nearcast.model import Message, MessageBatch, NearestSubscription, ScoringContext
from nearcast.social import SocialGraph
from nearcast.space import Box, Space
from nearcast.testing import strategies as projection
from nearcast.text import TEXT_SIMILARITIES, Vocabulary
from twins import SMALL, TERMS, N, Twin, live_through

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.baselines.nearest import Grid, Inverted

MAKERS = {"inverted": Inverted, "grid": Grid, "grid of few cells": partial(Grid, cells=4)}
SPACES = {
    "plane": projection.PLANE,
    "earth": Space.earth(),
    "flat": Space(Box(-3, 10, 5, 11)),
    "dot": Space(Box(0, 0, 0, 0), max_distance=7),
    "huge": Space(Box(-1e308, -1e308, 1e308, 1e308), max_distance=1e300),
}


class Nearest(Twin):
    """An index of kind `nearest`, and beside it what it must know."""

    open_threshold = np.inf

    def __init__(self, make, space, seed):
        vocabulary = Vocabulary.with_weights({})
        super().__init__(
            make, ScoringContext(space, vocabulary, SocialGraph([]), TEXT_SIMILARITIES["containment"]), seed
        )

    def subscription(self):
        return NearestSubscription("s", location=self.point(), keywords=self.words(6), k=1)

    def passes(self, score, threshold):
        return score < threshold or threshold == np.inf

    def threshold_near(self, exact):
        beside = [np.nextafter(exact, np.inf), np.nextafter(exact, -1)]
        return self.rng.choice([exact, *beside, exact * self.rng.random(), 0.0, np.inf])


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_any_space_is_answered_as_the_reference_does(make, space):
    live_through(Nearest(make, space, 3))


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_tiny_buffers_give_the_same_answers_and_count_work_once(make):
    small, large = (Nearest(partial(make, room=room), projection.GLOBE, 5) for room in (1, 4096))
    for twin in (small, large):
        twin.insert(range(N))
    assert small.check(small.batch()) == large.check(large.batch()) > 1
    assert small.index.work == large.index.work


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_slots_that_are_not_here_have_no_bar_to_set(make):
    twin = Nearest(make, projection.PLANE, 8)
    twin.insert(range(8))
    twin.delete([3])
    twin.index.set_thresholds(np.array([3], np.int32), np.array([0.5]))
    twin.index.delete(np.array([3], np.int32))
    assert twin.check(twin.batch()) > 0


def test_a_grid_visits_less_where_balls_are_small():
    visited = {}
    for name, make in MAKERS.items():
        twin = Nearest(make, Space(Box(0, 0, 400, 400)), 9)
        twin.insert(range(4 * N))
        twin.index.set_thresholds(np.arange(4 * N, dtype=np.int32), np.full(4 * N, 2.0))
        twin.thresholds = dict.fromkeys(twin.thresholds, 2.0)
        said = twin.batch()
        twin.check(said)  # sweeps what is stale away with the next change
        twin.index.set_thresholds(np.zeros(0, np.int32), np.zeros(0))
        before = twin.index.work.visited
        twin.check(said)
        visited[name] = twin.index.work.visited - before
    assert visited["grid"] < visited["grid of few cells"] < visited["inverted"]


def test_what_is_stale_goes_after_a_message_has_met_it():
    twin = Nearest(Grid, Space.earth(), 10)
    twin.insert(range(N))
    twin.delete(range(1, N))
    everything = MessageBatch.from_messages([Message("m", (0, 0), TERMS)], vocabulary=twin.scoring.vocabulary)
    twin.check(everything)
    twin.index.set_thresholds(np.zeros(0, np.int32), np.zeros(0))
    before = twin.index.work
    twin.check(everything)
    after = twin.index.work
    assert after.visited - before.visited == after.candidates - before.candidates


@pytest.mark.skipif(SMALL, reason="is one of the passes itself")
def test_all_of_this_holds_uncompiled():
    """Plain Python refuses a place beyond an array by itself, so rivals are not compiled again with bounds checks."""
    check_passes("uncompiled", __file__, NEARCAST_TEST_SMALL="1")
