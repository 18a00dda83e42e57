"""Subscriptions that expire are forgotten without updates."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

import nearcast as nc
from nearcast.engine.registry import SubscriptionRegistry
from nearcast.model import KINDS, SubscriptionBatch
from nearcast.testing import strategies

SPACE = nc.Space(nc.Box(0, 0, 1, 1))
WORDS = {"location": (0.5, 0.5), "keywords": "jazz"}
FIELDS = {
    nc.BooleanSubscription: {"region": SPACE.bounds, "keywords": "jazz"},
    nc.SimilaritySubscription: {"delta": 0.5, "tau": 0.5, **WORDS},
    nc.TopKSubscription: {"k": 2, "alpha": 0.5, **WORDS},
    nc.NearestSubscription: {"k": 2, **WORDS},
    nc.SocialSubscription: {"k": 2, "user": "ann", **WORDS},
}


def engine_of(**options):
    options = {"window": nc.CountWindow(10), "social": nc.SocialGraph([("ann", "cafe")]), **options}
    return nc.Engine(space=SPACE, **options)


def subscriptions(expires_at, suffix=""):
    return [kind(f"{kind.kind}{suffix}", expires_at=expires_at, **fields) for kind, fields in FIELDS.items()]


def message(id_, at):
    return nc.Message(id_, (0.5, 0.5), "jazz", at=at)


@pytest.mark.parametrize("partitioner", ["hash", "prefix", "keyword"])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_subscription_receives_what_is_published_before_it_expires(workers, partitioner):
    with engine_of(workers=workers, partitioner=partitioner) as engine:
        engine.subscribe([*subscriptions(2), *subscriptions(None, " forever"), *subscriptions(4, " longer")])
        updates = engine.publish([message(i, at=i) for i in range(6)])
        received = {
            suffix: {u.message for u in updates if u.change == "enter" and str(u.subscription).endswith(suffix)}
            for suffix in (" longer", " forever", "t")
        }
        assert received == {" longer": {0, 1, 2, 3}, " forever": set(range(6)), "t": {0, 1}}
        assert not any(u.change == "leave" and u.seq >= 3 and u.subscription == "nearest" for u in updates)
        assert len(engine) == 5 and "boolean" not in engine and "boolean forever" in engine
        assert engine.stats().subscriptions == 5
        with pytest.raises(nc.UnknownSubscription):
            engine.results("topk")


def test_advancing_the_clock_forgets_without_updates():
    engine = engine_of()
    engine.subscribe(subscriptions(5))
    engine.publish([message("m", at=1)])
    assert engine.advance(4.999999) == [] and len(engine) == 5
    assert engine.advance(5) == [] and len(engine) == 0
    with pytest.raises(nc.UnknownSubscription):
        engine.unsubscribe(["nearest"])


def test_at_the_step_of_a_retraction_or_a_replacement_the_clock_decides():
    engine = engine_of()
    engine.subscribe([*subscriptions(5), *subscriptions(9, " longer")])
    engine.publish([message("m", at=1)])
    updates = engine.replace([message("m", at=5)])
    assert {u.subscription for u in updates} == {f"{kind.kind} longer" for kind in KINDS}
    assert {u.subscription for u in engine.retract(["m"])} == {f"{kind.kind} longer" for kind in KINDS}


@pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.kind)
def test_a_replaced_subscription_expires_as_the_new_one_says(kind):
    engine = engine_of()
    for expires_at in (5, 9, None):
        engine.subscribe(kind("s", expires_at=expires_at, **FIELDS[kind]))
        assert next(engine.subscriptions()).expires_at == expires_at
    engine.advance(20)
    assert len(engine) == 1
    engine.subscribe(kind("s", expires_at=30, **FIELDS[kind]))
    engine.advance(30)
    assert len(engine) == 0


def test_slots_that_are_used_again_do_not_inherit_an_end():
    engine = engine_of()
    engine.subscribe(subscriptions(5))
    engine.unsubscribe([kind.kind for kind in KINDS])
    engine.subscribe(subscriptions(None))
    engine.advance(5)
    assert len(engine) == 5 and all(s.expires_at is None for s in engine.subscriptions())


@pytest.mark.parametrize("expires_at", [10, 9, datetime(1970, 1, 1, tzinfo=UTC)])
def test_a_subscription_that_has_expired_is_refused_and_nothing_changes(expires_at):
    engine = engine_of()
    engine.subscribe(subscriptions(None))
    engine.advance(10)
    late = nc.NearestSubscription("late", k=1, expires_at=expires_at, **WORDS)
    for call in (engine.subscribe, engine.check):
        with pytest.raises(nc.InvalidInput, match=r"expires_at must be later than now, which is 10.0; got .*'late'"):
            call([nc.NearestSubscription("good", k=1, **WORDS), late])
    assert len(engine) == 5
    engine.subscribe([nc.NearestSubscription("late", k=1, expires_at=10.000001, **WORDS)])


@pytest.mark.parametrize(
    ("expires_at", "reason"),
    [
        (float("inf"), "expires_at must be an aware datetime or finite seconds since the epoch; got inf"),
        ("soon", "expires_at must be an aware datetime or finite seconds"),
        (datetime(2030, 1, 1), "expires_at must carry a time zone"),
    ],
)
def test_a_bad_time_is_refused(expires_at, reason):
    with pytest.raises(nc.InvalidInput, match=reason):
        nc.NearestSubscription("s", k=1, expires_at=expires_at, **WORDS)


COLUMNS = {
    "timestamps": pa.array([5_000_000, None], pa.timestamp("us", "UTC")),
    "nanoseconds": pa.array([5_000_000_001, None], pa.timestamp("ns", "UTC")),
    "another zone": pa.array([5_000, None], pa.timestamp("ms", "Europe/Berlin")),
    "seconds": pa.array([5.0, None]),
    "whole seconds": pa.array([5, None]),
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_tables_have_a_column(column):
    engine = engine_of()
    table = pa.table(
        {"id": ["a", "b"], "kind": ["nearest"] * 2, "x": [0.5] * 2, "y": [0.5] * 2, "keywords": ["jazz"] * 2}
        | {"k": pa.array([1, 1], pa.int32()), "expires_at": column}
    )
    engine.subscribe(table)
    assert {s.id: s.expires_at for s in engine.subscriptions()} == {"a": 5.0, "b": None}
    engine.advance(5)
    assert [s.id for s in engine.subscriptions()] == ["b"]
    with pytest.raises(nc.InvalidInput, match=r"expires_at must be later than now, which is 5.0; got 5.0 .*'a'"):
        engine.subscribe(table)


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (pa.array([5], pa.timestamp("us")), "expires_at must carry a time zone"),
        (pa.array(["soon"]), "expires_at must be a column of timestamps or of seconds"),
        (pa.array([1e300]), "expires_at must be finite seconds since the epoch"),
        (pa.array([(1 << 63) - 1], pa.timestamp("us", "UTC")), "expires_at must be closer to the epoch"),
        (pa.array([1 << 62], pa.timestamp("s", "UTC")), "expires_at must be closer to the epoch"),
    ],
)
def test_bad_columns_are_refused(column, reason):
    table = pa.table(
        {"id": ["a"], "kind": ["nearest"], "x": [0.5], "y": [0.5], "keywords": ["jazz"]}
        | {"k": pa.array([1], pa.int32()), "expires_at": column}
    )
    with pytest.raises(nc.InvalidInput, match=reason):
        engine_of().subscribe(table)


def test_dicts_and_json_have_the_field():
    engine = engine_of()
    engine.subscribe({"id": "n", "kind": "nearest", "k": 1, "expires_at": 5, **WORDS})
    (subscription,) = engine.subscriptions()
    body = subscription.to_json()
    assert body["expires_at"] == 5.0
    assert nc.NearestSubscription.from_json(body, "n") == subscription
    assert "expires_at" not in nc.NearestSubscription("n", k=1, **WORDS).to_json()


@pytest.mark.parametrize("workers", [1, 3])
def test_a_saved_engine_knows_when_subscriptions_expire(tmp_path, workers):
    with engine_of(workers=workers, partitioner="prefix") as engine:
        engine.subscribe([*subscriptions(5), *subscriptions(None, " forever")])
        engine.publish([message("m", at=1)])
        engine.save(tmp_path / "saved")
        with nc.Engine.load(tmp_path / "saved") as again:
            assert sorted(s.expires_at or 0 for s in again.subscriptions()) == [0] * 5 + [5.0] * 5
            for one in (engine, again):
                assert one.advance(5) == [] and len(one) == 5


def test_the_registry_pays_for_ends_only_if_there_are_some():
    scoring = strategies.scoring()
    plain, ending = SubscriptionRegistry(nc.NearestSubscription), SubscriptionRegistry(nc.NearestSubscription)
    for registry, expires_at in ((plain, None), (ending, 1e9)):
        made = [nc.NearestSubscription(i, k=1, expires_at=expires_at, **WORDS) for i in range(100)]
        registry.allocate(SubscriptionBatch.of(made, scoring), [0] * 100)
        assert registry.subscription(7) == made[7]
    assert 24 * 100 <= ending.nbytes - plain.nbytes <= 48 * 100


def test_ends_that_do_not_come_are_forgotten():
    engine = engine_of()
    for round_ in range(40):
        engine.subscribe([nc.NearestSubscription(i, k=1, expires_at=1e9 + round_, **WORDS) for i in range(200)])
    (matcher,) = engine._shards.shards[0].matchers.values()
    from nearcast.engine.expiry_heap import ExpiryHeap

    assert len(ExpiryHeap(matcher.registry._arena, "registry.expiries")) <= 1_500
    engine.advance(1e9 + 38)
    assert len(engine) == 200
    engine.advance(1e9 + 39)
    assert len(engine) == 0
