"""A service beside a job on Spark writes each command once and ingests each output file once, across crashes.

The job is simulated: an engine over the files that the service writes, which commits as Spark's file sink does.
"""

import itertools
import json
import sqlite3
from contextlib import suppress
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import nearcast as nc
from effort import IS_SOAK
from nearcast.errors import InvalidInput, StateError, UnknownMessage, UnknownSubscription
from nearcast.jobs.client import JobClient
from nearcast.jobs.epochs import EpochLog
from nearcast.jobs.folder import Folder
from nearcast.jobs.reports import read_batch, write_report
from nearcast.model.columns import subscriptions_from_table
from nearcast.partition.balance.adjustment import Adjustment
from nearcast.service.api.metrics import Metrics
from nearcast.service.backends.spark_backend import SparkBackend
from nearcast.service.commands import Publish, Replace, Retract, Subscribe, Unsubscribe
from nearcast.service.config import ServiceConfig
from nearcast.service.json_bodies import message_from, subscription_from
from nearcast.service.region_json import circle_json
from nearcast.service.store.cursor import START, Cursor
from nearcast.service.store.data_folder import DataFolder
from nearcast.service.store.durable_store import CommandRequest, DurableStore
from nearcast.service.store.journal import Journal
from nearcast.service.store.limits import ServiceLimits
from service.running_service import SUBSCRIPTIONS, message
from service.simulated_host import START_S, SimulatedHost

JOB = """
[space]
bounds = [0, 0, 1, 1]
[window]
{window}
[social]
file = "visits.csv"
[vocabulary]
file = "words.json"
[match]
shards = 2
partitioner = "{partitioner}"
attributes = {{ price = "float", stars = "int", category = "str" }}
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


def write_job(folder, *, format_="json", partitioner="hash", window="count = 5"):
    file = folder / "job.toml"
    file.write_text(JOB.format(format=format_, partitioner=partitioner, window=window))
    (folder / "visits.csv").write_text("user,place\nann,bar\nbob,bar\n")
    (folder / "words.json").write_text(json.dumps({"weights": {"coffee": 2.0, "tea": 1.0}}))
    return file


class SimulatedJob:
    """A job over the files of a folder, with the service beside it."""

    def __init__(self, folder, *, clock=None, **options):
        self.folder, self.batch, self._read, self._clock = folder, 0, set(), clock
        self.engine = ServiceConfig.of_job(write_job(folder, **options)).engine()
        self.store = None
        self.start_service()

    def start_service(self, **limits):
        """Start the service, or restart it."""
        if self.store is not None:
            self.store.close()
        folder = DataFolder(self.folder / "data", ServiceConfig.of_job(self.folder / "job.toml"))
        self.metrics = Metrics()
        backend = SparkBackend(folder, metrics=self.metrics)
        backend.poll_interval_s = 0.0  # every call polls
        self.store = DurableStore(
            folder, backend, metrics=self.metrics, limits=ServiceLimits(**limits), clock=self._clock
        )
        self.store.recover()

    def execute(self, *commands):
        """Execute commands in the service and return the answers."""
        results = []
        self.store.execute([CommandRequest.of(one, subscriber="ann") for one in commands], results.append)
        answers = [answer for result in results for answer in result.answers]
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def poll(self):
        """Exchange data with the job and return the updates of the service."""
        results = []
        self.store.poll(results.append)
        return [update for result in results for update in result.updates]

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
            updates += self._apply(m)
        self._commit(updates)

    def _apply(self, m):
        """Do what a row of messages says; an unknown id changes nothing."""
        if m.get("op") == "retract":
            with suppress(UnknownMessage):
                return self.engine.retract([m["id"]])
            return []
        at, end = (None if m.get(name) is None else datetime.fromisoformat(m[name]) for name in ("at", "expires_at"))
        attributes = {name: m[name] for name in ("price", "stars", "category") if name in m}
        made = nc.Message(m["id"], (m["x"], m["y"]), m["text"], at, m["place"], end, m.get("body"), attributes)
        return (self.engine.replace if m.get("op") == "replace" else self.engine.publish)([made])

    def step(self, *commands):
        """Execute commands, run the job on them, ingest its output, and return the updates."""
        self.execute(*commands)
        self.poll()
        self.run()
        return [json.loads(update.json) for update in self.poll()]

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
        assert [(e.message, e.score) for e in view.preview(previewed).results] == [
            (r.message, r.score) for r in job.engine.results("ann/topk")
        ]
        assert journaled_updates(job.store) == updates and view.stats().messages == 20


def test_filters_and_attributes_reach_the_job(job):
    wanted = {"require": "NOT kids", "where": "price <= 300 AND stars = 3", "region": circle_json([0.2, 0.3], 0.1)}
    good = {"price": 300.0, "stars": 3.0}
    job.execute(Subscribe("ann", [{"id": "bike", **BODIES["topk"], **wanted}]))
    job.execute(
        Publish([message(1, attributes=good), message(2, attributes=good | {"price": 301}), message(3)]),
        Publish([message(4, "coffee for kids", attributes=good), message(5, location=(0.9, 0.9), attributes=good)]),
    )
    job.poll()
    (row, *_) = _lines(job._files("messages")[0])
    assert (row["price"], json.dumps(row["stars"])) == (300.0, "3"), "Spark reads no 3.0 as an integer"
    job.run()
    assert [json.loads(update.json)["message"] for update in job.poll()] == ["m1"]
    assert [result.message for result in job.store.view.results("ann/bike")] == ["m1"]
    with pytest.raises(InvalidInput, match="where must"):
        job.execute(Subscribe("ann", [{"id": "x", **BODIES["topk"], "where": "weight < 3"}]))
    with pytest.raises(InvalidInput, match="require must be a string where a job on Spark reads it"):
        job.execute(Subscribe("ann", [{"id": "x", **BODIES["topk"], "require": ["a"]}]))
    with pytest.raises(InvalidInput, match="stars must be an integer"):
        job.execute(Publish([message(6, attributes={"stars": 2.5})]))


def test_messages_have_a_time_and_operations_an_order(job):
    job.execute(Publish([message(1), message(2)]), subscribe("boolean"), Unsubscribe("ann", ["boolean"]))
    job.execute(subscribe("boolean"), Publish([message(3, at=17.5)]))
    job.poll()
    rows = [row for file in job._files("messages") for row in _lines(file)]
    assert rows[0]["at"] < rows[1]["at"] and rows[2]["at"] == "1970-01-01T00:00:17.500000+00:00"
    operations = [row for file in job._files("subscriptions") for row in _lines(file)]
    assert [row["op"] for row in operations] == ["subscribe", "unsubscribe", "subscribe"]
    assert [row["at"] for row in operations] == sorted({row["at"] for row in operations})


def test_the_job_has_the_clock_and_gets_no_message_that_is_too_far_ahead(tmp_path):
    host = SimulatedHost()
    job = SimulatedJob(tmp_path, window="seconds = 60", clock=host.clock())
    assert [u["message"] for u in job.step(subscribe("topk"), Publish([message(1), message(2, at=START_S + 299)]))]
    with pytest.raises(InvalidInput, match="at must be at most 300 s ahead of the clock of the service"):
        job.execute(Publish([message(3), message(4, at=START_S + 301)]))
    host.sleep(1_000)
    job.store.advance(lambda result: pytest.fail("the service advances nothing"))
    job.execute(Publish([message(5)]))
    job.poll()
    assert job.input_ids("messages") == ["m1", "m2", "m5"] and job.store.idle_s == 0.0
    names = {type(command).name for _, _, command in job.store._journal.commands(after=0)}
    assert names == {"subscribe", "publish", "ingest"}
    job.store.close()


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


def test_publishers_retract_and_replace_their_messages(job):
    job.step(subscribe("topk", "boolean"), Publish([message(1), message(2)], "ann"))
    updates = job.step(Retract("ann", ["m1"]))
    assert {(u["subscription"], u["message"], u["change"]) for u in updates} == {
        ("topk", "m1", "leave"), ("boolean", "m1", "leave")
    }  # fmt: skip
    for kind in ("topk", "boolean"):
        assert [result.message for result in job.store.view.results(f"ann/{kind}")] == ["m2"]
    with pytest.raises(UnknownMessage):
        job.execute(Retract("ann", ["m1"]))
    updates = job.step(Replace([message(2)], "ann"))
    assert sorted((u["subscription"], u["change"], u["seq"]) for u in updates) == [
        ("boolean", "enter", 3), ("boolean", "leave", 3), ("topk", "enter", 3), ("topk", "leave", 3)
    ]  # fmt: skip
    job.step(Publish([message(5)], "ann"), Retract("ann", ["m5"]), Publish([message(5)], "ann"))
    assert {result.message for result in job.store.view.results("ann/topk")} == {"m2", "m5"}, "in one batch"
    job.start_service()
    assert job.poll() == [] and job.metrics.job_lag._value.get() == 0


def test_messages_under_an_id_of_several_publishers_cannot_be_retracted(job):
    job.execute(Publish([message(1)], "ann"), Publish([message(1)], "bob"))
    for command in (Retract("ann", ["m1"]), Replace([message(1)], "bob")):
        with pytest.raises(StateError, match=r"\['m1'\] cannot be retracted .* another publisher has used"):
            job.execute(command)
    job.execute(Publish([message(2)], "bob"))
    with pytest.raises(StateError, match="another publisher"):
        job.execute(Retract("ann", ["m2"]))


def test_the_job_gets_the_end_and_the_body_of_a_message(job):
    job.execute(Publish([message(1) | {"expires_at": 9e9, "body": "b"}, message(2)]))
    job.poll()
    rows = [row for file in job._files("messages") for row in _lines(file)]
    assert [(row.get("expires_at"), row.get("body")) for row in rows] == [
        ("2255-03-14T16:00:00+00:00", "b"),
        (None, None),
    ]


def test_results_with_filters_equal_those_of_the_job(job):
    triangle = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [0, 1], [0, 0]]]}
    bodies = [
        {"id": "area", **BODIES["boolean"], "region": triangle, "keywords": "coffee NOT sale"},
        {"id": "circle", **BODIES["topk"], "region": circle_json([0.2, 0.3], 0.3), "require": '"coffee sale"'},
        {"id": "where", **BODIES["nearest"], "where": "price < 3 AND category = 'even'"},
        {"id": "social", **BODIES["social"], "region": [0, 0, 0.5, 0.5], "where": "price IS NULL"},
    ]
    attributes = [
        {"price": i / 4, "category": "odd" if i % 2 else "even"} if i % 3 else {"category": "even"} for i in range(20)
    ]
    messages = [one | {"attributes": values} for one, values in zip(MESSAGES, attributes, strict=True)]
    job.execute(Subscribe("ann", bodies))
    updates = [update for start in range(0, 20, 5) for update in job.step(Publish(messages[start : start + 5]))]
    assert {update["subscription"] for update in updates} == {body["id"] for body in bodies}
    job.start_service()
    for body in bodies:
        name = f"ann/{body['id']}"
        assert job.store.view.results(name) == job.engine.results(name)
        for m in messages[-5:]:
            own, expected = job.store.view.explain(name, m["id"]), job.engine.explain(name, m["id"])
            assert (own.parts, own.passes) == (expected.parts, expected.passes)


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
        (
            Subscribe("ann", [{"id": "t", **BODIES["topk"], "require": ["a"]}]),
            InvalidInput,
            "require must be a string",
        ),
        (
            Subscribe("ann", [{"id": "t", **BODIES["topk"], "where": "x = 1"}]),
            InvalidInput,
            "must name attributes of",
        ),
        (Publish([message(1, attributes={"colour": "red"})]), InvalidInput, "attributes must be declared"),
        (Subscribe("ann", [{"id": "g", **BODIES["social"], "user": "eve"}]), InvalidInput, "user must be known"),
        (Unsubscribe("ann", ["missing"]), UnknownSubscription, "missing"),
    ],
)
def test_input_that_the_job_cannot_take_is_rejected_and_not_written(job, command, error, text):
    with pytest.raises(error, match=text):
        job.execute(command)
    job.poll()
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

    def crash(*args, **options):
        if is_done:
            original(*args, **options)
        raise Crash

    if method == "committed":
        job.poll()
        job.run()
    with monkeypatch.context() as patched, pytest.raises(Crash):
        patched.setattr(JobClient, method, crash)
        job.poll()
    job.start_service()
    job.execute(Publish([message(3)]))
    job.poll()
    job.run()
    job.poll()
    assert job.input_ids("messages") == ["m1", "m2", "m3"]
    assert job.input_ids("subscriptions") == ["ann/topk", "ann/boolean", "ann/similarity"]
    updates = journaled_updates(job.store)
    assert updates[: len(before)] == before and len(updates) == job.engine.stats().updates
    assert len({u["cursor"] for u in updates}) == len(updates)
    assert job.store.view.results("ann/topk") == job.engine.results("ann/topk")


def test_files_of_an_uncommitted_ingest_are_ingested_again(job, monkeypatch):
    job.execute(subscribe("topk"), Publish([message(1)]))
    job.poll()
    job.run()
    with monkeypatch.context() as patched, pytest.raises(Crash):
        patched.setattr(job.store._journal, "commit", lambda: (_ for _ in ()).throw(Crash))
        job.poll()
    job.start_service()
    assert [json.loads(update.json)["message"] for update in job.poll()] == ["m1"]
    assert job.poll() == []


def test_inaccessible_folders_are_tried_again(job, monkeypatch, caplog):
    job.execute(Publish([message(1)]))
    with monkeypatch.context() as patched:
        patched.setattr(JobClient, "write_messages", lambda *_: (_ for _ in ()).throw(OSError("no such device")))
        assert job.poll() == []
    assert "are not accessible; trying again" in caplog.text
    job.poll()
    assert job.input_ids("messages") == ["m1"]


class Faults:
    """Makes one access to the folders of the job or to the journal fail, before or after it is done."""

    def __init__(self, patched, nth, *, is_done):
        self.n_accesses, self._nth, self._is_done, self._is_active = 0, nth, is_done, False
        for owner, name, error in (
            (Folder, "read", OSError("no such device")),
            (Folder, "names", OSError("no such device")),
            (Folder, "write", OSError("no space left on device")),
            (Journal, "commit", sqlite3.OperationalError("disk I/O error")),
        ):
            patched.setattr(owner, name, self._failing(getattr(owner, name), error))

    def _failing(self, original, error):
        def access(*args):
            self.n_accesses += self._is_active
            fails = self._is_active and self.n_accesses == self._nth
            if fails and not self._is_done:
                raise error
            returned = original(*args)
            if fails:
                raise error
            return returned

        return access

    def during(self, call, recover):
        """Call something while one access may fail, and recover as the command loop does."""
        self._is_active = True
        try:
            call()
        except Exception:
            recover()
        finally:
            self._is_active = False


@pytest.mark.parametrize("is_done", [False, True])
def test_one_access_that_fails_neither_loses_nor_repeats_anything(tmp_path, monkeypatch, is_done):
    """Wherever it occurs: while commands are written, or while reports, the log or the files of the sink are read."""
    # In `make test` the two ways to fail take turns, so that every access fails in one of them.
    for nth in itertools.count(1) if IS_SOAK else itertools.count(1 + is_done, 2):
        folder = tmp_path / str(nth)
        folder.mkdir()
        job = SimulatedJob(folder)
        with monkeypatch.context() as patched:
            faults = Faults(patched, nth, is_done=is_done)
            job.execute(subscribe("topk", "boolean"), Publish([message(1)]))
            for i in (2, 3):
                faults.during(job.poll, job.store.recover)
                job.execute(Publish([message(i)]))
                faults.during(job.poll, job.store.recover)
                job.run()
                write_report(Folder(str(folder / "checkpoint" / "state" / "query")), i, 0, REPORT)
                faults.during(job.poll, job.store.recover)
            faults.during(job.store.recover, job.store.recover)
        job.poll()  # it failed once
        job.run()
        job.poll()
        assert job.input_ids("messages") == ["m1", "m2", "m3"], nth
        assert job.input_ids("subscriptions") == ["ann/topk", "ann/boolean"], nth
        updates = journaled_updates(job.store)
        assert len(updates) == job.engine.stats().updates == len({u["cursor"] for u in updates}) > 5, nth
        assert job.store.view.results("ann/topk") == job.engine.results("ann/topk"), nth
        assert job.store.view.stats().visited == 2 * REPORT["visited"], nth
        assert len(job.store._journal.ingested_files()) <= 4, "of the last batches"
        job.store.close()
        if faults.n_accesses < nth:
            assert nth > 30
            return


REPORT = {"shard": 0, "messages": 1, "subscriptions": 2, "visited": 5, "candidates": 3, "verified": 2}


def test_reports_that_are_gone_or_damaged_do_not_hold_up_updates(job, monkeypatch, caplog):
    folder = Folder(str(job.folder / "checkpoint" / "state" / "query"))
    job.execute(subscribe("topk"), Publish([message(1)]))
    job.poll()
    job.run()
    write_report(folder, 1, 0, REPORT)
    folder.write("reports/00000001.1.json", b'{"shard": 1, "mess')
    listed = Folder.names
    with monkeypatch.context() as patched:
        gone = ["00000000.0.json", "00000001.2.json"]
        patched.setattr(Folder, "names", lambda *args: listed(*args) + gone * args[1].endswith("reports"))
        assert [json.loads(update.json)["message"] for update in job.poll()] == ["m1"]
        assert [json.loads(report) for report in read_batch(folder, 1)] == [REPORT]
    assert job.store.view.stats().visited == REPORT["visited"]
    assert "00000001.1.json is not a report" in caplog.text


def test_input_files_that_a_killed_service_left_unfinished_are_removed(job):
    for source in ("messages", "subscriptions"):
        (job.folder / source / ".000000000007.json.host-17").write_text("half")
        (job.folder / source / ".hidden.json").write_text("of another program")
    job.start_service()
    for source in ("messages", "subscriptions"):
        assert [path.name for path in (job.folder / source).iterdir()] == [".hidden.json"]


SHORT = pytest.mark.parametrize("limits", [{"max_age_s": -1.0}, {"max_bytes": 1}], ids=["age", "bytes"])


@SHORT
def test_pruning_retains_commands_that_the_job_has_not_received(job, limits):
    job.start_service(**limits)
    job.step(subscribe("nearest", "boolean"), Publish([message(i) for i in range(9)]))
    job.step(Publish([message(9)]))
    job.execute(Publish([message(11)]))
    job.store.save()
    assert job.store.reader.message("m1") is None and job.store.reader.message("m11") is not None
    assert [r.message for r in job.store.view.results("ann/boolean")] == ["m9"], "only retained messages"
    assert job.store.view.results("ann/nearest") == job.engine.results("ann/nearest")
    job.start_service(**limits)
    assert job.execute(Publish([message(12)]))[0]["seq"] == 12
    job.poll()
    assert job.input_ids("messages")[-2:] == ["m11", "m12"]


@SHORT
def test_pruning_retains_commands_whose_files_a_restart_writes_again(job, limits):
    """The last files may have been written in part when the process ended."""
    job.start_service(**limits)
    job.execute(subscribe("boolean"), Publish([message(1)]))
    job.poll()
    job.execute(Publish([message(2)]), Publish([message(3)]))
    job.poll()
    job.execute(Publish([message(4)]))
    job.store.save()
    job._files("messages")[-1].unlink()
    job.start_service(**limits)
    job.poll()
    assert job.input_ids("messages") == ["m1", "m2", "m3", "m4"]


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
    job.poll()
    assert not job.store.is_reporting, "the map says that it waits"
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
        job.poll()
    assert job.store.is_reporting
    assert b"nearcast_job_lag_messages 3.0" in job.metrics.render(None), "of seven"
    stats = job.store.view.stats()
    assert (stats.shards, stats.subscriptions) == ((1, 11), 12)
    assert (stats.visited, stats.candidates, stats.verified) == (20, 12, 8)


def test_adjustments_of_the_routing_that_shards_report_are_known(job):
    log = EpochLog(str(job.folder / "checkpoint" / "state"))
    epoch = log.add(shards=2, tasks=2)
    made = Adjustment((), "gr", 1.2, (3.0, 1.0), (2.0, 2.0), 5, 600)
    log.add_adjusted(epoch, b"routing", made)
    job.poll()
    assert job.store.view.adjustments == [], "the epoch waits"
    reports = job.folder / "checkpoint" / "state" / "some-query" / "reports"
    reports.mkdir(parents=True)
    for shard in range(2):
        report = {"shard": shard, "messages": 0, "subscriptions": 1, "epoch": 1}
        (reports / f"00000000.{shard}.json").write_text(json.dumps(report))
    job.poll()
    assert job.store.view.adjustments == [made]


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
