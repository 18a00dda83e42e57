"""A job file runs from files of any format through `match` to files, and errors are one line."""

import csv
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import nearcast as nc
from nearcast.errors import InvalidInput, NearcastError, StateError
from nearcast.jobs.inputs import vocabulary_from, vocabulary_of
from nearcast.jobs.job_file import SinkTable, make_job_file
from nearcast.jobs.progress import Tally
from nearcast.model.columns import subscriptions_schema
from nearcast.partition import Sample
from nearcast.partition.fitting import fit
from nearcast.partition.serialization import pack
from nearcast.spark import pack_messages
from nearcast.spark.run import start_run
from nearcast.spark.streams import columns_of
from sink_rows import committed_rows

MESSAGES = [
    {"id": "m1", "x": 1.0, "y": 1.0, "text": "jazz tonight", "place": "bar"},
    {"id": "m2", "x": 2.0, "y": 1.0, "text": "coffee and jazz", "place": "cafe"},
    {"id": "m3", "x": 7.0, "y": 7.0, "text": "tea", "place": None},
    {"id": "m4", "x": 1.0, "y": 1.0, "text": "jazz, jazz, jazz", "place": "bar"},
]
SUBSCRIPTIONS = [
    {"id": "b", "kind": "boolean", "xmin": 0.0, "ymin": 0.0, "xmax": 4.0, "ymax": 4.0, "keywords": "jazz"},
    {"id": "t", "kind": "topk", "x": 1.0, "y": 1.0, "keywords": "jazz coffee", "k": 1, "alpha": 0.3},
    {"id": "g", "kind": "social", "x": 1.0, "y": 1.0, "keywords": "jazz", "k": 1, "user": "ann"},
]
EDGES = [("ann", "cafe"), ("bob", "bar")]


def lines(rows):
    return "".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def plan(tmp_path):
    """Return a function that makes a job over a folder with messages and subscriptions, with given keys of tables."""
    for name, rows in (("messages", MESSAGES), ("subscriptions", SUBSCRIPTIONS)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.json").write_text(lines(rows))
    with (tmp_path / "edges.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("user", "place"), *EDGES])

    def make(**tables):
        content = {
            "space": {"bounds": [0, 0, 8, 8]},
            "window": {"count": 3},
            "social": {"file": "edges.csv"},
            "messages": {"format": "json", "path": "messages"},
            "subscriptions": {"format": "json", "path": "subscriptions"},
            "updates": {"format": "json", "path": "updates"},
            "run": {"checkpoint": "checkpoint", "trigger": "available now"},
        }
        for name, table in tables.items():
            merged = content.get(name, {}) | table
            content[name] = {key: value for key, value in merged.items() if value is not None}
        return make_job_file(content, file=tmp_path / "job.toml")

    return make


def finish(started):
    """Wait for the end of a run; return its figures."""
    tally = Tally()
    while started.is_active:
        started.wait(60)
    tally.take(started.batches())
    return tally


def emitted(plan):
    rows = committed_rows(plan.resolve(plan.updates.path))
    return sorted((row["seq"], row["subscription"], row["message"], row["change"], row["score"]) for row in rows)


def expected(*batches, vocabulary=None):
    """Return the updates of one engine for the subscriptions and then the messages."""
    engine = nc.Engine(
        space=nc.Space(nc.Box(0, 0, 8, 8)),
        window=nc.CountWindow(3),
        social=nc.SocialGraph(EDGES),
        vocabulary=vocabulary,
    )
    engine.subscribe(pa.Table.from_pylist(SUBSCRIPTIONS, schema=subscriptions_schema()))
    updates = []
    for rows in batches:
        updates += engine.publish(
            [nc.Message(row["id"], (row["x"], row["y"]), row["text"], place=row["place"]) for row in rows]
        )
    assert updates
    return sorted((u.seq, u.subscription, u.message, u.change, u.score) for u in updates)


def test_kafka_gets_a_key_and_json_by_default(spark):
    updates = spark.createDataFrame([(1, "s", 0.5)], "seq long, subscription string, score double")
    rejected = spark.createDataFrame([("message", "{", "no JSON")], "source string, row string, reason string")
    kafka = SinkTable("kafka", options={"topic": "t"})
    assert columns_of(updates, kafka).collect() == [("s", '{"seq":1,"subscription":"s","score":0.5}')]
    assert columns_of(rejected, kafka).columns == ["value"]
    assert columns_of(updates, SinkTable("kafka", select=["score AS value"])).columns == ["value"]
    assert columns_of(updates, SinkTable("console")) is updates


def test_a_wrong_select_of_a_sink_is_refused(spark, plan):
    with pytest.raises(
        InvalidInput, match=r"select must be SQL expressions over the columns.*nothing.*\(\[updates\]"
    ):
        start_run(spark, plan(updates={"select": ["nothing AS value"]}))


def test_malformed_lines_are_rejected_and_the_run_continues(spark, plan, tmp_path):
    torn = ['{"id": "m9", "x": 1.0, "y"\n', "nonsense\n", '{"id": "m8", "x": "east", "y": 1.0, "text": "jazz"}\n']
    late = '{"id": "m7", "x": 1.0, "y": 1.0, "text": "jazz", "at": "noon"}\n'
    bad = {"id": "m6", "x": 99.0, "y": 1.0, "text": "jazz"}
    (tmp_path / "messages" / "0.json").write_text(lines([*torn, *MESSAGES[:2], late, bad, *MESSAGES[2:]]))
    (tmp_path / "subscriptions" / "1.json").write_text("oops\n")
    (tmp_path / "edges").mkdir()
    (tmp_path / "edges" / "0.json").write_text(lines([{"op": "add", "user": "eve", "place": "gym"}, "uh\n"]))
    edges = {"format": "json", "path": "edges"}
    job = plan(rejected={"format": "json", "path": "rejected"}, edges=edges)
    tally = finish(start_run(spark, job))
    assert emitted(job) == expected(MESSAGES)
    assert (tally.messages, tally.rejected, tally.updates) == (4, 7, len(emitted(job)))
    rejected = committed_rows(job.resolve("rejected"))
    broken = {json.loads(row["row"]).get("_malformed"): row for row in rejected}
    assert set(broken) == {*(line.strip() for line in (*torn, late)), "oops", "uh", None}
    assert broken["nonsense"]["reason"].startswith("row must be JSON of id string, x double")
    assert [broken[line]["source"] for line in ("nonsense", "oops", "uh")] == ["message", "subscription", "edge"]
    assert json.loads(broken[torn[2].strip()]["row"])["id"] == "m8", "the readable fields are shown"
    assert broken[None]["reason"].startswith("location must lie in Box(")

    more = [{"id": "m5", "x": 3.0, "y": 3.0, "text": "jazz coffee", "place": "cafe"}]
    (tmp_path / "messages" / "1.json").write_text(lines([*more, "more nonsense\n"]))
    tally = finish(start_run(spark, plan(edges=edges)))
    assert (tally.messages, tally.rejected) == (1, 1)
    assert emitted(job) == expected(MESSAGES, more)

    with pytest.raises(
        StateError, match=r"window must be 'CountWindow\(n=3\)', as when .*; got 'CountWindow\(n=4\)'"
    ):
        start_run(spark, plan(window={"count": 4}))


@pytest.mark.parametrize("how", ["learned", pytest.param("given", marks=pytest.mark.soak)])
def test_the_routing_is_fitted_to_files_or_read_from_a_file(spark, plan, tmp_path, how):
    (tmp_path / "messages" / "0.json").write_text(lines(MESSAGES))
    (tmp_path / "fitted.routing").write_bytes(pack(fit("knn_space", Sample.none(), n_shards=2)))
    job = plan(match={"partitioner": "location"} if how == "learned" else {"routing": "fitted.routing"})
    finish(start_run(spark, job))
    assert emitted(job) == expected(MESSAGES)
    more = [{"id": "m5", "x": 3.0, "y": 3.0, "text": "jazz coffee", "place": "cafe"}]
    (tmp_path / "messages" / "1.json").write_text(lines(more))
    finish(start_run(spark, job))
    assert emitted(job) == expected(MESSAGES, more)
    if how == "given":
        (tmp_path / "fitted.routing").write_bytes(b"something else")
        with pytest.raises(InvalidInput, match=r"routing must be a file that `nearcast advise --save` wrote"):
            start_run(spark, job)


def test_columns_are_renamed_and_a_vocabulary_is_learned_once(spark, plan, tmp_path):
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    with (foreign / "0.csv").open("w", newline="") as file:
        rows = [(i, row["x"], row["y"], row["text"], row["place"], 7) for i, row in enumerate(MESSAGES, 1)]
        malformed = [("x", "y"), (5, 1.0, 1.0, "b", "bar", "an unused column")]
        csv.writer(file).writerows([("number", "lon", "lat", "said", "shop", "age"), *rows, *malformed])
    job = plan(
        vocabulary={"learn": "foreign"},
        messages={
            "format": "csv",
            "path": "foreign",
            "options": {"header": True},
            "schema": "number int, lon double, lat double, said string, shop string, age int",
            "select": ["concat('m', number) AS id", "lon AS x", "lat AS y", "said AS text", "shop AS place"],
        },
        updates={"format": "parquet"},
    )
    tally = finish(start_run(spark, job))
    vocabulary = nc.Vocabulary.from_texts(["b", *(row["text"] for row in MESSAGES)])
    names = [
        info["path"]
        for info in map(json.loads, Path(job.resolve("updates/_spark_metadata/0")).read_text().splitlines()[1:])
    ]
    updates = ds.dataset([name.removeprefix("file://") for name in names], format="parquet").to_table().to_pylist()
    found = sorted((u["seq"], u["subscription"], u["message"], u["change"], u["score"]) for u in updates)
    assert found == expected(MESSAGES, vocabulary=vocabulary)
    assert (tally.messages, tally.rejected) == (4, 2), "rejected rows are counted even without an output for them"
    (foreign / "0.csv").unlink()
    kept = vocabulary_of(job)
    assert kept.idf("jazz") == vocabulary.idf("jazz") != kept.idf("coffee"), "stored beside the checkpoint"


def test_texts_may_be_lists_sinks_select_columns_and_state_may_lie_apart(spark, plan, tmp_path):
    rows = [row | {"text": row["text"].replace(",", "").split()} for row in MESSAGES]
    (tmp_path / "lists").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "lists" / "0.parquet")
    schema = "id string, x double, y double, text array<string>, place string"
    select = ["subscription AS key", "to_json(struct(*)) AS value"]
    source = {"format": "parquet", "path": "lists", "schema": schema}
    job = plan(messages=source, updates={"select": select}, run={"state": "shards"})
    assert finish(start_run(spark, job)).messages == 4
    rows = committed_rows(job.resolve(job.updates.path))
    values = [json.loads(row["value"]) for row in rows]
    assert [row["key"] for row in rows] == [value["subscription"] for value in values]
    found = sorted((v["seq"], v["subscription"], v["message"], v["change"], v["score"]) for v in values)
    assert found == expected(MESSAGES)
    assert any((tmp_path / "shards").rglob("*.frames"))
    assert not any((tmp_path / "checkpoint").rglob("*.frames"))


def test_messages_may_be_arrow_files(spark, plan, tmp_path):
    (tmp_path / "blocks").mkdir()
    (tmp_path / "blocks" / "0.arrow").write_bytes(pack_messages(pa.Table.from_pylist(MESSAGES)))
    (tmp_path / "blocks" / "1.arrow").write_bytes(b"torn")
    job = plan(messages={"format": "arrow", "path": "blocks"}, rejected={"format": "json", "path": "rejected"})
    tally = finish(start_run(spark, job))
    assert emitted(job) == expected(MESSAGES)
    assert (tally.messages, tally.rejected) == (len(MESSAGES), 1)
    (row,) = committed_rows(job.resolve("rejected"))
    assert json.loads(row["row"])["path"].endswith("/1.arrow")
    assert row["reason"].startswith("payload must be an Arrow stream of messages; got 4 bytes")


def test_a_source_may_have_json_values_and_further_columns(spark, plan, tmp_path):
    """`text` has a column `value`, like sockets and brokers; `rate-micro-batch` has other columns."""
    job = plan(
        messages={"format": "text"},
        subscriptions={
            "format": "rate-micro-batch",
            "path": None,
            "options": {"rowsPerBatch": 1, "numPartitions": 1},
            "select": [
                "concat('s', value) AS id", "'nearest' AS kind", "1.0D AS x", "1.0D AS y", "'jazz' AS keywords",
                "1 AS k", "timestamp AS at",
            ],
        },
    )  # fmt: skip
    later = [row | {"at": "1970-01-02T00:00:00Z"} for row in MESSAGES]  # than the operations, which begin at 0
    (tmp_path / "messages" / "0.json").write_text(lines([*later, "oops\n"]))
    started = start_run(spark, job)
    try:
        tally = Tally()
        while not tally.messages:
            started.wait(0.1)
            tally.take(started.batches())
    finally:
        started.stop()
    assert (tally.messages, tally.rejected) == (4, 1)
    assert (1, "s0", "m1", "enter", 0.0) in emitted(job)


def refused(plan, tmp_path):
    """Yield jobs that cannot run, and the error of each."""
    (tmp_path / "a file").write_text("")
    (tmp_path / "words.json").write_text("{")
    (tmp_path / "terms.json").write_text('{"terms": 1}')
    (tmp_path / "edges.parquet").write_text("no")
    where = r"\(\[{0}\], .*job\.toml\)"
    yield (
        plan(messages={"path": "nowhere"}),
        r"path must be one that Spark can open as json \(.*does not exist.*; got 'nowhere' "
        + where.format("messages"),
    )
    yield plan(messages={"format": "pigeon"}), r"path must be .* as pigeon \(.*Failed to find the data source"
    yield (
        plan(messages={"format": "socket", "path": None}),
        r"format must be .*host.*; got 'socket' " + where.format("messages"),
    )
    yield (
        plan(messages={"schema": "id strin, x"}),
        r"schema must be columns in Spark's words \(.*[Ss]yntax.*'id strin, x' " + where.format("messages"),
    )
    yield (
        plan(messages={"select": ["lon AS x"]}),
        r"select must be SQL .*`lon` cannot be resolved.*; got \['lon AS x'\]",
    )
    yield (
        plan(subscriptions={"select": ["id +"]}),
        r"select must be SQL .*[Ss]yntax error.* " + where.format("subscriptions"),
    )
    yield (
        plan(messages={"select": ["id", "x"]}),
        r"columns must include \['y', 'text'\]; got \['id', 'x'\] \(messages, .*toml\)",
    )
    yield (
        plan(vocabulary={"file": "nowhere.json"}),
        r"file must be a file of JSON \(.*; got 'nowhere.json' " + where.format("vocabulary"),
    )
    yield plan(vocabulary={"file": "words.json"}), r"file must be a file of JSON \(.*; got 'words.json'"
    yield (
        plan(vocabulary={"file": "terms.json"}),
        r"file must be a table of .*; got \['terms'\] " + where.format("vocabulary"),
    )
    yield plan(vocabulary={"learn": "nowhere"}), r"learn must lead to messages .*does not exist.*; got 'nowhere'"
    yield plan(vocabulary={"learn": "a file"}), r"learn must lead to at least one message with a text; got 'a file'"
    yield (
        plan(social={"file": "nowhere.csv"}),
        r"file must hold the columns .*nowhere.csv.*'nowhere.csv' " + where.format("social"),
    )
    yield (
        plan(social={"file": "edges.txt"}),
        r"file must end in one of \['csv', .*; got 'edges.txt' " + where.format("social"),
    )
    yield plan(social={"file": "edges.parquet"}), r"file must hold the columns user and place .*'edges.parquet'"
    yield plan(updates={"format": "pigeon"}), r"path must be .* as pigeon .*" + where.format("updates")
    yield plan(updates={"path": "a file"}), r"path must be .* as json .*; got 'a file' " + where.format("updates")
    yield (
        plan(rejected={"path": "a file", "format": "json"}),
        r"path must be .*; got 'a file' " + where.format("rejected"),
    )


def test_a_job_that_cannot_run_fails_with_one_line_that_names_key_and_file(spark, plan, tmp_path):
    for job, words in refused(plan, tmp_path):
        with pytest.raises(InvalidInput, match=words) as error:
            start_run(spark, job)
        assert "\n" not in str(error.value), words
    assert not spark.streams.active, "a job whose second query cannot start leaves none behind"


def test_a_failed_query_is_reported_in_one_line(spark, plan):
    started = start_run(spark, plan(messages={"options": {"maxFilesPerTrigger": "many"}}))
    with pytest.raises(NearcastError, match=r"query 'nearcast updates' failed: Invalid value 'many'.*") as error:
        finish(started)
    assert "\n" not in str(error.value)


def test_a_header_that_differs_from_the_schema_is_rejected(spark, plan, tmp_path):
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "0.csv").write_text("id,y,x,text\nm1,1,2,jazz\n")
    schema = "id string, x double, y double, text string"
    source = {"format": "csv", "path": "foreign", "options": {"header": True}, "schema": schema}
    with pytest.raises(NearcastError, match=r"failed: .*header does not conform to the schema"):
        finish(start_run(spark, plan(messages=source)))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([], "file must be a table of documents and frequencies, or of weights; got []"),
        ({"weights": [1]}, "weights must map terms to numbers; got [1]"),
        ({"documents": 2, "frequencies": {"a": 3}}, "frequencies must map terms to integers between 0 and documents"),
    ],
)
def test_a_vocabulary_that_breaks_a_rule_is_refused(content, words):
    with pytest.raises(InvalidInput) as error:
        vocabulary_from(content)
    assert str(error.value).startswith(words)
