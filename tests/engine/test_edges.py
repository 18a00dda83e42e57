"""After changes of edges, results equal those of an engine that started with the changed graph."""

import random

import pyarrow as pa
import pytest

import nearcast as nc
from nearcast.engine import EngineConfig
from nearcast.engine.shard_engine import ShardEngine
from nearcast.testing import strategies

INDEXES = ("auto", "scan")
USERS, PLACES = (*strategies.USERS, "eve"), (*strategies.PLACES, "new", "newer")


def make_engine(edges, index, **options):
    return nc.Engine(
        space=strategies.PLANE,
        vocabulary=strategies.vocabulary(),
        window=nc.CountWindow(25),
        social=nc.SocialGraph(edges),
        index=index,
        **options,
    )


def random_messages(rng, n, first):
    return [
        nc.Message(
            f"m{first + i}",
            rng.choice(strategies.GRID[strategies.PLANE]),
            rng.choices(strategies.TERMS, k=rng.randint(0, 4)),
            place=rng.choice([None, *PLACES]),
        )
        for i in range(n)
    ]


def random_subscriptions(rng, n):
    return [
        nc.SocialSubscription(
            f"s{i}",
            location=rng.choice(strategies.GRID[strategies.PLANE]),
            keywords=rng.choices(strategies.TERMS, k=rng.randint(1, 3)),
            k=rng.randint(1, 4),
            user=rng.choice(strategies.USERS),
        )
        for i in range(n)
    ]


def results(engine, subscriptions):
    return {s.id: engine.results(s.id) for s in subscriptions}


def changes(before, after):
    gone = {
        (i, r.message, "leave") for i in before for r in before[i] if r.message not in {a.message for a in after[i]}
    }
    come = {
        (i, r.message, "enter") for i in after for r in after[i] if r.message not in {b.message for b in before[i]}
    }
    return gone | come


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_changed_edges_give_the_results_of_an_engine_started_with_them(index, workers, seed):
    rng = random.Random(seed)
    edges, messages, subscriptions = set(strategies.EDGES), random_messages(rng, 40, 0), random_subscriptions(rng, 12)
    engine = make_engine(edges, index, workers=workers)
    engine.subscribe(subscriptions)
    engine.publish(messages)
    for _ in range(8):
        before = results(engine, subscriptions)
        if rng.random() < 0.5:
            chosen = [(rng.choice(USERS), rng.choice(PLACES)) for _ in range(rng.randint(1, 3))]
            updates, edges = engine.add_edges(chosen), edges | set(chosen)
        else:
            chosen = rng.sample(sorted(edges), rng.randint(1, 2))
            updates, edges = engine.remove_edges(chosen), edges - set(chosen)
        after = results(engine, subscriptions)
        emitted = [(u.subscription, u.message, u.change) for u in updates]
        assert set(emitted) == changes(before, after) and len(set(emitted)) == len(emitted)
        assert {u.seq for u in updates} <= {len(messages)}
        fresh = make_engine(
            [*edges, *((user, f"home of {user}") for user in strategies.USERS if user not in dict(edges))], index
        )
        fresh.publish(messages)
        fresh.subscribe(subscriptions)
        assert after == results(fresh, subscriptions)
        more = random_messages(rng, 5, len(messages))
        messages += more
        expected = sorted((u.seq, u.subscription, u.message, u.change) for u in fresh.publish(more))
        assert sorted((u.seq, u.subscription, u.message, u.change) for u in engine.publish(more)) == expected


@pytest.mark.parametrize("index", INDEXES)
def test_changed_edges_are_saved_and_sealed(index, tmp_path):
    rng = random.Random(3)
    subscriptions = random_subscriptions(rng, 8)
    options = {
        "space": strategies.PLANE,
        "vocabulary": strategies.vocabulary(),
        "window": nc.CountWindow(25),
        "index": index,
    }
    options["social"] = strategies.social_graph()
    engine = ShardEngine.create(EngineConfig.of(options), folder=tmp_path / "engine")
    engine.subscribe(subscriptions)
    engine.publish(random_messages(rng, 40, 0))
    engine.add_edges([("u3", "p1"), ("eve", "newer")])
    engine.remove_edges([("u0", "p0"), ("u0", "p1")])
    held = results(engine, subscriptions)
    engine.save(tmp_path / "saved")
    engine.seal("now")
    attached = ShardEngine.attach(tmp_path / "engine", "now", EngineConfig.of(options))
    loaded = nc.Engine.load(tmp_path / "saved")
    more = random_messages(rng, 30, 40)
    emitted = []
    for one in (attached, loaded):
        assert results(one, subscriptions) == held
        # Users without edges are still known, and so are users that were added later.
        one.subscribe([nc.SocialSubscription(user, (0, 0), "a", k=1, user=user) for user in ("u0", "eve")])
        emitted.append(sorted((u.seq, u.subscription, u.message, u.change, u.score) for u in one.publish(more)))
    assert emitted[0] == emitted[1]
    assert strategies.social_graph().edges() == options["social"].edges(), "the engine changes a copy of the graph"


def test_edges_in_a_table_return_updates_in_a_table():
    engine = make_engine([("ann", "cafe")], "auto")
    engine.subscribe([nc.SocialSubscription("s", (0, 0), "a", k=1, user="ann")])
    engine.publish([nc.Message("m1", (0, 0), "x", place="bar"), nc.Message("m2", (0, 0), "x", place=None)])
    edges = pa.table({"user": ["ann"], "place": ["bar"]})
    emitted = engine.add_edges(edges).to_pylist()
    assert [(u["seq"], u["message"], u["change"], u["score"]) for u in emitted] == [
        (2, "m2", "leave", 1.0), (2, "m1", "enter", 2.0),
    ]  # fmt: skip
    assert len(engine.remove_edges(edges)) == 2
    with pytest.raises(nc.InvalidInput, match="user"):
        engine.add_edges(pa.table({"place": ["bar"]}))


@pytest.mark.parametrize("index", INDEXES)
def test_removing_an_unknown_edge_fails_and_changes_nothing(index):
    engine = make_engine([("ann", "cafe"), ("bob", "bar")], index)
    engine.subscribe([nc.SocialSubscription("s", (0, 0), "a", k=1, user="ann")])
    engine.publish([nc.Message("m", (0, 0), "x", place="cafe")])
    with pytest.raises(nc.InvalidInput, match=r"\('ann', 'gym'\)"):
        engine.remove_edges([("ann", "cafe"), ("ann", "gym")])
    with pytest.raises(nc.InvalidInput, match="edges must be pairs"):
        engine.add_edges([("ann", "gym"), "bob"])
    assert engine.results("s") == [nc.Result("m", 2.0)]
    assert engine.add_edges([("ann", "cafe")]) == []
