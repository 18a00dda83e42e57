"""The pipeline gives the updates of the embedded engine, on streams and static frames, with any number of shards."""

import os
from collections import Counter

import pyarrow as pa
import pytest

import nearcast as nc
from effort import effort
from nearcast.errors import InvalidInput, StateError
from nearcast.jobs.progress import Tally
from nearcast.spark import match, pack_messages, unpack_updates
from nearcast.spark.query_progress import batches_of
from nearcast.spark.schema import messages_ddl, subscriptions_ddl
from nearcast.spark.shard_keys import keys_of, spark_hash
from nearcast.spark.streams import WHOLE_FILES
from nearcast.testing import strategies
from nearcast.workload import make
from spark import inputs

MESSAGES, SUBSCRIPTIONS = inputs.MESSAGES_DDL, inputs.SUBSCRIPTIONS_DDL


def options(of):
    return {
        "space": of.config.space,
        "vocabulary": of.config.vocabulary,
        "social": of.config.social,
        "window": of.config.window,
        "text_similarity": of.config.text_similarity,
        "attributes": of.config.attributes,
        "shards": of.shards,
        "threads": of.threads,
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


BAD_MESSAGE = {"id": "bad", "x": 99.0, "y": 1.0, "text": "a"}
BAD_SUBSCRIPTION = {"id": "bad", "kind": "nothing"}


@pytest.mark.parametrize("n", [2, pytest.param(8, marks=pytest.mark.soak)])
def test_a_stream_gives_the_updates_of_the_engine_and_its_progress(
    spark, shards, write_stream, tmp_path, random_fields, n
):
    shards(n)
    of = inputs.job(window=nc.TimeWindow(9) if n == 2 else nc.CountWindow(7), shards=n, threads=n + 1)
    n_batches, alone = effort(3, 6), inputs.engine(of)
    given = inputs.batches(n + 2, random_fields, n=n_batches, timed=n == 2)
    expected = inputs.counted(updates for batch in given for updates in inputs.apply_batch(alone, batch))
    wrong = [inputs.table([BAD_MESSAGE] * 2, inputs.MESSAGES), inputs.table([BAD_SUBSCRIPTION], inputs.SUBSCRIPTIONS)]
    given[1] = inputs.Batch(
        pa.concat_tables([given[1].messages, wrong[0]]), pa.concat_tables([given[1].subscriptions, wrong[1]])
    )
    state = str(tmp_path / "state")
    matched = match(*streams(spark, write_stream(given)), **options(of), state=state)
    rows, query = run(matched.updates, tmp_path)
    assert counted(rows) == expected
    assert expected.total() > 20
    tally = Tally()
    assert tally.take(batches_of(query, state))
    assert (tally.batches, tally.rejected, tally.updates) == (n_batches, 3, len(rows))
    assert tally.messages + tally.late == sum(len(batch.messages) for batch in given) - 2
    assert sum(tally.subscriptions.values()) == len(alone) > 0
    assert all(tally.state_bytes[shard] > 0 for shard in range(n))


@pytest.mark.parametrize("n", [2, *(pytest.param(n, marks=pytest.mark.soak) for n in (1, 8))])
@pytest.mark.parametrize("timed", [False, True], ids=["by arrival", "by time"])
def test_static_frames_give_the_updates_of_the_engine(spark, shards, random_fields, n, timed):
    shards(n)
    of = inputs.job(window=nc.TimeWindow(9) if timed else nc.CountWindow(7), shards=n, space=strategies.GLOBE)
    drawn = inputs.batches(n + 2, random_fields, n=4, timed=timed, space=strategies.GLOBE)
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


@pytest.mark.parametrize("kind", ["boolean", pytest.param("similarity", marks=pytest.mark.soak)])
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


@pytest.mark.soak
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


HISTORY = inputs.Batch(
    inputs.table(
        [
            {"id": f"m{at}.{x}", "x": float(x), "y": 1.0, "text": "a", "at": at * 1_000_000}
            for at in (5, 0, 9, 10, 2, 12)
            for x in (1, 6)
        ],
        inputs.MESSAGES,
    ),
    inputs.table(
        [
            {"op": "unsubscribe", "id": "s", "at": 10_000_000},
            {"id": "s", "kind": "boolean", "keywords": "a", "xmin": 0, "ymin": 0, "xmax": 8, "ymax": 8, "at": 0},
            *(
                {"id": "walker", "kind": kind, "keywords": "a", "at": at * 1_000_000}
                | ({"x": x, "y": 1, "k": 1} if kind == "nearest" else {})
                | {"xmin": x - 1, "ymin": 0, "xmax": x + 1, "ymax": 8}
                for at, x, kind in ((2, 1, "boolean"), (9, 6, "boolean"), (11, 6, "nearest"))
            ),
            {"op": "unsubscribe", "id": "unknown", "at": 3_000_000},
        ],
        inputs.SUBSCRIPTIONS,
    ),
)
"""Messages and operations that come in another order than that of their times."""


def test_a_backtest_replays_history(spark):
    of = inputs.job()
    matched = match(*static(spark, HISTORY), **options(of))
    rows = matched.updates.collect()
    assert counted(rows) == inputs.embedded(of, [HISTORY])
    received = {name: {row.message for row in rows if row.subscription == name} for name in ("s", "walker")}
    assert received["s"] == {f"m{at}.{x}" for at in (0, 2, 5, 9) for x in (1, 6)}
    assert received["walker"] - {"m12.1"} == {"m2.1", "m5.1", "m9.6", "m10.6", "m12.6"}


def test_a_stream_applies_the_rows_of_a_batch_in_the_order_of_their_times(spark, write_stream, tmp_path):
    of = inputs.job()
    state = str(tmp_path / "state")
    matched = match(*streams(spark, write_stream([HISTORY])), **options(of), state=state)
    rows, query = run(matched.updates, tmp_path)
    assert counted(rows) == inputs.embedded(of, [HISTORY])
    tally = Tally()
    tally.take(batches_of(query, state))
    assert tally.unknown == 1


ENDING = [
    inputs.Batch(
        inputs.table(
            [
                {"id": "old", "x": 3.0, "y": 1.0, "text": "a", "at": 1_000_000, "body": "an old body"},
                {
                    "id": "offer",
                    "x": 1.0,
                    "y": 1.0,
                    "text": "a",
                    "at": 2_000_000,
                    "expires_at": 5_000_000,
                    "body": "é",
                },
            ],
            inputs.MESSAGE_ROWS,
        ),
        inputs.table(
            [
                {"id": "top", "kind": "topk", "x": 1.0, "y": 1.0, "keywords": "a", "k": 1, "alpha": 1.0},
                {"id": "near", "kind": "nearest", "x": 1.0, "y": 1.0, "keywords": "a", "k": 1},
                {"id": "box", "kind": "boolean", "keywords": "a OR b", "expires_at": 5_000_000}
                | {"xmin": 0.0, "ymin": 0.0, "xmax": 8.0, "ymax": 8.0},
            ],
            inputs.SUBSCRIPTIONS,
        ),
    ),
    inputs.Batch(
        inputs.table([{"id": "tick", "x": 8.0, "y": 8.0, "text": "b", "at": 5_000_000}], inputs.MESSAGE_ROWS),
        inputs.table(
            [
                {"id": "top", "kind": "nearest", "x": 1.0, "y": 1.0, "keywords": "a", "k": 1, "at": 4_000_000}
                | {"expires_at": 2_000_000},
                {"id": "new", "kind": "topk", "x": 1.0, "y": 1.0, "keywords": "a", "k": 1, "alpha": 1.0}
                | {"at": 6_000_000},
            ],
            inputs.SUBSCRIPTIONS,
        ),
    ),
]
"""An offer that ends before a later message, when an older message takes its place, and a subscription that ends then."""


def test_ends_and_bodies_give_the_updates_of_the_engine(spark, write_stream, tmp_path):
    of = inputs.job(bodies=True)
    reasons = []
    expected = inputs.counted(inputs.row_by_row(of, ENDING, reasons))
    streaming = [
        spark.readStream.schema(ddl).option("maxFilesPerTrigger", 1).parquet(folder)
        for folder, ddl in zip(
            write_stream(ENDING), (messages_ddl(inputs.ATTRIBUTES), subscriptions_ddl()), strict=True
        )
    ]
    matched = match(*streaming, **options(of), bodies=True, state=str(tmp_path / "state"))
    rows, query = run(matched.updates, tmp_path)
    assert counted(rows) == expected
    entered = {(row.seq, row.subscription, row.message): row.body for row in rows if row.change == "enter"}
    assert {entered[3, name, "old"] for name in ("top", "near", "new")} == {"an old body"}
    assert entered[2, "box", "offer"] == "é" and (3, "box", "tick") not in entered
    assert {row.body for row in rows if row.change == "leave"} == {None}
    tally = Tally()
    tally.take(batches_of(query, str(tmp_path / "state")))
    assert tally.rejected == len(reasons)
    assert reasons == ["expires_at must be later than now, which is 2.0; got 2.0 (subscription 'top')"]

    whole = inputs.Batch(
        *(pa.concat_tables([getattr(b, name) for b in ENDING]) for name in ("messages", "subscriptions"))
    )
    still = match(*static(spark, whole), **options(of), bodies=True)
    blocks = [unpack_updates(row["payload"]) for row in still.packed.collect()]
    assert inputs.counted(blocks) == inputs.embedded(of, [whole])
    assert [row.reason for row in still.rejected.collect()] == reasons


def test_packed_messages_and_updates_equal_rows(spark, tmp_path, write_stream, random_fields):
    """Blocks with good and bad rows, and invalid blocks, several per batch, are matched, counted and rejected like rows."""
    given = inputs.numbered(inputs.batches(4, random_fields, n=3, withdrawn=0.3))
    folders = write_stream(given)
    bad = inputs.table([BAD_MESSAGE], inputs.MESSAGE_ROWS)
    blocks = tmp_path / "blocks"
    blocks.mkdir()
    for i, batch in enumerate(given):
        half = len(batch.messages) // 2
        parts = (
            pack_messages(batch.messages.slice(0, half), attributes=inputs.ATTRIBUTES),
            pack_messages(pa.concat_tables([batch.messages.slice(half), bad]), attributes=inputs.ATTRIBUTES),
            b"no block",
        )
        for j, part in enumerate(parts):
            (blocks / f"{i}.{j}").write_bytes(part)
            os.utime(blocks / f"{i}.{j}", (1_000_000 + 3 * i + j,) * 2)
    source = spark.readStream.format("binaryFile").schema(WHOLE_FILES).option("maxFilesPerTrigger", 3)
    requested = streams(spark, folders)[1]
    of, state = inputs.job(), str(tmp_path / "state")
    matched = match(source.load(str(blocks)), requested, **options(of), state=state)
    rows, query = run(matched.packed, tmp_path)
    emitted = [unpack_updates(row["payload"]) for row in rows]
    assert [len(block) for block in emitted] == [row["updates"] for row in rows]
    assert [block["seq"][0].as_py() for block in emitted] == [row["seq"] for row in rows]
    assert inputs.counted(emitted) == inputs.embedded(of, given)
    assert len(emitted) > 1
    tally = Tally()
    tally.take(batches_of(query, state))
    ops = [op for batch in given for op in batch.messages["op"].to_pylist()]
    assert {"retract", "replace"} <= set(ops)
    n = len(ops) - ops.count("retract")
    assert (tally.batches, tally.messages, tally.rejected) == (3, n, 2 * 3)


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


def test_texts_are_analyzed_as_in_the_engine(spark):
    subscriptions = inputs.table(
        [
            {
                "id": "b",
                "kind": "boolean",
                "xmin": 0.0,
                "ymin": 0.0,
                "xmax": 8.0,
                "ymax": 8.0,
                "keywords": "カフェ OR run",
            },
            {"id": "t", "kind": "topk", "x": 2.0, "y": 2.0, "keywords": "shoe running", "k": 2, "alpha": 0.5},
        ],
        inputs.SUBSCRIPTIONS,
    )
    texts = ["東京のカフェでセール", "Running SHOES", "runner", "He runs", "カメラ"]
    messages = pa.Table.from_pylist(
        [{"id": f"m{i}", "x": 1.0, "y": 1.0, "text": text} for i, text in enumerate(texts)]
    )
    options_of_both = {
        "space": strategies.PLANE,
        "window": nc.CountWindow(9),
        "vocabulary": nc.Vocabulary.from_texts(texts),
        "analyzer": "english",
    }
    engine = nc.Engine(**options_of_both)
    engine.subscribe(subscriptions)
    expected = Counter(inputs.key(row) for row in engine.publish(messages).to_pylist())
    frames = [spark.createDataFrame(table).coalesce(1) for table in (messages, subscriptions)]
    matched = match(*frames, shards=2, **options_of_both)
    assert counted(matched.updates.collect()) == expected
    assert {key[:3] for key in expected} >= {(1, "b", "m0"), (2, "b", "m1"), (4, "b", "m3"), (2, "t", "m1")}


@pytest.mark.soak  # `test_run` restarts a job with other options
def test_a_restart_with_other_options_is_refused(spark, write_stream, tmp_path, random_fields):
    folders = write_stream(inputs.batches(1, random_fields, n=2))
    kept = {"state": str(tmp_path / "state")}
    matched = match(*streams(spark, folders), **options(inputs.job()), **kept)
    run(matched.updates, tmp_path)
    write_stream(inputs.batches(2, random_fields, n=5))
    other = match(*streams(spark, folders), **options(inputs.job(window=nc.CountWindow(8))), **kept)
    with pytest.raises(Exception, match=r"window must be 'CountWindow\(n=7\)', as when the query was first started"):
        run(other.updates, tmp_path)


@pytest.mark.soak
def test_a_stream_continues_with_another_index_and_smaller_limits(spark, write_stream, tmp_path, random_fields):
    """Smaller limits apply to subscriptions that arrive, not to those that shards have."""
    of, kept = inputs.job(), {"state": str(tmp_path / "state")}
    given = inputs.batches(3, random_fields, n=4)
    given = [*given[:2], *(inputs.Batch(b.messages, b.subscriptions.slice(0, 0)) for b in given[2:])]
    run(match(*streams(spark, write_stream(given[:2])), **options(of), **kept).updates, tmp_path)
    smaller = nc.Limits(keywords_bytes=1, terms=1, branches=1, k=1)
    other = match(*streams(spark, write_stream(given)), **options(of), **kept, index="scan", limits=smaller)
    rows, query = run(other.updates, tmp_path)
    expected = inputs.embedded(of, given)
    assert counted(rows) == expected and len(query.recentProgress) == 2
    assert sum(expected.values()) > sum(inputs.embedded(of, given[:2]).values())


def test_static_messages_need_static_frames_and_streams_need_a_state_folder(spark, write_stream, random_fields):
    given = inputs.batches(1, random_fields, n=1)
    flowing = streams(spark, write_stream(given))
    still = static(spark, given[0])
    with pytest.raises(StateError, match="messages and subscriptions must all be streams or all be static"):
        match(still[0], flowing[1], space=strategies.PLANE)
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


def test_shards_are_dealt_out_to_tasks(spark):
    numbers = spark.range(200).selectExpr("cast(id as int) n", "hash(cast(id as int)) h").collect()
    assert [spark_hash(row.n) for row in numbers] == [row.h for row in numbers]
    for shards, tasks in ((1, 1), (2, 2), (3, 8), (8, 3), (64, 64)):
        keys = keys_of(shards, tasks)
        assert [spark_hash(key) % tasks for key in keys] == [shard % tasks for shard in range(shards)]
        assert len(set(keys)) == shards and keys == keys_of(2 * shards, tasks)[:shards], "no key ever changes"
