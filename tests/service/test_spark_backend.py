"""A service beside a job on Spark writes each command once and ingests each output file once, across crashes.

The job is simulated: an engine over the files that the service writes, which commits as Spark's file sink does.
"""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import nearcast as nc
from nearcast.errors import InvalidInput, UnknownMessage, UnknownSubscription
from nearcast.jobs.client import JobClient
from nearcast.model.columns import subscriptions_from_table
from nearcast.service.api.metrics import Metrics
from nearcast.service.backends.spark_backend import SparkBackend
from nearcast.service.commands import Publish, Subscribe, Unsubscribe
from nearcast.service.config import ServiceConfig
from nearcast.service.json_bodies import message_from, subscription_from
from nearcast.service.store.cursor import START, Cursor
from nearcast.service.store.data_folder import DataFolder
from nearcast.service.store.durable_store import CommandRequest, DurableStore
from nearcast.service.store.retention import RetentionConfig
from service.running_service import SUBSCRIPTIONS, message

JOB = """
[space]
bounds = [0, 0, 1, 1]
[window]
count = 5
[social]
file = "friends.csv"
[vocabulary]
file = "words.json"
[match]
shards = 2
partitioner = "{partitioner}"
[messages]
format = "{format}"
path = "messages"
[subscriptions]
format = "json"
path = "subscriptions"
[updates]
format = "json"
path = "updates"
[run]
checkpoint = "checkpoint"
"""
BODIES = {
    **SUBSCRIPTIONS,
    "nearest": {**SUBSCRIPTIONS["nearest"], "keywords": "coffee"},
    "social": {"kind": "social", "location": [0.2, 0.3], "keywords": "coffee", "k": 2, "user": "ann"},
}
TEXTS = ["coffee sale", "tea", "coffee", "sale of tea", "coffee and coffee sale", "jazz"]
MESSAGES = [message(i, TEXTS[i % 6], (i % 7 / 7, i % 5 / 5), place="bar") for i in range(20)]


def write_job(folder, *, format_="json", partitioner="hash"):
    file = folder / "job.toml"
    file.write_text(JOB.format(format=format_, partitioner=partitioner))
    (folder / "friends.csv").write_text("user,place\nann,bar\nbob,bar\n")
    (folder / "words.json").write_text(json.dumps({"weights": {"coffee": 2.0, "tea": 1.0}}))
    return file


class SimulatedJob:
    """A job over the files of a folder, with the service beside it."""

    def __init__(self, folder):
        self.folder, self.batch, self._read = folder, 0, set()
        self.engine = ServiceConfig.of_job(write_job(folder)).engine()
        self.store = None
        self.start_service()

    def start_service(self, **retention):
        """Start the service, or restart it."""
        if self.store is not None:
            self.store.close()
        folder = DataFolder(self.folder / "data", ServiceConfig.of_job(self.folder / "job.toml"))
        self.metrics = Metrics()
        backend = SparkBackend(folder, metrics=self.metrics)
        backend.poll_interval_s = 0.0  # every call polls
        self.store = DurableStore(folder, backend, metrics=self.metrics, retention=RetentionConfig(**retention))
        self.store.recover()

    def execute(self, *commands):
        """Execute commands in the service and return the answers."""
        result = self.store.execute([CommandRequest.of(command, subscriber="ann") for command in commands])
        for answer in result.answers:
            if isinstance(answer, Exception):
                raise answer
        return result.answers

    def run(self):
        """Run one batch of the job: subscriptions first, each source in the order of time."""
        updates = []
        for row in self._rows("subscriptions"):
            if row["op"] == "unsubscribe":
                self.engine.unsubscribe([row["id"]])
            else:
                fields = {name: value for name, value in row.items() if name not in ("op", "at")}
                updates += self.engine.subscribe(subscriptions_from_table(pa.Table.from_pylist([fields])))
        for m in self._rows("messages"):
            at = datetime.fromisoformat(m["at"])
            updates += self.engine.publish([nc.Message(m["id"], (m["x"], m["y"]), m["text"], at, m["place"])])
        self._commit(updates)

    def step(self, *commands):
        """Execute commands, run the job on them, ingest its output, and return the updates."""
        self.execute(*commands)
        self.store.poll()
        self.run()
        return [json.loads(update.json) for update in self.store.poll().updates]

    def input_ids(self, source):
        """Return the ids in the input files of the job."""
        return [row["id"] for file in self._files(source) for row in _lines(file)]

    def _files(self, source):
        return sorted((self.folder / source).glob("[!.]*"))

    def _rows(self, source):
        new = [file for file in self._files(source) if file not in self._read]
        self._read |= set(new)
        return sorted((row for file in new for row in _lines(file)), key=lambda row: row["at"])

    def _commit(self, updates):
        sink = self.folder / "updates"
        (sink / "_spark_metadata").mkdir(parents=True, exist_ok=True)
        names = [f"part-{self.batch:05d}-{shard}.json" for shard in range(2)]
        for shard, name in enumerate(names):
            own = [_row(update) for update in updates if sum(map(ord, update.subscription)) % 2 == shard]
            (sink / name).write_text("".join(f"{json.dumps(row)}\n" for row in own))
        (sink / f"never-{self.batch}.json").write_text("not committed")
        log = ["v1", *(json.dumps({"path": f"file://{sink}/{name}", "action": "add"}) for name in names)]
        (sink / "_spark_metadata" / str(self.batch)).write_text("\n".join(log))
        self.batch += 1


def _row(update):
    at = {} if update.at is None else {"at": datetime.fromtimestamp(update.at, UTC).isoformat()}
    return {"seq": update.seq, "subscription": update.subscription, "message": update.message,
            "change": update.change, "score": update.score, **at}  # fmt: skip


def _lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def subscribe(*kinds):
    return Subscribe("ann", [{"id": kind, **BODIES[kind]} for kind in kinds])


def journaled_updates(store):
    updates = store.reader.updates("ann", after=START, up_to=Cursor(1 << 40, 0), limit=10_000)
    return [json.loads(update.json) for update in updates]


@pytest.fixture
def job(tmp_path):
    simulated = SimulatedJob(tmp_path)
    yield simulated
    simulated.store.close()


def test_results_of_all_kinds_equal_those_of_the_job(job):
    (answer,) = job.execute(subscribe(*BODIES))
    assert answer == {"command": 1, "updates": None, "created": list(BODIES), "replaced": [], "hints": {}}
    updates = []
    for start in range(0, 20, 4):
        updates += job.step(Publish(MESSAGES[start : start + 2]), Publish(MESSAGES[start + 2 : start + 4]))
    assert job.input_ids("messages") == [m["id"] for m in MESSAGES]
    assert len(updates) == job.engine.stats().updates > 50
    assert [u["seq"] for u in updates] == sorted(u["seq"] for u in updates)
    for is_restarted in (False, True):
        if is_restarted:
            job.start_service()
        view = job.store.view
        for kind in BODIES:
            name = f"ann/{kind}"
            assert view.results(name) == job.engine.results(name), kind
            for m in MESSAGES[-5:]:
                own, expected = view.explain(name, m["id"]), job.engine.explain(name, m["id"])
                assert (own.parts, own.score, own.threshold, own.passes) == (
                    expected.parts, expected.score, expected.threshold, expected.passes,
                )  # fmt: skip
        new = message_from(message(99, "coffee"))
        own, expected = view.explain("ann/topk", new), job.engine.explain("ann/topk", new)
        assert (own.passes, own.threshold, own.reason) == (expected.passes, expected.threshold, expected.reason)
        previewed = subscription_from({"id": "x", **BODIES["topk"]}, "ann")
        assert [(e.message, e.score) for e in view.preview(previewed)] == [
            (r.message, r.score) for r in job.engine.results("ann/topk")
        ]
        assert journaled_updates(job.store) == updates and view.stats().messages == 20


def test_messages_have_a_time_and_operations_an_order(job):
    job.execute(Publish([message(1), message(2)]), subscribe("boolean"), Unsubscribe("ann", ["boolean"]))
    job.execute(subscribe("boolean"), Publish([message(3, at=17.5)]))
    job.store.poll()
    rows = [row for file in job._files("messages") for row in _lines(file)]
    assert rows[0]["at"] < rows[1]["at"] and rows[2]["at"] == "1970-01-01T00:00:17.500000+00:00"
    operations = [row for file in job._files("subscriptions") for row in _lines(file)]
    assert [row["op"] for row in operations] == ["subscribe", "unsubscribe", "subscribe"]
    assert [row["at"] for row in operations] == sorted({row["at"] for row in operations})


def test_results_follow_replaced_and_deleted_subscriptions(job):
    job.step(subscribe("topk", "boolean"), Publish([message(1)]))
    assert len(job.store.view.results("ann/boolean")) == 1
    job.step(subscribe("boolean"), Publish([message(2)]))
    assert [r.message for r in job.store.view.results("ann/boolean")] == ["m2"], "only matches since the replacement"
    other = {"id": "topk", **BODIES["topk"], "keywords": "tea"}
    updates = job.step(Subscribe("ann", [other]))
    assert {(u["message"], u["change"]) for u in updates} == {("m1", "leave"), ("m2", "leave")}
    assert job.store.view.results("ann/topk") == []
    updates = job.step(
        Unsubscribe("ann", ["topk"]), subscribe("topk"), Unsubscribe("ann", ["topk"]), Publish([message(4)])
    )
    assert [u["subscription"] for u in updates] == ["boolean"], "deleted subscriptions get no updates"
    with pytest.raises(UnknownSubscription):
        job.store.view.results("ann/topk")
    assert job.store.reader._rows("SELECT count(*) FROM results WHERE subscription = 'topk'", ()) == [(0,)]


def test_unbounded_results_hold_the_messages_of_the_window(job):
    job.step(subscribe("boolean"), Publish([message(i) for i in range(8)]))
    assert [r.message for r in job.store.view.results("ann/boolean")] == ["m7", "m6", "m5", "m4", "m3"]


@pytest.mark.parametrize(
    ("command", "error", "text"),
    [
        (Publish([message(1, ["coffee"])]), InvalidInput, "text must be a string where a job on Spark reads it"),
        (Publish([message(1), message(2, location=(2, 0))]), InvalidInput, "location"),
        (Subscribe("ann", [{"id": "n", **SUBSCRIPTIONS["nearest"]}]), InvalidInput, "keywords must be a string"),
        (Subscribe("ann", [{"id": "t", **BODIES["topk"], "alpha": 2}]), InvalidInput, "alpha must be in"),
        (Subscribe("ann", [{"id": "g", **BODIES["social"], "user": "eve"}]), InvalidInput, "user must be known"),
        (Unsubscribe("ann", ["missing"]), UnknownSubscription, "missing"),
    ],
)
def test_input_that_the_job_cannot_take_is_rejected_and_not_written(job, command, error, text):
    with pytest.raises(error, match=text):
        job.execute(command)
    job.store.poll()
    assert job.input_ids("messages") == job.input_ids("subscriptions") == []


def test_a_message_that_is_not_retained_cannot_be_explained(job):
    job.execute(subscribe("topk"))
    with pytest.raises(UnknownMessage):
        job.store.view.explain("ann/topk", "never")


class Crash(BaseException):
    """Simulates the end of the process."""


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("method", ["write_operations", "write_messages", "committed"])
def test_a_crash_neither_loses_nor_repeats_anything(job, monkeypatch, method, is_done):
    before = job.step(subscribe("topk", "boolean"), Publish([message(1)]))
    job.execute(subscribe("similarity"), Publish([message(2)]))
    original = getattr(JobClient, method)

    def crash(*args):
        if is_done:
            original(*args)
        raise Crash

    if method == "committed":
        job.store.poll()
        job.run()
    with monkeypatch.context() as patched, pytest.raises(Crash):
        patched.setattr(JobClient, method, crash)
        job.store.poll()
    job.start_service()
    job.execute(Publish([message(3)]))
    job.store.poll()
    job.run()
    job.store.poll()
    assert job.input_ids("messages") == ["m1", "m2", "m3"]
    assert job.input_ids("subscriptions") == ["ann/topk", "ann/boolean", "ann/similarity"]
    updates = journaled_updates(job.store)
    assert updates[: len(before)] == before and len(updates) == job.engine.stats().updates
    assert len({u["cursor"] for u in updates}) == len(updates)
    assert job.store.view.results("ann/topk") == job.engine.results("ann/topk")


def test_files_of_an_uncommitted_ingest_are_ingested_again(job, monkeypatch):
    job.execute(subscribe("topk"), Publish([message(1)]))
    job.store.poll()
    job.run()
    with monkeypatch.context() as patched, pytest.raises(Crash):
        patched.setattr(job.store._journal, "commit", lambda: (_ for _ in ()).throw(Crash))
        job.store.poll()
    job.start_service()
    assert [json.loads(update.json)["message"] for update in job.store.poll().updates] == ["m1"]
    assert job.store.poll().updates == []


def test_inaccessible_folders_are_tried_again(job, monkeypatch, caplog):
    job.execute(Publish([message(1)]))
    with monkeypatch.context() as patched:
        patched.setattr(JobClient, "write_messages", lambda *_: (_ for _ in ()).throw(OSError("no such device")))
        assert job.store.poll().updates == []
    assert "are not accessible; trying again" in caplog.text
    job.store.poll()
    assert job.input_ids("messages") == ["m1"]


def test_pruning_retains_commands_that_the_job_has_not_received(job):
    job.start_service(max_age_s=-1.0)
    job.step(subscribe("nearest", "boolean"), Publish([message(i) for i in range(10)]))
    job.execute(Publish([message(11)]))
    job.store.save()
    assert job.store.reader.message("m1") is None and job.store.reader.message("m11") is not None
    assert job.store.view.results("ann/boolean") == []
    assert job.store.view.results("ann/nearest") == job.engine.results("ann/nearest")
    job.start_service(max_age_s=-1.0)
    assert job.execute(Publish([message(12)]))[0]["seq"] == 12
    job.store.poll()
    assert job.input_ids("messages")[-2:] == ["m11", "m12"]


def test_terms_and_users_of_the_job_are_suggested(job):
    counts = {"documents": 90, "frequencies": {"tea": 3, "coffee": 7, "24": 9, "and": 80}}
    (job.folder / "words.json").write_text(json.dumps(counts))
    description = ServiceConfig.of_job(job.folder / "job.toml").describe()
    assert (description["terms"], description["users"]) == (["coffee", "tea"], ["ann", "bob"])
    assert (description["window_count"], description["partitioner"]) == (5, "hash")


def test_reports_of_shards_are_counted(job):
    reports = job.folder / "checkpoint" / "state" / "some-query" / "reports"
    reports.mkdir(parents=True)
    job.execute(Publish([message(i) for i in range(7)]))
    for batch in range(2):
        for shard in range(2):
            report = {
                "shard": shard,
                "messages": 2,
                "subscriptions": 10 * shard + batch,
                "visited": 5,
                "candidates": 3,
                "verified": 2,
            }
            (reports / f"{batch:08d}.{shard}.json").write_text(json.dumps(report))
        job.store.poll()
    assert b"nearcast_job_lag_messages 3.0" in job.metrics.render(None), "of seven"
    stats = job.store.view.stats()
    assert (stats.shards, stats.subscriptions) == ((1, 11), 12)
    assert (stats.visited, stats.candidates, stats.verified) == (20, 12, 8)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"format_": "parquet"}, r"format must be json for a job that others .*; got 'parquet' \(\[messages\]"),
        ({"partitioner": "magic"}, "partitioner must be one of"),
    ],
)
def test_an_unsuitable_job_is_refused(tmp_path, options, text):
    with pytest.raises(InvalidInput, match=text):
        DataFolder(tmp_path / "data", ServiceConfig.of_job(write_job(tmp_path, **options)))
    assert not (tmp_path / "data").exists()
