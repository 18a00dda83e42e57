"""Does the index of kind `nearest` answer as the reference does, whatever the bars, with less work?"""

import os
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modes import MODES, check_passes
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
from nearcast.index._kernels.shared.grouped_postings import AT_X, AT_Y, AT_Z, LANES, TILE
from nearcast.index._kernels.nearest.match import bound_row, bound_tile
from nearcast.index.nearest import NearestIndex
from nearcast.model import Message, MessageBatch, NearestSubscription, ScoringContext, SubscriptionBatch
from nearcast.model._kernels import blocks
from nearcast.social import SocialGraph
from nearcast.space import Box, Space
from nearcast.testing import strategies as projection
from nearcast.text import TEXT_SIMILARITIES, Vocabulary
from nearcast.workload import make

SMALL = "NEARCAST_TEST_SMALL" in os.environ
"""Set for the passes without compiled code and with checked bounds."""
ROUNDS, N, M = (2, 40, 6) if SMALL else (6, 200, 25)
LONG = 200 if SMALL else 1500
"""Subscriptions that share a term, so that its list has groups."""
EXAMPLES = 5 if SMALL else 60

EARTH = Space.earth()
FLAT = Space(Box(-3, 10, 5, 11))
FAR = Space(Box(1e9, -1e9, 1e9 + 1, -1e9 + 3))
DOT = Space(Box(0, 0, 0, 0), max_distance=7)
TINY = Space(Box(0, 0, 1e-320, 1e-320), max_distance=1)
HUGE = Space(Box(-1e308, -1e308, 1e308, 1e308), max_distance=1e300)
ALL = {"earth": EARTH, "flat": FLAT, "far": FAR, "dot": DOT, "tiny": TINY, "huge": HUGE}

TERMS = [f"t{i}" for i in range(40)]


def scoring_of(space):
    return ScoringContext(space, Vocabulary.with_weights({}), SocialGraph([]), TEXT_SIMILARITIES["containment"])


def batch_of(messages, scoring):
    return MessageBatch.from_messages(messages, vocabulary=scoring.vocabulary)


class Tied:
    """Few places, few terms: distances are equal all the time."""

    def __init__(self, space, seed):
        self.space, self.rng = space, random.Random(seed)

    def point(self):
        return self.rng.choice(projection.GRID[self.space])

    def subscription(self):
        words = self.rng.choices(projection.TERMS, k=self.rng.randint(1, 5))
        return NearestSubscription("s", location=self.point(), keywords=words, k=1)

    def message(self):
        return Message("m", self.point(), self.rng.choices([*projection.TERMS, "new"], k=self.rng.randint(0, 6)))


class Loose:
    """Clusters at very different scales, at corners, poles and on both sides of the antimeridian."""

    def __init__(self, space, seed):
        self.space, self.rng = space, random.Random(seed)
        b = space.bounds
        self.centres = [(b.xmin, b.ymin), (b.xmax, b.ymax), (b.xmin, b.ymin / 2 + b.ymax / 2), (b.xmax, b.ymin)]
        self.centres += [self.anywhere() for _ in range(4)]

    def anywhere(self):
        b, (s, t) = self.space.bounds, (self.rng.random(), self.rng.random())
        return b.xmin * (1 - s) + b.xmax * s, b.ymin * (1 - t) + b.ymax * t

    def point(self):
        (x, y), b = self.rng.choice(self.centres), self.space.bounds
        spread = self.rng.choice([0.0, 1e-9, 1e-5, 0.01, 0.5, 3.0])
        x, y = x + self.rng.uniform(-spread, spread), y + self.rng.uniform(-spread, spread)
        return float(min(max(x, b.xmin), b.xmax)), float(min(max(y, b.ymin), b.ymax))

    def terms(self, most):
        return [TERMS[min(int(self.rng.expovariate(0.12)), 39)] for _ in range(self.rng.randint(1, most))]

    def subscription(self):
        return NearestSubscription("s", location=self.point(), keywords=self.terms(9), k=1)

    def message(self):
        return Message("m", self.point(), self.terms(12) if self.rng.random() < 0.9 else [])


class Twin:
    """An index, and beside it what it must know."""

    def __init__(self, scoring, seed=0, **options):
        self.scoring, self.rng = scoring, random.Random(seed)
        self.index = NearestIndex(scoring, **options)
        self.scorers, self.thresholds = {}, {}

    def insert(self, subscriptions):
        slots = np.array(list(subscriptions), np.int32)
        self.index.insert(slots, SubscriptionBatch.of(list(subscriptions.values()), self.scoring))
        for slot, subscription in subscriptions.items():
            self.scorers[slot], self.thresholds[slot] = subscription.bind(self.scoring), np.inf

    def delete(self, slots):
        self.index.delete(np.array(slots, np.int32))
        for slot in slots:
            del self.scorers[slot], self.thresholds[slot]

    def set_thresholds(self, thresholds):
        self.index.set_thresholds(
            np.array(list(thresholds), np.int32), np.array(list(thresholds.values()), np.float64)
        )
        self.thresholds.update(thresholds)

    def move_thresholds(self, batch):
        """Set most bars: to distances that occur, right beside them, to nothing, anywhere, or open again."""
        rng, moved = self.rng, {}
        for slot in rng.sample(sorted(self.thresholds), max(1, len(self.thresholds) * 2 // 3)):
            distances = [s for d in batch.documents if (s := self.scorers[slot](d)) is not None]
            exact = rng.choice(distances or [0.5])
            beside = [np.nextafter(exact, np.inf), np.nextafter(exact, -1)]
            moved[slot] = rng.choice([exact, exact, *beside, exact * rng.random(), 0.0, np.inf, np.nan])
        self.set_thresholds(moved)

    def shrink_thresholds(self, batch):
        """Let bars follow the nearest message so far, as those of a keeper do."""
        moved = {}
        for (_, slot), distance in self.expected(batch).items():
            moved[slot] = min(distance, moved.get(slot, np.inf))
        self.set_thresholds(moved)

    def expected(self, batch, start=0, stop=None):
        pairs = {}
        for row in range(start, len(batch) if stop is None else stop):
            for slot, score_of in self.scorers.items():
                score, threshold = score_of(batch.documents[row]), self.thresholds[slot]
                if score is not None and (score < threshold or not threshold < np.inf):
                    pairs[row, slot] = score
        return pairs

    def check(self, batch):
        want, got = self.expected(batch), found(self.index, batch)
        assert got == want  # distances to the last bit
        work = self.index.work
        assert work.matched <= work.verified <= work.candidates <= work.visited
        return want


def found(index, batch, start=0, stop=None):
    rows, slots, scores = index.match(batch, start, len(batch) if stop is None else stop)
    assert (rows.dtype, slots.dtype, scores.dtype) == (np.int64, np.int32, np.float64)
    assert np.all(np.diff(rows) >= 0)
    pairs = dict(zip(zip(rows.tolist(), slots.tolist(), strict=True), scores.tolist(), strict=True))
    assert len(pairs) == len(rows), "a pair was reported twice"
    return pairs


def assert_in_order(twin):
    """Parts of lists hold whom they should, everyone finds its postings, and bounds hold what they bound."""
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
        for group in range(start // LANES, -(-(start + closed) // LANES)):
            held = min(LANES, start + closed - group * LANES)
            fields = state.postings.bodies[group].reshape(4, LANES)[:, :held]
            bounds = state.postings.tiles[group // TILE].reshape(7, TILE)[:, group % TILE]
            assert (bounds[:3] <= fields[:3].min(axis=1)).all() and (bounds[3:6] >= fields[:3].max(axis=1)).all()
            assert bounds[6] >= fields[3].max()


def long_lists(state):
    for term in np.flatnonzero(state.lists[:, ROOM] >= GROUPED):
        yield int(term), int(state.lists[term, START]), int(state.lists[term, CLOSED])


def live_through(twin, source):
    """Insert, move bars, delete and match in turns, slots used again; compare after each."""
    rng = twin.rng

    def batch():
        return batch_of([source.message() for _ in range(M)], twin.scoring)

    for _ in range(ROUNDS):
        free = [slot for slot in range(2 * N) if slot not in twin.thresholds]
        twin.insert({slot: source.subscription() for slot in rng.sample(free, N // 2)})
        said = batch()
        twin.check(said)
        twin.move_thresholds(said)
        twin.check(said)
        assert_in_order(twin)
        twin.delete(rng.sample(sorted(twin.thresholds), len(twin.thresholds) // 3))
        twin.check(said)
        twin.shrink_thresholds(batch())
        twin.check(batch())
        assert_in_order(twin)
    twin.delete(sorted(twin.thresholds))
    assert found(twin.index, batch()) == {}
    assert_all_given_back(twin.index)


def assert_all_given_back(index):
    """Blocks on free lists come to all that was ever handed out."""
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


@pytest.mark.parametrize("space", projection.SPACES, ids=lambda s: s.metric)
def test_ties_at_the_bar_are_decided_as_the_reference_does(space):
    live_through(Twin(scoring_of(space), 1), Tied(space, 2))


@pytest.mark.parametrize("space", ALL.values(), ids=ALL)
def test_any_space_is_answered_as_the_reference_does(space):
    live_through(Twin(scoring_of(space), 3), Loose(space, 4))


@given(data=st.data())
@settings(max_examples=EXAMPLES, deadline=None)
def test_any_small_world_is_answered_as_the_reference_does(data):
    space = data.draw(st.sampled_from(projection.SPACES))
    twin = Twin(scoring_of(space), room=1)
    drawn = data.draw(st.lists(projection.subscriptions("nearest", space), min_size=1, max_size=12))
    twin.insert(dict(enumerate(drawn)))
    thresholds = st.sampled_from([0.0, 2.0, 4.0, 111_194.9, 1e6, 3e7, np.inf])
    twin.set_thresholds({slot: data.draw(thresholds) for slot in range(0, len(drawn), 2)})
    twin.delete(sorted(data.draw(st.sets(st.sampled_from(range(len(drawn)))))))
    batch = batch_of(data.draw(st.lists(projection.messages(space), max_size=6)), twin.scoring)
    twin.check(batch)
    twin.set_thresholds(dict.fromkeys(twin.thresholds, np.inf))
    twin.check(batch)


def hot_world(space, n=LONG, seed=5):
    """Return a twin whose subscriptions nearly all share a term."""
    twin, source = Twin(scoring_of(space), seed), Loose(space, seed + 1)
    rng = twin.rng

    def subscription():
        words = rng.choice(["hot", "hot warm", "hot cold", "warm hot cold", "rare hot", "rare"])
        return NearestSubscription("s", location=source.point(), keywords=words, k=1)

    def batch():
        words = ["hot", "warm hot", "rare cold hot", "hot hot cold", "cold", ""]
        return batch_of([Message("m", source.point(), rng.choice(words)) for _ in range(M)], twin.scoring)

    twin.insert({slot: subscription() for slot in range(n)})
    return twin, subscription, batch


@pytest.mark.parametrize("space", [EARTH, FLAT], ids=lambda s: s.metric)
def test_long_lists_are_answered_as_the_reference_does(space):
    twin, subscription, batch = hot_world(space)
    for _ in range(ROUNDS):
        said = batch()
        twin.check(said)
        twin.move_thresholds(said)
        twin.check(said)
        assert_in_order(twin)
        gone = twin.rng.sample(sorted(twin.thresholds), len(twin.thresholds) // 3)
        twin.delete(gone)
        twin.check(said)
        twin.insert({slot: subscription() for slot in gone[: len(gone) * 3 // 4]})
        twin.shrink_thresholds(batch())
        twin.check(batch())
        assert_in_order(twin)
    for left in (LONG // 4, 20, 3, 0):
        twin.delete(sorted(twin.thresholds)[left:])
        twin.check(batch())
    assert_all_given_back(twin.index)


def test_the_bound_of_a_group_is_never_below_that_of_a_posting():
    twin, subscription, _ = hot_world(EARTH)
    gaps, group_gaps = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
    n_ruled_out = 0
    for step in range(ROUNDS):
        twin.set_thresholds({slot: twin.rng.choice([0, 10, 1e4, 1e6]) for slot in twin.thresholds})
        gone = twin.rng.sample(sorted(twin.thresholds), LONG // 10)
        twin.delete(gone)
        twin.insert({slot: subscription() for slot in gone})
        state = twin.index._state()
        query = np.random.default_rng(step).normal(size=3)
        query = (query / np.linalg.norm(query)).astype(np.float32)
        for _, start, closed in long_lists(state):
            for group in range(start // LANES, -(-(start + closed) // LANES)):
                bound_tile(state.postings.tiles, group // TILE, query, group_gaps)
                bound_row(state.postings.bodies, group, query, gaps)
                held = min(LANES, start + closed - group * LANES)
                assert group_gaps[group % TILE] >= gaps[:held].max()
                n_ruled_out += group_gaps[group % TILE] < 0
    assert n_ruled_out > 0


def test_the_greatest_reach_of_a_group_is_that_of_a_posting():
    twin, _, _ = hot_world(EARTH)
    for thresholds in ([1e5, 1e6], [1e3, 1e4], [1e2, 1e6], [0, 0]):
        twin.set_thresholds({slot: twin.rng.uniform(*thresholds) for slot in twin.thresholds})
        state = twin.index._state()
        for _, start, closed in long_lists(state):
            for group in range(start // LANES, -(-(start + closed) // LANES)):
                held = min(LANES, start + closed - group * LANES)
                greatest = state.postings.tiles[group // TILE, GREATEST + group % TILE]
                assert greatest == state.postings.bodies[group, AT_REACH : AT_REACH + held].max()
    assert greatest == UNREACHABLE, "nothing is nearer than here"


def test_lists_are_put_in_order_when_a_share_is_out_of_it():
    twin, subscription, batch = hot_world(EARTH)
    for _ in range(ROUNDS):
        gone = twin.rng.sample(sorted(twin.thresholds), LONG // 10)
        twin.delete(gone)
        twin.insert({slot: subscription() for slot in gone})
        twin.shrink_thresholds(batch())
        state = twin.index._state()
        terms = [term for term, _, _ in long_lists(state)]
        assert terms
        assert (state.lists[terms, UNSORTED] * UNSORTED_SHARE <= state.lists[terms, CLOSED]).all()
    for term, start, closed in long_lists(state):
        sort_list(state, term)
        assert state.lists[term, UNSORTED] == 0
        rows = slice(start // LANES, -(-(start + closed) // LANES))
        x, y, z = (state.postings.bodies[rows, at : at + LANES].reshape(-1)[:closed] for at in (AT_X, AT_Y, AT_Z))
        words = state.postings.words[rows, AT_REACH : AT_REACH + LANES].reshape(-1)[:closed].tolist()
        keys = [order_key(*one) for one in zip(x, y, z, words, strict=True)]
        assert keys == sorted(keys)
    assert_in_order(twin)


def test_who_is_open_costs_messages_without_its_terms_nothing():
    twin, source = Twin(scoring_of(EARTH)), Loose(EARTH, 8)
    said = batch_of([Message("m", source.point(), "b") for _ in range(M)], twin.scoring)
    twin.insert({0: NearestSubscription("s", location=(0, 0), keywords="b", k=1)})
    twin.check(said)
    before = twin.index.work.visited
    hot = {i: NearestSubscription("s", location=source.point(), keywords="a", k=1) for i in range(1, LONG)}
    twin.insert(hot)
    twin.check(said)
    assert twin.index.work.visited == 2 * before == 2 * M


def test_groups_are_ruled_out_where_balls_are_small():
    twin, source = Twin(scoring_of(EARTH)), Loose(EARTH, 9)
    twin.insert({i: NearestSubscription("s", location=source.anywhere(), keywords="a", k=1) for i in range(4 * LONG)})
    twin.set_thresholds(dict.fromkeys(twin.thresholds, 100_000.0))
    said = batch_of([Message("m", source.anywhere(), "a") for _ in range(M)], twin.scoring)
    found(twin.index, said)
    loose = twin.index.work.visited
    assert loose <= (1.0 if SMALL else 0.1 + 1 / UNSORTED_SHARE) * M * 4 * LONG
    state = twin.index._state()
    for term, _, _ in long_lists(state):
        sort_list(state, term)
    found(twin.index, said)
    assert twin.index.work.visited - loose <= (0.5 if SMALL else 0.05) * M * 4 * LONG


def test_slots_that_are_not_here_have_no_bar_to_set():
    twin = Twin(scoring_of(projection.PLANE))
    twin.insert({slot: Tied(projection.PLANE, slot).subscription() for slot in range(8)})
    twin.delete([3])
    twin.index.set_thresholds(np.array([3], np.int32), np.array([0.5]))
    twin.index.delete(np.array([3], np.int32))
    twin.check(batch_of([Message("m", (0, 0), "a b c d e f")], twin.scoring))


def test_a_replaced_subscription_is_open_again():
    twin = Twin(scoring_of(projection.PLANE))
    one = NearestSubscription("s", location=(0, 0), keywords="a", k=1)
    twin.insert({0: one})
    twin.set_thresholds({0: 1.0})
    said = batch_of([Message("m", (8, 8), "a b")], twin.scoring)
    assert twin.check(said) == {}
    twin.delete([0])
    twin.insert({0: one})
    assert len(twin.check(said)) == 1


def test_subscriptions_and_messages_of_a_thousand_terms():
    words = [f"w{i}" for i in range(1024)]
    twin = Twin(scoring_of(FLAT))
    rng = twin.rng
    for slot, size in enumerate([1, 5, 17, 200, 1024]):
        words_of = rng.sample(words, size)
        twin.insert({slot: NearestSubscription("s", location=(0, 10), keywords=words_of, k=1)})
    said = [Message("m", (0, 10.1), rng.sample(words, size)) for size in (1, 30, 1024)]
    batch = batch_of([*said, Message("m", (0, 10.1), "")], twin.scoring)
    assert len(twin.check(batch)) >= 6
    twin.move_thresholds(batch)
    twin.check(batch)
    twin.delete(sorted(twin.thresholds))
    assert_all_given_back(twin.index)


def test_a_part_of_a_batch_is_numbered_as_the_batch_is():
    twin, source = Twin(scoring_of(projection.PLANE)), Tied(projection.PLANE, 10)
    twin.insert({slot: source.subscription() for slot in range(30)})
    batch = batch_of([source.message() for _ in range(10)], twin.scoring)
    assert found(twin.index, batch, 3, 7) == twin.expected(batch, 3, 7)
    assert found(twin.index, batch, 4, 4) == {}


def test_nothing_is_found_where_nothing_is():
    twin = Twin(scoring_of(projection.PLANE))
    batch = batch_of([Message("m", (0, 0), "a b")], twin.scoring)
    assert found(twin.index, batch) == {}
    twin.index.delete(np.zeros(0, np.int32))
    twin.index.set_thresholds(np.zeros(0, np.int32), np.zeros(0))
    assert found(twin.index, batch) == {}
    assert found(twin.index, MessageBatch.empty()) == {}


def test_tiny_buffers_give_the_same_answers_and_count_work_once():
    scoring, source = scoring_of(projection.GLOBE), Tied(projection.GLOBE, 11)
    small, large = Twin(scoring, room=1), Twin(scoring)
    subscriptions = {slot: source.subscription() for slot in range(N)}
    small.insert(subscriptions)
    large.insert(subscriptions)
    batch = batch_of([source.message() for _ in range(M)], scoring)
    assert found(small.index, batch) == found(large.index, batch) != {}
    assert small.index.work == large.index.work


def test_an_arena_holds_everything_bars_included(tmp_path):
    scoring, source = scoring_of(projection.PLANE), Tied(projection.PLANE, 13)
    twin = Twin(scoring, arena=Arena(tmp_path / "arena"))
    twin.insert({slot: source.subscription() for slot in range(N)})
    batch = batch_of([source.message() for _ in range(M)], scoring)
    twin.move_thresholds(batch)
    first = found(twin.index, batch)
    twin.index = NearestIndex(scoring, arena=Arena.attach(tmp_path / "arena"))
    assert twin.check(batch) == first
    twin.delete(list(range(0, N, 3)))
    twin.check(batch)


def test_room_is_bounded_over_cycles_of_insertion_and_deletion():
    scoring, source, held = scoring_of(EARTH), Loose(EARTH, 15), []
    twin = Twin(scoring)
    for _ in range(12):
        twin.insert({slot: source.subscription() for slot in range(4 * N)})
        twin.set_thresholds({slot: twin.rng.choice([1e3, 1e6]) for slot in range(0, 4 * N, 3)})
        twin.delete(twin.rng.sample(range(4 * N), 4 * N))
        held.append(twin.index.nbytes)
    assert held[-1] <= 1.6 * held[2], held


def test_bars_rule_out_most_of_what_shares_a_term_in_a_workload():
    workload, n = make("places", seed=5), 300 if SMALL else 20_000
    table = next(iter(workload.messages(2_000)))
    messages = [Message(str(i), (r["x"], r["y"]), r["text"]) for i, r in enumerate(table.to_pylist())]
    scoring = scoring_of(workload.space())
    rows = [row for part in workload.subscriptions("nearest", n, k=1) for row in part.to_pylist()]
    made = [NearestSubscription(r["id"], location=(r["x"], r["y"]), keywords=r["keywords"], k=1) for r in rows]
    index, slots = NearestIndex(scoring), np.arange(n, dtype=np.int32)
    index.insert(slots, SubscriptionBatch.of(made, scoring))
    past, batch = batch_of(messages[:1_500], scoring), batch_of(messages[1_500:1_550], scoring)
    before, shared = index.match(batch, 0, len(batch)), index.work.visited
    thresholds = np.full(n, np.inf)
    seen = index.match(past, 0, len(past))
    np.minimum.at(thresholds, seen.slots, seen.scores)
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
@pytest.mark.parametrize("mode", MODES)
def test_all_of_this_holds_with(mode):
    check_passes(mode, __file__, NEARCAST_TEST_SMALL="1")
