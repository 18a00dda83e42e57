"""The index of kind `similarity` and the paper's baselines find what the reference finds, with less work."""

import itertools
import random
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import index_checks
from effort import sampled
from modes import MODES, check_passes
from nearcast._jit import Arena
from nearcast.errors import InvalidInput
from nearcast.index.base import Work
from nearcast.index.similarity import FILTERS, SimilarityIndex
from nearcast.model import Message, MessageBatch, SimilaritySubscription, SubscriptionBatch
from nearcast.space import Box, Space
from nearcast.testing import strategies
from nearcast.text import TEXT_SIMILARITIES, Vocabulary
from nearcast.workload import make
from nearcast_baselines import stamp
from twins import (
    DOT,
    EDGES,
    FLAT,
    GLOBE,
    HALF,
    METRE,
    PLANE,
    SMALL,
    ClusteredSource,
    FixedTwin,
    GridSource,
    found,
    run_lifecycle,
    scoring_of,
)

ROUNDS, N, M = (2, 30, 8) if SMALL else (5, 150, 25)
EXAMPLES = 5 if SMALL else 60

SUBSETS = [frozenset(s) for n in range(4) for s in itertools.combinations(sorted(FILTERS), n)]
MAKERS = {
    "index": SimilarityIndex,
    **{
        "index-" + ("+".join(sorted(subset)) or "none"): partial(SimilarityIndex, filters=subset)
        for subset in SUBSETS[:-1]
    },
}
OWN = list(MAKERS)
MAKERS |= stamp.BASELINES  # in soak: compiling them takes long


@pytest.fixture(
    params=[*OWN, *(pytest.param(name, marks=pytest.mark.soak) for name in stamp.BASELINES)], scope="module"
)
def make_index(request):
    return MAKERS[request.param]


class SimilarityTwin(FixedTwin):
    """A twin whose scores may differ from the reference by rounding."""

    tolerance = 1e-9


def subscription_from(source):
    return SimilaritySubscription(
        "s", location=source.point(), keywords=source.terms(7), delta=source.share(), tau=source.share()
    )


def grid_twin(make_index, space, seed=0, text="containment"):
    source = GridSource(space, seed + 1, subscription_from)
    return SimilarityTwin(make_index, source, scoring=scoring_of(space, text, source.vocabulary), seed=seed)


def clustered_twin(make_index, space, seed=0, text="containment"):
    source = ClusteredSource(space, seed + 1, subscription_from)
    return SimilarityTwin(make_index, source, scoring=scoring_of(space, text, source.vocabulary), seed=seed)


def run_short_lifecycle(twin):
    run_lifecycle(twin, sizes=(ROUNDS, N, M))


@pytest.mark.parametrize(
    ("index", "text", "space"), sampled([*MAKERS], [*TEXT_SIMILARITIES], strategies.SPACES, soak=stamp.BASELINES)
)
def test_ties_at_tau_are_decided_as_by_the_reference(index, text, space):
    run_short_lifecycle(grid_twin(MAKERS[index], space, 1, text))


@pytest.mark.parametrize(
    ("index", "text", "space"), sampled([*MAKERS], [*TEXT_SIMILARITIES], [EDGES, FLAT], soak=stamp.BASELINES)
)
def test_matches_equal_the_reference_for_every_text_function(index, text, space):
    run_short_lifecycle(clustered_twin(MAKERS[index], space, 3, text))


@pytest.mark.parametrize(("index", "space"), sampled([*MAKERS], [METRE, HALF, DOT], soak=stamp.BASELINES))
def test_nearness_may_end_after_a_metre_or_at_the_antipode(index, space):
    twin = clustered_twin(MAKERS[index], space, 5)
    if space is HALF:
        twin.source.centres += [((x + 360) % 360 - 180, -y) for x, y in twin.source.centres]
    run_short_lifecycle(twin)


@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_matches_equal_the_reference_for_generated_data(data):
    space = data.draw(st.sampled_from(strategies.SPACES))
    text = data.draw(st.sampled_from(sorted(TEXT_SIMILARITIES)))
    twin = grid_twin(partial(SimilarityIndex, room=1), space, text=text)
    drawn = data.draw(st.lists(strategies.subscriptions("similarity", space), min_size=1, max_size=12))
    twin.insert(dict(enumerate(drawn)))
    twin.delete(sorted(data.draw(st.sets(st.sampled_from(range(len(drawn)))))))
    twin.check(twin.batch_of(data.draw(st.lists(strategies.messages(space), max_size=6))))


def test_scores_next_to_tau_are_decided_as_by_the_reference(make_index):
    space = Space.earth(max_distance=500_000.0)
    twin, rng = SimilarityTwin(make_index, None, scoring=strategies.scoring(space)), random.Random(8)
    here, subscriptions = (179.99, 51.5), {}
    for slot in range(40 if SMALL else 400):
        there = (rng.choice([-1, 1]) * (180 - rng.random()), 51.5 + rng.uniform(-2, 2))
        near, delta = space.near(there, here), rng.random()
        tau = delta * rng.choice([0.0, 2 / 3, 1.0]) + (1 - delta) * near
        tau = float(np.clip(tau + rng.choice([-1e-16, 0, 0, 1e-16, 1e-12, -1e-12]), 0, 1))
        subscriptions[slot] = SimilaritySubscription("s", location=there, keywords="a b", delta=delta, tau=tau)
    twin.insert(subscriptions)
    want = twin.check(twin.batch_of([Message("m", here, "a c"), Message("n", here, "b a")]))
    assert 0 < len(want) < 2 * len(subscriptions)


def test_frequent_terms_fill_cells_and_empty_them_again(make_index):
    n, rng = 60 if SMALL else 1500, random.Random(9)
    vocabulary = Vocabulary.with_weights({"hot": 1.0, "warm": 1.25, "cold": 4.0})
    twin = SimilarityTwin(make_index, None, scoring=scoring_of(EDGES, vocabulary=vocabulary))
    places = [(rng.uniform(-180, 180), rng.uniform(-90, 90)) for _ in range(n // 10)]
    texts = ["hot", "hot warm", "hot cold", "warm hot cold"]
    for slots in (range(n), range(0, n, 2)):
        subscriptions = {
            slot: SimilaritySubscription(
                "s", location=rng.choice(places), keywords=rng.choice(texts), delta=rng.random(), tau=rng.random()
            )
            for slot in slots
        }
        twin.insert(subscriptions)
        batch = twin.batch_of([Message("m", rng.choice(places), rng.choice([*texts, ""])) for _ in range(M)])
        twin.check(batch)
        twin.delete(list(range(0, n, 2)))
        twin.check(batch)


def test_part_of_a_batch_has_the_row_numbers_of_the_batch(make_index):
    twin = grid_twin(make_index, PLANE, 10)
    twin.insert(range(30))
    batch = twin.batch(10)
    twin.check(batch, 3, 7)
    assert found(twin.index, batch, 4, 4) == {}


def test_an_empty_index_finds_nothing(make_index):
    twin = grid_twin(make_index, PLANE)
    batch = twin.batch_of([Message("m", (0, 0), "a b")])
    assert found(twin.index, batch) == {}
    one = SubscriptionBatch.of([twin.source.subscription()], twin.scoring)
    twin.index.insert(np.zeros(0, np.int32), one.take(np.zeros(0, np.int64)))
    twin.index.delete(np.zeros(0, np.int32))
    assert found(twin.index, batch) == {}
    assert found(twin.index, MessageBatch.empty()) == {}


def test_the_running_example_of_the_paper(make_index):
    weights = {"t5": 0.5, "t4": 0.4, "t3": 0.3, "t2": 0.2, "t1": 0.1}
    rows = [
        ("t4 t2", 0.7, 0.8, 0.6), ("t4 t3 t2", 0.5, 0.8, 0.7), ("t4 t3 t1", 0.5, 0.7, 0.6),
        ("t5 t4 t1", 0.6, 0.75, 0.6), ("t5 t2 t1", 0.5, 0.6, 0.55), ("t3 t2 t1", 0.5, 0.6, 0.55),
        ("t3 t2 t1", 0.2, 0.7, 0.4), ("t5 t4 t1", 0.6, 0.7, 0.3), ("t5 t4 t2", 0.7, 0.7, 0.4),
        ("t4 t2 t1", 0.5, 0.8, 0.3), ("t5 t3", 0.5, 0.8, 0.4),
    ]  # fmt: skip
    space = Space(Box(-1, -1, 1, 1), max_distance=1.0)
    twin = SimilarityTwin(make_index, None, scoring=scoring_of(space, vocabulary=Vocabulary.with_weights(weights)))
    subscriptions = {
        slot: SimilaritySubscription(f"s{slot}", location=(1 - near, 0), keywords=terms, delta=delta, tau=tau)
        for slot, (terms, delta, tau, near) in enumerate(rows)
    }
    twin.insert(subscriptions)
    batch = twin.batch_of([Message("m1", (0, 0), "t4 t2"), Message("m2", (0, 0), "t4 t3 t1")])
    matches = found(twin.index, batch)
    assert set(matches) == {(0, 0), (1, 2), (1, 5)}
    assert matches[0, 0] == pytest.approx(0.88)


def test_small_buffers_give_the_same_matches_and_count_work_once():
    twins = (grid_twin(partial(SimilarityIndex, room=room), GLOBE, 11) for room in (1, 1 << 14))
    index_checks.check_small_buffers(*twins)


def test_compacting_changes_no_match_and_frees_memory():
    twin = clustered_twin(SimilarityIndex, EDGES, 12)
    twin.insert(range(10 * N))
    twin.delete(list(range(9 * N)))
    batch = twin.batch(M)
    before, size = found(twin.index, batch), twin.index.nbytes
    twin.index.compact()
    assert found(twin.index, batch) == before
    assert twin.index.nbytes < size
    twin.check(batch)
    twin.delete(sorted(twin.scorers))
    twin.index.compact()
    assert found(twin.index, batch) == {}


def test_an_arena_holds_the_whole_index(tmp_path):
    twin = grid_twin(partial(SimilarityIndex, arena=Arena(tmp_path / "arena")), PLANE, 13)
    twin.insert(range(N))
    batch = twin.batch(M)
    first = found(twin.index, batch)
    twin.index = SimilarityIndex(twin.scoring, arena=Arena.attach(tmp_path / "arena"))
    assert found(twin.index, batch) == first
    twin.delete(list(range(0, N, 3)))
    twin.check(batch)


def test_an_attached_index_deletes_subscriptions_of_many_terms(tmp_path):
    twin = clustered_twin(partial(SimilarityIndex, arena=Arena(tmp_path / "arena")), EDGES)
    terms = [f"w{i}" for i in range(300)]
    twin.insert(
        {i: SimilaritySubscription("s", location=(0, 0), keywords=terms, delta=0.5, tau=0.1) for i in range(3)}
    )
    twin.index = SimilarityIndex(twin.scoring, arena=Arena.attach(tmp_path / "arena"))
    twin.delete([1])
    assert set(twin.check(twin.batch_of([Message("m", (0, 0), terms)]))) == {(0, 0), (0, 2)}


def test_an_unknown_filter_is_refused():
    with pytest.raises(InvalidInput, match=r"filters must be some of cells, others, reach; got \['luck'\]"):
        SimilarityIndex(scoring_of(PLANE), filters=frozenset({"luck"}))


def test_memory_is_bounded_over_cycles_of_insertion_and_deletion():
    twin, sizes = clustered_twin(SimilarityIndex, EDGES, 14), []
    for _ in range(12):
        twin.insert(range(4 * N))
        twin.delete(sorted(twin.scorers))
        sizes.append(twin.index.nbytes)
    assert sizes[-1] <= 1.6 * sizes[2], sizes


@pytest.fixture(scope="module")
def tweets():
    """Return scoring, subscriptions and messages of the tweets workload."""
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
    batch = MessageBatch.from_messages(messages, vocabulary=vocabulary)
    return scoring, SubscriptionBatch.of(subscriptions, scoring), batch


def work_on(index, tweets) -> Work:
    _, subscriptions, batch = tweets
    index.insert(np.arange(len(subscriptions), dtype=np.int32), subscriptions)
    found(index, batch)
    return index.work


def test_few_subscriptions_are_candidates_on_tweets(tweets):
    scoring, subscriptions, batch = tweets
    work = work_on(SimilarityIndex(scoring), tweets)
    n_pairs = len(subscriptions) * len(batch)
    assert work.candidates <= 0.012 * n_pairs
    assert work.visited <= 0.03 * n_pairs
    assert work.matched >= 0.8 * work.candidates


@pytest.mark.skipif(SMALL, reason="needs lists that are long enough to be split")
def test_every_filter_lowers_the_work(tweets):
    steps = [(), ("reach",), ("reach", "cells"), ("reach", "cells", "others")]
    works = [work_on(SimilarityIndex(tweets[0], filters=frozenset(step)), tweets) for step in steps]
    assert len({work.matched for work in works}) == 1
    for more, less in itertools.pairwise(works):
        assert less.visited <= more.visited
        assert less.candidates <= more.candidates
        assert less.verified <= more.verified
    assert works[1].candidates < 0.1 * works[0].candidates
    assert works[2].visited < 0.5 * works[1].visited
    assert works[3].verified < works[2].verified


@pytest.mark.soak
def test_every_method_of_the_paper_lowers_the_work(tweets):
    works = [work_on(make_baseline(tweets[0]), tweets) for make_baseline in stamp.BASELINES.values()]
    assert len({work.matched for work in works}) == 1
    for more, less in itertools.pairwise(works):
        assert less.visited <= more.visited
        assert less.verified <= more.verified
    if not SMALL:  # lists that are too short for cells are read in full
        assert work_on(SimilarityIndex(tweets[0]), tweets).visited < works[-1].visited


@pytest.mark.soak
@pytest.mark.skipif(SMALL, reason="is one of the passes itself")
@pytest.mark.parametrize("mode", MODES)
def test_these_tests_pass_with(mode):
    check_passes(mode, __file__, NEARCAST_TEST_SMALL="1")
