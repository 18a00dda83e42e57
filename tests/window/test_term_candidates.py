"""A search by terms finds the best of the window and scores few of the messages that it reads."""

import random

import numpy as np
import pytest

import nearcast as nc
from nearcast.text import term_id
from nearcast.window._kernels.lists import bucket_of, tag_of
from nearcast.window._kernels.search import N_RETRIES, SCANNED, SCORED
from nearcast.window.lists import _LEAST

SPACE = nc.Space(bounds=nc.Box(-100, 20, -60, 50), metric="haversine")


def make_engine(index, n):
    return nc.Engine(
        space=SPACE, vocabulary=nc.Vocabulary.with_weights({}), window=nc.CountWindow(n), index=index
    )  # fmt: skip


def random_point(rng):
    return rng.uniform(-100, -60), rng.uniform(20, 50)


def counts_of(engine):
    (part,) = engine._shards.shards[0].matchers["topk"]._result_store._parts
    return part._scratch.counts


def colliding_terms():
    """Return two terms of one bucket and one tag."""
    seen = {}
    for i in range(100_000):
        number = term_id(f"w{i}")
        key = bucket_of(_LEAST, number), tag_of(number)
        if key in seen:
            return seen[key], f"w{i}"
        seen[key] = f"w{i}"
    raise AssertionError("two of so many terms must collide")


@pytest.mark.parametrize("alpha", [0.3, 0.9])
@pytest.mark.parametrize("more", [[], ["rare"]], ids=["one list", "two lists"])
def test_false_witnesses_are_detected(alpha, more):
    rng = random.Random(1)
    term, other = colliding_terms()
    subscription = nc.TopKSubscription("s", location=(-80, 35), keywords=[term, *more], k=5, alpha=alpha)
    messages = [nc.Message(f"near{i}", (-80 + i / 1000, 35), other) for i in range(60)]
    messages += [nc.Message(f"far{i}", random_point(rng), [term, "more"]) for i in range(20)]
    fast, slow = make_engine("topk", 500), make_engine("scan", 500)
    for engine in (fast, slow):
        engine.publish(messages)
        engine.subscribe([subscription])
    assert counts_of(fast)[N_RETRIES] > 0
    assert fast.results("s") == slow.results("s")


def test_few_of_the_messages_that_are_read_are_scored():
    rng = random.Random(2)
    words = [f"w{i}" for i in range(8)]
    messages = [nc.Message(i, random_point(rng), rng.choices(words, k=4)) for i in range(4_000)]
    subscriptions = [
        nc.TopKSubscription(f"s{i}", location=random_point(rng), keywords=rng.choices(words, k=2), k=5, alpha=0.8)
        for i in range(50)
    ]
    fast, slow = make_engine("topk", 4_000), make_engine("scan", 4_000)
    for engine in (fast, slow):
        engine.publish(messages)
        engine.subscribe(subscriptions)
    for one in subscriptions:
        assert fast.results(one.id) == slow.results(one.id)
    counts = counts_of(fast)
    assert counts[N_RETRIES] == 0, "without colliding terms no witness is false"
    assert 50 * 5 <= counts[SCORED] <= counts[SCANNED] / 20


@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
def test_messages_on_several_long_lists_are_scored_once_and_few_of_them(alpha):
    """Most messages have most words of a subscription, so only the sum of their weights tells them apart."""
    rng = random.Random(5)
    words = [f"w{i}" for i in range(6)]
    messages = [
        nc.Message(i, random_point(rng), [*rng.sample(words, 4), *(f"own{j}" for j in range(rng.randrange(50)))])
        for i in range(2_000)
    ]
    subscriptions = [
        nc.TopKSubscription(f"s{i}", location=random_point(rng), keywords=rng.sample(words, 3), k=5, alpha=alpha)
        for i in range(40)
    ]
    fast, slow = make_engine("topk", 1_500), make_engine("scan", 1_500)
    for engine in (fast, slow):
        engine.publish(messages[:1_500])
        engine.subscribe(subscriptions)
    for one in subscriptions:
        assert fast.results(one.id) == slow.results(one.id)
    counts = counts_of(fast)
    assert counts[N_RETRIES] == 0
    assert counts[SCANNED] > 40 * 2_500
    assert 40 * 5 <= counts[SCORED] <= 40 * 60
    for start in range(1_500, 2_000, 100):
        batch = messages[start : start + 100]
        assert sorted(map(repr, fast.publish(batch))) == sorted(map(repr, slow.publish(batch)))
    (source,) = (part._source for part in fast._shards.shards[0].matchers["topk"]._result_store._parts)
    assert not source._sums.any(), "a search leaves no sums behind"


def test_a_withdrawn_message_on_a_list_does_not_hide_one_that_took_its_place():
    """No later message has the word, so the withdrawn one stays on its list while the ring goes round."""
    subscription = nc.TopKSubscription("s", location=(-80, 35), keywords=["rare", "a"], k=10, alpha=0.5)
    fast, slow = make_engine("topk", 10), make_engine("scan", 10)
    for engine in (fast, slow):
        engine.publish([nc.Message("gone", (-80, 35), ["rare"])])
        if engine is fast:
            engine.subscribe([nc.TopKSubscription("other", location=(-80, 35), keywords="a", k=1, alpha=0.5)])
            ring = len(engine._shards.shards[0].window.store.arrays.seqs)
        engine.retract(["gone"])
        for i in range(ring + 4):
            engine.publish([nc.Message(i, (-80 + i / 1000, 35), ["a"])])
        engine.subscribe([subscription])
    assert len(fast.results("s")) == 10
    assert fast.results("s") == slow.results("s")


def test_bounds_hold_at_both_ends_of_alpha():
    rng = random.Random(3)
    words = [f"w{i}" for i in range(12)]
    messages = [nc.Message(i, random_point(rng), rng.choices(words, k=rng.randint(1, 6))) for i in range(1_500)]
    fast, slow = make_engine("topk", 1_000), make_engine("scan", 1_000)
    subscriptions = [
        nc.TopKSubscription(
            f"s{i}",
            location=random_point(rng),
            keywords=rng.choices(words, k=rng.randint(1, 5)),
            k=int(rng.choice([1, 7, 40])),
            alpha=float(alpha),
        )
        for i, alpha in enumerate(np.repeat([0.0, 0.001, 0.5, 0.999, 1.0], 12))
    ]
    updates = []
    for engine in (fast, slow):
        engine.publish(messages[:1_000])
        engine.subscribe(subscriptions)
        updates.append([engine.publish(messages[start : start + 50]) for start in range(1_000, 1_500, 50)])
    by_row = [[sorted(map(repr, batch)) for batch in one] for one in updates]
    assert by_row[0] == by_row[1]
