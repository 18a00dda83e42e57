"""A stream on Spark continues with another number of shards, at a restart and while it runs, and loses nothing."""

from collections import Counter

import pytest

import nearcast as nc
from jobs.test_shard import fitted
from nearcast.errors import InvalidInput, StateError
from nearcast.jobs.epochs import EpochLog
from nearcast.jobs.job_file import make_job_file
from nearcast.jobs.progress import Tally
from nearcast.jobs.requests import request_rescale, take_rescale
from nearcast.partition import Sample
from nearcast.partition.hash import HashRouting
from nearcast.partition.space_grid import SpaceGridPartitioner
from nearcast.spark import match
from nearcast.spark.query_progress import batches_of
from spark import inputs
from spark.test_pipeline import counted, options, streams


class Stream:
    """A stream over files, one per batch, that calls functions between batches."""

    def __init__(self, spark, folder, write_stream, given):
        self.spark, self.folder, self.given, self._write = spark, folder, given, write_stream
        self.state, self.updates = str(folder / "state"), {}
        """The updates of each batch."""

    def run(self, of, n_files, rescales, **more):
        """Run until some files are read; `rescales` has numbers of shards by batch. Return what was done."""
        folders = self._write(self.given[:n_files])
        matched = match(*streams(self.spark, folders), **{**options(of), **more}, state=self.state)

        def sink(rows, batch):
            self.updates[batch] = counted(rows.collect())
            if batch in rescales:
                matched.rescale(rescales[batch], sample=more.get("sample"))
            if matched.balancer is not None:
                matched.adjust()

        writer = matched.updates.writeStream.foreachBatch(sink)
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        tally = Tally()
        tally.take(batches_of(query, self.state))
        return tally


@pytest.mark.parametrize(
    ("name", "window"), [("hash", nc.CountWindow(7)), pytest.param("dkm", nc.TimeWindow(9), marks=pytest.mark.soak)]
)
def test_a_stream_continues_with_other_shards(spark, shards, write_stream, tmp_path, random_fields, name, window):
    """Two, four, one and three, with two tasks; the last change is a restart."""
    given = inputs.batches(5, random_fields, n=8, timed=True)
    of, more = inputs.job(shards=2, window=window), {"partitioner": name}
    if name != "hash":
        more["sample"] = [spark.createDataFrame(table) for table in (given[0].messages, given[0].subscriptions)]
    stream = Stream(spark, tmp_path, write_stream, given)
    tally = stream.run(of, 3, {0: 4}, **more)
    assert (tally.epoch, sorted(tally.subscriptions)) == (1, [0, 1, 2, 3])
    tally = stream.run(of, 6, {3: 1}, **more)
    assert (tally.epoch, sorted(tally.subscriptions)) == (2, [0]), "a restart with the same options keeps the shards"
    shards(3)  # as in a session made for three; Spark continues with two tasks
    tally = stream.run(of, len(given), {}, **more, shards=3)
    assert (tally.epoch, sorted(tally.subscriptions)) == (3, [0, 1, 2])
    updates = sum(stream.updates.values(), Counter())
    assert updates == inputs.embedded(of, given)
    assert updates.total() > 40


def test_the_number_of_tasks_is_fixed_and_that_of_shards_is_not(spark, shards, write_stream, tmp_path, random_fields):
    folders = write_stream(inputs.batches(5, random_fields, n=1))
    of = inputs.job(shards=2)
    state = str(tmp_path / "state")
    match(*streams(spark, folders), **options(of), state=state)
    with pytest.raises(StateError, match="max_shards must be 2, as when the query was first started; got 4"):
        match(*streams(spark, folders), **options(of), state=state, max_shards=4)
    with pytest.raises(InvalidInput, match="shards must be"):
        match(*streams(spark, folders), **{**options(of), "shards": 0}, state=state)
    shards(5)  # a session made for five shards; Spark continues with two tasks
    match(*streams(spark, folders), **{**options(of), "shards": 5}, state=state)
    assert [EpochLog(state).read(number).shards for number in (0, 1)] == [2, 5]


def test_another_partitioner_is_refused_before_it_is_an_epoch(spark, write_stream, tmp_path, random_fields):
    folders = write_stream(inputs.batches(5, random_fields, n=1))
    given, state = options(inputs.job(shards=2)), str(tmp_path / "state")
    match(*streams(spark, folders), **given, state=state)
    with pytest.raises(
        StateError, match="partitioner must be 'hash', as when the query was first started; got 'dkm'"
    ):
        match(*streams(spark, folders), **given | {"shards": 3}, partitioner="dkm", state=state)
    routed = str(tmp_path / "routed")
    match(*streams(spark, folders), **given, partitioner=HashRouting(2), state=routed)
    divided = SpaceGridPartitioner().fit(Sample.none(), n_shards=2)
    with pytest.raises(StateError, match="partitioner must be one whose sends_all is True"):
        match(*streams(spark, folders), **given, partitioner=divided, state=routed)
    assert [EpochLog(folder).newest_number() for folder in (state, routed)] == [0, 0]


def test_a_stream_adjusts_its_routing(spark, write_stream, tmp_path, random_fields):
    """Shards measure every second batch; a restart with the same routing keeps what was adjusted."""
    given = inputs.batches(5, random_fields, n=10, timed=True, kinds=("boolean", "similarity"))
    of = inputs.job(shards=2)
    more = {
        "partitioner": fitted(inputs.job(shards=2, partitioner="hybrid"), given).routing,
        "balance": nc.Balance(sigma=1, every=2),
    }
    stream, log = Stream(spark, tmp_path, write_stream, given), EpochLog(str(tmp_path / "state"))
    tally = stream.run(of, 6, {}, **more)
    assert tally.adjustments >= 1 and tally.epoch >= 1
    shown = tally.adjustment
    assert shown["epoch"] == tally.epoch and shown["seconds"] > 0
    assert shown["load_ratio_after"] <= shown["load_ratio_before"]
    assert ("last adjustment" in dict(tally.rows())) and tally.figures()["last_adjustment"] == shown
    n_epochs = log.newest_number()
    stream.run(of, len(given), {}, **more | {"balance": None})
    assert log.newest_number() == n_epochs
    assert log.adjustment(n_epochs) is not None
    assert sum(stream.updates.values(), Counter()) == inputs.embedded(of, given)


def test_a_fresh_routing_takes_over_on_spark(spark, write_stream, tmp_path, random_fields):
    """Two routings are in force at once, and the old one retires; the merge stage merges `topk` all the while."""
    given = inputs.batches(5, random_fields, n=9, timed=True, kinds=("boolean", "topk"))
    of = inputs.job(shards=2, window=nc.CountWindow(7))
    balance = nc.Balance(sigma=1, every=1, refit_every=1, refit_gain=1e-9, retire_below=1.0)
    sample = [spark.createDataFrame(table) for table in (given[0].messages, given[0].subscriptions)]
    stream, log = Stream(spark, tmp_path, write_stream, given), EpochLog(str(tmp_path / "state"))
    stream.run(of, len(given), {}, partitioner="hybrid", sample=sample, balance=balance)
    actions = [adjustment.action for adjustment in log.adjustments().values()]
    assert actions[:2] == ["refit", "retire"]
    assert sum(stream.updates.values(), Counter()) == inputs.embedded(of, given)


def test_only_a_stream_with_cells_can_be_adjusted(spark, write_stream, tmp_path, random_fields):
    given = inputs.batches(5, random_fields, n=1)
    of, folders = inputs.job(shards=2), write_stream(given)
    with pytest.raises(InvalidInput, match=r"balance must be left out for this partitioner.*; got 'hash' \(job\)"):
        match(*streams(spark, folders), **options(of), state=str(tmp_path / "state"), balance=True)
    assert EpochLog(str(tmp_path / "state")).newest() is None, "no epoch is left behind"
    frames = [spark.createDataFrame(table) for table in (given[0].messages, given[0].subscriptions)]
    with pytest.raises(StateError, match="only streams with balance can be adjusted"):
        match(*frames, **options(of), balance=True).adjust()


def test_static_frames_cannot_be_rescaled(spark, random_fields):
    (batch,) = inputs.batches(5, random_fields, n=1)
    frames = [spark.createDataFrame(table) for table in (batch.messages, batch.subscriptions)]
    with pytest.raises(StateError, match="only streams can be rescaled"):
        match(*frames, **options(inputs.job(shards=2))).rescale(3)


def test_a_request_to_rescale_is_taken_once(tmp_path):
    content = {
        "space": {"bounds": [0, 0, 1, 1]},
        "messages": {"format": "json", "path": "m"},
        "subscriptions": {"format": "json", "path": "s"},
        "updates": {"format": "json", "path": "u"},
        "run": {"checkpoint": "c"},
    }
    job_file = make_job_file(content, file=tmp_path / "job.toml")
    assert take_rescale(job_file) is None
    request_rescale(job_file, 4)
    assert [take_rescale(job_file), take_rescale(job_file)] == [4, None]
    with pytest.raises(InvalidInput, match=r"shards must be between 1 and \d+; got 0"):
        request_rescale(job_file, 0)
    fixed = make_job_file(content | {"match": {"routing": "r"}}, file=tmp_path / "job.toml")
    with pytest.raises(InvalidInput, match="routing must be left out in a job whose number of shards changes"):
        request_rescale(fixed, 4)
