"""With every partitioner, shards whose results are merged emit the updates of one engine, for every kind."""

import pyarrow as pa
import pytest

import nearcast as nc
from effort import effort
from jobs.local_shards import LocalShards, served
from jobs.test_shard import NAMES, fitted, frames_of
from nearcast.model import KINDS
from spark import inputs


@pytest.mark.parametrize("kind", [kind.kind for kind in KINDS])
@pytest.mark.parametrize("name", NAMES)
def test_every_partitioner_serves_every_kind(name, kind, random_fields):
    for seed in range(effort(1, 6)):
        of = inputs.job(window=nc.CountWindow(9), shards=3, partitioner=name)
        withdraws = kind in served(of)
        given = inputs.batches(seed, random_fields, n=5, timed=True, kinds=(kind,), withdrawn=0.2 * withdraws)
        of = fitted(of, given)
        shards, updates = LocalShards(of), []
        for batch in given:
            updates += shards.run(frames_of(batch, of, blocks=2))
        expected = inputs.embedded(of, given)
        assert inputs.counted(updates) == expected, f"seed {seed}"
        assert len(expected) > 3


@pytest.mark.parametrize("name", [name for name in NAMES if inputs.job(partitioner=name).merges])
def test_merged_results_have_replicas_in_several_shards(name, random_fields):
    """Otherwise the test above would not show that they are merged."""
    n_replicas = n_subscriptions = 0
    for seed in range(3):
        of = inputs.job(window=nc.CountWindow(9), shards=4, partitioner=name)
        given = inputs.batches(seed, random_fields, n=5, kinds=("nearest", "social"))
        of = fitted(of, [inputs.Batch(given[0].messages, pa.concat_tables(b.subscriptions for b in given))])
        shards = LocalShards(of)
        for batch in given:
            shards.run(frames_of(batch, of))
        n_replicas += sum(len(m.registry) for e in shards.engines for m in e._shards.shards[0].matchers.values())
        n_subscriptions += sum(map(len, shards.partitions))
        assert sum(map(len, shards.engines)) == sum(map(len, shards.partitions)), "each counts once"
    assert n_replicas > n_subscriptions > 3
