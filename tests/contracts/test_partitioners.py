"""With every partitioner, an engine emits the updates of an engine with one worker."""

import itertools
import os
import random
import subprocess
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nearcast as nc
from effort import effort, sampled
from nearcast.model import KINDS, Footprints, MessageBatch, SubscriptionBatch
from nearcast.partition import PARTITIONERS, Sample
from nearcast.partition.balance.adjust import adjust
from nearcast.partition.balance.adjustment import Adjustment
from nearcast.partition.balance.cells import Period, has_cells
from nearcast.partition.balance.refit import decide
from nearcast.partition.masks import as_ints
from nearcast.partition.serialization import pack, unpack
from nearcast.partition.transition import place_added
from nearcast.testing import strategies

NAMES = [p.name for p in PARTITIONERS]


def engine(space, **options):
    return nc.Engine(
        space=space,
        vocabulary=strategies.vocabulary(),
        social=strategies.social_graph(),
        window=nc.TimeWindow(6),
        **options,
    )


def canonical(updates):
    return sorted(updates, key=lambda u: (u.seq, str(u.subscription), u.change, str(u.message)))


@pytest.mark.parametrize(("name", "workers"), sampled(NAMES, [2, 5]))
def test_many_workers_give_the_updates_of_one(name, workers, random_fields):
    rng, space = random.Random(workers), strategies.PLANE if workers == 2 else strategies.GLOBE
    with engine(space) as alone, engine(space, workers=workers, partitioner=name) as shared:
        for step in range(effort(4, 12)):
            subscriptions = [
                strategies.make_subscription(kind.kind, rng.randrange(30), random_fields(kind.kind, space, rng))
                for kind in rng.choices(KINDS, k=6)
            ]
            assert canonical(alone.subscribe(subscriptions)) == canonical(shared.subscribe(subscriptions))
            batch = [
                nc.Message(
                    f"m{step}.{i}", rng.choice(strategies.GRID[space]), rng.choices(strategies.TERMS, k=3), step + i / 4,
                    rng.choice(strategies.PLACES),
                )
                for i in range(5)
            ]  # fmt: skip
            emitted, updates_shared = alone.publish(batch), shared.publish(batch)
            assert canonical(emitted) == canonical(updates_shared)
            assert [u.seq for u in updates_shared] == sorted(u.seq for u in updates_shared)
            edge = rng.choice(strategies.USERS), rng.choice(strategies.PLACES)
            assert canonical(alone.add_edges([edge])) == canonical(shared.add_edges([edge]))
            assert canonical(alone.remove_edges([edge])) == canonical(shared.remove_edges([edge]))
            here = [id_ for id_ in range(30) if id_ in alone]
            for id_ in here:
                assert shared.results(id_) == alone.results(id_)
                assert shared.explain(id_, batch[0].id) == alone.explain(id_, batch[0].id)
            for one in (alone, shared):
                one.unsubscribe(here[::5])
            assert canonical(alone.advance(step + 1.5)) == canonical(shared.advance(step + 1.5))
        assert alone.stats().kinds == shared.stats().kinds
        assert len(shared) == len(alone)


@pytest.mark.parametrize("name", NAMES)
def test_results_saving_and_unsubscribing_are_independent_of_replicas(name, random_fields, tmp_path):
    rng = random.Random(2)
    with engine(strategies.PLANE) as alone, engine(strategies.PLANE, workers=4, partitioner=name) as shared:
        subscriptions = [
            strategies.make_subscription(kind.kind, i, random_fields(kind.kind, strategies.PLANE, rng))
            for i, kind in enumerate(list(KINDS) * 6)
        ]
        messages = [
            nc.Message(
                f"m{i}", rng.choice(strategies.GRID[strategies.PLANE]), rng.choices(strategies.TERMS, k=3), i / 10
            )
            for i in range(60)
        ]
        for one in (alone, shared):
            one.subscribe(subscriptions)
            one.publish(messages[:30])
        shared.save(tmp_path / "saved")
        with nc.Engine.load(tmp_path / "saved") as again:
            assert len(again) == len(alone)
            assert canonical(again.publish(messages[30:])) == canonical(alone.publish(messages[30:]))
            for subscription in subscriptions:
                assert again.results(subscription.id) == alone.results(subscription.id)
            again.unsubscribe([s.id for s in subscriptions[::2]])
            assert len(again) == len(subscriptions) // 2
            assert again.explain(subscriptions[1].id, "m59") == alone.explain(subscriptions[1].id, "m59")


def sampled(rng, random_fields):
    """Return footprints of all kinds, and messages."""
    scoring = strategies.scoring(strategies.PLANE)
    subscriptions = [
        strategies.make_subscription(kind.kind, i, random_fields(kind.kind, strategies.PLANE, rng))
        for i, kind in enumerate(rng.choices(KINDS, k=60))
    ]
    footprints = Footprints.joined([SubscriptionBatch.of([s], scoring).footprints for s in subscriptions])
    messages = [
        nc.Message(i, rng.choice(strategies.GRID[strategies.PLANE]), rng.choices(strategies.TERMS, k=3))
        for i in range(40)
    ]
    batch = MessageBatch.from_messages(messages, vocabulary=scoring.vocabulary)
    return footprints, batch


@pytest.mark.parametrize("partitioner", PARTITIONERS, ids=NAMES)
@pytest.mark.parametrize("n_shards", [2, 7, 64, 65, 130, 200])
def test_every_message_reaches_the_shards_of_matching_footprints(partitioner, n_shards, random_fields):
    rng = random.Random(3)
    known, early = sampled(rng, random_fields)
    routing = partitioner.fit(Sample(known, early), n_shards=n_shards)
    new, late = sampled(rng, random_fields)  # not part of the sample that it was fitted to
    new = replace(new, keys=new.keys + np.uint64(1))
    assignment = {id(some): as_ints(routing.place(some)) for some in (known, new)}
    seen_by = {id(batch): as_ints(routing.route(batch)) for batch in (early, late)}
    assert all(0 < home < 1 << n_shards for some in assignment.values() for home in some)
    assert all(0 <= seen < 1 << n_shards for some in seen_by.values() for seen in some)
    for some, batch in itertools.product((known, new), (early, late)):
        for footprint, home in zip(some, assignment[id(some)], strict=True):
            for document, seen in zip(batch.documents, seen_by[id(batch)], strict=True):
                if footprint.may_match(*document.location, document.units.keys()):
                    assert home & seen


def messages_everywhere(space, rng):
    """Return messages at all points where regions begin and end, with attributes."""
    return [
        nc.Message(
            i, at, rng.choices(strategies.TERMS, k=3), place=rng.choice(strategies.PLACES),
            attributes={name: rng.choice(values) for name, values in strategies.VALUES.items()},
        )
        for i, at in enumerate(strategies.GRID[space] * 2)
    ]  # fmt: skip


@pytest.mark.parametrize("partitioner", PARTITIONERS, ids=NAMES)
@settings(max_examples=effort(4, 60), suppress_health_check=list(HealthCheck))
@given(data=st.data(), space=st.sampled_from(strategies.SPACES), n_shards=st.sampled_from([2, 7, 65]))
def test_a_message_that_passes_all_filters_reaches_a_shard_of_the_subscription(partitioner, data, space, n_shards):
    """Whatever the form of a region: also of one that crosses the antimeridian, covers a pole, or leaves the bounds."""
    scoring, kinds = strategies.scoring(space), list(KINDS) * 2
    fields = [data.draw(strategies.filtered_fields(kind.kind, space)) for kind in kinds]
    subscriptions = [
        strategies.make_subscription(kind.kind, i, own)
        for i, (kind, own) in enumerate(zip(kinds, fields, strict=True))
    ]
    messages = messages_everywhere(space, random.Random(data.draw(st.integers(0, 99))))
    batch = MessageBatch.from_messages(messages, vocabulary=scoring.vocabulary, attributes=scoring.attributes)
    routed = batch.for_routing  # with the values of attributes, which some footprints demand
    footprints = Footprints.joined([SubscriptionBatch.of([s], scoring).routing_footprints for s in subscriptions])
    known = footprints.take(np.arange(0, len(footprints), 2))  # a routing also gets what it was not fitted to
    routing = partitioner.fit(Sample(known, routed), n_shards=n_shards)
    placed, seen_by = as_ints(routing.place(footprints)), as_ints(routing.route(routed))
    for subscription, footprint, home in zip(subscriptions, footprints, placed, strict=True):
        score_of, least = subscription.scorer(scoring), getattr(subscription, "tau", -np.inf)
        for document, as_routed, seen in zip(batch.documents, routed.documents, seen_by, strict=True):
            score = score_of(document)
            if score is not None and score >= least:
                assert footprint.may_match(*document.location, as_routed.units.keys())
                assert home & seen, (subscription, document)


ADJUSTABLE = [p for p in PARTITIONERS if has_cells(p.fit(Sample.none(), n_shards=1))]


def unbalanced(partitioner, n_shards, random_fields, rng):
    """Return a routing whose cells are all in the first shard, and what it was fitted to."""
    footprints, batch = sampled(rng, random_fields)
    routing = partitioner.fit(Sample(footprints, batch), n_shards=n_shards).fixed()
    return routing.reassigned(np.zeros_like(routing.cell_shards)), footprints, batch


def test_some_routings_are_tables_of_cells():
    assert {p.name for p in ADJUSTABLE} == {
        "keyword", "prefix", "location", "space_grid", "space_kd", "space_rtree", "hybrid", "knn_keyword", "knn_space", "dkm",
    }  # fmt: skip


@pytest.mark.parametrize("partitioner", ADJUSTABLE, ids=lambda one: one.name)
@pytest.mark.parametrize("n_shards", [2, 3, 7, 65])
def test_an_adjusted_routing_keeps_the_rule_of_routings(partitioner, n_shards, random_fields):
    rng = random.Random(n_shards)
    routing, known, early = unbalanced(partitioner, n_shards, random_fields, rng)
    made = adjust(routing, Period.of(early, known, are_new=np.arange(len(known)) % 2 == 0))
    assert made is not None
    new, late = sampled(rng, random_fields)
    n_met = 0
    for some, batch in itertools.product((known, new), (early, late)):
        placed, seen_by = as_ints(made.routing.place(some)), as_ints(made.routing.route(batch))
        assert all(0 < home < 1 << n_shards for home in placed)
        for footprint, home in zip(some, placed, strict=True):
            for document, seen in zip(batch.documents, seen_by, strict=True):
                if footprint.may_match(*document.location, document.units.keys()):
                    assert home & seen
                    n_met += 1
    assert n_met > 100
    replayed = Adjustment.from_json(made.adjustment.to_json()).replay(routing)
    assert pack(replayed) == pack(made.routing)


@pytest.mark.parametrize("partitioner", ADJUSTABLE, ids=lambda one: one.name)
@pytest.mark.parametrize("n_shards", [2, 65])
def test_two_routings_at_once_keep_the_rule_of_routings(partitioner, n_shards, random_fields):
    """Old subscriptions are where the old routing placed them, new ones where the new one does."""
    rng = random.Random(n_shards)
    old, known, early = unbalanced(partitioner, n_shards, random_fields, rng)
    new, late = sampled(rng, random_fields)
    policy = nc.Balance(refit_gain=1e-9)
    made = decide(old, Period.of(late, new), policy, fit=partial(partitioner.fit, n_shards=n_shards), since=5)
    assert made is not None and made.adjustment.action == "refit"
    footprints = Footprints.joined([known, new])
    sinces = np.repeat([4, 5], [len(known), len(new)])
    placed = place_added(made.routing, footprints, sinces)
    assert as_ints(placed[: len(known)]) == as_ints(old.place(known)), "nothing moves"
    assert as_ints(placed[len(known) :]) == as_ints(made.routing.place(new))
    n_met = 0
    for batch in (early, late):
        for footprint, home in zip(footprints, as_ints(placed), strict=True):
            for document, seen in zip(batch.documents, as_ints(made.routing.route(batch)), strict=True):
                if footprint.may_match(*document.location, document.units.keys()):
                    assert home & seen
                    n_met += 1
    assert n_met > 100
    assert pack(Adjustment.from_json(made.adjustment.to_json()).replay(old)) == pack(made.routing)
    period = Period.of(late, footprints, are_old=made.routing.are_old(sinces))
    assert decide(made.routing, period, replace(policy, retire_below=0.1), fit=None) is None, "too many are left"
    ended = decide(made.routing, period, replace(policy, retire_below=0.9), fit=None)
    assert ended.adjustment.action == "retire" and ended.adjustment.moved_subscriptions > 0
    again = Adjustment.from_json(ended.adjustment.to_json()).replay(unpack(pack(made.routing)))
    assert pack(again) == pack(ended.routing) == pack(made.routing.new)


@pytest.mark.parametrize("partitioner", ADJUSTABLE, ids=lambda one: one.name)
def test_an_engine_with_an_adjusted_routing_gives_the_updates_of_one_worker(partitioner, random_fields):
    rng = random.Random(8)
    routing, known, early = unbalanced(partitioner, 3, random_fields, rng)
    made = adjust(routing, Period.of(early, known), sigma=1).routing
    with engine(strategies.PLANE) as alone, engine(strategies.PLANE, workers=3, partitioner=made) as shared:
        for step in range(4):
            subscriptions = [
                strategies.make_subscription(
                    kind.kind, rng.randrange(30), random_fields(kind.kind, strategies.PLANE, rng)
                )
                for kind in rng.choices(KINDS, k=12)
            ]
            assert canonical(alone.subscribe(subscriptions)) == canonical(shared.subscribe(subscriptions))
            batch = [
                nc.Message(
                    f"m{step}.{i}",
                    rng.choice(strategies.GRID[strategies.PLANE]),
                    rng.choices(strategies.TERMS, k=3),
                    step + i / 9,
                )
                for i in range(9)
            ]
            assert canonical(alone.publish(batch)) == canonical(shared.publish(batch))


@pytest.mark.parametrize("partitioner", PARTITIONERS, ids=NAMES)
@pytest.mark.parametrize("n_shards", [1, 4, 130])
def test_a_routing_can_be_saved(partitioner, n_shards, random_fields):
    footprints, batch = sampled(random.Random(4), random_fields)
    routing = partitioner.fit(Sample(footprints, batch), n_shards=n_shards)
    again = unpack(pack(routing))
    assert as_ints(again.place(footprints)) == as_ints(routing.place(footprints))
    assert as_ints(again.route(batch)) == as_ints(routing.route(batch))
    assert routing.loads.shape == (n_shards,)
    assert (routing.loads >= 0).all()
    bounds = strategies.PLANE.bounds
    for region in again.shard_areas(bounds):
        assert 0 < region.shards < 1 << n_shards
        xmin, ymin, xmax, ymax = region.box
        assert bounds.xmin <= xmin <= xmax <= bounds.xmax
        assert bounds.ymin <= ymin <= ymax <= bounds.ymax


@pytest.mark.parametrize("partitioner", PARTITIONERS, ids=NAMES)
def test_too_many_shards_are_refused(partitioner):
    with pytest.raises(nc.InvalidInput, match="n_shards must be between 1 and 4096; got 4097"):
        partitioner.fit(Sample.none(), n_shards=4_097)


PLACE = """
import nearcast as nc
from nearcast.model import SubscriptionBatch, MessageBatch
from nearcast.partition import PARTITIONERS, Sample
from nearcast.testing import strategies
subscriptions = [nc.NearestSubscription(f"s{i}", location=(0, 0), keywords="a b", k=1) for i in range(50)]
footprints = SubscriptionBatch.of(subscriptions, strategies.scoring()).footprints
for partitioner in PARTITIONERS:
    print(partitioner.fit(Sample(footprints, MessageBatch.empty()), n_shards=4).place(footprints).tolist())
"""


def test_placing_is_the_same_in_every_process():
    placed = {
        subprocess.run(
            [sys.executable, "-c", PLACE],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(placed) == 1
