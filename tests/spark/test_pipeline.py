"""The pipeline gives the updates of the embedded engine, on streams and static frames, with any number of shards."""

import os
from collections import Counter

import pyarrow as pa
import pytest

import nearcast as nc
from nearcast.errors import InvalidInput, StateError
from nearcast.jobs.progress import Tally
from nearcast.spark import match, pack_messages, unpack_updates
from nearcast.spark.query_progress import batches_of
from nearcast.spark.shard_keys import keys_of, spark_hash
from nearcast.spark.streams import WHOLE_FILES
from nearcast.testing import strategies
from nearcast.workload import make
from spark import inputs

MESSAGES = "id string, x double, y double, text string, at timestamp, place string"
SUBSCRIPTIONS = (
    "op string, id string, kind string, x double, y double, xmin double, ymin double, xmax double, ymax double, "
    "keywords string, k int, alpha double, delta double, tau double, user string, at timestamp"
)


def options(of):
    return {
        "space": of.config.space,
        "vocabulary": of.config.vocabulary,
        "social": of.config.social,
        "window": of.config.window,
        "text_similarity": of.config.text_similarity,
        "shards": of.shards,
    }


def static(spark, batch):
    """Return the tables of a batch as DataFrames of one partition, in the same order."""
    # PySpark loses the rows after an empty chunk, so the tables have one chunk each.
    tables = (batch.messages.combine_chunks(), batch.subscriptions.combine_chunks())
    return [spark.createDataFrame(rows).coalesce(1) for rows in tables]


def streams(spark, folders):
    return [
        spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(folder)
        for folder, schema in zip(folders, (MESSAGES, SUBSCRIPTIONS), strict=True)
    ]


def run(frame, folder):
    """Run a streaming query over all files; return its rows and the query."""
    out, checkpoint = str(folder / "out"), str(folder / "checkpoint")
    writer = frame.writeStream.format("parquet").option("path", out).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return frame.sparkSession.read.schema(frame.schema).parquet(out).collect(), query


def counted(rows):
    return Counter(inputs.key(row) for row in rows)


@pytest.mark.parametrize("n", [2, 8])
def test_a_stream_gives_the_updates_of_the_engine(spark, shards, write_stream, tmp_path, random_fields, n):
    shards(n)
    of = inputs.job(window=nc.TimeWindow(9) if n == 2 else nc.CountWindow(7), shards=n)
    given = inputs.batches(n, random_fields, n=6, timed=n == 2)
    expected = inputs.embedded(of, given)
    matched = match(*streams(spark, write_stream(given)), **options(of), state=str(tmp_path / "state"))
    rows, query = run(matched.updates, tmp_path)
    assert counted(rows) == expected
    assert len(query.recentProgress) == 6
    assert expected.total() > 20


@pytest.mark.parametrize("n", [1, 2, 8])
@pytest.mark.parametrize("timed", [False, True], ids=["by arrival", "by time"])
def test_static_frames_give_the_updates_of_the_engine(spark, shards, random_fields, n, timed):
    shards(n)
    of = inputs.job(window=nc.TimeWindow(9) if timed else nc.CountWindow(7), shards=n, space=strategies.GLOBE)
    drawn = inputs.batches(n, random_fields, n=4, timed=timed, space=strategies.GLOBE)
    batch = inputs.Batch(
        *(pa.concat_tables([getattr(b, name) for b in drawn]) for name in ("messages", "subscriptions"))
    )
    matched = match(*static(spark, batch), **options(of))
    expected = inputs.embedded(of, [batch])
    assert counted(matched.updates.collect()) == expected
    assert expected.total() > 5
    assert matched.rejected.count() == 0
    assert matched.updates.schema.simpleString() == (
        "struct<seq:bigint,at:timestamp,subscription:string,message:string,change:string,score:double>"
    )


@pytest.mark.parametrize("kind", ["boolean", "similarity"])
def test_a_larger_run_gives_the_updates_of_the_engine(spark, kind):
    workload = make("tweets", seed=5)
    subscriptions = pa.concat_tables(workload.subscriptions(kind, 2_000, k=1, queries="q1", community=None))
    messages = pa.concat_tables(workload.messages(3_000))
    space, vocabulary = workload.space(max_distance=50_000), workload.vocabulary(sample=2_000)
    of = inputs.Job(inputs.EngineConfig(space=space, vocabulary=vocabulary, window=nc.CountWindow(500)), shards=2)
    engine = inputs.engine(of)
    engine.subscribe(subscriptions)
    expected = inputs.counted([engine.publish(messages)])
    published, requested = static(spark, inputs.Batch(messages, subscriptions))
    matched = match(published, requested.repartition(3), **options(of))
    assert counted(matched.updates.collect()) == expected
    assert expected.total() > 100


def test_a_subscription_is_in_force_for_the_messages_of_its_batch(spark, write_stream, tmp_path):
    batch = inputs.Batch(
        inputs.table([{"id": "m", "x": 1.0, "y": 1.0, "text": "a"}], inputs.MESSAGES),
        inputs.table(
            [{"id": "s", "kind": "nearest", "x": 0.0, "y": 1.0, "keywords": "a", "k": 1}], inputs.SUBSCRIPTIONS
        ),
    )
    matched = match(*streams(spark, write_stream([batch])), **options(inputs.job()), state=str(tmp_path / "state"))
    rows, _ = run(matched.updates, tmp_path)
    assert counted(rows) == {(1, "s", "m", "enter", 1.0): 1}


def test_a_query_reports_its_progress(spark, write_stream, tmp_path, random_fields):
    given = inputs.batches(2, random_fields, n=4)
    bad = inputs.table([{"id": "m", "x": 99.0, "y": 1.0, "text": "a"}], inputs.MESSAGES)
    given[1].messages = pa.concat_tables([given[1].messages, bad, bad])
    wrong = inputs.table([{"id": "s", "kind": "nothing"}], inputs.SUBSCRIPTIONS)
    given[2].subscriptions = pa.concat_tables([given[2].subscriptions, wrong])
    matched = match(*streams(spark, write_stream(given)), **options(inputs.job()), state=str(tmp_path / "state"))
    rows, query = run(matched.updates, tmp_path)
    tally = Tally()
    assert tally.take(batches_of(query, str(tmp_path / "state")))
    assert tally.messages == sum(len(batch.messages) for batch in given) - 2
    assert (tally.rejected, tally.updates) == (3, len(rows))
    alone = inputs.engine(inputs.job())
    for batch in given:
        good = batch.subscriptions.to_pylist() if batch is not given[2] else batch.subscriptions.to_pylist()[:-1]
        for row in good:
            if row["op"] != "unsubscribe":
                alone.subscribe(inputs.table([row | {"op": "subscribe"}], inputs.SUBSCRIPTIONS))
            elif row["id"] in alone:
                alone.unsubscribe([row["id"]])
    assert sum(tally.subscriptions.values()) == len(alone) > 0
    assert all(tally.state_bytes[shard] > 0 for shard in (0, 1))


def test_packed_updates_equal_unpacked_ones(spark, write_stream, tmp_path, random_fields):
    given = inputs.batches(4, random_fields, n=3)
    folders = write_stream(given)
    of = inputs.job()
    matched = match(*streams(spark, folders), **options(of), state=str(tmp_path / "state"))
    rows, _ = run(matched.packed, tmp_path)
    blocks = [unpack_updates(row["payload"]) for row in rows]
    assert [len(block) for block in blocks] == [row["updates"] for row in rows]
    assert [block["seq"][0].as_py() for block in blocks] == [row["seq"] for row in rows]
    assert inputs.counted(blocks) == inputs.embedded(of, given)
    assert len(blocks) > 3


def test_packed_messages_give_the_updates_of_rows(spark, tmp_path, write_stream, random_fields):
    """Blocks with good and bad rows, and invalid blocks, several per batch, are matched, counted and rejected like rows."""
    given = inputs.numbered(inputs.batches(4, random_fields, n=4))
    folders = write_stream(given)
    bad = inputs.table([{"id": "bad", "x": 99.0, "y": 1.0, "text": "a"}], inputs.MESSAGES)
    blocks = tmp_path / "blocks"
    blocks.mkdir()
    for i, batch in enumerate(given):
        half = len(batch.messages) // 2
        parts = (
            pack_messages(batch.messages.slice(0, half)),
            pack_messages(pa.concat_tables([batch.messages.slice(half), bad])),
            b"no block",
        )
        for j, part in enumerate(parts):
            (blocks / f"{i}.{j}").write_bytes(part)
            os.utime(blocks / f"{i}.{j}", (1_000_000 + 3 * i + j,) * 2)
    source = spark.readStream.format("binaryFile").schema(WHOLE_FILES).option("maxFilesPerTrigger", 3)
    requested = streams(spark, folders)[1]
    of, state = inputs.job(), str(tmp_path / "state")
    matched = match(source.load(str(blocks)), requested, **options(of), state=state)
    rows, query = run(matched.updates, tmp_path)
    assert counted(rows) == inputs.embedded(of, given)
    tally = Tally()
    tally.take(batches_of(query, state))
    n = sum(len(batch.messages) for batch in given)
    assert (tally.batches, tally.messages, tally.rejected) == (4, n, 2 * 4)


def test_texts_may_be_lists_of_terms(spark):
    subscriptions = spark.createDataFrame(
        [("s", "boolean", 0.0, 0.0, 8.0, 8.0, "a AND b")],
        "id string, kind string, xmin double, ymin double, xmax double, ymax double, keywords string",
    )
    messages = spark.createDataFrame(
        [("m1", 1, 1, ["a", "b"]), ("m2", 1, 1, ["a b"]), ("m3", 1, 1, None), ("m4", 1, 1, ["a", None])],
        "id string, x int, y int, text array<string>",
    ).coalesce(1)
    matched = match(messages, subscriptions, space=strategies.PLANE)
    assert counted(matched.updates.collect()) == {(1, "s", "m1", "enter", 1.0): 1}
    assert {row.reason for row in matched.rejected.collect()} == {
        "text must be a string or a list of strings; got None (message 'm3')",
        "text must be a string or a list of strings; got ['a', None] (message 'm4')",
    }


def test_a_restart_with_other_options_is_refused(spark, write_stream, tmp_path, random_fields):
    folders = write_stream(inputs.batches(1, random_fields, n=2))
    kept = {"state": str(tmp_path / "state")}
    matched = match(*streams(spark, folders), **options(inputs.job()), **kept)
    run(matched.updates, tmp_path)
    write_stream(inputs.batches(2, random_fields, n=5))
    other = match(*streams(spark, folders), **options(inputs.job(window=nc.CountWindow(8))), **kept)
    with pytest.raises(Exception, match=r"window must be 'CountWindow\(n=7\)', as when the query was first started"):
        run(other.updates, tmp_path)


def test_frames_must_both_be_streams_or_static_and_streams_need_a_state_folder(spark, write_stream, random_fields):
    given = inputs.batches(1, random_fields, n=1)
    flowing = streams(spark, write_stream(given))
    still = static(spark, given[0])
    with pytest.raises(StateError, match="must both be streams or both be static"):
        match(flowing[0], still[1], space=strategies.PLANE)
    with pytest.raises(StateError, match="state must be a folder for streaming frames"):
        match(*flowing, space=strategies.PLANE)


def test_wrong_columns_are_refused_in_one_error(spark):
    good = spark.createDataFrame([], SUBSCRIPTIONS)
    for schema, words in {
        "id string, x double, text string": r"columns must include \['y'\]; got \['id', 'x', 'text'\] \(messages\)",
        "id long, x double, y double, text string": r"id must be a column of string; got 'bigint' \(messages\)",
        "id string, x string, y double, text string": "x must be a column of double or another number; got 'string'",
        "id string, x double, y double, text array<int>": r"text must be a column of string or array<string>",
        "id string, x double, y double, text string, at string": "at must be a column of timestamp; got 'string'",
    }.items():
        with pytest.raises(InvalidInput, match=words):
            match(spark.createDataFrame([], schema), good, space=strategies.PLANE)


def test_every_shard_has_a_task_of_its_own(spark):
    numbers = spark.range(200).selectExpr("cast(id as int) n", "hash(cast(id as int)) h").collect()
    assert [spark_hash(row.n) for row in numbers] == [row.h for row in numbers]
    for n in (1, 2, 3, 8, 64):
        assert [spark_hash(key) % n for key in keys_of(n)] == list(range(n))
