"""The index of kind `social` finds what the reference finds, whatever the thresholds, with less work."""

import random
from functools import partial

import numpy as np
import pytest

from modes import MODES, check_passes
from nearcast._jit import Arena
from nearcast.index.social import SocialIndex
from nearcast.model import Message, MessageBatch, ScoringContext, SocialSubscription, SubscriptionBatch
from nearcast.model.profiles import Profiles
from nearcast.space import Box, Space
from nearcast.testing import strategies
from nearcast.text import TEXT_SIMILARITIES
from nearcast.workload import make
from twins import (
    DOT,
    EDGES,
    FLAT,
    GLOBE,
    HALF,
    HUGE,
    METRE,
    PLACES,
    PLANE,
    SMALL,
    TINY,
    USERS,
    M,
    N,
    SocialTwin,
    run_lifecycle,
)

SPACES = {
    "half": HALF,
    "near": EDGES,
    "metre": METRE,
    "flat": FLAT,
    "dot": DOT,
    "tiny": TINY,
    "huge": HUGE,
    "plane": PLANE,
    "globe": GLOBE,
}


def twin_of(space, seed, **options):
    return SocialTwin(partial(SocialIndex, **options), space, seed)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("seed", range(2))
def test_matches_equal_the_reference_in_every_space(space, seed):
    run_lifecycle(twin_of(space, seed, room=16))


def test_changes_of_the_graph_take_effect_at_once():
    twin, rng = twin_of(PLANE, 3), random.Random(3)
    twin.insert(range(N))
    graph = twin.scoring.social
    for _ in range(8):
        twin.move_thresholds(twin.batch())
        graph.add_edges([(rng.choice([*USERS, "new"]), rng.choice([*PLACES, "another"])) for _ in range(3)])
        graph.remove_edges(rng.sample(graph.edges(), 2))
        twin.check(twin.batch())


SINGLE_WAYS = {
    "graph": (Message("m", (8, 8), ["x"], place="p0"), 1.0, 0.5),
    "terms": (Message("m", (8, 8), ["a", "b"], place=None), 1.0, 0.5),
    "nearness": (Message("m", (0, 0), ["x"], place=None), 1.0, 0.9),
}


@pytest.mark.parametrize("way", SINGLE_WAYS)
def test_each_way_to_find_a_subscription_suffices(way):
    message, score, below = SINGLE_WAYS[way]
    scoring = strategies.scoring(Space(Box(0, 0, 8, 8), max_distance=4))
    index = SocialIndex(scoring)
    subscription = SocialSubscription("s", (0, 0), ["a", "b"], k=1, user="u0")
    index.insert(np.array([3], np.int32), SubscriptionBatch.of([subscription], scoring))
    batch = MessageBatch.from_messages([message], vocabulary=scoring.vocabulary)
    for threshold, n in ((below, 1), (score, 1), (np.nextafter(score, 2), 0)):
        index.set_thresholds(np.array([3], np.int32), np.array([threshold]))
        matches = index.match(batch, 0, 1)
        assert matches.scores.tolist() == [score] * n


def test_deletion_frees_all_memory_for_reuse():
    twin = twin_of(PLANE, 5)
    for _ in range(3):
        twin.insert(range(N))
        twin.move_thresholds(twin.batch())
        twin.check(twin.batch())
        twin.delete(list(range(N)))
    index = twin.index
    assert index.match(twin.batch(), 0, M).slots.size == 0
    assert index._terms.arrays.lengths.sum() == index._users.arrays.lengths.sum() == 0
    assert index._open.arrays.lengths.sum() == 0
    size = index._arena.nbytes
    twin.insert(range(N // 2))
    assert index._arena.nbytes == size


def test_an_arena_holds_the_whole_index(tmp_path):
    twin = twin_of(GLOBE, 6, arena=Arena(tmp_path / "arena"))
    twin.insert(range(N))
    twin.move_thresholds(twin.batch())
    twin.index._arena.flush()
    twin.index = SocialIndex(twin.scoring, arena=Arena.attach(tmp_path / "arena"))
    twin.check(twin.batch())


def test_profiles_may_be_rewritten_by_a_result_store():
    twin = twin_of(PLANE, 7)
    subscriptions = {slot: twin.source.subscription() for slot in range(N)}
    twin.insert(subscriptions)
    profiles, slots = Profiles(twin.index._arena), np.arange(N, dtype=np.int32)
    profiles.delete(slots)
    batch = SubscriptionBatch.of(list(subscriptions.values()), twin.scoring)
    profiles.insert(slots[::-1].copy(), batch.take(slots[::-1].astype(np.int64)).columns)
    twin.check(twin.batch())
    twin.delete(list(range(0, N, 2)))
    twin.check(twin.batch())


@pytest.mark.skipif(SMALL, reason="the share of candidates is that of a large index")
def test_few_subscriptions_are_candidates_on_tweets():
    workload, n = make("tweets"), 3000
    community = workload.social(n)
    scoring = ScoringContext(workload.space(), workload.vocabulary(), community.graph, TEXT_SIMILARITIES["dice"])
    index, rng = SocialIndex(scoring), np.random.default_rng(1)
    (table,) = workload.subscriptions("social", n, community=community)
    made = [
        SocialSubscription(row["id"], (row["x"], row["y"]), row["keywords"], row["k"], row["user"])
        for row in table.to_pylist()
    ]
    index.insert(np.arange(n, dtype=np.int32), SubscriptionBatch.of(made, scoring))
    index.set_thresholds(np.arange(n, dtype=np.int32), rng.normal(1.5, 0.25, n))
    messages = [
        Message(row["id"], (row["x"], row["y"]), row["text"], place=row["place"])
        for table in workload.messages(200, community=community)
        for row in table.to_pylist()
    ]
    index.match(MessageBatch.from_messages(messages, vocabulary=scoring.vocabulary), 0, 200)
    work = index.work
    assert work.visited <= 0.3 * 200 * n
    assert work.verified <= work.candidates <= 0.1 * 200 * n


@pytest.mark.soak
@pytest.mark.skipif(SMALL, reason="is one of the passes itself")
@pytest.mark.parametrize("mode", MODES)
def test_these_tests_pass_with(mode):
    check_passes(mode, __file__, NEARCAST_TEST_SMALL="1")
