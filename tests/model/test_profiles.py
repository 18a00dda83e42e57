"""A profile holds the subscription, and its score equals the reference bit by bit."""

import random

import numpy as np
import pytest

from nearcast._jit import Arena, kernel
from nearcast.model import Message, MessageBatch, ScoringContext, SubscriptionBatch, TopKSubscription
from nearcast.model._kernels.profiles import ALPHA, LENGTH, RUN, K, X, Y, topk_score
from nearcast.model.profiles import Profiles
from nearcast.social import SocialGraph
from nearcast.space import Box, Space
from nearcast.testing import strategies
from nearcast.text import TEXT_SIMILARITIES, Vocabulary

SPACES = [Space.earth(max_distance=300_000.0), Space.earth(), Space(Box(-3, 10, 5, 11), max_distance=0.5)]
TERMS = [f"t{i}" for i in range(30)]
VOCABULARY = Vocabulary.with_weights({term: i * 0.37 % 3.1 if i % 7 else 0.0 for i, term in enumerate(TERMS)})


def scoring_of(space):
    return ScoringContext(space, VOCABULARY, SocialGraph([]), TEXT_SIMILARITIES["containment"])


def draw(space, rng, most=9):
    b = space.bounds
    x, y = rng.uniform(b.xmin, b.xmax), rng.uniform(b.ymin, b.ymax)
    near = rng.random() < 0.5
    place = (b.xmin + 0.3 * rng.random(), b.ymin + 0.3 * rng.random()) if near else (x, y)
    return TopKSubscription(
        "s",
        location=place,
        keywords=rng.choices(TERMS, k=rng.randint(1, most)),
        k=rng.randint(1, 50),
        alpha=rng.choice([0.0, 1.0, rng.random()]),
    )


def columns_of(subscriptions, scoring):
    return SubscriptionBatch.of(subscriptions, scoring).columns


def slots_of(*slots):
    return np.array(slots, np.int32)


@pytest.mark.parametrize("space", SPACES, ids=["near", "earth", "plane"])
def test_scores_equal_the_reference_bit_by_bit(space):
    rng, scoring = random.Random(1), scoring_of(space)
    subscriptions = [draw(space, rng) for _ in range(60)]
    profiles = Profiles(Arena())
    profiles.insert(np.arange(60, dtype=np.int32), columns_of(subscriptions, scoring))
    messages = [Message(i, draw(space, rng).location, rng.choices(TERMS, k=rng.randint(0, 8))) for i in range(40)]
    batch = MessageBatch.from_messages(messages, vocabulary=VOCABULARY)
    on_sphere, n_shared, points = space.metric == "haversine", 0, profiles.arrays.points
    for slot, subscription in enumerate(subscriptions):
        score_of = subscription.bind(scoring)
        for document in batch.documents:
            expected = score_of(document)
            if expected is not None:
                n_shared += 1
                (part,) = (part for part in subscription.explain(document, scoring).parts if part.name == "text")
                score = topk_score(
                    *points[slot, [X, Y, ALPHA]].tolist(),
                    *document.location,
                    part.value,
                    on_sphere,
                    space.max_distance,
                )
                assert score == expected
    assert n_shared > 100


def test_a_profile_holds_point_terms_and_k():
    scoring = strategies.scoring()
    one = TopKSubscription("t", location=(1, 2), keywords="b a b", k=7, alpha=0.25)
    columns = columns_of([one], scoring)
    profiles = Profiles(Arena())
    profiles.insert(slots_of(3), columns)
    arrays = profiles.arrays
    assert arrays.points[3].tolist() == [1.0, 2.0, 0.25]
    assert (arrays.heads[3, LENGTH], arrays.heads[3, K]) == (2, 7)
    run = arrays.heads[3, RUN]
    assert arrays.run_terms[run : run + 2].tolist() == columns.term_ids.tolist() == sorted(columns.term_ids)
    assert arrays.run_units[run : run + 2].tolist() == columns.units.tolist()
    assert arrays.heads[:3, RUN].tolist() == [-1, -1, -1]


def test_taken_slots_are_not_overwritten_and_free_slots_stay_free():
    scoring, arena = strategies.scoring(), Arena()
    index, result_store = Profiles(arena), Profiles(arena)
    a, b = (TopKSubscription("t", location=(x, 0), keywords="a", k=1, alpha=0.5) for x in (1, 2))
    index.insert(slots_of(0), columns_of([a], scoring))
    result_store.insert(slots_of(0, 1), columns_of([b, b], scoring))
    assert index.arrays.points[:2, 0].tolist() == [1.0, 2.0]
    index.delete(slots_of(0))
    before = result_store.arrays.state.copy()
    result_store.delete(slots_of(0, 900))
    assert result_store.arrays.state.tolist() == before.tolist()
    assert (index.arrays.heads[:2, RUN] >= 0).tolist() == [False, True]


def test_growth_is_visible_to_all_users_of_the_arena():
    scoring, arena = strategies.scoring(), Arena()
    index, result_store = Profiles(arena), Profiles(arena)
    rng = random.Random(2)
    many = [TopKSubscription("t", location=(1, 2), keywords=rng.choices("abcdef", k=3), k=1, alpha=0.5)] * 500
    index.insert(np.arange(500, dtype=np.int32), columns_of(many, scoring))
    assert (result_store.arrays.heads[:500, RUN] >= 0).all()


def test_freed_runs_are_reused_and_long_runs_fit():
    rng, scoring = random.Random(3), scoring_of(SPACES[0])
    words = [f"w{i}" for i in range(1024)]
    profiles, held = Profiles(Arena()), []
    for _ in range(6):
        sizes = [1, 2, 3, 16, 17, 33, 1024]
        made = [
            TopKSubscription("t", location=(1, 2), keywords=rng.sample(words, size), k=1, alpha=0.5) for size in sizes
        ]
        columns = columns_of(made, scoring)
        slots = np.array(rng.sample(range(100), len(sizes)), np.int32)
        profiles.insert(slots, columns)
        arrays = profiles.arrays
        for row, slot in enumerate(slots):
            run, n = arrays.heads[slot, RUN], arrays.heads[slot, LENGTH]
            first, stop = columns.term_indptr[row : row + 2]
            assert arrays.run_terms[run : run + n].tolist() == columns.term_ids[first:stop].tolist()
        profiles.delete(slots)
        held.append(profiles.arrays.run_terms.size)
    assert len(set(held)) == 1


def test_an_arena_in_a_folder_holds_profiles(tmp_path):
    scoring = strategies.scoring()
    one = TopKSubscription("t", location=(1, 2), keywords="a b", k=1, alpha=0.5)
    Profiles(Arena(tmp_path / "arena")).insert(slots_of(0), columns_of([one], scoring))
    again = Profiles(Arena.attach(tmp_path / "arena"))
    assert again.arrays.points[0].tolist() == [1.0, 2.0, 0.5]


def test_the_score_can_be_called_from_a_kernel():
    assert kernel(topk_score) is topk_score
