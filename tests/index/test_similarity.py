"""Does the index of kind `similarity`, and each of the paper's rivals, answer as the reference does, with less work?"""

import itertools
import os
import random
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modes import MODES, check_passes
from nearcast._jit import Arena
from nearcast.errors import InvalidInput
from nearcast.index.base import Work
from nearcast.index.similarity import FILTERS, SimilarityIndex
from nearcast.model import Message, MessageBatch, ScoringContext, SimilaritySubscription, SubscriptionBatch
from nearcast.social import SocialGraph
from nearcast.space import Box, Space
from nearcast.testing import strategies as params
from nearcast.text import TEXT_SIMILARITIES, Vocabulary
from nearcast.workload import make

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from benchmarks.baselines import stamp  # noqa: E402

SMALL = "NEARCAST_TEST_SMALL" in os.environ
"""Set for the passes without compiled code and with checked bounds."""
ROUNDS, N, M = (2, 30, 8) if SMALL else (5, 150, 25)
EXAMPLES = 5 if SMALL else 60

SUBSETS = [frozenset(s) for n in range(4) for s in itertools.combinations(sorted(FILTERS), n)]
MAKERS = {
    "index": SimilarityIndex,
    **{
        "index-" + ("+".join(sorted(subset)) or "none"): (
            lambda scoring, subset=subset: SimilarityIndex(scoring, filters=subset)
        )
        for subset in SUBSETS[:-1]
    },
    **stamp.RIVALS,
}
EDGES = Space.earth(max_distance=300_000.0)
METRE = Space.earth(max_distance=1.0)
HALF = Space.earth()
FLAT = Space(Box(-3, 10, 5, 11), max_distance=0.5)


@pytest.fixture(params=MAKERS, scope="module")
def maker(request):
    return MAKERS[request.param]


def columns_of(subscriptions, scoring):
    return SubscriptionBatch.of(subscriptions, scoring).subscription_columns


def scoring_of(space, text="containment", vocabulary=None):
    return ScoringContext(space, vocabulary or params.vocabulary(), SocialGraph([]), TEXT_SIMILARITIES[text])


def batch_of(messages, scoring):
    return MessageBatch.from_messages(messages, vocabulary=scoring.vocabulary)


def expected(alive, batch, scoring, start=0, stop=None):
    scorers = {slot: subscription.bind(scoring) for slot, subscription in alive.items()}
    pairs = {}
    for row in range(start, len(batch) if stop is None else stop):
        for slot, score_of in scorers.items():
            score = score_of(batch.documents[row])
            if score is not None:
                pairs[row, slot] = score
    return pairs


def found(index, batch, start=0, stop=None):
    rows, slots, scores = index.match(batch, start, len(batch) if stop is None else stop)
    assert (rows.dtype, slots.dtype, scores.dtype) == (np.int64, np.int32, np.float64)
    assert np.all(np.diff(rows) >= 0)
    pairs = dict(zip(zip(rows.tolist(), slots.tolist(), strict=True), scores.tolist(), strict=True))
    assert len(pairs) == len(rows), "a pair was reported twice"
    return pairs


def check(index, alive, batch, scoring):
    want, got = expected(alive, batch, scoring), found(index, batch)
    assert set(got) == set(want)
    assert all(abs(got[pair] - want[pair]) <= 1e-9 for pair in want)
    work = index.work
    assert work.matched <= work.verified <= work.candidates <= work.visited
    return want


def insert(index, subscriptions, scoring, alive=None):
    """Insert by slot."""
    slots = list(subscriptions)
    index.insert_columns(np.array(slots, np.int32), columns_of(list(subscriptions.values()), scoring))
    if alive is not None:
        alive.update(subscriptions)


def delete(index, slots, alive):
    index.delete(np.array(slots, np.int32))
    for slot in slots:
        del alive[slot]


class Tied:
    """Few places, few terms, dyadic weights: scores equal tau exactly, all the time."""

    def __init__(self, space, seed):
        self.space, self.rng = space, random.Random(seed)

    def point(self):
        return self.rng.choice(params.GRID[self.space])

    def subscription(self):
        rng = self.rng
        return SimilaritySubscription(
            "s",
            location=self.point(),
            keywords=rng.choices(params.TERMS, k=rng.randint(1, 7)),
            delta=rng.choice(params.SHARES),
            tau=rng.choice(params.SHARES),
        )

    def message(self):
        return Message("m", self.point(), self.rng.choices(params.TERMS, k=self.rng.randint(0, 6)))


class Loose:
    """Points anywhere, along the antimeridian and around the poles; hot and rare terms, some of weight 0."""

    TERMS = [f"t{i}" for i in range(40)]
    VOCABULARY = Vocabulary.with_weights({term: i * 0.37 % 3.1 if i % 7 else 0.0 for i, term in enumerate(TERMS)})

    def __init__(self, space, seed):
        self.space, self.rng = space, random.Random(seed)
        self.centres = [self.anywhere() for _ in range(4)] + self.corners()

    def corners(self):
        b = self.space.bounds
        return [(b.xmin, b.ymin), (b.xmax, b.ymax), (b.xmin, (b.ymin + b.ymax) / 2), (b.xmax, (b.ymin + b.ymax) / 2)]

    def anywhere(self):
        b = self.space.bounds
        return self.rng.uniform(b.xmin, b.xmax), self.rng.uniform(b.ymin, b.ymax)

    def point(self):
        x, y = self.rng.choice(self.centres)
        spread = self.rng.choice([0.0, 1e-9, 1e-5, 0.01, 0.5, 3.0])
        b = self.space.bounds
        x, y = x + self.rng.uniform(-spread, spread), y + self.rng.uniform(-spread, spread)
        if self.space.metric == "haversine" and abs(x) > 180:
            x -= 360 * np.sign(x)
        return float(min(max(x, b.xmin), b.xmax)), float(min(max(y, b.ymin), b.ymax))

    def terms(self, most):
        return [self.TERMS[min(int(self.rng.expovariate(0.12)), 39)] for _ in range(self.rng.randint(1, most))]

    def subscription(self):
        rng = self.rng
        delta, tau = rng.choice([0.0, 1.0, rng.random(), rng.random()]), rng.choice([0.0, 1.0, *[rng.random()] * 4])
        return SimilaritySubscription("s", location=self.point(), keywords=self.terms(9), delta=delta, tau=tau)

    def message(self):
        return Message("m", self.point(), self.terms(12) if self.rng.random() < 0.9 else [])


def live_through(index, source, scoring, seed):
    """Insert, delete and match in turns, slots used again; compare after each."""
    rng, alive = random.Random(seed), {}
    for _ in range(ROUNDS):
        free = [slot for slot in range(2 * N) if slot not in alive]
        insert(index, {slot: source.subscription() for slot in rng.sample(free, N // 2)}, scoring, alive)
        check(index, alive, batch_of([source.message() for _ in range(M)], scoring), scoring)
        delete(index, rng.sample(sorted(alive), len(alive) // 3), alive)
        check(index, alive, batch_of([source.message() for _ in range(M)], scoring), scoring)
    delete(index, sorted(alive), alive)
    assert found(index, batch_of([source.message()], scoring)) == {}


@pytest.mark.parametrize("space", params.SPACES, ids=lambda s: s.metric)
@pytest.mark.parametrize("text", TEXT_SIMILARITIES)
def test_ties_at_tau_are_decided_as_the_reference_does(maker, text, space):
    scoring = scoring_of(space, text)
    live_through(maker(scoring), Tied(space, 1), scoring, seed=2)


@pytest.mark.parametrize("space", [EDGES, FLAT], ids=lambda s: s.metric)
@pytest.mark.parametrize("text", TEXT_SIMILARITIES)
def test_a_loose_world_is_answered_as_the_reference_does(maker, text, space):
    scoring = scoring_of(space, text, Loose.VOCABULARY)
    live_through(maker(scoring), Loose(space, 3), scoring, seed=4)


@pytest.mark.parametrize("space", [METRE, HALF, Space(Box(0, 0, 0, 0), max_distance=7)], ids=["metre", "half", "dot"])
def test_nearness_may_end_after_a_metre_or_at_the_antipode(maker, space):
    scoring = scoring_of(space, "containment", Loose.VOCABULARY)
    source = Loose(space, 5)
    if space is HALF:
        source.centres += [((x + 360) % 360 - 180, -y) for x, y in source.centres]
    live_through(maker(scoring), source, scoring, seed=6)


@given(data=st.data())
@settings(max_examples=EXAMPLES, deadline=None)
def test_any_small_world_is_answered_as_the_reference_does(data):
    space = data.draw(st.sampled_from(params.SPACES))
    scoring = scoring_of(space, data.draw(st.sampled_from(sorted(TEXT_SIMILARITIES))))
    index = SimilarityIndex(scoring, room=1)
    drawn = data.draw(st.lists(params.subscriptions("similarity", space), min_size=1, max_size=12))
    alive = {}
    insert(index, dict(enumerate(drawn)), scoring, alive)
    gone = data.draw(st.sets(st.sampled_from(range(len(drawn)))))
    delete(index, sorted(gone), alive)
    check(index, alive, batch_of(data.draw(st.lists(params.messages(space), max_size=6)), scoring), scoring)


def test_scores_a_hair_from_tau_are_decided_as_the_reference_does(maker):
    space = Space.earth(max_distance=500_000.0)
    scoring = scoring_of(space)
    rng, alive = random.Random(8), {}
    here = (179.99, 51.5)
    for slot in range(40 if SMALL else 400):
        there = (rng.choice([-1, 1]) * (180 - rng.random()), 51.5 + rng.uniform(-2, 2))
        near, delta = space.near(there, here), rng.random()
        tau = delta * rng.choice([0.0, 2 / 3, 1.0]) + (1 - delta) * near
        tau = float(np.clip(tau + rng.choice([-1e-16, 0, 0, 1e-16, 1e-12, -1e-12]), 0, 1))
        alive[slot] = SimilaritySubscription("s", location=there, keywords="a b", delta=delta, tau=tau)
    index = maker(scoring)
    insert(index, alive, scoring)
    want = check(index, alive, batch_of([Message("m", here, "a c"), Message("n", here, "b a")], scoring), scoring)
    assert 0 < len(want) < 2 * len(alive)


def test_hot_terms_and_shared_places_fill_cells_and_empty_again(maker):
    n = 60 if SMALL else 1500
    scoring = scoring_of(EDGES, vocabulary=Vocabulary.with_weights({"hot": 1.0, "warm": 1.25, "cold": 4.0}))
    rng, index, alive = random.Random(9), maker(scoring), {}
    places = [(rng.uniform(-180, 180), rng.uniform(-90, 90)) for _ in range(n // 10)]
    words = ["hot", "hot warm", "hot cold", "warm hot cold"]
    for slots in (range(n), range(0, n, 2)):
        given_ = {
            slot: SimilaritySubscription(
                "s", location=rng.choice(places), keywords=rng.choice(words), delta=rng.random(), tau=rng.random()
            )
            for slot in slots
        }
        insert(index, given_, scoring, alive)
        messages = [Message("m", rng.choice(places), rng.choice([*words, ""])) for _ in range(M)]
        check(index, alive, batch_of(messages, scoring), scoring)
        delete(index, list(range(0, n, 2)), alive)
        check(index, alive, batch_of(messages, scoring), scoring)


def test_a_part_of_a_batch_is_numbered_as_the_batch_is(maker):
    scoring, source = scoring_of(params.PLANE), Tied(params.PLANE, 10)
    index, alive = maker(scoring), {}
    insert(index, {slot: source.subscription() for slot in range(30)}, scoring, alive)
    batch = batch_of([source.message() for _ in range(10)], scoring)
    assert set(found(index, batch, 3, 7)) == set(expected(alive, batch, scoring, 3, 7))
    assert found(index, batch, 4, 4) == {}


def test_nothing_is_found_where_nothing_is(maker):
    scoring = scoring_of(params.PLANE)
    index = maker(scoring)
    batch = batch_of([Message("m", (0, 0), "a b")], scoring)
    assert found(index, batch) == {}
    one = columns_of([Tied(params.PLANE, 1).subscription()], scoring)
    none = {name: getattr(one, name)[:0] for name in ("xs", "ys", "term_ids", "idfs", "deltas", "taus")}
    index.insert_columns(np.zeros(0, np.int32), replace(one, term_indptr=one.term_indptr[:1], **none))
    index.delete(np.zeros(0, np.int32))
    assert found(index, batch) == {}
    assert found(index, MessageBatch.empty()) == {}


def test_the_running_example_of_the_paper(maker):
    weights = {"t5": 0.5, "t4": 0.4, "t3": 0.3, "t2": 0.2, "t1": 0.1}
    given_ = [
        ("t4 t2", 0.7, 0.8, 0.6), ("t4 t3 t2", 0.5, 0.8, 0.7), ("t4 t3 t1", 0.5, 0.7, 0.6),
        ("t5 t4 t1", 0.6, 0.75, 0.6), ("t5 t2 t1", 0.5, 0.6, 0.55), ("t3 t2 t1", 0.5, 0.6, 0.55),
        ("t3 t2 t1", 0.2, 0.7, 0.4), ("t5 t4 t1", 0.6, 0.7, 0.3), ("t5 t4 t2", 0.7, 0.7, 0.4),
        ("t4 t2 t1", 0.5, 0.8, 0.3), ("t5 t3", 0.5, 0.8, 0.4),
    ]  # fmt: skip
    scoring = scoring_of(Space(Box(-1, -1, 1, 1), max_distance=1.0), vocabulary=Vocabulary.with_weights(weights))
    index = maker(scoring)
    subscriptions = {
        slot: SimilaritySubscription(f"s{slot}", location=(1 - near, 0), keywords=words, delta=delta, tau=tau)
        for slot, (words, delta, tau, near) in enumerate(given_)
    }
    insert(index, subscriptions, scoring)
    got = found(index, batch_of([Message("m1", (0, 0), "t4 t2"), Message("m2", (0, 0), "t4 t3 t1")], scoring))
    assert set(got) == {(0, 0), (1, 2), (1, 5)}
    assert got[0, 0] == pytest.approx(0.88)


def test_tiny_buffers_give_the_same_answers_and_count_work_once():
    scoring, source = scoring_of(params.GLOBE), Tied(params.GLOBE, 11)
    small, large, alive = SimilarityIndex(scoring, room=1), SimilarityIndex(scoring), {}
    insert(small, {slot: source.subscription() for slot in range(N)}, scoring, alive)
    insert(large, alive, scoring)
    batch = batch_of([source.message() for _ in range(M)], scoring)
    assert found(small, batch) == found(large, batch) != {}
    assert small.work == large.work


def test_compacting_changes_no_answer_and_gives_room_back():
    scoring, source = scoring_of(EDGES, vocabulary=Loose.VOCABULARY), Loose(EDGES, 12)
    index, alive = SimilarityIndex(scoring), {}
    insert(index, {slot: source.subscription() for slot in range(10 * N)}, scoring, alive)
    delete(index, list(range(9 * N)), alive)
    batch = batch_of([source.message() for _ in range(M)], scoring)
    before, held = found(index, batch), index.nbytes
    index.compact()
    assert found(index, batch) == before
    assert index.nbytes < held
    check(index, alive, batch, scoring)
    delete(index, list(alive), alive)
    index.compact()
    assert found(index, batch) == {}


def test_an_arena_holds_everything(tmp_path):
    scoring, source = scoring_of(params.PLANE), Tied(params.PLANE, 13)
    first, alive = SimilarityIndex(scoring, arena=Arena(tmp_path / "arena")), {}
    insert(first, {slot: source.subscription() for slot in range(N)}, scoring, alive)
    second = SimilarityIndex(scoring, arena=Arena.attach(tmp_path / "arena"))
    batch = batch_of([source.message() for _ in range(M)], scoring)
    assert found(second, batch) == found(first, batch)
    delete(second, list(range(0, N, 3)), alive)
    check(second, alive, batch, scoring)


def test_a_filter_that_does_not_exist_is_refused():
    with pytest.raises(InvalidInput, match=r"filters must be some of cells, others, reach; got \['luck'\]"):
        SimilarityIndex(scoring_of(params.PLANE), filters=frozenset({"luck"}))


def test_room_is_bounded_over_cycles_of_insertion_and_deletion():
    scoring, source = scoring_of(EDGES, vocabulary=Loose.VOCABULARY), Loose(EDGES, 14)
    index, alive, held = SimilarityIndex(scoring), {}, []
    for _ in range(12):
        insert(index, {slot: source.subscription() for slot in range(4 * N)}, scoring, alive)
        delete(index, list(alive), alive)
        held.append(index.nbytes)
    assert held[-1] <= 1.6 * held[2], held


@pytest.fixture(scope="module")
def tweets():
    workload = make("tweets", seed=5)
    table = next(iter(workload.messages(2_000)))
    vocabulary = Vocabulary.from_texts(table["text"].to_pylist())
    scoring = scoring_of(Space.earth(max_distance=500_000.0), vocabulary=vocabulary)
    messages = [Message(str(i), (r["x"], r["y"]), r["text"]) for i, r in enumerate(table.slice(0, 60).to_pylist())]
    rows = pa.concat_tables(workload.subscriptions("similarity", 300 if SMALL else 8_000)).to_pylist()
    subscriptions = [
        SimilaritySubscription(
            r["id"], location=(r["x"], r["y"]), keywords=r["keywords"], delta=r["delta"], tau=r["tau"]
        )
        for r in rows
    ]
    return scoring, dict(enumerate(subscriptions)), batch_of(messages, scoring)


def worked(index, tweets) -> Work:
    scoring, subscriptions, batch = tweets
    insert(index, subscriptions, scoring)
    found(index, batch)
    return index.work


def test_tweets_meet_few_candidates(tweets):
    scoring, subscriptions, batch = tweets
    work = worked(SimilarityIndex(scoring), tweets)
    scanned = len(subscriptions) * len(batch)
    assert work.candidates <= 0.012 * scanned
    assert work.visited <= 0.03 * scanned
    assert work.matched >= 0.8 * work.candidates


@pytest.mark.skipif(SMALL, reason="needs lists that are long enough to be split")
def test_every_filter_lowers_the_work(tweets):
    steps = [(), ("reach",), ("reach", "cells"), ("reach", "cells", "others")]
    works = [worked(SimilarityIndex(tweets[0], filters=frozenset(step)), tweets) for step in steps]
    assert len({work.matched for work in works}) == 1
    for more, less in itertools.pairwise(works):
        assert less.visited <= more.visited
        assert less.candidates <= more.candidates
        assert less.verified <= more.verified
    assert works[1].candidates < 0.1 * works[0].candidates
    assert works[2].visited < 0.5 * works[1].visited
    assert works[3].verified < works[2].verified


def test_every_step_of_the_paper_lowers_the_work(tweets):
    works = [worked(maker(tweets[0]), tweets) for maker in stamp.RIVALS.values()]
    assert len({work.matched for work in works}) == 1
    for more, less in itertools.pairwise(works):
        assert less.visited <= more.visited
        assert less.verified <= more.verified
    if not SMALL:  # lists that are too short for cells are read as a whole
        assert worked(SimilarityIndex(tweets[0]), tweets).visited < works[-1].visited


@pytest.mark.skipif(SMALL, reason="is one of the passes itself")
@pytest.mark.parametrize("mode", MODES)
def test_all_of_this_holds_with(mode):
    check_passes(mode, __file__, NEARCAST_TEST_SMALL="1")
