"""The runs of partitioners count what they claim."""

import pytest
from experiments.partition_runs import prefix_replicas, run_apart, run_together, stream_of

from nearcast import Engine
from nearcast.workload import make

N_FIT, BATCH = 400, 200


def test_shards_that_run_alone_do_the_work_of_one_engine():
    stream = stream_of("tweets", "boolean", 300, 800, queries="q1")
    row = run_apart(stream, "hash", n_shards=4, n_fit=N_FIT, batch=BATCH)
    with Engine(**stream.engine_options) as engine:
        engine.subscribe(stream.subscriptions)
        engine.publish(stream.messages.slice(0, N_FIT))
        before = engine.stats().verified
        engine.publish(stream.messages.slice(N_FIT))
        assert sum(row["verified"]) == engine.stats().verified - before
    assert (row["replicas"], row["reach"], row["dropped"], len(row["us"])) == (1.0, 4.0, 0.0, 4)


def test_a_subscription_after_the_fit_is_placed():
    stream = stream_of("places", "nearest", 300, 800, k=3)
    row = run_apart(stream, "dkm", n_shards=4, n_fit=N_FIT, batch=BATCH, later=0.5)
    assert row["replicas"] == 1.0
    assert sum(row["verified"]) > 0


@pytest.mark.parametrize("partitioner", ["hash", "prefix"])
def test_replicas_are_counted_before_and_after_a_window(partitioner):
    stream = stream_of("tweets", "topk", 100, 600, window=300, k=1)
    row = run_together(stream, partitioner, n_shards=4)
    assert 1.0 <= row["replicas_first"] <= row["replicas_after"] <= 4.0, "replicas are never removed"
    assert 1.0 <= row["reach"] <= 4.0
    assert len(row["visited"]) == len(row["verified"]) == len(row["own"]) == 4
    assert sum(row["visited"]) >= sum(row["verified"]) > 0


def test_a_prefix_needs_no_more_replicas_than_all_keywords():
    placements = [
        prefix_replicas(make("tweets"), window=2_000, k=k, n_shards=8, n_subscriptions=200, n_fit=500)
        for k in (1, 20)
    ]
    assert all(1.0 <= row["prefix"] <= row["keyword"] for row in placements)
    assert placements[0]["prefix"] < placements[1]["prefix"], "one good message excludes more terms than twenty"
