"""Does the index of kind `topk` answer as the reference does, whatever the bars, with less work?"""

import os
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modes import MODES, check_passes
from nearcast._jit import Arena
from nearcast.index._kernels.shared.grouped_postings import AT_X, AT_Y, AT_Z, LANES, TILE
from nearcast.index._kernels.topk.groups import order_key, sort_unsorted
from nearcast.index._kernels.topk.layout import (
    AT_ALPHA,
    AT_OWN,
    AT_REST,
    AT_THRESHOLD,
    GROUPED,
)
from nearcast.index._kernels.topk.match import bound_row, bound_tile, set_query
from nearcast.index.topk import TopKIndex
from nearcast.model import Message, MessageBatch, ScoringContext, SubscriptionBatch, TopKSubscription
from nearcast.model.profiles import Profiles
from nearcast.social import SocialGraph
from nearcast.space import Box, Space
from nearcast.testing import strategies as projection
from nearcast.text import TEXT_SIMILARITIES, Vocabulary
from nearcast.workload import make

SMALL = "NEARCAST_TEST_SMALL" in os.environ
"""Set for the passes without compiled code and with checked bounds."""
ROUNDS, N, M = (2, 40, 6) if SMALL else (6, 200, 25)
LONG = 150 if SMALL else 1500
"""Subscriptions that share a term, so that its list has groups."""
EXAMPLES = 5 if SMALL else 60

EDGES = Space.earth(max_distance=300_000.0)
METRE = Space.earth(max_distance=1.0)
HALF = Space.earth()
FLAT = Space(Box(-3, 10, 5, 11), max_distance=0.5)
DOT = Space(Box(0, 0, 0, 0), max_distance=7)
HUGE = Space(Box(-1e308, -1e308, 1e308, 1e308), max_distance=1e300)
ALL = {"edges": EDGES, "metre": METRE, "half": HALF, "flat": FLAT, "dot": DOT, "huge": HUGE}

TERMS = [f"t{i}" for i in range(40)]
VOCABULARY = Vocabulary.with_weights({term: i * 0.37 % 3.1 if i % 7 else 0.0 for i, term in enumerate(TERMS)})


def scoring_of(space, vocabulary=None):
    return ScoringContext(
        space, vocabulary or projection.vocabulary(), SocialGraph([]), TEXT_SIMILARITIES["containment"]
    )


def batch_of(messages, scoring):
    return MessageBatch.from_messages(messages, vocabulary=scoring.vocabulary)


class Tied:
    """Few places, few terms, dyadic weights: scores are equal all the time."""

    def __init__(self, space, seed):
        self.space, self.rng = space, random.Random(seed)

    def point(self):
        return self.rng.choice(projection.GRID[self.space])

    def subscription(self):
        rng = self.rng
        words = rng.choices(projection.TERMS, k=rng.randint(1, 5))
        return TopKSubscription("s", location=self.point(), keywords=words, k=1, alpha=rng.choice(projection.SHARES))

    def message(self):
        return Message("m", self.point(), self.rng.choices([*projection.TERMS, "new"], k=self.rng.randint(0, 6)))


class Loose:
    """Clusters at very different scales, terms of very different weight, some of none."""

    def __init__(self, space, seed):
        self.space, self.rng = space, random.Random(seed)
        b = space.bounds
        self.centres = [(b.xmin, b.ymin), (b.xmax, b.ymax), (b.xmin, b.ymin / 2 + b.ymax / 2)]
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
        rng = self.rng
        alpha = rng.choice([0.0, 1.0, rng.random(), rng.random()])
        return TopKSubscription("s", location=self.point(), keywords=self.terms(9), k=1, alpha=alpha)

    def message(self):
        return Message("m", self.point(), self.terms(12) if self.rng.random() < 0.9 else [])


class Twin:
    """An index, and beside it what it must know."""

    def __init__(self, scoring, seed=0, **options):
        self.scoring, self.rng = scoring, random.Random(seed)
        self.index = TopKIndex(scoring, **options)
        self.scorers, self.thresholds = {}, {}

    def insert(self, subscriptions):
        slots = np.array(list(subscriptions), np.int32)
        self.index.insert(slots, SubscriptionBatch.of(list(subscriptions.values()), self.scoring))
        for slot, subscription in subscriptions.items():
            self.scorers[slot], self.thresholds[slot] = subscription.bind(self.scoring), -np.inf

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
        """Set some bars: to scores that occur, right beside them, anywhere, or open."""
        scores = {
            slot: [s for d in batch.documents if (s := self.scorers[slot](d)) is not None] for slot in self.thresholds
        }
        chosen = self.rng.sample(sorted(self.thresholds), max(1, len(self.thresholds) * 2 // 3))
        moved = {}
        for slot in chosen:
            exact = self.rng.choice(scores[slot] or [0.5])
            moved[slot] = self.rng.choice(
                [
                    exact,
                    exact,
                    np.nextafter(exact, 9),
                    np.nextafter(exact, -9),
                    exact + 0.01,
                    self.rng.random(),
                    -np.inf,
                ]
            )
        self.set_thresholds(moved)

    def expected(self, batch, start=0, stop=None):
        pairs = {}
        for row in range(start, len(batch) if stop is None else stop):
            for slot, score_of in self.scorers.items():
                score = score_of(batch.documents[row])
                if score is not None and score >= self.thresholds[slot]:
                    pairs[row, slot] = score
        return pairs

    def check(self, batch):
        want, got = self.expected(batch), found(self.index, batch)
        assert got == want  # scores to the last bit
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
        twin.delete(rng.sample(sorted(twin.thresholds), len(twin.thresholds) // 3))
        twin.check(said)
        twin.check(batch())
    twin.delete(sorted(twin.thresholds))
    assert found(twin.index, batch()) == {}


@pytest.mark.parametrize("space", projection.SPACES, ids=lambda s: s.metric)
def test_ties_at_the_bar_are_decided_as_the_reference_does(space):
    live_through(Twin(scoring_of(space), 1), Tied(space, 2))


@pytest.mark.parametrize("space", ALL.values(), ids=ALL)
def test_any_space_is_answered_as_the_reference_does(space):
    live_through(Twin(scoring_of(space, VOCABULARY), 3), Loose(space, 4))


@given(data=st.data())
@settings(max_examples=EXAMPLES, deadline=None)
def test_any_small_world_is_answered_as_the_reference_does(data):
    space = data.draw(st.sampled_from(projection.SPACES))
    twin = Twin(scoring_of(space), room=1)
    drawn = data.draw(st.lists(projection.subscriptions("topk", space), min_size=1, max_size=12))
    twin.insert(dict(enumerate(drawn)))
    thresholds = st.sampled_from([-np.inf, 0.0, 0.25, 0.5, 0.75, 1.0, np.inf])
    twin.set_thresholds({slot: data.draw(thresholds) for slot in range(0, len(drawn), 2)})
    twin.delete(sorted(data.draw(st.sets(st.sampled_from(range(len(drawn)))))))
    batch = batch_of(data.draw(st.lists(projection.messages(space), max_size=6)), twin.scoring)
    twin.check(batch)
    twin.set_thresholds(dict.fromkeys(twin.thresholds, -np.inf))
    twin.check(batch)


def hot_world(space, n=LONG, seed=5):
    """Return a twin whose subscriptions nearly all share a term."""
    vocabulary = Vocabulary.with_weights({"hot": 1.0, "warm": 1.25, "cold": 4.0, "rare": 6.0})
    twin, source = Twin(scoring_of(space, vocabulary), seed), Loose(space, seed + 1)
    rng = twin.rng

    def subscription():
        words = rng.choice(["hot", "hot warm", "hot cold", "warm hot cold", "rare hot", "rare"])
        alpha = rng.choice([0.0, 1.0, rng.random(), rng.random()])
        return TopKSubscription("s", location=source.point(), keywords=words, k=1, alpha=alpha)

    def batch():
        words = ["hot", "warm hot", "rare cold hot", "hot hot cold", "cold", ""]
        return batch_of([Message("m", source.point(), rng.choice(words)) for _ in range(M)], twin.scoring)

    twin.insert({slot: subscription() for slot in range(n)})
    return twin, subscription, batch


@pytest.mark.parametrize("space", [EDGES, FLAT], ids=lambda s: s.metric)
def test_long_lists_are_answered_as_the_reference_does(space):
    twin, subscription, batch = hot_world(space)
    for _ in range(ROUNDS):
        said = batch()
        twin.check(said)
        twin.move_thresholds(said)
        twin.check(said)
        gone = twin.rng.sample(sorted(twin.thresholds), len(twin.thresholds) // 3)
        twin.delete(gone)
        twin.check(said)
        twin.insert({slot: subscription() for slot in gone[: len(gone) * 3 // 4]})
        twin.check(batch())
    for left in (LONG // 4, 20, 3, 0):
        twin.delete(sorted(twin.thresholds)[left:])
        twin.check(batch())


def long_lists(state):
    for term in np.flatnonzero(state.lists.classes >= GROUPED):
        yield int(term), int(state.lists.starts[term]), int(state.lists.lengths[term])


def test_the_bound_of_a_group_is_never_below_that_of_a_posting():
    twin, subscription, batch = hot_world(EDGES)
    rng = np.random.default_rng(6)
    query, values, tops = np.zeros(8, np.float32), np.zeros(LANES, np.float32), np.zeros(TILE, np.float32)
    n_ruled_out = 0
    for step in range(ROUNDS):
        twin.move_thresholds(batch())
        gone = twin.rng.sample(sorted(twin.thresholds), LONG // 10)
        twin.delete(gone)
        twin.insert({slot: subscription() for slot in gone})
        if step % 2:  # none is open, so some groups can be ruled out
            twin.set_thresholds({slot: twin.rng.uniform(0.9, 1.0) for slot in twin.thresholds})
        state = twin.index._state()
        for _, start, length in long_lists(state):
            point = Loose(EDGES, step).point()
            set_query(state, *point, query)
            query[6:8] = rng.choice([0.0, 0.1, 0.35, 0.5, 1.0], 2)
            for group in range(start // LANES, -(-(start + length) // LANES)):
                bound_tile(state.postings.tiles, group // TILE, query, tops)
                bound_row(state.postings.bodies, group, query, values)
                held = min(LANES, start + length - group * LANES)
                assert tops[group % TILE] >= values[:held].max() - 2e-5
                n_ruled_out += tops[group % TILE] < 0
    assert n_ruled_out > 0 or SMALL


def corners_of(state, group, held):
    body = state.postings.bodies[group]
    alpha, own, rest, threshold = (
        body[at : at + held].astype(float) for at in (AT_ALPHA, AT_OWN, AT_REST, AT_THRESHOLD)
    )
    at = [0.0, 0.35, 1.0]
    return [(alpha * n + own * w + rest * r - threshold).max() for n in (0, 1) for w in at for r in at]


def test_bounds_follow_bars_that_rise_as_those_that_fall():
    twin, _, _ = hot_world(EDGES)
    for thresholds in ([0.2, 0.9], [0.7, 0.95], [0.1, 0.3]):
        twin.set_thresholds(
            {slot: twin.rng.uniform(*thresholds) for slot in twin.rng.sample(sorted(twin.thresholds), LONG // 2)}
        )
        state = twin.index._state()
        for _, start, length in long_lists(state):
            for group in range(start // LANES, -(-(start + length) // LANES)):
                held = min(LANES, start + length - group * LANES)
                bounds = state.postings.tiles[group // TILE].reshape(-1, TILE)[6:, group % TILE]
                assert bounds.tolist() == pytest.approx(corners_of(state, group, held), abs=1e-6)


def test_lists_are_put_in_order_when_a_quarter_is_out_of_it():
    twin, subscription, _ = hot_world(EDGES)
    for _ in range(ROUNDS):
        gone = twin.rng.sample(sorted(twin.thresholds), LONG // 10)
        twin.delete(gone)
        twin.insert({slot: subscription() for slot in gone})
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
        keys = [order_key(*one) for one in zip(x, y, z, alpha, strict=True)]
        assert keys == sorted(keys)


def test_groups_are_ruled_out_where_bars_are_high():
    twin, _, batch = hot_world(EDGES)
    said = batch()
    twin.check(said)
    n_open = twin.index.work.visited
    twin.set_thresholds(dict.fromkeys(twin.thresholds, 0.9))
    twin.check(said)
    assert twin.index.work.visited - n_open <= (0.9 if SMALL else 0.5) * n_open


def test_slots_that_are_not_here_have_no_bar_to_set():
    twin = Twin(scoring_of(projection.PLANE))
    twin.insert({slot: Tied(projection.PLANE, slot).subscription() for slot in range(8)})
    twin.delete([3])
    twin.index.set_thresholds(np.array([3], np.int32), np.array([0.5]))
    twin.check(batch_of([Message("m", (0, 0), "a b c d e f")], twin.scoring))


def test_a_replaced_subscription_is_open_again():
    twin = Twin(scoring_of(projection.PLANE))
    one = TopKSubscription("s", location=(0, 0), keywords="a", k=1, alpha=0.5)
    twin.insert({0: one})
    twin.set_thresholds({0: 5.0})
    said = batch_of([Message("m", (8, 8), "a b")], twin.scoring)
    assert twin.check(said) == {}
    twin.delete([0])
    twin.insert({0: one})
    assert len(twin.check(said)) == 1


def test_subscriptions_and_messages_of_a_thousand_terms():
    words = [f"w{i}" for i in range(1024)]
    twin = Twin(scoring_of(FLAT, VOCABULARY))
    rng = twin.rng
    for slot, size in enumerate([1, 5, 6, 200, 1024]):
        words_of = rng.sample(words, size)
        twin.insert({slot: TopKSubscription("s", location=(0, 10), keywords=words_of, k=1, alpha=0.5)})
    said = [Message("m", (0, 10.1), rng.sample(words, size)) for size in (1, 30, 1024)]
    batch = batch_of([*said, Message("m", (0, 10.1), "")], twin.scoring)
    assert len(twin.check(batch)) >= 6
    twin.move_thresholds(batch)
    twin.check(batch)


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
    twin.index = TopKIndex(scoring, arena=Arena.attach(tmp_path / "arena"))
    assert twin.check(batch) == first
    twin.delete(list(range(0, N, 3)))
    twin.check(batch)


def test_a_keeper_may_have_written_the_profiles_down_already():
    scoring, source, arena = scoring_of(projection.PLANE), Tied(projection.PLANE, 14), Arena()
    subscriptions = {slot: source.subscription() for slot in range(20)}
    slots = np.arange(20, dtype=np.int32)
    Profiles(arena).insert(slots, SubscriptionBatch.of(list(subscriptions.values()), scoring).subscription_columns)
    twin = Twin(scoring, arena=arena)
    twin.insert(subscriptions)
    twin.check(batch_of([source.message() for _ in range(M)], scoring))


def test_room_is_bounded_over_cycles_of_insertion_and_deletion():
    scoring, source, held = scoring_of(EDGES, VOCABULARY), Loose(EDGES, 15), []
    twin = Twin(scoring)
    for _ in range(12):
        twin.insert({slot: source.subscription() for slot in range(4 * N)})
        twin.delete(twin.rng.sample(range(4 * N), 4 * N))
        held.append(twin.index.nbytes)
    assert held[-1] <= 1.6 * held[2], held


@pytest.fixture(scope="module")
def tweets():
    """Subscriptions, each with the best score of a past as its bar, and messages to come."""
    workload, n = make("tweets", seed=5), 300 if SMALL else 20_000
    table = next(iter(workload.messages(3_000)))
    scoring = scoring_of(workload.space(), Vocabulary.from_texts(table["text"].to_pylist()))
    messages = [Message(str(i), (r["x"], r["y"]), r["text"]) for i, r in enumerate(table.to_pylist())]
    rows = pa.concat_tables(workload.subscriptions("topk", n, k=20)).to_pylist()
    subscriptions = [
        TopKSubscription(r["id"], location=(r["x"], r["y"]), keywords=r["keywords"], k=r["k"], alpha=r["alpha"])
        for r in rows
    ]
    past = batch_of(messages[: 50 if SMALL else 2_000], scoring)
    return (
        SubscriptionBatch.of(subscriptions, scoring),
        past,
        batch_of(messages[2_000 : 2_030 if SMALL else 2_500], scoring),
    )


def test_bars_rule_out_most_of_what_shares_a_term(tweets):
    subscription_batch, past, batch = tweets
    index, slots = TopKIndex(subscription_batch.scoring), np.arange(len(subscription_batch), dtype=np.int32)
    index.insert(slots, subscription_batch)
    thresholds = np.full(len(subscription_batch), -np.inf)
    seen = index.match(past, 0, len(past))
    np.maximum.at(thresholds, seen.slots, seen.scores)
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


@pytest.mark.skipif(SMALL, reason="is one of the passes itself")
@pytest.mark.parametrize("mode", MODES)
def test_all_of_this_holds_with(mode):
    check_passes(mode, __file__, "tests/model/test_profiles.py", NEARCAST_TEST_SMALL="1")
