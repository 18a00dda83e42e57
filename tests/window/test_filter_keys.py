"""A search with a selective filter reads the lists of its keys, not those of its words, and finds the same."""

import random

import numpy as np
import pytest

import nearcast as nc
from nearcast.window._kernels.search import SCANNED

N = 4_000
COLORS = [f"c{i}" for i in range(400)]


def make_engine(index, workers=1, window=None):
    return nc.Engine(
        space=nc.Space(bounds=nc.Box(0, 0, 1, 1)),
        vocabulary=nc.Vocabulary.with_weights({"rare": 3.0, "word": 1.0}),
        window=window or nc.CountWindow(N),
        social=nc.SocialGraph(edges=[("ann", "cafe")]),
        attributes={"color": str, "price": float, "new": bool},
        index=index,
        workers=workers,
    )


def messages_of(rng, n, first=0):
    def one(i):
        attributes = {"color": rng.choice(COLORS), "price": rng.choice([None, 10 ** rng.uniform(-3, 3)]), "new": True}
        place = rng.choice([None, None, "cafe", "bar"])
        text = "word rare" if rng.random() < 0.01 else "word"
        point = rng.random(), rng.random()
        return nc.Message(i, point, text, place=place, attributes=attributes, at=float(i))

    return [one(i) for i in range(first, first + n)]


SELECTIVE = {
    "a value": {"where": "color = 'c7'"},
    "some values": {"where": "color IN ('c7', 'c8', 'c9') AND new = TRUE"},
    "a narrow range": {"where": "price BETWEEN 10 AND 10.5"},
    "a range without an end": {"where": "price <= 0.002"},
    "a range around zero": {"where": "price > -0.5 AND price < 0.002"},
    "a region": {"region": nc.Circle((0.3, 0.4), 0.02)},
    "a long region": {"region": nc.Box(0.2, 0.4, 0.4, 0.401)},
    "a rare word": {"require": '"word rare" NOT other'},
    "several": {"where": "color <> 'c3' AND price < 1", "region": nc.Circle((0.8, 0.8), 0.04)},
}
BROAD = {
    "NOT": {"require": "NOT rare"},
    "a branch that only excludes": {"require": "rare OR NOT other"},
    "another value": {"where": "color <> 'c7'"},
    "one of two": {"where": "color = 'c7' OR price > 1"},
    "most of the space": {"region": nc.Box(0.1, 0.1, 0.9, 0.9)},
}


def subscription_of(kind, name, filters):
    if kind == "topk":
        return nc.TopKSubscription(name, location=(0.5, 0.5), keywords="word", k=3, alpha=0.5, **filters)
    return nc.SocialSubscription(name, location=(0.5, 0.5), keywords="word", k=3, user="ann", **filters)


def scanned(engine, kind):
    """Return how many postings and messages searches have read."""
    stores = [shard.matchers[kind]._result_store for shard in engine._shards.shards if kind in shard.matchers]
    return sum(int(part._scratch.counts[SCANNED]) for store in stores for part in store._parts)


@pytest.mark.parametrize("kind", ["topk", "social"])
def test_a_search_reads_only_what_may_pass_its_filter(kind):
    engine, reference = make_engine(kind), make_engine("scan")
    messages = messages_of(random.Random(1), N)
    for one in (engine, reference):
        one.publish(messages)
    for name, filters in SELECTIVE.items():
        before = scanned(engine, kind)
        for one in (engine, reference):
            one.subscribe([subscription_of(kind, name, filters)])
        assert engine.results(name) == reference.results(name)
        assert len(engine.results(name)) >= 1, f"{name}: a filter that nothing passes shows nothing"
        assert scanned(engine, kind) - before <= 2 * N / 16, name  # twice if an array has to grow in between
    for name, filters in BROAD.items():
        for one in (engine, reference):
            one.subscribe([subscription_of(kind, name, filters)])
        assert engine.results(name) == reference.results(name)


@pytest.mark.parametrize("kind", ["topk", "social"])
@pytest.mark.parametrize("window", [nc.CountWindow(1_000), nc.TimeWindow(900)])
@pytest.mark.parametrize("workers", [1, 2])
def test_refills_read_only_what_may_pass(kind, window, workers):
    """Results stay exact while messages come and go, and the window is never read as a whole again."""
    rng = random.Random(2)
    engine, reference = make_engine(kind, workers, window), make_engine("scan", 1, window)
    subscriptions = [subscription_of(kind, name, filters) for name, filters in {**SELECTIVE, **BROAD}.items()]
    first = messages_of(rng, 1_500)
    for one in (engine, reference):
        one.publish(first)
        one.subscribe(subscriptions[::2])
    for start in range(1_500, 4_500, 300):
        batch = messages_of(rng, 300, start)
        if start == 2_100:  # families that are used later: what is in the window has to be listed now
            for one in (engine, reference):
                one.subscribe(subscriptions[1::2])
        if start == 3_000:
            for one in (engine, reference):
                one.unsubscribe(subscriptions[0].id)
                one.subscribe([subscriptions[0], subscriptions[3]])
        updates = [sorted(map(repr, one.publish(batch))) for one in (engine, reference)]
        assert updates[0] == updates[1]
    for one in subscriptions:
        assert engine.results(one.id) == reference.results(one.id)


def test_the_keys_of_a_selective_filter_are_few_on_a_refill():
    """A word that every message has, and a filter that few pass: no search reads the lists of the word."""
    rng = random.Random(3)
    engine = make_engine("topk", window=nc.CountWindow(2_000))
    colors = ["color IN ({})".format(", ".join(f"'{color}'" for color in COLORS[i : i + 12])) for i in range(60)]
    engine.publish(messages_of(rng, 2_000))
    engine.subscribe([subscription_of("topk", color, {"where": color}) for color in colors])
    searches = []
    for start in range(2_000, 20_000, 500):
        engine.publish(messages_of(rng, 500, start))
        store = engine._shards.shards[0].matchers["topk"]._result_store
        searches.append((store.searches, scanned(engine, "topk")))
    n_searches, n_read = np.diff(searches, axis=0).sum(axis=0)
    assert n_searches > 5, "buffers have to run short"
    assert n_read <= n_searches * 2_000 / 16


def test_a_saved_engine_and_one_with_other_workers_list_keys_again(tmp_path):
    engine, reference = make_engine("topk"), make_engine("scan")
    rng = random.Random(4)
    for one in (engine, reference):
        one.subscribe([subscription_of("topk", name, filters) for name, filters in SELECTIVE.items()])
    first, second = messages_of(rng, 3_000), messages_of(rng, 3_000, 3_000)
    for one in (engine, reference):
        one.publish(first)
    engine.save(tmp_path / "saved")
    loaded = nc.Engine.load(tmp_path / "saved", workers=2)
    expected = sorted(map(repr, reference.publish(second)))
    assert sorted(map(repr, loaded.publish(second))) == expected
    assert sorted(map(repr, engine.publish(second))) == expected
    before = scanned(loaded, "topk")
    loaded.subscribe([subscription_of("topk", "new", SELECTIVE["a value"])])
    assert 0 < scanned(loaded, "topk") - before <= 2 * N / 16
