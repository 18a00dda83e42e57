"""Subscriptions have only the replicas that they need, and results equal those of one engine."""

import random

import numpy as np
import pytest

import nearcast as nc
from effort import effort
from nearcast.engine import EngineConfig
from nearcast.engine.shard_engine import ShardEngine
from nearcast.model import SubscriptionBatch
from nearcast.text import term_id

WORDS = [f"w{i}" for i in range(12)]
SPACE = nc.Space(nc.Box(0, 0, 1, 1))
VOCABULARY = nc.Vocabulary.with_weights({word: 1.0 + i for i, word in enumerate(WORDS)})
NARROWING = ["prefix", "spatial_first", "keyword_first"]


def engine(**options):
    return nc.Engine(space=SPACE, vocabulary=VOCABULARY, **options)


def messages(rng, first, n):
    return [
        nc.Message(f"m{i}", (rng.random(), rng.random()), " ".join(rng.sample(WORDS, 4)), float(i + rng.randrange(4)))
        for i in range(first, first + n)
    ]


def subscriptions(rng, n, k=2):
    return [
        nc.TopKSubscription(
            i, location=(rng.random(), rng.random()), keywords=" ".join(rng.sample(WORDS, 4)), k=k, alpha=0.1
        )
        for i in range(n)
    ]


def n_replicas(shared):
    return sum(len(shard) for shard in shared._shards.shards)


def key(update):
    return update.seq, str(update.subscription), update.change, str(update.message)


@pytest.mark.parametrize("partitioner", NARROWING)
@pytest.mark.parametrize("window", [nc.CountWindow(60), nc.TimeWindow(60)], ids=["count", "time"])
def test_replicas_are_fewer_and_are_added_when_they_are_needed(partitioner, window):
    rng = random.Random(7)
    with engine(window=window) as alone, engine(window=window, workers=4, partitioner=partitioner) as shared:
        first, requested = messages(rng, 0, 60), subscriptions(rng, 120)
        for one in (alone, shared):
            one.publish(first)
            one.subscribe(requested)
        with engine(window=window, workers=4, partitioner="keyword") as everywhere:
            everywhere.publish(first)
            everywhere.subscribe(requested)
            at_first = n_replicas(shared)
            if partitioner == "prefix":
                assert at_first < 0.8 * n_replicas(everywhere)
        grew = 0
        for step in range(effort(10, 30)):
            batch = messages(rng, 60 + 20 * step, 20)
            updates, updates_shared = alone.publish(batch), shared.publish(batch)
            assert sorted(updates, key=key) == sorted(updates_shared, key=key)
            grew += n_replicas(shared) > at_first
            for subscription in requested:
                assert shared.results(subscription.id) == alone.results(subscription.id)
        assert grew
        shared.unsubscribe([subscription.id for subscription in requested])
        assert n_replicas(shared) == 0


def test_results_expire_when_time_advances_without_a_message():
    rng = random.Random(8)
    options = {"window": nc.TimeWindow(30)}
    with engine(**options) as alone, engine(workers=4, partitioner="prefix", **options) as shared:
        for one in (alone, shared):
            one.publish(messages(random.Random(1), 0, 60))
            one.subscribe(subscriptions(random.Random(2), 80))
        for now in range(60, 100, 3):
            assert sorted(alone.advance(float(now)), key=key) == sorted(shared.advance(float(now)), key=key)
        batch = messages(rng, 100, 10)
        assert sorted(alone.publish(batch), key=key) == sorted(shared.publish(batch), key=key)


def test_an_attached_engine_has_all_needed_replicas(tmp_path):
    rng = random.Random(9)
    options = {"space": SPACE, "vocabulary": VOCABULARY, "window": nc.CountWindow(60)}
    shared_options = {**options, "workers": 4, "partitioner": "prefix"}
    with (
        nc.Engine(**options) as alone,
        ShardEngine.create(EngineConfig.of(shared_options), folder=tmp_path / "engine") as shared,
    ):
        for one in (alone, shared):
            one.publish(messages(random.Random(1), 0, 60))
            one.subscribe(subscriptions(random.Random(2), 80))
        shared.seal("here")
    with (
        nc.Engine(**options) as alone,
        ShardEngine.attach(tmp_path / "engine", "here", EngineConfig.of(shared_options)) as again,
    ):
        alone.publish(messages(random.Random(1), 0, 60))
        alone.subscribe(subscriptions(random.Random(2), 80))
        for step in range(10):
            batch = messages(rng, 60 + 20 * step, 20)
            assert sorted(alone.publish(batch), key=key) == sorted(again.publish(batch), key=key)


def test_no_message_without_the_needed_terms_reaches_the_threshold():
    rng = random.Random(10)
    with engine(window=nc.CountWindow(10)) as alone:
        scoring = alone._scoring
        requested = subscriptions(rng, 60)
        footprints = SubscriptionBatch.of(requested, scoring).footprints
        thresholds = np.array([rng.uniform(0.2, 1.0) for _ in requested])
        narrowed, floors = footprints.narrowed(footprints.needed(thresholds))
        assert len(narrowed.term_ids) < len(footprints.term_ids)
        for subscription, footprint, threshold, floor in zip(requested, narrowed, thresholds, floors, strict=True):
            for message in messages(rng, 0, 40):
                here = nc.Message(message.id, subscription.location, message.text)
                if not footprint.may_match(*here.location, {term_id(word) for word in here.text.split()}):
                    score = alone._batch([here]).documents[0]
                    found = subscription.bind(scoring)(score)
                    assert found is None or (found <= floor and found < threshold)
