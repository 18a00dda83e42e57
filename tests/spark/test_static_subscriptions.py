"""A stream of messages beside a static frame of subscriptions, which is read at the start and on request."""

import json

import pyarrow as pa
import pytest

import nearcast as nc
from nearcast.errors import InvalidInput, StateError
from nearcast.jobs.job_file import make_job_file
from nearcast.jobs.requests import request_refresh, take_refresh
from nearcast.model.columns import subscriptions_schema
from nearcast.spark import match
from nearcast.spark.run import start_run
from nearcast.testing import strategies
from sink_rows import committed_rows
from spark import inputs
from spark.test_crash import forget_last_commit
from spark.test_pipeline import MESSAGES, counted, run
from spark.waiting import process_all

BOX = {"xmin": 0.0, "ymin": 0.0, "xmax": 8.0, "ymax": 8.0}
A = {"id": "a", "kind": "boolean", "keywords": "a", **BOX}
B = {"id": "b", "kind": "boolean", "keywords": "b", **BOX}
GONE = A | {"id": "gone"}
NEAREST = {"id": "n", "kind": "nearest", "keywords": "a", "x": 1.0, "y": 1.0, "k": 2}
BAD = {"id": "bad", "kind": "nearest", "keywords": "a", "x": 1.0, "y": 1.0, "k": 0}
COLUMNS = "id string, kind string, keywords string, x double, y double, k int, " + ", ".join(
    f"{n} double" for n in BOX
)


def table(spark, rows):
    names = [column.split()[0] for column in COLUMNS.split(", ")]
    return spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], COLUMNS)


def messages(step):
    rows = [{"id": f"m{step}.{text}", "x": 1.0 + step, "y": 1.0, "text": text} for text in ("a", "b", "a b")]
    return inputs.table(rows, inputs.MESSAGES)


def test_rows_are_read_at_the_start_and_when_the_queries_continue(spark, tmp_path, write_stream):
    """A row that has not changed keeps its result; a batch whose commit was lost is replayed."""
    none = inputs.table([], inputs.SUBSCRIPTIONS)
    engine, expected = nc.Engine(space=strategies.PLANE), []

    def step(n, rows):
        write_stream([inputs.Batch(messages(i), none) for i in range(n + 1)])
        stream = spark.readStream.schema(MESSAGES).parquet(str(tmp_path / "messages"))
        return match(stream, table(spark, rows), space=strategies.PLANE, state=str(tmp_path / "state"))

    def subscribe(*rows):
        engine.subscribe(pa.Table.from_pylist(list(rows), schema=subscriptions_schema()))

    run(step(0, [A, NEAREST, BAD, GONE]).updates, tmp_path)
    subscribe(A, NEAREST, GONE)
    expected.append(engine.publish(messages(0)))
    assert forget_last_commit(tmp_path / "checkpoint")

    changed = A | {"keywords": "a AND b"}
    matched = step(1, [changed, NEAREST, BAD, B])
    assert matched.refresh(table(spark, [B, changed, BAD, NEAREST])) == 0, "nothing has changed since"
    rows, _ = run(matched.updates, tmp_path)
    engine.unsubscribe(["gone"])
    subscribe(changed, B)
    expected.append(engine.publish(messages(1)))
    assert counted(rows) == inputs.counted(expected)
    rejected, _ = run(matched.rejected, tmp_path / "rejected")
    assert [(row.source, json.loads(row.row)["id"]) for row in rejected] == [("subscription", "bad")]
    with pytest.raises(InvalidInput, match="columns must be struct<op:string,id:string,kind:string"):
        matched.refresh(table(spark, [A]).drop("k"))


def test_a_running_job_reads_its_subscriptions_again_on_request(spark, tmp_path):
    for name in ("messages", "subscriptions"):
        (tmp_path / name).mkdir()
    content = {
        "space": {"bounds": [0, 0, 8, 8]},
        "window": {"count": 9},
        "messages": {"format": "json", "path": "messages"},
        "subscriptions": {"format": "json", "path": "subscriptions", "static": True},
        "updates": {"format": "json", "path": "updates"},
        "run": {"checkpoint": "checkpoint", "trigger": "100 milliseconds"},
    }
    job_file = make_job_file(content, file=tmp_path / "job.toml")
    saved, topk = tmp_path / "subscriptions" / "saved.json", NEAREST | {"id": "t", "kind": "topk", "alpha": 0.5}
    saved.write_text(json.dumps(A) + "\n")
    (tmp_path / "messages" / "0.json").write_text(json.dumps({"id": "m", "x": 1, "y": 1, "text": "a"}) + "\n")
    started = start_run(spark, job_file)

    def updates():
        return [row["subscription"] for row in committed_rows(tmp_path / "updates")]

    try:
        process_all(started.updates)
        assert updates() == ["a"]
        saved.write_text(json.dumps(topk) + "\n")
        request_refresh(job_file)
        started.wait(0.1)  # takes the request
        process_all(started.updates)
        assert updates() == ["a", "t"]
    finally:
        started.stop()
    assert not take_refresh(job_file)


def test_only_static_subscriptions_are_read_again(spark, tmp_path):
    empty = spark.createDataFrame([], MESSAGES)
    matched = match(empty, table(spark, [A]), space=strategies.PLANE)
    with pytest.raises(StateError, match="must be a static frame beside a stream of messages"):
        matched.refresh(table(spark, [A]))
    source = {"format": "json", "path": "in"}
    content = {"space": {"bounds": [0, 0, 8, 8]}, "messages": source, "subscriptions": source | {"path": "s"}}
    content |= {"updates": source | {"path": "out"}, "run": {"checkpoint": "checkpoint"}}
    with pytest.raises(InvalidInput, match=r"static must be true for a job that reads .*\(\[subscriptions\]\)"):
        request_refresh(make_job_file(content, file=tmp_path / "job.toml"))
