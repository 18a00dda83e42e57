"""Does a service beside a job on Spark pass everything on once, and take in what it tells once, whatever crashes?

The job is played here: an engine over the files that the service writes, which commits as Spark's file sink does.
"""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import nearcast as nc
from nearcast.errors import InvalidInput, UnknownMessage, UnknownSubscription
from nearcast.model import KINDS as CLASSES
from nearcast.model.columns import subscriptions_from_table
from nearcast.service.commands import Publish, Subscribe, Unsubscribe, message_of, subscription_of
from nearcast.service.config import ServiceConfig
from nearcast.service.durable_store import Request, RetentionConfig
from nearcast.service.folder import DataFolder
from nearcast.service.journal import Cursor
from nearcast.service.meters import Meters
from nearcast.service.spark_backend import SparkBackend
from nearcast.spark.job_client import JobClient
from service.served import KINDS, message

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
ALL = {
    **KINDS,
    "nearest": {**KINDS["nearest"], "keywords": "coffee"},
    "social": {"kind": "social", "location": [0.2, 0.3], "keywords": "coffee", "k": 2, "user": "ann"},
}
TEXTS = ["coffee sale", "tea", "coffee", "sale of tea", "coffee and coffee sale", "jazz"]
MESSAGES = [message(i, TEXTS[i % 6], (i % 7 / 7, i % 5 / 5), place="threshold") for i in range(20)]


def write_job(folder, *, format_="json", partitioner="hash"):
    file = folder / "job.toml"
    file.write_text(JOB.format(format=format_, partitioner=partitioner))
    (folder / "friends.csv").write_text("user,place\nann,bar\nbob,bar\n")
    (folder / "words.json").write_text(json.dumps({"weights": {"coffee": 2.0, "tea": 1.0}}))
    return file


class Played:
    """A job over the files of a folder, and the service beside it."""

    def __init__(self, folder):
        self.folder, self.batch, self._read = folder, 0, set()
        self.engine = ServiceConfig.of_job(write_job(folder)).engine()
        self.relay = None
        self.start()

    def start(self, **retention):
        """Start the service, after whatever happened to it."""
        if self.relay is not None:
            self.relay.close()
        folder = DataFolder(self.folder / "data", ServiceConfig.of_job(self.folder / "job.toml"))
        self.relay = SparkBackend(folder, meters=Meters(), retention=RetentionConfig(**retention))
        self.relay.listens_every = 0.0  # whenever it is asked
        self.relay.recover()

    def do(self, *commands):
        """Let the service carry out commands; return the answers."""
        done = self.relay.settle([Request.under(None, command, "ann") for command in commands])
        for answer in done.answers:
            if isinstance(answer, Exception):
                raise answer
        return done.answers

    def run(self):
        """Carry out one batch of the job: subscriptions first, each source in the order of time."""
        told = []
        for row in self._rows("subscriptions"):
            if row["op"] == "unsubscribe":
                told += self.engine.unsubscribe([row["id"]])
            else:
                given = {name: value for name, value in row.items() if name not in ("op", "at")}
                told += self.engine.subscribe(subscriptions_from_table(pa.Table.from_pylist([given]), CLASSES))
        for m in self._rows("messages"):
            at = datetime.fromisoformat(m["at"])
            told += self.engine.publish([nc.Message(m["id"], (m["x"], m["y"]), m["text"], at, m["place"])])
        self._commit(told)

    def step(self, *commands):
        """Carry out commands, let the job run on them, and take in what it says; return that."""
        self.do(*commands)
        self.relay.listen()
        self.run()
        return [json.loads(told.json) for told in self.relay.listen().updates]

    def written(self, source):
        """Return the ids in the files that the job reads."""
        return [row["id"] for file in self._files(source) for row in _lines(file)]

    def _files(self, source):
        return sorted((self.folder / source).glob("[!.]*"))

    def _rows(self, source):
        new = [file for file in self._files(source) if file not in self._read]
        self._read |= set(new)
        return sorted((row for file in new for row in _lines(file)), key=lambda row: row["at"])

    def _commit(self, told):
        sink = self.folder / "updates"
        (sink / "_spark_metadata").mkdir(parents=True, exist_ok=True)
        names = [f"part-{self.batch:05d}-{shard}.json" for shard in range(2)]
        for shard, name in enumerate(names):
            own = [_row(update) for update in told if sum(map(ord, update.subscription)) % 2 == shard]
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
    return Subscribe("ann", [{"id": kind, **ALL[kind]} for kind in kinds])


def journalled(relay):
    updates = relay.reader.updates("ann", after=Cursor(0, 0), upto=Cursor(1 << 40, 0), limit=10_000)
    return [json.loads(told.json) for told in updates]


@pytest.fixture
def played(tmp_path):
    made = Played(tmp_path)
    yield made
    made.relay.close()


def test_answers_of_all_kinds_are_those_of_the_job(played):
    (answer,) = played.do(subscribe(*ALL))
    assert answer == {"command": 1, "updates": None, "created": list(ALL), "replaced": []}
    heard = []
    for start in range(0, 20, 4):
        heard += played.step(Publish(MESSAGES[start : start + 2]), Publish(MESSAGES[start + 2 : start + 4]))
    assert played.written("messages") == [m["id"] for m in MESSAGES]
    assert len(heard) == played.engine.stats().updates > 50
    assert [u["seq"] for u in heard] == sorted(u["seq"] for u in heard)
    for again in (False, True):
        if again:
            played.start()
        view = played.relay.view
        for kind in ALL:
            name = f"ann/{kind}"
            assert view.results(name) == played.engine.results(name), kind
            for m in MESSAGES[-5:]:
                mine, its = view.explain(name, m["id"]), played.engine.explain(name, m["id"])
                assert (mine.parts, mine.score, mine.threshold, mine.passes) == (
                    its.parts,
                    its.score,
                    its.threshold,
                    its.passes,
                )
        new = message_of(message(99, "coffee"))
        mine, its = view.explain("ann/topk", new), played.engine.explain("ann/topk", new)
        assert (mine.passes, mine.threshold, mine.reason) == (its.passes, its.threshold, its.reason)
        asked = subscription_of({"id": "x", **ALL["topk"]}, "ann")
        assert [(e.message, e.score) for e in view.preview(asked)] == [
            (r.message, r.score) for r in played.engine.results("ann/topk")
        ]
        assert journalled(played.relay) == heard and view.stats().messages == 20


def test_each_message_has_a_time_and_operations_an_order(played):
    played.do(Publish([message(1), message(2)]), subscribe("boolean"), Unsubscribe("ann", ["boolean"]))
    played.do(subscribe("boolean"), Publish([message(3, at=17.5)]))
    played.relay.listen()
    rows = [row for file in played._files("messages") for row in _lines(file)]
    assert rows[0]["at"] < rows[1]["at"] and rows[2]["at"] == "1970-01-01T00:00:17.500000+00:00"
    operations = [row for file in played._files("subscriptions") for row in _lines(file)]
    assert [row["op"] for row in operations] == ["subscribe", "unsubscribe", "subscribe"]
    assert [row["at"] for row in operations] == sorted({row["at"] for row in operations})


def test_what_is_replaced_or_left_behind_is_held_right(played):
    played.step(subscribe("topk", "boolean"), Publish([message(1)]))
    assert len(played.relay.view.results("ann/boolean")) == 1
    played.step(subscribe("boolean"), Publish([message(2)]))
    assert [r.message for r in played.relay.view.results("ann/boolean")] == ["m2"], "since the newest one came"
    other = {"id": "topk", **ALL["topk"], "keywords": "tea"}
    heard = played.step(Subscribe("ann", [other]))
    assert {(u["message"], u["change"]) for u in heard} == {("m1", "leave"), ("m2", "leave")}
    assert played.relay.view.results("ann/topk") == []
    heard = played.step(
        Unsubscribe("ann", ["topk"]), subscribe("topk"), Unsubscribe("ann", ["topk"]), Publish([message(4)])
    )
    assert [u["subscription"] for u in heard] == ["boolean"], "nothing is told of who left"
    with pytest.raises(UnknownSubscription):
        played.relay.view.results("ann/topk")
    assert played.relay.reader._all("SELECT count(*) FROM held WHERE subscription = 'topk'", ()) == [(0,)]


def test_what_grows_is_held_as_long_as_the_window_has_it(played):
    played.step(subscribe("boolean"), Publish([message(i) for i in range(8)]))
    assert [r.message for r in played.relay.view.results("ann/boolean")] == ["m7", "m6", "m5", "m4", "m3"]


@pytest.mark.parametrize(
    ("command", "kind", "words"),
    [
        (Publish([message(1, ["coffee"])]), InvalidInput, "text must be a string where a job on Spark reads it"),
        (Publish([message(1), message(2, where=(2, 0))]), InvalidInput, "location"),
        (Subscribe("ann", [{"id": "n", **KINDS["nearest"]}]), InvalidInput, "keywords must be a string"),
        (Subscribe("ann", [{"id": "t", **ALL["topk"], "alpha": 2}]), InvalidInput, "alpha must be in"),
        (Subscribe("ann", [{"id": "g", **ALL["social"], "user": "eve"}]), InvalidInput, "user must be known"),
        (Unsubscribe("ann", ["nobody"]), UnknownSubscription, "nobody"),
    ],
)
def test_what_the_job_could_not_take_is_refused_and_not_passed_on(played, command, kind, words):
    with pytest.raises(kind, match=words):
        played.do(command)
    played.relay.listen()
    assert played.written("messages") == played.written("subscriptions") == []


def test_a_message_that_is_not_kept_cannot_be_explained(played):
    played.do(subscribe("topk"))
    with pytest.raises(UnknownMessage):
        played.relay.view.explain("ann/topk", "never")


class Killed(BaseException):
    """As if the process ended here."""


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("what", ["tell_operations", "tell_messages", "heard"])
def test_a_crash_on_the_way_neither_loses_nor_repeats_anything(played, monkeypatch, what, is_done):
    heard = played.step(subscribe("topk", "boolean"), Publish([message(1)]))
    played.do(subscribe("similarity"), Publish([message(2)]))
    real = getattr(JobClient, what)

    def die(*args):
        if is_done:
            real(*args)
        raise Killed

    if what == "heard":
        played.relay.listen()
        played.run()
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(JobClient, what, die)
        played.relay.listen()
    played.start()
    played.do(Publish([message(3)]))
    played.relay.listen()
    played.run()
    played.relay.listen()
    assert played.written("messages") == ["m1", "m2", "m3"]
    assert played.written("subscriptions") == ["ann/topk", "ann/boolean", "ann/similarity"]
    told = journalled(played.relay)
    assert told[: len(heard)] == heard and len(told) == played.engine.stats().updates
    assert len({u["cursor"] for u in told}) == len(told)
    assert played.relay.view.results("ann/topk") == played.engine.results("ann/topk")


def test_a_crash_before_the_commit_takes_the_same_files_in_again(played, monkeypatch):
    played.do(subscribe("topk"), Publish([message(1)]))
    played.relay.listen()
    played.run()
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(played.relay._journal, "commit", lambda: (_ for _ in ()).throw(Killed))
        played.relay.listen()
    played.start()
    assert [json.loads(told.json)["message"] for told in played.relay.listen().updates] == ["m1"]
    assert played.relay.listen().updates == []


def test_folders_that_cannot_be_used_are_tried_again(played, monkeypatch, caplog):
    played.do(Publish([message(1)]))
    with monkeypatch.context() as patched:
        patched.setattr(JobClient, "tell_messages", lambda *_: (_ for _ in ()).throw(OSError("no such device")))
        assert played.relay.listen().updates == []
    assert "cannot be used; it is tried again" in caplog.text
    played.relay.listen()
    assert played.written("messages") == ["m1"]


def test_what_is_old_is_forgotten_but_not_what_the_job_has_not_seen(played):
    played.start(seconds=-1.0)
    played.step(subscribe("nearest", "boolean"), Publish([message(i) for i in range(10)]))
    played.do(Publish([message(11)]))
    played.relay.save()
    assert played.relay.reader.message("m1") is None and played.relay.reader.message("m11") is not None
    assert played.relay.view.results("ann/boolean") == []
    assert played.relay.view.results("ann/nearest") == played.engine.results("ann/nearest")
    played.start(seconds=-1.0)
    assert played.do(Publish([message(12)]))[0]["seq"] == 12
    played.relay.listen()
    assert played.written("messages")[-2:] == ["m11", "m12"]


def test_a_page_is_offered_the_words_and_people_of_the_job(played):
    counted = {"documents": 90, "frequencies": {"tea": 3, "coffee": 7, "24": 9, "and": 80}}
    (played.folder / "words.json").write_text(json.dumps(counted))
    said = ServiceConfig.of_job(played.folder / "job.toml").described()
    assert (said["words"], said["people"]) == (["coffee", "tea"], ["ann", "bob"])
    assert (said["window_count"], said["partitioner"]) == (5, "hash")


def test_shards_report_how_they_fare(played):
    reports = played.folder / "checkpoint" / "state" / "some-query" / "reports"
    reports.mkdir(parents=True)
    played.do(Publish([message(i) for i in range(7)]))
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
        played.relay.listen()
    assert b"nearcast_job_behind 3.0" in played.relay._meters.text(None), "of seven"
    stats = played.relay.view.stats()
    assert (stats.shards, stats.subscriptions) == ((1, 11), 12)
    assert (stats.visited, stats.candidates, stats.verified) == (20, 12, 8)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({"format_": "parquet"}, r"format must be json for a job that others .*; got 'parquet' \(\[messages\]"),
        ({"partitioner": "magic"}, "partitioner must be one of"),
    ],
)
def test_a_job_that_cannot_be_worked_with_is_refused(tmp_path, made, words):
    with pytest.raises(InvalidInput, match=words):
        DataFolder(tmp_path / "data", ServiceConfig.of_job(write_job(tmp_path, **made)))
    assert not (tmp_path / "data").exists()
