"""An engine may change its number of workers at any time; no result and no update depends on it."""

import random

import pytest

import nearcast as nc
from nearcast.partition import Sample
from nearcast.partition.fitting import fit

WORDS = ("coffee", "sale", "jazz", "ramen", "tonight", "park")


def make_engine(workers, partitioner="hash"):
    return nc.Engine(
        space=nc.Space(nc.Box(0, 0, 1, 1)),
        window=nc.CountWindow(60),
        social=nc.SocialGraph(edges=[("ann", "cafe"), ("bob", "cafe"), ("bob", "bar")]),
        workers=workers,
        partitioner=partitioner,
    )


def random_subscriptions(rng, n):
    made = []
    for i in range(n):
        words, point = " ".join(rng.sample(WORDS, 2)), (rng.random(), rng.random())
        made.append([
            nc.BooleanSubscription(f"b{i}", region=nc.Box(0, 0, *point), keywords=words),
            nc.SimilaritySubscription(f"s{i}", location=point, keywords=words, delta=0.5, tau=0.6),
            nc.TopKSubscription(f"t{i}", location=point, keywords=words, k=3, alpha=0.5),
            nc.NearestSubscription(f"n{i}", location=point, keywords=words, k=3),
            nc.SocialSubscription(f"g{i}", location=point, keywords=words, k=3, user=rng.choice(["ann", "bob"])),
        ][i % 5])  # fmt: skip
    return made


def random_messages(rng, n, start):
    return [
        nc.Message(
            f"m{start + i}",
            (rng.random(), rng.random()),
            " ".join(rng.sample(WORDS, 3)),
            place=rng.choice(["cafe", None]),
        )
        for i in range(n)
    ]


def changes(updates):
    return sorted((u.seq, str(u.subscription), u.change, str(u.message), u.score) for u in updates)


@pytest.mark.parametrize("partitioner", ["hash", "location", "keyword", "prefix", "hybrid"])
def test_updates_do_not_depend_on_the_number_of_workers(partitioner):
    rng = random.Random(4)
    alone, rescaled = make_engine(1), make_engine(2, partitioner)
    subscriptions = random_subscriptions(rng, 60)
    assert changes(rescaled.subscribe(subscriptions)) == changes(alone.subscribe(subscriptions))
    for step, workers in enumerate([4, 3, 1, 1, 7, 2]):
        messages = random_messages(rng, 40, 40 * step)
        assert changes(rescaled.publish(messages)) == changes(alone.publish(messages))
        rescaled.rescale(workers)
        assert rescaled.workers == workers
        assert all(rescaled.results(s.id) == alone.results(s.id) for s in subscriptions)
    assert rescaled.stats().work["nearest"].matched == alone.stats().work["nearest"].matched


def test_an_engine_without_subscriptions_forgets_how_it_shared_the_work():
    """The first subscriptions after a rescale fit another routing, under which results are merged."""
    engine, rng = make_engine(1, "keyword"), random.Random(6)
    engine.subscribe(nc.TopKSubscription("t", location=(0.5, 0.5), keywords="jazz", k=1, alpha=0.5))
    engine.publish(random_messages(rng, 20, 0))
    matched = engine.stats().work["topk"].matched
    engine.unsubscribe(["t"])
    engine.rescale(2)
    engine.subscribe(nc.BooleanSubscription("b", region=nc.Box(0, 0, 1, 1), keywords="jazz"))
    assert engine.publish(nc.Message("m", (0.5, 0.5), "jazz"))
    assert engine.stats().work["topk"].matched == matched


@pytest.mark.parametrize("kind", ["topk", "social", "nearest"])
def test_a_rescaled_engine_copies_results_and_searches_nothing_again(kind):
    rng = random.Random(5)
    engine = make_engine(2)
    engine.publish(random_messages(rng, 60, 0))
    engine.subscribe([s for s in random_subscriptions(rng, 1_000) if s.kind == kind])
    engine.publish(random_messages(rng, 200, 60))
    (matcher,) = engine._shards.shards[0].matchers.values()
    store, slots, work = matcher._result_store, matcher.registry.taken(), matcher.work
    before = store.held(slots).by_slot()
    for workers in (4, 1, 3):
        engine.rescale(workers)
        assert len(store._parts) == workers
        assert store.held(slots).by_slot() == before
        assert matcher.work == work
        assert kind == "nearest" or store.searches == 0
        held = [part.select(slots) for part in store._parts]
        assert min(map(len, held)) > len(slots) // workers // 2, "each thread has about as many"


def test_workers_that_see_every_message_share_indexes_and_window():
    rng = random.Random(6)
    shared, divided = make_engine(3), make_engine(3, "keyword")
    for engine in (shared, divided):
        engine.subscribe(random_subscriptions(rng, 50))
        engine.publish(random_messages(rng, 50, 0))
    assert len(shared._shards.shards) == 1
    assert len({id(shard.window.store) for shard in divided._shards.shards}) == 3


def test_a_saved_engine_continues_with_another_number_of_workers(tmp_path):
    rng = random.Random(7)
    alone, saved = make_engine(1), make_engine(3)
    subscriptions, messages = random_subscriptions(rng, 50), random_messages(rng, 80, 0)
    for engine in (alone, saved):
        engine.subscribe(subscriptions)
        engine.publish(messages)
    saved.save(tmp_path / "engine")
    loaded = nc.Engine.load(tmp_path / "engine", workers=2)
    assert loaded.workers == 2
    more = random_messages(rng, 80, 80)
    assert changes(loaded.publish(more)) == changes(alone.publish(more))


@pytest.mark.parametrize("workers", [0, -1, True, 2.5, "2", None])
def test_a_number_of_workers_that_cannot_be_is_refused_and_nothing_changes(workers):
    engine = make_engine(2)
    with pytest.raises(nc.InvalidInput, match="workers must be"):
        engine.rescale(workers)
    assert engine.workers == 2


def test_an_engine_with_a_fitted_routing_is_not_rescaled():
    routing = fit("location", Sample.none(), n_shards=2)
    engine = nc.Engine(space=nc.Space(nc.Box(0, 0, 1, 1)), workers=2, partitioner=routing)
    with pytest.raises(nc.InvalidInput, match="partitioner must be a routing among 3 shards; got 'one among 2'"):
        engine.rescale(3)
