"""Does sharing the work change the answer? Every partitioner against one engine that works alone."""

import os
import random
import subprocess
import sys

import pytest

import nearcast as nc
from nearcast.model import KINDS, Cohort, Footprints, MessageBatch
from nearcast.partition import PARTITIONERS, Sample
from nearcast.testing import strategies as world

NAMES = [p.name for p in PARTITIONERS]


def engine(space, **options):
    return nc.Engine(
        space=space,
        vocabulary=world.vocabulary(),
        social=world.social_graph(),
        window=nc.TimeWindow(6),
        **options,
    )


def canonical(updates):
    return sorted(updates, key=lambda u: (u.seq, str(u.subscription), u.change, str(u.message)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("space", world.SPACES, ids=lambda s: s.metric)
def test_many_workers_say_what_one_says(name, workers, space, random_fields):
    rng = random.Random(workers)
    with engine(space) as alone, engine(space, workers=workers, partitioner=name) as shared:
        for step in range(12):
            subscriptions = [
                world.make_subscription(kind.kind, rng.randrange(30), random_fields(kind.kind, space, rng))
                for kind in rng.choices(KINDS, k=6)
            ]
            assert canonical(alone.subscribe(subscriptions)) == canonical(shared.subscribe(subscriptions))
            batch = [
                nc.Message(
                    f"m{step}.{i}", rng.choice(world.GRID[space]), rng.choices(world.TERMS, k=3), step + i / 4,
                    rng.choice(world.PLACES),
                )
                for i in range(5)
            ]  # fmt: skip
            told, told_shared = alone.publish(batch), shared.publish(batch)
            assert canonical(told) == canonical(told_shared)
            assert [u.seq for u in told_shared] == sorted(u.seq for u in told_shared)
        assert alone.stats().kinds == shared.stats().kinds
        assert len(shared) == len(alone)


@pytest.mark.parametrize("partitioner", PARTITIONERS, ids=NAMES)
def test_every_message_reaches_who_it_may_touch(partitioner, random_fields):
    rng = random.Random(3)
    meaning = world.meaning(world.PLANE)
    subscriptions = [
        world.make_subscription(kind.kind, i, random_fields(kind.kind, world.PLANE, rng))
        for i, kind in enumerate(rng.choices(KINDS, k=60))
    ]
    footprints = Footprints.joined([Cohort.of([s], meaning).footprints for s in subscriptions])
    messages = [nc.Message(i, rng.choice(world.GRID[world.PLANE]), rng.choices(world.TERMS, k=3)) for i in range(40)]
    batch = MessageBatch.from_messages(messages, vocabulary=meaning.vocabulary)
    routing = partitioner.fit(Sample(footprints, batch), n_shards=4)
    homes, seen_by = routing.place(footprints), routing.route(batch)
    assert all(0 < home < 16 for home in homes.tolist())
    assert all(0 <= seen < 16 for seen in seen_by.tolist())
    for footprint, home in zip(footprints, homes.tolist(), strict=True):
        for document, seen in zip(batch.documents, seen_by.tolist(), strict=True):
            if footprint.may_match(*document.location, document.units.keys()):
                assert home & seen


PLACE = """
import nearcast as nc
from nearcast.model import Cohort, MessageBatch
from nearcast.partition import PARTITIONERS, Sample
from nearcast.testing import strategies as world
subscriptions = [nc.NearestSubscription(f"s{i}", location=(0, 0), keywords="a b", k=1) for i in range(50)]
footprints = Cohort.of(subscriptions, world.meaning()).footprints
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
