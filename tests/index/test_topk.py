"""The index of kind `topk` finds what the reference finds, whatever the thresholds, with less work."""

from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import index_checks
from index_checks import groups_of, replace_some
from modes import MODES, check_passes
from nearcast._jit import Arena
from nearcast.index._kernels.shared.grouped_postings import AT_X, AT_Y, AT_Z, LANES, TILE
from nearcast.index._kernels.topk.groups import order_key, sort_unsorted
from nearcast.index._kernels.topk.layout import AT_ALPHA, AT_OWN, AT_REST, AT_THRESHOLD, GROUPED
from nearcast.index._kernels.topk.match import bound_row, bound_tile, set_query
from nearcast.index.topk import TopKIndex
from nearcast.model import Message, MessageBatch, SubscriptionBatch, TopKSubscription
from nearcast.model.profiles import Profiles
from nearcast.testing import strategies
from nearcast.text import Vocabulary
from nearcast.workload import make
from twins import (
    DOT,
    EDGES,
    FLAT,
    GLOBE,
    HALF,
    HUGE,
    METRE,
    PLANE,
    ROUNDS,
    SMALL,
    TINY,
    ClusteredSource,
    GridSource,
    HotSource,
    N,
    Twin,
    run_lifecycle,
    scoring_of,
)

LONG = 150 if SMALL else 1500
"""Subscriptions that share a term, so that its list has groups."""
EXAMPLES = 5 if SMALL else 60
SPACES = {"edges": EDGES, "metre": METRE, "half": HALF, "flat": FLAT, "dot": DOT, "tiny": TINY, "huge": HUGE}


def subscription_from(source):
    return TopKSubscription("s", location=source.point(), keywords=source.terms(), k=1, alpha=source.share())


def grid_twin(space, seed=0, **options):
    return Twin(partial(TopKIndex, **options), GridSource(space, seed + 1, subscription_from), seed=seed)


def clustered_twin(space, seed=0, **options):
    return Twin(partial(TopKIndex, **options), ClusteredSource(space, seed + 1, subscription_from), seed=seed)


@pytest.mark.parametrize("space", strategies.SPACES, ids=lambda s: s.metric)
def test_ties_at_the_threshold_are_decided_as_by_the_reference(space):
    run_lifecycle(grid_twin(space, 1))


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_matches_equal_the_reference_in_every_space(space):
    run_lifecycle(clustered_twin(space, 3))


@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_matches_equal_the_reference_for_generated_data(data):
    space = data.draw(st.sampled_from(strategies.SPACES))
    twin = grid_twin(space, room=1)
    drawn = data.draw(st.lists(strategies.subscriptions("topk", space), min_size=1, max_size=12))
    twin.insert(dict(enumerate(drawn)))
    thresholds = st.sampled_from([-np.inf, 0.0, 0.25, 0.5, 0.75, 1.0, np.inf])
    twin.set_thresholds({slot: data.draw(thresholds) for slot in range(0, len(drawn), 2)})
    twin.delete(sorted(data.draw(st.sets(st.sampled_from(range(len(drawn)))))))
    batch = twin.batch_of(data.draw(st.lists(strategies.messages(space), max_size=6)))
    twin.check(batch)
    twin.set_thresholds(dict.fromkeys(twin.thresholds, -np.inf))
    twin.check(batch)


def hot_twin(space, seed=5):
    twin = Twin(TopKIndex, HotSource(space, seed + 1, subscription_from), seed=seed)
    twin.insert(range(LONG))
    return twin


@pytest.mark.parametrize("space", [EDGES, FLAT], ids=lambda s: s.metric)
def test_matches_on_long_lists_equal_the_reference(space):
    twin = hot_twin(space)
    for _ in range(ROUNDS):
        batch = twin.batch()
        twin.check(batch)
        twin.move_thresholds(batch)
        twin.check(batch)
        deleted = twin.rng.sample(sorted(twin.thresholds), len(twin.thresholds) // 3)
        twin.delete(deleted)
        twin.check(batch)
        twin.insert(deleted[: len(deleted) * 3 // 4])
        twin.check(twin.batch())
    for n_left in (LONG // 4, 20, 3, 0):
        twin.delete(sorted(twin.thresholds)[n_left:])
        twin.check(twin.batch())


def long_lists(state):
    for term in np.flatnonzero(state.lists.classes >= GROUPED):
        yield int(term), int(state.lists.starts[term]), int(state.lists.lengths[term])


def test_the_bound_of_a_group_is_never_below_that_of_its_postings():
    twin, rng = hot_twin(EDGES), np.random.default_rng(6)
    query, values, tops = np.zeros(8, np.float32), np.zeros(LANES, np.float32), np.zeros(TILE, np.float32)
    n_ruled_out = 0
    for step in range(ROUNDS):
        twin.move_thresholds(twin.batch())
        replace_some(twin, LONG // 10)
        if step % 2:  # no subscription is open, so some groups can be ruled out
            twin.set_thresholds({slot: twin.rng.uniform(0.9, 1.0) for slot in twin.thresholds})
        state = twin.index._state()
        for _, start, length in long_lists(state):
            set_query(state, *twin.source.point(), query)
            query[6:8] = rng.choice([0.0, 0.1, 0.35, 0.5, 1.0], 2)
            for group, n_postings in groups_of(start, length):
                bound_tile(state.postings.tiles, group // TILE, query, tops)
                bound_row(state.postings.bodies, group, query, values)
                assert tops[group % TILE] >= values[:n_postings].max() - 2e-5
                n_ruled_out += tops[group % TILE] < 0
    assert n_ruled_out > 0 or SMALL


def corners_of(state, group, n_postings):
    body = state.postings.bodies[group]
    alpha, own, rest, threshold = (
        body[at : at + n_postings].astype(float) for at in (AT_ALPHA, AT_OWN, AT_REST, AT_THRESHOLD)
    )
    at = [0.0, 0.35, 1.0]
    return [(alpha * n + own * w + rest * r - threshold).max() for n in (0, 1) for w in at for r in at]


def test_bounds_follow_thresholds_that_rise_and_fall():
    twin = hot_twin(EDGES)
    for low, high in ((0.2, 0.9), (0.7, 0.95), (0.1, 0.3)):
        slots = twin.rng.sample(sorted(twin.thresholds), LONG // 2)
        twin.set_thresholds({slot: twin.rng.uniform(low, high) for slot in slots})
        state = twin.index._state()
        for _, start, length in long_lists(state):
            for group, n_postings in groups_of(start, length):
                bounds = state.postings.tiles[group // TILE].reshape(-1, TILE)[6:, group % TILE]
                assert bounds.tolist() == pytest.approx(corners_of(state, group, n_postings), abs=1e-6)


def test_lists_are_sorted_when_a_quarter_is_unsorted():
    twin = hot_twin(EDGES)
    for _ in range(ROUNDS):
        replace_some(twin, LONG // 10)
        state = twin.index._state()
        terms = [term for term, _, _ in long_lists(state)]
        assert terms
        assert (state.lists.unsorted[terms] * 4 <= state.lists.lengths[terms]).all()
    state.lists.unsorted[terms] = state.lists.lengths[terms]
    sort_unsorted(state, np.array(terms, np.int32))
    assert not state.lists.unsorted[terms].any()
    for _, start, length in long_lists(state):
        rows = state.postings.bodies[start // LANES : -(-(start + length) // LANES)]
        x, y, z, alpha = (rows[:, at : at + LANES].reshape(-1)[:length] for at in (AT_X, AT_Y, AT_Z, AT_ALPHA))
        keys = [order_key(*fields) for fields in zip(x, y, z, alpha, strict=True)]
        assert keys == sorted(keys)


def test_groups_are_ruled_out_where_thresholds_are_high():
    twin = hot_twin(EDGES)
    batch = twin.batch()
    twin.check(batch)
    n_open = twin.index.work.visited
    twin.set_thresholds(dict.fromkeys(twin.thresholds, 0.9))
    twin.check(batch)
    assert twin.index.work.visited - n_open <= (0.9 if SMALL else 0.5) * n_open


def test_thresholds_of_free_slots_are_ignored():
    index_checks.check_free_slots(grid_twin(PLANE))


def test_a_replaced_subscription_is_open_again():
    subscription = TopKSubscription("s", location=(0, 0), keywords="a", k=1, alpha=0.5)
    index_checks.check_replacement(grid_twin(PLANE), subscription, 5.0)


def test_subscriptions_and_messages_may_have_a_thousand_terms():
    twin, make_subscription = clustered_twin(FLAT), partial(TopKSubscription, "s", (0, 10), k=1, alpha=0.5)
    index_checks.check_many_terms(twin, make_subscription, [1, 5, 6, 200, 1024])


def test_part_of_a_batch_has_the_row_numbers_of_the_batch():
    index_checks.check_part_of_a_batch(grid_twin(PLANE, 10))


def test_an_empty_index_finds_nothing():
    index_checks.check_empty_index(grid_twin(PLANE))


def test_small_buffers_give_the_same_matches_and_count_work_once():
    index_checks.check_small_buffers(grid_twin(GLOBE, 11, room=1), grid_twin(GLOBE, 11))


def test_an_arena_holds_the_whole_index_with_its_thresholds(tmp_path):
    twin = grid_twin(PLANE, 13, arena=Arena(tmp_path / "arena"))
    index_checks.check_arena(twin, TopKIndex, tmp_path / "arena")


def test_profiles_may_exist_before_the_insertion():
    arena = Arena()
    twin = grid_twin(PLANE, 14, arena=arena)
    subscriptions = {slot: twin.source.subscription() for slot in range(20)}
    batch = SubscriptionBatch.of(list(subscriptions.values()), twin.scoring)
    Profiles(arena).insert(np.arange(20, dtype=np.int32), batch.columns)
    twin.insert(subscriptions)
    twin.check(twin.batch())


def test_memory_is_bounded_over_cycles_of_insertion_and_deletion():
    twin, sizes = clustered_twin(EDGES, 15), []
    for _ in range(12):
        twin.insert(range(4 * N))
        twin.delete(twin.rng.sample(range(4 * N), 4 * N))
        sizes.append(twin.index.nbytes)
    assert sizes[-1] <= 1.6 * sizes[2], sizes


@pytest.fixture(scope="module")
def tweets():
    """Return subscriptions, past messages that give them thresholds, and further messages."""
    workload, n = make("tweets", seed=5), 300 if SMALL else 20_000
    table = next(iter(workload.messages(3_000)))
    scoring = scoring_of(workload.space(), vocabulary=Vocabulary.from_texts(table["text"].to_pylist()))
    messages = [Message(str(i), (r["x"], r["y"]), r["text"]) for i, r in enumerate(table.to_pylist())]
    rows = pa.concat_tables(workload.subscriptions("topk", n, k=20)).to_pylist()
    subscriptions = [
        TopKSubscription(r["id"], location=(r["x"], r["y"]), keywords=r["keywords"], k=r["k"], alpha=r["alpha"])
        for r in rows
    ]
    past, upcoming = messages[: 50 if SMALL else 2_000], messages[2_000 : 2_030 if SMALL else 2_500]
    return (
        SubscriptionBatch.of(subscriptions, scoring),
        MessageBatch.from_messages(past, vocabulary=scoring.vocabulary),
        MessageBatch.from_messages(upcoming, vocabulary=scoring.vocabulary),
    )


def test_thresholds_rule_out_most_subscriptions_that_share_a_term(tweets):
    subscriptions, past, batch = tweets
    index, slots = TopKIndex(subscriptions.scoring), np.arange(len(subscriptions), dtype=np.int32)
    index.insert(slots, subscriptions)
    thresholds = np.full(len(subscriptions), -np.inf)
    matches = index.match(past, 0, len(past))
    np.maximum.at(thresholds, matches.slots, matches.scores)
    open_work = index.work
    before = index.match(batch, 0, len(batch))
    shared = index.work.visited - open_work.visited
    index.set_thresholds(slots, thresholds)
    begin = index.work
    after = index.match(batch, 0, len(batch))
    visited, candidates = index.work.visited - begin.visited, index.work.candidates - begin.candidates
    passes = before.scores >= thresholds[before.slots]
    assert after.rows.tolist() == before.rows[passes].tolist()
    assert after.slots.tolist() == before.slots[passes].tolist()
    assert after.scores.tolist() == before.scores[passes].tolist()
    assert len(after.slots) <= candidates <= 1.5 * len(after.slots)
    assert (candidates <= 0.15 * visited and visited < shared) or SMALL


@pytest.mark.soak
@pytest.mark.skipif(SMALL, reason="is one of the passes itself")
@pytest.mark.parametrize("mode", MODES)
def test_these_tests_pass_with(mode):
    check_passes(mode, __file__, "tests/model/test_profiles.py", NEARCAST_TEST_SMALL="1")
