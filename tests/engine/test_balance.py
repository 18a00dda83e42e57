"""An engine with `balance` adjusts its routing to the load of its workers; no result and no update depends on it."""

import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import nearcast as nc
from engine.test_rescale import changes, random_messages, random_subscriptions
from nearcast.partition import PARTITIONERS, Sample
from nearcast.partition.balance.adjustment import Adjustment
from nearcast.partition.serialization import pack, unpack

DIVIDING_SPACE = ("hybrid", "space_grid", "space_kd", "space_rtree")
"""The adjustable partitioners that send messages to some workers; others leave nothing to adjust in an engine."""
EAGER = nc.Balance(sigma=1.0, every=2, messages=40)
REFITTING = replace(EAGER, refit_every=1, refit_gain=1e-9, retire_below=0.4)
"""A fresh routing always pays."""


def make_engine(workers, *, window=None, **options):
    return nc.Engine(
        space=nc.Space(nc.Box(0, 0, 1, 1)),
        window=window,
        social=nc.SocialGraph(edges=[("ann", "cafe"), ("bob", "cafe"), ("bob", "bar")]),
        workers=workers,
        **options,
    )


def wandering(rng, n, start, *, hot):
    """Return messages most of which lie around a hot spot."""
    made = random_messages(rng, n, start)
    for i, message in enumerate(made):
        if i % 4:
            x, y = (min(1.0, max(0.0, at + rng.gauss(0, 0.05))) for at in hot)
            made[i] = nc.Message(message.id, (x, y), message.text, place=message.place)
    return made


def in_places(rng, n):
    """Return subscriptions of all kinds, and as many with small regions, which live in few shards."""
    regions = [nc.Box.around((rng.random(), rng.random()), 0.05) for _ in range(n)]
    small = [nc.BooleanSubscription(f"p{i}", region=region, keywords="sale") for i, region in enumerate(regions)]
    return random_subscriptions(rng, n) + small


@pytest.mark.parametrize(
    ("partitioner", "window"),
    [
        *((name, None) for name in DIVIDING_SPACE),
        *((name, nc.CountWindow(50)) for name in ("hybrid", "space_grid", "prefix")),
        ("keyword", None),
    ],
    ids=str,
)
def test_updates_do_not_depend_on_adjustments(partitioner, window):
    """Every kind, with operations between the calls, retractions and replacements."""
    rng = random.Random(3)
    subscriptions = in_places(rng, 80)
    if window is None:
        subscriptions = [one for one in subscriptions if not one.result_policy.needs_window]
    alone = make_engine(1, window=window)
    adjusted = make_engine(3, window=window, partitioner=partitioner, balance=EAGER)
    assert changes(adjusted.subscribe(subscriptions)) == changes(alone.subscribe(subscriptions))
    for step in range(8):
        messages = wandering(rng, 40, 40 * step, hot=(step / 8, 1 - step / 8))
        assert changes(adjusted.publish(messages)) == changes(alone.publish(messages))
        again = rng.sample(subscriptions, 10)
        for engine in (alone, adjusted):
            engine.unsubscribe([one.id for one in again])
        assert changes(adjusted.subscribe(again)) == changes(alone.subscribe(again))
        if window is not None:
            withdrawn, replaced = [messages[-1].id], messages[-3:-1]
            assert changes(adjusted.retract(withdrawn)) == changes(alone.retract(withdrawn))
            assert changes(adjusted.replace(replaced)) == changes(alone.replace(replaced))
        assert all(
            adjusted.results(one.id) == alone.results(one.id)
            for one in subscriptions
            if window is not None or one.result_policy.is_stateful
        )
    assert any(one.moved_subscriptions for one in adjusted.adjustments) or partitioner == "space_grid"
    counts, expected = adjusted.stats(), alone.stats()
    assert (counts.messages, counts.late, counts.updates, counts.kinds) == (
        expected.messages,
        expected.late,
        expected.updates,
        expected.kinds,
    )
    assert counts.work["boolean"].matched == expected.work["boolean"].matched


@pytest.mark.parametrize("name", ["hybrid", "space_kd"])
@pytest.mark.parametrize("window", [None, nc.CountWindow(50)], ids=str)
def test_updates_do_not_depend_on_fresh_routings(name, window, tmp_path):
    """Subscriptions come and go until the old routing retires; the engine is saved and loaded in between."""
    rng = random.Random(11)
    subscriptions = in_places(rng, 80)
    if window is None:
        subscriptions = [one for one in subscriptions if not one.result_policy.needs_window]
    alone = make_engine(1, window=window)
    refitted = make_engine(3, window=window, partitioner=name, balance=REFITTING)
    assert changes(refitted.subscribe(subscriptions)) == changes(alone.subscribe(subscriptions))
    decisions = []
    for step in range(14):
        before, n_decisions = refitted._shards.router.packed(), len(refitted.adjustments)
        messages = wandering(rng, 40, 40 * step, hot=(step / 14, 0.5))
        assert changes(refitted.publish(messages)) == changes(alone.publish(messages))
        if len(refitted.adjustments) > n_decisions:
            adjustment, after = refitted.adjustments[-1], refitted._shards.router.packed()
            assert pack(Adjustment.from_json(adjustment.to_json()).replay(unpack(before))) == after
            decisions.append(adjustment)
            refitted.save(tmp_path / "engine")
            refitted.close()
            refitted = nc.Engine.load(tmp_path / "engine")
        again = rng.sample(subscriptions, len(subscriptions) // 3)
        for engine in (alone, refitted):
            engine.unsubscribe([one.id for one in again])
        assert changes(refitted.subscribe(again)) == changes(alone.subscribe(again))
        gone = rng.sample([f"m{i}" for i in range(40 * step + 10, 40 * step + 40)], 3) if window else []
        assert changes(refitted.retract(gone)) == changes(alone.retract(gone))
    assert [one.action for one in decisions[:3]] == ["refit", "retire", "refit"]
    assert any(one.moved_subscriptions for one in decisions if one.action == "retire")


@pytest.mark.parametrize("window", [None, nc.CountWindow(50)], ids=str)
def test_decisions_lead_from_routing_to_routing(window):
    rng = random.Random(4)
    engine = make_engine(3, window=window, partitioner="hybrid", balance=EAGER)
    engine.subscribe([one for one in in_places(rng, 80) if not one.result_policy.needs_window])
    routings = [engine._shards.router.packed()]
    for step in range(12):
        engine.publish(wandering(rng, 40, 40 * step, hot=(step / 12, 0.5)))
        if engine._shards.router.packed() != routings[-1]:
            routings.append(engine._shards.router.packed())
    assert len(engine.adjustments) == len(routings) - 1 > 1
    for adjustment, (before, after) in zip(engine.adjustments, pairwise(routings), strict=True):
        assert pack(Adjustment.from_json(adjustment.to_json()).replay(unpack(before))) == after, adjustment.action


def test_shards_become_more_even():
    """A hot spot that stays: after the adjustments the busiest shard has less of the work."""
    rng = random.Random(5)
    shares = []
    for balance in (None, nc.Balance(sigma=1.1, every=1, messages=200)):
        engine = make_engine(4, partitioner="space_kd", balance=balance)
        rng = random.Random(5)
        engine.subscribe([
            nc.BooleanSubscription(f"b{i}", region=nc.Box.around(point, 0.02), keywords="coffee OR sale OR jazz")
            for i, point in enumerate((rng.random(), rng.random()) for _ in range(2_000))
        ])  # fmt: skip
        for step in range(5):
            engine.publish(wandering(rng, 200, 200 * step, hot=(0.2, 0.2)))
        before = [shard.matchers["boolean"].work.visited for shard in engine._shards.shards]
        engine.publish(wandering(rng, 1_000, 1_000, hot=(0.2, 0.2)))
        after = [shard.matchers["boolean"].work.visited for shard in engine._shards.shards]
        done = np.subtract(after, before)
        shares.append(done.max() / done.sum())
    assert shares[0] > 0.6 and shares[1] < 0.45


def test_a_period_is_measured_once_in_so_many_messages():
    """Calls of any length: ten messages of every forty, however they come."""
    rng = random.Random(6)
    engine = make_engine(2, partitioner="space_grid", balance=nc.Balance(every=4, messages=10))
    engine.subscribe(random_subscriptions(rng, 20)[:2])
    measured = []
    for i in range(80):
        measured.append(engine._shards.load_meter.is_running)
        engine.publish(random_messages(rng, 1, i))
    assert measured == ([False] * 31 + [True] * 9) * 2


def test_a_period_of_other_workers_is_dropped():
    """Workers that share a window are rescaled in place, also while they are measured."""
    rng = random.Random(5)
    engine = make_engine(2, window=nc.CountWindow(50), partitioner="knn_space", balance=EAGER)
    alone = make_engine(1, window=nc.CountWindow(50))
    subscriptions = random_subscriptions(rng, 40)
    for one in (engine, alone):
        one.subscribe(subscriptions)
    for start, workers in ((0, 2), (50, 2), (60, 5), (70, 3), (80, 1)):
        engine.rescale(workers)
        messages = random_messages(rng, 50 if start == 0 else 10, start)
        assert changes(engine.publish(messages)) == changes(alone.publish(messages))


def test_nothing_is_adjusted_without_a_second_worker_or_subscriptions():
    rng = random.Random(7)
    for workers, n in ((1, 20), (3, 0)):
        engine = make_engine(workers, partitioner="hybrid", balance=nc.Balance(sigma=1, every=1, messages=1))
        engine.subscribe([one for one in random_subscriptions(rng, n) if not one.result_policy.needs_window])
        engine.publish(random_messages(rng, 50, 0))
        assert engine.adjustments == ()


def test_a_saved_engine_keeps_its_balance_and_its_routing(tmp_path):
    rng = random.Random(8)
    engine = make_engine(3, partitioner="hybrid", balance=EAGER)
    engine.subscribe([one for one in in_places(rng, 80) if not one.result_policy.needs_window])
    for step in range(6):
        engine.publish(wandering(rng, 40, 40 * step, hot=(step / 6, 0.5)))
    assert engine.adjustments
    engine.save(tmp_path / "engine")
    again = nc.Engine.load(tmp_path / "engine")
    assert again._config.balance == EAGER
    assert again._shards.router.packed() == engine._shards.router.packed()
    assert again.adjustments == (), "those of the engine in memory"
    for step in range(6, 12):
        messages = wandering(rng, 40, 40 * step, hot=(step / 12, 0.5))
        assert changes(again.publish(messages)) == changes(engine.publish(messages))
    assert again.adjustments


def test_a_late_message_is_still_known_after_an_adjustment():
    rng = random.Random(9)
    engine = make_engine(
        2, window=nc.TimeWindow(10), partitioner="space_grid", balance=nc.Balance(1, every=1, messages=1)
    )
    engine.subscribe(in_places(rng, 40))
    for step in range(12):
        n, late = len(engine.adjustments), nc.Message("late", (0.5, 0.5), "jazz", at=50.0)
        messages = wandering(rng, 20, 20 * step, hot=(step / 12, 0.5))
        engine.publish([*(replace(one, at=100.0 + step) for one in messages), late])
        assert engine.late_seqs == (21 * (step + 1),)
        if len(engine.adjustments) > n:
            return
    pytest.fail("the routing was never adjusted")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"balance": True}, r"partitioner must be one of \['location', .*\], whose load can be adjusted"),
        ({"balance": True, "partitioner": "auto"}, "or balance be left out; got 'auto'"),
        (
            {"balance": REFITTING, "partitioner": PARTITIONERS[-1].fit(Sample.none(), n_shards=2)},
            "partitioner must be a name if a fresh routing is to be tried",
        ),
        ({"balance": 1.2, "partitioner": "hybrid"}, r"balance must be True, False or a Balance; got 1.2 \(engine\)"),
    ],
)
def test_a_balance_that_cannot_be_kept_is_refused(options, message):
    with pytest.raises(nc.InvalidInput, match=message):
        make_engine(2, **options)
    assert make_engine(2, balance=False).adjustments == ()


def test_regions_of_every_form_move_with_their_cells():
    """A change looks only at boxes around the cells that move; circles and polygons have no box of their own."""
    rng = random.Random(5)
    subscriptions = []
    for i in range(60):
        x, y = (round(rng.uniform(0.1, 0.9), 3) for _ in range(2))
        square = [(x - 0.05, y - 0.05), (x + 0.05, y - 0.05), (x + 0.05, y + 0.05), (x - 0.05, y + 0.05)]
        region = [nc.Box.around((x, y), 0.05), nc.Circle((x, y), 0.05), nc.Polygon(square)][i % 3]
        subscriptions.append(nc.BooleanSubscription(f"s{i}", region=region, keywords="sale"))
    points = [(rng.random(), rng.random()) for _ in range(300)]
    messages = [nc.Message(f"m{i}", point, "sale") for i, point in enumerate(points)]
    alone, shared = make_engine(1), make_engine(3, partitioner="space_kd", balance=nc.Balance())
    for engine in (alone, shared):
        engine.subscribe(subscriptions)
    for step in range(6):
        routing = shared._shards.router.routing
        shards = routing.cell_shards.copy()
        moved = rng.randrange(len(shards))
        shards[moved] = (shards[moved] + 1) % 3
        leaf = int(routing.cell_leaves[moved])
        cut = routing.reassigned(shards).cut(leaf, axis=step % 2, value=rng.random())
        shared._shards.reroute(cut)
        again = [replace(message, id=f"{message.id}.{step}") for message in messages]
        assert changes(shared.publish(again)) == changes(alone.publish(again)) != []
