"""The paper's baselines of kind `nearest` find what the reference finds, whatever the thresholds."""

from functools import partial

import numpy as np
import pytest

import index_checks
from modes import check_passes
from nearcast.model import Message, NearestSubscription
from nearcast.space import Box, Space
from nearcast_baselines.nearest import Grid, Inverted
from twins import DOT, FEW, GLOBE, HUGE, PLANE, SMALL, TERMS, ClusteredSource, Twin, run_lifecycle

pytestmark = pytest.mark.soak  # compiling them takes long, and only benchmarks use them

MAKERS = {"inverted": Inverted, "grid": Grid, "grid of few cells": partial(Grid, cells=4)}
SPACES = {"plane": PLANE, "earth": Space.earth(), "flat": Space(Box(-3, 10, 5, 11)), "dot": DOT, "huge": HUGE}
_, N, M = FEW


def subscription_from(source):
    return NearestSubscription("s", location=source.point(), keywords=source.terms(6), k=1)


class NearestTwin(Twin):
    """A twin in which small scores are good."""

    open_threshold = np.inf

    def __init__(self, make, space, seed):
        super().__init__(make, ClusteredSource(space, seed + 1, subscription_from), seed=seed)

    def passes(self, score, threshold):
        return score < threshold or threshold == np.inf

    def threshold_near(self, exact):
        beside = [np.nextafter(exact, np.inf), np.nextafter(exact, -1)]
        return self.rng.choice([exact, *beside, exact * self.rng.random(), 0.0, np.inf])


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_matches_equal_the_reference_in_every_space(make, space):
    run_lifecycle(NearestTwin(make, space, 3), sizes=FEW)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_small_buffers_give_the_same_matches_and_count_work_once(make):
    index_checks.check_small_buffers(
        *(NearestTwin(partial(make, room=room), GLOBE, 5) for room in (1, 4096)), n=N, m=M
    )


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_thresholds_of_free_slots_are_ignored(make):
    index_checks.check_free_slots(NearestTwin(make, PLANE, 8), M)


def test_a_grid_visits_less_where_thresholds_are_small():
    visited = {}
    for name, make in MAKERS.items():
        twin = NearestTwin(make, Space(Box(0, 0, 400, 400)), 9)
        twin.insert(range(4 * N))
        twin.set_thresholds(dict.fromkeys(twin.thresholds, 2.0))
        batch = twin.batch(M)
        twin.check(batch)  # finds stale entries, which the next change removes
        twin.index.set_thresholds(np.zeros(0, np.int32), np.zeros(0))
        before = twin.index.work.visited
        twin.check(batch)
        visited[name] = twin.index.work.visited - before
    assert visited["grid"] < visited["grid of few cells"] < visited["inverted"]


def test_stale_entries_are_removed_after_a_message_found_them():
    twin = NearestTwin(Grid, Space.earth(), 10)
    twin.insert(range(N))
    twin.delete(range(1, N))
    batch = twin.batch_of([Message("m", (0, 0), TERMS)])
    twin.check(batch)
    twin.index.set_thresholds(np.zeros(0, np.int32), np.zeros(0))
    before = twin.index.work
    twin.check(batch)
    after = twin.index.work
    assert after.visited - before.visited == after.candidates - before.candidates


@pytest.mark.soak
@pytest.mark.skipif(SMALL, reason="is one of the passes itself")
def test_these_tests_pass_uncompiled():
    """Plain Python checks bounds by itself, so baselines are not compiled again with bounds checks."""
    check_passes("uncompiled", __file__, NEARCAST_TEST_SMALL="1")
