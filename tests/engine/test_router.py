"""The router takes a name, the recommended partitioner, or a fitted routing."""

import random

import pytest

import nearcast as nc
from nearcast.partition import Sample, fitting
from nearcast.partition.fitting import fit
from nearcast.testing import strategies


def subscriptions(n=40, seed=1):
    rng = random.Random(seed)
    return [
        nc.BooleanSubscription(i, region=nc.Box(x, y, x + 1, y + 1), keywords=rng.choice("abcd"))
        for i, (x, y) in enumerate((rng.randrange(4), rng.randrange(4)) for _ in range(n))
    ]


def messages(n=30, seed=2):
    rng = random.Random(seed)
    return [nc.Message(f"m{i}", (rng.uniform(0, 4), rng.uniform(0, 4)), rng.choice("abcd")) for i in range(n)]


def key(update):
    return update.seq, str(update.subscription)


def engine(**options):
    return nc.Engine(space=nc.Space(nc.Box(0, 0, 5, 5)), window=nc.CountWindow(50), **options)


def test_auto_chooses_a_partitioner_for_the_first_subscriptions():
    with engine() as alone, engine(workers=3, partitioner="auto") as shared:
        for one in (alone, shared):
            one.publish(messages())
            one.subscribe(subscriptions())
        assert shared._shards.router.packed() is not None
        updates = shared.publish(messages(seed=3))
        assert sorted(updates, key=key) == sorted(alone.publish(messages(seed=3)), key=key)


def test_a_fitted_routing_is_used_and_saved(tmp_path):
    routing = fit("text_frequency", Sample.none(), n_shards=3)
    with engine() as alone, engine(workers=3, partitioner=routing) as shared:
        for one in (alone, shared):
            one.subscribe(subscriptions())
        sizes = shared.stats().shards
        assert sorted(sizes)[1] > 0  # by their terms, of which there are four
        shared.save(tmp_path / "saved")
        with nc.Engine.load(tmp_path / "saved") as again:
            assert again.stats().shards == sizes
            updates = again.publish(messages())
            assert sorted(updates, key=key) == sorted(alone.publish(messages()), key=key)


def test_a_saved_engine_continues_with_its_routing(tmp_path):
    with engine(workers=4, partitioner="space_kd") as shared:
        shared.subscribe(subscriptions(4))  # the routing is fitted to these
        shared.subscribe(subscriptions(40))  # and used for these
        shared.save(tmp_path / "saved")
        with nc.Engine.load(tmp_path / "saved") as again:
            assert again.stats().shards == shared.stats().shards


def test_explain_uses_the_newest_message_with_an_id_in_any_shard():
    corners = [(0.5, 0.5), (3.5, 3.5), (0.5, 3.5), (3.5, 0.5)]
    with engine(workers=4, partitioner="space_kd") as shared:
        shared.publish(messages())
        shared.subscribe(subscriptions())
        shared.subscribe([nc.NearestSubscription("n", location=(0, 0), keywords="a", k=1)])
        for corner in corners:
            shared.publish([nc.Message("twin", corner, "a")])
            (near, *_) = shared.explain("n", "twin").parts
            assert near == shared.explain("n", nc.Message("other", corner, "a")).parts[0]


def test_stats_create_no_window_in_an_engine_without_one():
    with engine(workers=2, partitioner="space_kd") as windowed:
        windowed.subscribe(subscriptions())
        assert windowed.stats().window == 0
    with nc.Engine(space=nc.Space(nc.Box(0, 0, 5, 5)), workers=2, partitioner="space_kd") as bare:
        bare.subscribe(subscriptions())
        assert bare.stats().window == 0
        assert all(shard.window._store is None for shard in bare._shards.shards)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"workers": 4097}, r"workers must be at most 4096; got 4097 \(engine\)"),
        ({"partitioner": "who"}, r"partitioner must be one of \['auto', 'hash'.*; got 'who' \(engine\)"),
        ({"partitioner": 3}, r"partitioner must be a name or a routing; got 3 \(engine\)"),
        (
            {"workers": 2, "partitioner": fit("hash", Sample.none(), n_shards=3)},
            r"partitioner must be a routing among 2 shards; got 'one among 3' \(engine\)",
        ),
    ],
)
def test_bad_workers_and_partitioners_are_refused(options, rule):
    with pytest.raises(nc.InvalidInput, match=rule):
        nc.Engine(space=strategies.PLANE, **options)


def test_a_partitioner_without_its_library_names_the_package(monkeypatch):
    known = [name for name in fitting.partitioner_names() if name != "text_hypergraph"]
    monkeypatch.setattr(fitting, "partitioner_names", lambda: known)
    monkeypatch.setattr(fitting._OPTIONAL, "is_installed", lambda: False)
    with pytest.raises(nc.InvalidInput, match=r"got 'text_hypergraph' .*pip install 'nearcast\[hypergraph\]'"):
        nc.Engine(space=strategies.PLANE, workers=2, partitioner="text_hypergraph")
