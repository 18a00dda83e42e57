"""A job carries registered kinds and partitioners to Spark's workers."""

import pyarrow as pa

import nearcast as nc
from extension.test_engine import options, stream, subscriptions
from nearcast.model.columns import MESSAGES, subscriptions_schema
from nearcast.spark import match


def test_static_frames_give_the_updates_of_an_engine(spark):
    rows = [{"id": m.id, "x": m.location[0], "y": m.location[1], "text": m.text} for m in stream(8)]
    messages = pa.Table.from_pylist(rows, schema=MESSAGES).combine_chunks()
    made = pa.Table.from_pylist(
        [one.to_row() | {"op": "subscribe"} for one in subscriptions(9)], schema=subscriptions_schema()
    )
    matched = match(
        spark.createDataFrame(messages).coalesce(1),
        spark.createDataFrame(made.combine_chunks()).coalesce(1),
        **options(),
        partitioner="reversed",
        shards=2,
    )
    found = matched.updates.toArrow()
    with nc.Engine(**options()) as engine:
        engine.subscribe(made)
        alone = engine.publish(messages)
    columns = ["seq", "subscription", "message", "change", "score"]
    assert found.num_rows == alone.num_rows > 0
    assert sorted(map(tuple, (row.values() for row in found.select(columns).to_pylist()))) == sorted(
        map(tuple, (row.values() for row in alone.select(columns).to_pylist()))
    )
    assert matched.rejected.count() == 0


def test_a_bad_row_of_a_registered_kind_is_rejected_with_the_reason(spark):
    good, *_ = (one.to_row() | {"op": "subscribe"} for one in subscriptions(9))
    made = pa.Table.from_pylist([good, good | {"id": "bad", "radius": -5.0}], schema=subscriptions_schema())
    messages = pa.Table.from_pylist([{"id": "m", "x": 0.0, "y": 0.0, "text": "a"}], schema=MESSAGES)
    matched = match(spark.createDataFrame(messages), spark.createDataFrame(made), **options(), shards=2)
    (rejected,) = matched.rejected.collect()
    assert rejected.reason.startswith("radius must be in [0, 10000]; got -5.0")
