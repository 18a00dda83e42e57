"""The pipeline gives the updates of the engine with any partitioner, on real Spark."""

import pyarrow as pa
import pytest

import nearcast as nc
from nearcast.partition import Sample
from nearcast.partition.fitting import fit
from nearcast.spark import match
from spark import inputs
from spark.test_pipeline import counted, options, run, static, streams


def whole(given):
    return inputs.Batch(
        *(pa.concat_tables([getattr(batch, name) for batch in given]) for name in ("messages", "subscriptions"))
    )


@pytest.mark.parametrize(
    "name",
    [
        "auto",
        *(
            pytest.param(name, marks=pytest.mark.soak)
            for name in ("hybrid", "location", "prefix", "space_rtree", "dkm")
        ),
    ],
)
def test_a_routing_is_fitted_to_static_frames(spark, random_fields, name):
    """One partitioner for each way to place and route; `test_shard` covers all of them without Spark."""
    of = inputs.job(window=nc.CountWindow(30), shards=2)
    batch = whole(inputs.batches(3, random_fields, n=12))
    matched = match(*static(spark, batch), **options(of), partitioner=name)
    expected = inputs.embedded(of, [batch])
    assert counted(matched.updates.collect()) == expected
    assert expected.total() > 5


@pytest.mark.soak  # `test_run` continues a job with the routing that it learned from files
def test_a_stream_continues_with_its_routing(spark, shards, write_stream, tmp_path, random_fields):
    shards(3)
    of = inputs.job(window=nc.CountWindow(7), shards=3)
    given = inputs.batches(5, random_fields, n=6)
    folders, learned = write_stream(given[:3]), static(spark, whole(given))
    state = {"state": str(tmp_path / "state"), "partitioner": "location"}
    first = match(*streams(spark, folders), **options(of), **state, sample=tuple(learned))
    run(first.updates, tmp_path)
    write_stream(given)  # the other files
    again = match(*streams(spark, folders), **options(of), **state)
    rows, _ = run(again.updates, tmp_path)
    assert counted(rows) == inputs.embedded(of, given)


def test_updates_are_packed_for_partitioners_that_move_subscriptions(spark, random_fields):
    of = inputs.job(window=nc.CountWindow(9), shards=2)
    batch = whole(inputs.batches(4, random_fields, n=8))
    matched = match(*static(spark, batch), **options(of), partitioner="location")
    blocks = [nc.spark.unpack_updates(bytes(row["payload"])) for row in matched.packed.collect()]
    assert inputs.counted(blocks) == inputs.embedded(of, [batch])


def test_a_fitted_routing_is_used_unchanged(spark, shards, random_fields):
    shards(3)
    of = inputs.job(window=nc.CountWindow(9), shards=3)
    batch = whole(inputs.batches(4, random_fields, n=4))
    given = fit("space_kd", Sample.none(), n_shards=3)
    matched = match(*static(spark, batch), **options(of), partitioner=given)
    assert counted(matched.updates.collect()) == inputs.embedded(of, [batch])
    with pytest.raises(nc.InvalidInput, match=r"partitioner must be a routing among 3 shards; got 'one among 2'"):
        match(*static(spark, batch), **options(of), partitioner=fit("space_kd", Sample.none(), n_shards=2))


def test_results_that_cannot_be_merged_after_a_retraction_are_rejected_with_the_reason(spark, random_fields):
    of = inputs.job(window=nc.CountWindow(9), shards=2)  # one of them is replaced in its batch by a `topk`
    batch = whole(inputs.batches(4, random_fields, n=4, kinds=("nearest", "topk"), timed=True, withdrawn=0.2))
    matched = match(*static(spark, batch), **options(of), partitioner="space_kd")
    reasons = [row["reason"] for row in matched.rejected.collect()]
    n_nearest = sum(kind == "nearest" for kind in batch.subscriptions["kind"].to_pylist())
    assert len(reasons) == n_nearest > 0
    assert all("partitioner must send every message to all shards for kind 'nearest'" in reason for reason in reasons)


@pytest.mark.parametrize("name", ["keyword", pytest.param("space_kd", marks=pytest.mark.soak)])
def test_a_stream_with_merged_results_continues_after_a_restart(
    spark, shards, write_stream, tmp_path, random_fields, name
):
    shards(3)
    of = inputs.job(window=nc.CountWindow(7), shards=3)
    given = inputs.batches(5, random_fields, n=6)
    folders, learned = write_stream(given[:3]), static(spark, whole(given))
    state = {"state": str(tmp_path / "state"), "partitioner": name}
    first = match(*streams(spark, folders), **options(of), **state, sample=tuple(learned))
    run(first.updates, tmp_path)
    write_stream(given)  # the other files
    again = match(*streams(spark, folders), **options(of), **state)
    rows, _ = run(again.updates, tmp_path)
    expected = inputs.embedded(of, given)
    assert counted(rows) == expected
    kind_of = {row["id"]: row["kind"] for row in whole(given).subscriptions.to_pylist() if row["kind"]}
    assert {"topk", "nearest", "social"} <= {kind_of[update[1]] for update in expected}


def test_a_stream_without_a_sample_to_fit_to_is_refused(spark, write_stream, tmp_path, random_fields):
    of = inputs.job(window=nc.CountWindow(9), shards=2)
    folders = write_stream(inputs.batches(4, random_fields, n=1))
    with pytest.raises(nc.InvalidInput, match=r"sample must be frames .*'location'.*got None.*nearcast advise"):
        match(*streams(spark, folders), **options(of), state=str(tmp_path / "state"), partitioner="location")
