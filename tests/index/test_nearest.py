"""The index of kind `nearest` finds what the reference finds, whatever the thresholds, with less work."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import index_checks
from index_checks import groups_of, replace_some
from modes import check_passes
from nearcast._jit import Arena
from nearcast.index._kernels.nearest.groups import order_key, sort_list
from nearcast.index._kernels.nearest.layout import (
    AT_REACH,
    CLOSED,
    GREATEST,
    GROUPED,
    LENGTH,
    PLACE_MASK,
    ROOM,
    RUN,
    RUN_END,
    START,
    TERM_BITS,
    UNREACHABLE,
    UNSORTED,
    UNSORTED_SHARE,
)
from nearcast.index._kernels.nearest.match import bound_row, bound_tile
from nearcast.index._kernels.shared.grouped_postings import AT_X, AT_Y, AT_Z, LANES, TILE
from nearcast.index.nearest import NearestIndex
from nearcast.model import Message, MessageBatch, NearestSubscription, SubscriptionBatch
from nearcast.model._kernels import blocks
from nearcast.space import Box, Space
from nearcast.testing import strategies
from nearcast.text import Vocabulary
from nearcast.workload import make
from twins import (
    DOT,
    GLOBE,
    HUGE,
    PLANE,
    ROUNDS,
    SMALL,
    TINY,
    ClusteredSource,
    GridSource,
    HotSource,
    M,
    N,
    Twin,
    found,
    run_lifecycle,
    scoring_of,
)

LONG = 200 if SMALL else 1500
"""Subscriptions that share a term, so that its list has groups."""
EXAMPLES = 5 if SMALL else 60

EARTH = Space.earth()
FLAT = Space(Box(-3, 10, 5, 11))
FAR = Space(Box(1e9, -1e9, 1e9 + 1, -1e9 + 3))
SPACES = {"earth": EARTH, "flat": FLAT, "far": FAR, "dot": DOT, "tiny": TINY, "huge": HUGE}


class NearestTwin(Twin):
    """A twin in which small scores are good."""

    open_threshold = np.inf

    def passes(self, score, threshold):
        return score < threshold or not threshold < np.inf

    def threshold_near(self, exact):
        """Draw a threshold: a distance that occurs, right beside it, anywhere, nothing, or open again."""
        beside = [np.nextafter(exact, np.inf), np.nextafter(exact, -1)]
        return self.rng.choice([exact, exact, *beside, exact * self.rng.random(), 0.0, np.inf, np.nan])

    def shrink_thresholds(self, batch):
        """Lower thresholds to the nearest message so far, as a result store does."""
        moved = {}
        for (_, slot), distance in self.expected(batch).items():
            moved[slot] = min(distance, moved.get(slot, np.inf))
        self.set_thresholds(moved)


def subscription_from(source):
    return NearestSubscription("s", location=source.point(), keywords=source.terms(), k=1)


def grid_twin(space, seed=0, **options):
    return NearestTwin(partial(NearestIndex, **options), GridSource(space, seed + 1, subscription_from), seed=seed)


def clustered_twin(space, seed=0, **options):
    source = ClusteredSource(space, seed + 1, subscription_from)
    return NearestTwin(partial(NearestIndex, **options), source, seed=seed)


def long_lists(state):
    for term in np.flatnonzero(state.lists[:, ROOM] >= GROUPED):
        yield int(term), int(state.lists[term, START]), int(state.lists[term, CLOSED])


def assert_consistent(twin):
    """Parts of lists hold the right postings, subscriptions find their postings, and bounds hold what they bound."""
    state = twin.index._state()
    n_postings = 0
    for slot, threshold in twin.thresholds.items():
        first, stop = state.heads[slot, RUN], state.heads[slot, RUN_END]
        n_postings += int(stop - first)
        for entry in state.runs[first:stop].tolist():
            start, _, length, closed = state.lists[entry >> TERM_BITS, :4].tolist()
            place = entry & PLACE_MASK
            assert state.postings.slots[start + place] == slot
            assert place < length
            assert (place < closed) == (threshold < np.inf)
    taken = state.lists[state.lists[:, ROOM] > 0]
    assert taken[:, LENGTH].sum() == n_postings
    for _, start, closed in long_lists(state):
        for group, n in groups_of(start, closed):
            fields = state.postings.bodies[group].reshape(4, LANES)[:, :n]
            bounds = state.postings.tiles[group // TILE].reshape(7, TILE)[:, group % TILE]
            assert (bounds[:3] <= fields[:3].min(axis=1)).all() and (bounds[3:6] >= fields[:3].max(axis=1)).all()
            assert bounds[6] >= fields[3].max()


def assert_all_blocks_free(index):
    """The blocks on the free lists add up to all that was ever handed out."""
    state = index._state()
    assert not state.lists[:, [ROOM, LENGTH, CLOSED, UNSORTED]].any()
    for pool, links, size_of in (
        (state.postings.pool, state.postings.slots, lambda block_class: 1 << block_class),
        (state.run_pool, state.runs, blocks.size_of),
    ):
        free = 0
        for block_class in range(40):
            block = int(pool[blocks.FIRST + block_class])
            while block >= 0:
                free += size_of(block_class)
                block = int(links[block])
        assert free == pool[blocks.USED]


def run_checked_lifecycle(twin):
    def check():
        assert_consistent(twin)
        if twin.thresholds:
            twin.shrink_thresholds(twin.batch())
            assert_consistent(twin)

    run_lifecycle(twin, check)
    assert_all_blocks_free(twin.index)


@pytest.mark.parametrize("space", strategies.SPACES, ids=lambda s: s.metric)
def test_ties_at_the_threshold_are_decided_as_by_the_reference(space):
    run_checked_lifecycle(grid_twin(space, 1))


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_matches_equal_the_reference_in_every_space(space):
    run_checked_lifecycle(clustered_twin(space, 3))


@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_matches_equal_the_reference_for_generated_data(data):
    space = data.draw(st.sampled_from(strategies.SPACES))
    twin = grid_twin(space, room=1)
    drawn = data.draw(st.lists(strategies.subscriptions("nearest", space), min_size=1, max_size=12))
    twin.insert(dict(enumerate(drawn)))
    thresholds = st.sampled_from([0.0, 2.0, 4.0, 111_194.9, 1e6, 3e7, np.inf])
    twin.set_thresholds({slot: data.draw(thresholds) for slot in range(0, len(drawn), 2)})
    twin.delete(sorted(data.draw(st.sets(st.sampled_from(range(len(drawn)))))))
    batch = twin.batch_of(data.draw(st.lists(strategies.messages(space), max_size=6)))
    twin.check(batch)
    twin.set_thresholds(dict.fromkeys(twin.thresholds, np.inf))
    twin.check(batch)


def hot_twin(space, seed=5):
    twin = NearestTwin(NearestIndex, HotSource(space, seed + 1, subscription_from), seed=seed)
    twin.insert(range(LONG))
    return twin


@pytest.mark.parametrize("space", [EARTH, FLAT], ids=lambda s: s.metric)
def test_matches_on_long_lists_equal_the_reference(space):
    twin = hot_twin(space)
    for _ in range(ROUNDS):
        batch = twin.batch()
        twin.check(batch)
        twin.move_thresholds(batch)
        twin.check(batch)
        assert_consistent(twin)
        deleted = twin.rng.sample(sorted(twin.thresholds), len(twin.thresholds) // 3)
        twin.delete(deleted)
        twin.check(batch)
        twin.insert(deleted[: len(deleted) * 3 // 4])
        twin.shrink_thresholds(twin.batch())
        twin.check(twin.batch())
        assert_consistent(twin)
    for n_left in (LONG // 4, 20, 3, 0):
        twin.delete(sorted(twin.thresholds)[n_left:])
        twin.check(twin.batch())
    assert_all_blocks_free(twin.index)


def test_the_bound_of_a_group_is_never_below_that_of_its_postings():
    twin = hot_twin(EARTH)
    gaps, group_gaps = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
    n_ruled_out = 0
    for step in range(ROUNDS):
        twin.set_thresholds({slot: twin.rng.choice([0, 10, 1e4, 1e6]) for slot in twin.thresholds})
        replace_some(twin, LONG // 10)
        state = twin.index._state()
        query = np.random.default_rng(step).normal(size=3)
        query = (query / np.linalg.norm(query)).astype(np.float32)
        for _, start, closed in long_lists(state):
            for group, n in groups_of(start, closed):
                bound_tile(state.postings.tiles, group // TILE, query, group_gaps)
                bound_row(state.postings.bodies, group, query, gaps)
                assert group_gaps[group % TILE] >= gaps[:n].max()
                n_ruled_out += group_gaps[group % TILE] < 0
    assert n_ruled_out > 0


def test_the_greatest_reach_of_a_group_is_that_of_a_posting():
    twin = hot_twin(EARTH)
    for thresholds in ([1e5, 1e6], [1e3, 1e4], [1e2, 1e6], [0, 0]):
        twin.set_thresholds({slot: twin.rng.uniform(*thresholds) for slot in twin.thresholds})
        state = twin.index._state()
        for _, start, closed in long_lists(state):
            for group, n in groups_of(start, closed):
                greatest = state.postings.tiles[group // TILE, GREATEST + group % TILE]
                assert greatest == state.postings.bodies[group, AT_REACH : AT_REACH + n].max()
    assert greatest == UNREACHABLE, "no message is nearer than 0"


def test_lists_are_sorted_when_a_share_is_unsorted():
    twin = hot_twin(EARTH)
    for _ in range(ROUNDS):
        replace_some(twin, LONG // 10)
        twin.shrink_thresholds(twin.batch())
        state = twin.index._state()
        terms = [term for term, _, _ in long_lists(state)]
        assert terms
        assert (state.lists[terms, UNSORTED] * UNSORTED_SHARE <= state.lists[terms, CLOSED]).all()
    for term, start, closed in long_lists(state):
        sort_list(state, term)
        assert state.lists[term, UNSORTED] == 0
        rows, postings = slice(start // LANES, -(-(start + closed) // LANES)), state.postings
        x, y, z = (postings.bodies[rows, at : at + LANES].reshape(-1)[:closed] for at in (AT_X, AT_Y, AT_Z))
        words = postings.words[rows, AT_REACH : AT_REACH + LANES].reshape(-1)[:closed].tolist()
        keys = [order_key(*fields) for fields in zip(x, y, z, words, strict=True)]
        assert keys == sorted(keys)
    assert_consistent(twin)


def test_open_subscriptions_cost_nothing_for_messages_without_their_terms():
    twin = clustered_twin(EARTH, 8)
    batch = twin.batch_of([Message("m", twin.source.point(), "b") for _ in range(M)])
    twin.insert({0: NearestSubscription("s", location=(0, 0), keywords="b", k=1)})
    twin.check(batch)
    before = twin.index.work.visited
    point = twin.source.point
    twin.insert({i: NearestSubscription("s", location=point(), keywords="a", k=1) for i in range(1, LONG)})
    twin.check(batch)
    assert twin.index.work.visited == 2 * before == 2 * M


def test_groups_are_ruled_out_where_thresholds_are_small():
    twin = clustered_twin(EARTH, 9)
    anywhere = twin.source.anywhere
    twin.insert({i: NearestSubscription("s", location=anywhere(), keywords="a", k=1) for i in range(4 * LONG)})
    twin.set_thresholds(dict.fromkeys(twin.thresholds, 100_000.0))
    batch = twin.batch_of([Message("m", anywhere(), "a") for _ in range(M)])
    found(twin.index, batch)
    unsorted = twin.index.work.visited
    assert unsorted <= (1.0 if SMALL else 0.1 + 1 / UNSORTED_SHARE) * M * 4 * LONG
    state = twin.index._state()
    for term, _, _ in long_lists(state):
        sort_list(state, term)
    found(twin.index, batch)
    assert twin.index.work.visited - unsorted <= (0.5 if SMALL else 0.05) * M * 4 * LONG


@pytest.mark.parametrize("space", [PLANE, EARTH], ids=["plane", "earth"])
def test_ties_at_one_point_are_measured_for_one_message_only(space):
    """Thresholds are exactly the distance of a point: no message there matches, which the first one shows."""
    twin = clustered_twin(space, 10)
    center, anywhere = twin.source.anywhere(), twin.source.anywhere
    made = {i: NearestSubscription("s", location=anywhere(), keywords=["a", "a b"][i % 2], k=1) for i in range(LONG)}
    twin.insert(made)
    distances = {slot: space.distance(one.location, center) for slot, one in made.items()}
    twin.set_thresholds(distances)
    first, others = (
        twin.batch_of([Message(str(i), center, text) for i in range(n)]) for n, text in ((1, "b a"), (M, "a b c"))
    )
    twin.check(first)
    before = twin.index.work
    twin.check(others)
    assert twin.index.work.visited == before.visited
    assert twin.index.work.verified == before.verified
    assert before.verified > LONG // 2 or SMALL
    twin.set_thresholds({0: np.nextafter(distances[0], np.inf)})
    twin.check(others)  # one reach has grown, so its lists are read again
    twin.set_thresholds({0: distances[0], 1: np.inf})
    twin.check(others)
    twin.set_thresholds({1: np.nextafter(distances[1], np.inf)})
    twin.check(others)  # one posting was closed
    twin.set_thresholds({1: 0.0})
    twin.insert({LONG: NearestSubscription("s", location=center, keywords="b", k=1)})
    twin.check(others)
    twin.set_thresholds({LONG: 1.0})
    twin.check(others)


def test_thresholds_of_free_slots_are_ignored():
    index_checks.check_free_slots(grid_twin(PLANE))


def test_a_replaced_subscription_is_open_again():
    subscription = NearestSubscription("s", location=(0, 0), keywords="a", k=1)
    index_checks.check_replacement(grid_twin(PLANE), subscription, 1.0)


def test_subscriptions_and_messages_may_have_a_thousand_terms():
    twin, make_subscription = clustered_twin(FLAT), partial(NearestSubscription, "s", (0, 10), k=1)
    index_checks.check_many_terms(twin, make_subscription, [1, 5, 17, 200, 1024])
    twin.delete(sorted(twin.thresholds))
    assert_all_blocks_free(twin.index)


def test_part_of_a_batch_has_the_row_numbers_of_the_batch():
    index_checks.check_part_of_a_batch(grid_twin(PLANE, 10))


def test_an_empty_index_finds_nothing():
    index_checks.check_empty_index(grid_twin(PLANE))


def test_small_buffers_give_the_same_matches_and_count_work_once():
    index_checks.check_small_buffers(grid_twin(GLOBE, 11, room=1), grid_twin(GLOBE, 11))


def test_an_arena_holds_the_whole_index_with_its_thresholds(tmp_path):
    twin = grid_twin(PLANE, 13, arena=Arena(tmp_path / "arena"))
    index_checks.check_arena(twin, NearestIndex, tmp_path / "arena")


def test_memory_is_bounded_over_cycles_of_insertion_and_deletion():
    twin, sizes = clustered_twin(EARTH, 15), []
    for _ in range(12):
        twin.insert(range(4 * N))
        twin.set_thresholds({slot: twin.rng.choice([1e3, 1e6]) for slot in range(0, 4 * N, 3)})
        twin.delete(twin.rng.sample(range(4 * N), 4 * N))
        sizes.append(twin.index.nbytes)
    assert sizes[-1] <= 1.6 * sizes[2], sizes


def test_thresholds_rule_out_most_subscriptions_that_share_a_term():
    workload, n = make("places", seed=5), 300 if SMALL else 20_000
    table = next(iter(workload.messages(2_000)))
    messages = [Message(str(i), (r["x"], r["y"]), r["text"]) for i, r in enumerate(table.to_pylist())]
    scoring = scoring_of(workload.space(), vocabulary=Vocabulary.with_weights({}))
    rows = [row for part in workload.subscriptions("nearest", n, k=1) for row in part.to_pylist()]
    made = [NearestSubscription(r["id"], location=(r["x"], r["y"]), keywords=r["keywords"], k=1) for r in rows]
    index, slots = NearestIndex(scoring), np.arange(n, dtype=np.int32)
    index.insert(slots, SubscriptionBatch.of(made, scoring))
    past = MessageBatch.from_messages(messages[:1_500], vocabulary=scoring.vocabulary)
    batch = MessageBatch.from_messages(messages[1_500:1_550], vocabulary=scoring.vocabulary)
    before, shared = index.match(batch, 0, len(batch)), index.work.visited
    thresholds = np.full(n, np.inf)
    matches = index.match(past, 0, len(past))
    np.minimum.at(thresholds, matches.slots, matches.scores)
    index.set_thresholds(slots, thresholds)
    begin = index.work
    after = index.match(batch, 0, len(batch))
    passes = (before.scores < thresholds[before.slots]) | ~(thresholds[before.slots] < np.inf)
    pairs = set(zip(before.rows[passes].tolist(), before.slots[passes].tolist(), strict=True))
    assert set(zip(after.rows.tolist(), after.slots.tolist(), strict=True)) == pairs
    candidates = index.work.candidates - begin.candidates
    assert len(pairs) <= candidates <= 1.1 * len(pairs) + 5
    assert candidates <= 0.1 * shared or SMALL


@pytest.mark.skipif(SMALL, reason="is one of the passes itself")
@pytest.mark.parametrize("mode", ["uncompiled", pytest.param("checked", marks=pytest.mark.soak)])
def test_these_tests_pass_with(mode):
    check_passes(mode, __file__, NEARCAST_TEST_SMALL="1")
