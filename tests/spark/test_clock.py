"""With clock="wall" a quiet stream expires, a replayed batch has its time again, and wrong clocks are rejected."""

import json
import time
from datetime import UTC, datetime

import pytest

import nearcast as nc
from nearcast.engine.clock import Clock
from nearcast.errors import InvalidInput, StateError
from nearcast.jobs.batch_time import time_of
from nearcast.jobs.frame import unpack_frames
from nearcast.spark import match
from nearcast.spark.clock_source import TICK_US, ClockReader
from nearcast.testing import strategies
from sink_rows import committed_rows
from spark.test_crash import forget_last_commit
from spark.test_pipeline import MESSAGES, SUBSCRIPTIONS
from spark.waiting import wait_for

TOPK = {"id": "t", "kind": "topk", "x": 1.0, "y": 1.0, "keywords": "a", "k": 2, "alpha": 0.5}


class Host:
    """A host whose clock may be set."""

    def __init__(self, now_s):
        self.now_s, self.elapsed_s = now_s, 50.0

    def clock(self):
        return Clock(wall_s=lambda: self.now_s, elapsed_s=lambda: self.elapsed_s)


def test_the_position_of_the_clock_is_the_time():
    host = Host(1_000.0)
    reader = ClockReader(host.clock())
    rows, position = reader.read(reader.initialOffset())
    assert (list(rows), position) == ([(1_000_000_000,)], {"us": 1_000_000_000})
    host.elapsed_s += 0.25
    assert reader.read(position)[1] == position, "a quarter of a second is no reason to run a batch"
    host.elapsed_s += 1.25
    host.now_s += 86_400  # the clock of the host is set
    rows, later = reader.read(position)
    assert later == {"us": 1_001_500_000} and later["us"] - position["us"] > TICK_US
    assert list(reader.readBetweenOffsets(position, later)) == list(rows) == [(later["us"],)]


def test_the_clock_moves_at_every_trigger_of_a_second():
    """Triggers of a second come a little early or late; a clock that then stood still would let a result stay longer."""
    host = Host(1_000.0)
    reader = ClockReader(host.clock())
    _, position = reader.read(reader.initialOffset())
    for passed_s in (0.996, 1.003, 0.991, 1.01):
        host.elapsed_s += passed_s
        rows, later = reader.read(position)
        assert list(rows) == [(later["us"],)] and later["us"] > position["us"]
        position = later


def test_the_clock_continues_no_earlier_than_the_last_position():
    host = Host(1_000.0)  # set back since
    reader, recorded = ClockReader(host.clock()), {"us": 5_000_000_000}
    assert reader.read(recorded)[1] == recorded
    host.elapsed_s += 2.0
    assert reader.read(recorded)[1] == {"us": 5_002_000_000}


def test_a_query_that_takes_what_is_there_has_one_time():
    host = Host(1_000.0)
    reader = ClockReader(host.clock())
    reader.prepareForTriggerAvailableNow()
    _, position = reader.read(reader.initialOffset())
    host.elapsed_s += 10.0
    assert reader.read(position)[1] == position == {"us": 1_000_000_000}


def rows_of(folder):
    return committed_rows(folder) if (folder / "_spark_metadata").exists() else []


def spelled(seconds):
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def message(id_, at):
    return {"id": id_, "x": 1.0, "y": 1.0, "text": "a", "at": spelled(at)}


@pytest.fixture
def quiet(spark, tmp_path):
    """Return a function that starts the queries of a job with a window of four seconds."""
    for name in ("messages", "subscriptions"):
        (tmp_path / name).mkdir()
    queries = []

    def start(*names, trigger, **options):
        messages, subscriptions = (
            spark.readStream.schema(schema).json(str(tmp_path / name))
            for name, schema in (("messages", MESSAGES), ("subscriptions", SUBSCRIPTIONS))
        )
        matched = match(
            messages, subscriptions, space=strategies.PLANE, window=nc.TimeWindow(4), clock="wall",
            state=str(tmp_path / "state"), **options,
        )  # fmt: skip
        started = []
        for name in names:
            writer = getattr(matched, name).writeStream.format("json").option("path", str(tmp_path / name))
            writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint" / name))
            started.append(writer.trigger(**trigger).start())
        queries.extend(started)
        return started

    yield start
    for query in queries:
        query.stop()


def write(file, rows):
    """Write a file that appears at once."""
    unfinished = file.with_name(f".{file.name}")
    unfinished.write_text("".join(json.dumps(row) + "\n" for row in rows))
    unfinished.rename(file)


def test_a_quiet_stream_expires_and_wrong_clocks_are_rejected(quiet, tmp_path):
    (tmp_path / "subscriptions" / "0.json").write_text(json.dumps(TOPK) + "\n")
    (updates,) = quiet("updates", trigger={"processingTime": "1 second"})
    wait_for(updates, lambda: updates.lastProgress is not None)  # the first batch takes longer
    now = time.time() + 4
    rows = [message("m1", now), message("ahead", now + 250), message("wrong", 4_102_444_800), message("old", now - 9)]
    write(tmp_path / "messages" / "0.json", rows)
    wait_for(updates, lambda: len(rows_of(tmp_path / "updates")) >= 3)
    updates.stop()
    (rejected,) = quiet("rejected", trigger={"availableNow": True})
    rejected.awaitTermination()
    found = [(row["seq"], row["message"], row["change"]) for row in rows_of(tmp_path / "updates")]
    assert sorted(found) == [(2, "m1", "enter"), (3, "ahead", "enter"), (3, "m1", "leave")]
    (left,) = (row for row in rows_of(tmp_path / "updates") if row["change"] == "leave")
    assert now + 4 <= datetime.fromisoformat(left["at"]).timestamp() < now + 60, "by the clock, without a message"
    (bad,) = rows_of(tmp_path / "rejected")
    assert bad["source"] == "message" and json.loads(bad["row"])["text"] == "a"
    assert bad["reason"].startswith("at must be at most 300 s ahead of the clock of the job, ")
    assert bad["reason"].endswith("got 4102444800.0 (message 'wrong')")


@pytest.mark.soak  # `tests/jobs` replays batches with their times
def test_a_replayed_batch_has_its_time_again(quiet, tmp_path):
    (tmp_path / "subscriptions" / "0.json").write_text(json.dumps(TOPK) + "\n")
    write(tmp_path / "messages" / "0.json", [message("m1", time.time() + 100)])

    def run():
        (query,) = quiet("updates", trigger={"availableNow": True})
        query.awaitTermination()

    run()
    assert [(row["message"], row["change"]) for row in rows_of(tmp_path / "updates")] == [("m1", "enter")]
    assert forget_last_commit(tmp_path / "checkpoint" / "updates")
    for name in ("0", ".0.crc"):  # otherwise the sink skips the batch
        (tmp_path / "updates" / "_spark_metadata" / name).unlink()
    run()
    for shard in ("0", "1"):
        first, again = (tmp_path / "state").glob(f"*/{shard}/00000001-*.frames")
        assert first.read_bytes() == again.read_bytes()
        assert time_of(unpack_frames(first.read_bytes())).now_us > 0
    assert [(row["message"], row["change"]) for row in rows_of(tmp_path / "updates")] == [("m1", "enter")]


def test_clocks_that_make_no_sense_are_refused(spark):
    static = spark.createDataFrame([], MESSAGES), spark.createDataFrame([], SUBSCRIPTIONS)
    with pytest.raises(StateError, match="clock must be 'event' for static frames"):
        match(*static, space=strategies.PLANE, clock="wall")
    with pytest.raises(InvalidInput, match=r"clock must be one of \['event', 'wall'\]; got 'moon'"):
        match(*static, space=strategies.PLANE, clock="moon")
    with pytest.raises(InvalidInput, match="max_ahead must be left out unless the clock is 'wall'"):
        match(*static, space=strategies.PLANE, max_ahead=3)
