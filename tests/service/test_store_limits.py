"""A commit holds few updates, requests with more are finished in order, and each subscriber has a quota."""

import asyncio
import json
import math

import pytest

from nearcast.errors import InvalidInput
from nearcast.service.api.metrics import Metrics
from nearcast.service.api.problems import Problem
from nearcast.service.backends.engine_backend import EngineBackend
from nearcast.service.command_loop import CommandLoop
from nearcast.service.commands import Publish, Subscribe, Unsubscribe
from nearcast.service.config import ServiceConfig
from nearcast.service.push.hub import Hub
from nearcast.service.store import durable_store
from nearcast.service.store.cursor import START, Cursor
from nearcast.service.store.data_folder import DataFolder
from nearcast.service.store.durable_store import CommandRequest, DurableStore
from nearcast.service.store.limits import ServiceLimits

CONFIG = ServiceConfig(bounds=(0, 0, 1, 1), window_count=12, clock="event")
END = Cursor(1 << 40, 0)
MOST = 7


def message(number, text="coffee sale"):
    return {"id": f"m{number:03}", "location": [number % 10 / 10, 0.5], "text": text}


def topk(id_, k):
    return {"id": id_, "kind": "topk", "location": [0.2, 0.3], "keywords": "coffee", "k": k, "alpha": 0.5}


def boolean(id_):
    return {"id": id_, "kind": "boolean", "region": [0, 0, 1, 1], "keywords": "coffee AND sale"}


REQUESTS = [
    Subscribe("ann", [boolean("b1"), boolean("b2"), topk("t1", 3)]),
    Publish([message(n, "tea" if n % 5 == 4 else "coffee sale") for n in range(40)]),
    Subscribe("ann", [topk(f"u{i}", 1 + i % 6) for i in range(12)]),
    Subscribe("bob", [topk("wide", 12), topk("x", 2), topk("x", 5), topk("y", 2)]),
    Subscribe("ann", [topk(f"u{i}", 6 - i % 6) for i in range(12)]),
    Publish([message(n) for n in range(40, 47)]),
    Unsubscribe("ann", ["b1"]),
]


class SimulatedCrash(Exception):
    pass


class Store:
    """A durable store that is opened again and again, with a record of its commits."""

    def __init__(self, folder, **limits):
        self._folder, self._limits = folder, limits
        self.commits, self.answers = [], []
        self.n_left = None  # commits before a crash
        self.open()

    def open(self):
        folder = DataFolder(self._folder, CONFIG)
        limits = ServiceLimits(**self._limits)
        self.store = DurableStore(folder, EngineBackend(folder), metrics=Metrics(), limits=limits)
        self.store.recover()
        self.store.finish(self._deliver)

    def reopen(self):
        self.store.close()
        self.open()

    def execute(self, *commands, key=None, subscriber="ann"):
        requests = [CommandRequest.of(command, subscriber=subscriber, key=key) for command in commands]
        self.answers = []
        self.store.execute(requests, self._deliver)
        return self.answers

    def _deliver(self, result):
        self.commits.append(result)
        self.answers += result.answers
        if self.n_left is not None:
            self.n_left -= 1
            if self.n_left < 0:
                self.n_left = None
                raise SimulatedCrash

    def updates(self):
        found = [self.store.reader.updates(name, after=START, up_to=END, limit=10_000) for name in ("ann", "bob")]
        return [(update.key, json.loads(update.body)) for some in found for update in some]


@pytest.fixture
def expected(tmp_path):
    """Return a store that wrote each request in one commit, and its answers."""
    store = Store(tmp_path / "expected", max_commit_updates=1_000_000)
    answers = [store.execute(command)[0] for command in REQUESTS]
    assert len(store.commits) == len(REQUESTS)
    yield store.updates(), answers
    store.store.close()


def same_but_for_the_number(answers):
    return [{name: value for name, value in answer.items() if name != "command"} for answer in answers]


def is_indivisible(result):
    """Return whether a commit holds the updates of one message or one subscription."""
    return sum(command.n_items for command in result.commands if not isinstance(command, Unsubscribe)) == 1


def test_a_commit_holds_few_updates_and_all_come_in_order(tmp_path, expected):
    updates, answers = expected
    store = Store(tmp_path / "data", max_commit_updates=MOST)
    found = [store.execute(command)[0] for command in REQUESTS]
    assert same_but_for_the_number(found) == same_but_for_the_number(answers)
    assert store.updates() == updates
    large = [result for result in store.commits if len(result.updates) > MOST]
    assert large and all(is_indivisible(result) for result in large)
    assert len(store.commits) > 3 * len(REQUESTS)
    store.reopen()
    assert store.updates() == updates and store.store.view.stats().messages == 47
    store.store.close()


def test_requests_of_one_batch_are_divided_as_single_ones_are(tmp_path, expected):
    updates, answers = expected
    store = Store(tmp_path / "data", max_commit_updates=MOST)
    assert same_but_for_the_number(store.execute(*REQUESTS)) == same_but_for_the_number(answers)
    assert store.updates() == updates
    messages = [Publish([message(n) for n in range(start, start + 4)]) for start in range(50, 70, 4)]
    assert [answer["seq"] for answer in store.execute(*messages)] == [51, 55, 59, 63, 67]
    assert all(is_indivisible(result) for result in store.commits if len(result.updates) > MOST)
    store.store.close()


@pytest.mark.parametrize("n", [MOST - 1, MOST, MOST + 1])
def test_the_bound_is_exact(tmp_path, n):
    store = Store(tmp_path, max_commit_updates=MOST)
    store.execute(Subscribe("ann", [boolean("b1")]))
    before = len(store.commits)
    store.execute(Publish([message(i) for i in range(n)]))
    assert [len(result.updates) for result in store.commits[before:]] == ([n] if n <= MOST else [MOST, n - MOST])
    store.store.close()


@pytest.mark.parametrize("n_before", range(6))
def test_a_request_that_a_crash_interrupts_is_finished(tmp_path, expected, n_before):
    updates, answers = expected
    store = Store(tmp_path / "data", max_commit_updates=MOST)
    for i, command in enumerate(REQUESTS):
        store.n_left = n_before
        try:
            store.execute(command, key=f"key {i}")
        except SimulatedCrash:
            store.reopen()
        store.n_left = None
        (answer,) = store.execute(command, key=f"key {i}")  # a client that has no answer asks again
        assert same_but_for_the_number([answer]) == same_but_for_the_number([answers[i]])
    assert store.updates() == updates
    assert store.store.reader.meta("unfinished") is None
    store.store.close()


def test_a_failed_write_in_the_middle_is_repeated(tmp_path, expected, monkeypatch):
    updates, _ = expected
    store = Store(tmp_path / "data", max_commit_updates=MOST)
    append, calls = store.store._journal.append, []

    def failing(*values, **named):
        calls.append(values)
        if len(calls) % 5 == 0:
            raise OSError("no answer from the disk")
        append(*values, **named)

    monkeypatch.setattr(store.store._journal, "append", failing)
    for i, command in enumerate(REQUESTS):
        while not store.answers or store.answers[0].get("request") != i:
            try:
                store.execute(command, key=f"key {i}")
                store.answers[0]["request"] = i
            except OSError:
                recovered = False
                while not recovered:
                    store.store.recover()
                    try:
                        store.store.finish(store._deliver)
                        recovered = True
                    except OSError:
                        continue
    assert store.updates() == updates and len(calls) > 20
    store.store.close()


def test_messages_reach_the_engine_in_calls_whose_updates_fit_into_memory(tmp_path, expected, monkeypatch):
    updates, answers = expected
    monkeypatch.setattr(durable_store, "_MAX_CALL_UPDATES", 40)
    store = Store(tmp_path / "data", max_commit_updates=1_000)
    publish, sizes = EngineBackend.publish, []
    monkeypatch.setattr(
        EngineBackend, "publish", lambda self, messages: sizes.append(len(messages)) or publish(self, messages)
    )
    found = store.execute(*REQUESTS)
    assert same_but_for_the_number(found) == same_but_for_the_number(answers)
    assert store.updates() == updates
    assert max(sizes) == 40 // (2 * 3 + 1) and sum(sizes) == 47
    store.store.close()


@pytest.mark.parametrize(
    "command",
    [
        Publish([*(message(n) for n in range(30)), {"id": "far", "location": [3, 3], "text": "coffee"}]),
        Subscribe("ann", [*(topk(f"v{i}", 3) for i in range(9)), topk("bad", 0)]),
    ],
    ids=["publish", "subscribe"],
)
def test_a_request_that_is_invalid_at_its_end_changes_nothing(tmp_path, monkeypatch, command):
    monkeypatch.setattr(durable_store, "_MAX_CALL_UPDATES", 10)
    store = Store(tmp_path, max_commit_updates=MOST)
    store.execute(REQUESTS[0], Publish([message(1)]))
    before, position = store.updates(), store.store.position
    (answer,) = store.execute(command)
    assert isinstance(answer, InvalidInput)
    assert (store.updates(), store.store.position) == (before, position)
    stats = store.store.view.stats()
    assert (stats.messages, stats.subscriptions) == (1, 3)
    store.store.close()


def test_a_subscriber_has_at_most_so_many_subscriptions(tmp_path):
    store = Store(tmp_path, max_subscriptions=3)
    (answer,) = store.execute(Subscribe("ann", [boolean("a"), boolean("b"), boolean("c")]))
    assert answer["created"] == ["a", "b", "c"]
    for _ in range(2):
        (answer,) = store.execute(Subscribe("ann", [boolean("d")]))
        assert str(answer) == "subscriptions must be at most 3 per subscriber; got 4"
        assert store.execute(Subscribe("ann", [topk("c", 2)]))[0]["replaced"] == ["c"]
        assert store.execute(Subscribe("bob", [boolean("d")]))[0]["updates"] == 0
        store.reopen()
    store.execute(Unsubscribe("ann", ["a"]))
    assert store.execute(Subscribe("ann", [boolean("d"), boolean("d")]))[0]["created"] == ["d"]
    assert isinstance(store.execute(Subscribe("ann", [boolean("e")]))[0], InvalidInput)
    assert store.store.view.stats().subscriptions == 4
    store.store.close()


def test_the_results_of_a_subscriber_hold_at_most_so_many_messages(tmp_path):
    store = Store(tmp_path, max_results=10)
    assert store.execute(Subscribe("ann", [topk("a", 4), topk("b", 6), boolean("c")]))[0]["created"] == [
        "a",
        "b",
        "c",
    ]
    for _ in range(2):
        (answer,) = store.execute(Subscribe("ann", [topk("d", 1)]))
        assert str(answer) == "k must add up to at most 10 over all subscriptions of a subscriber; got 11"
        assert store.execute(Subscribe("ann", [boolean("e")]), Subscribe("bob", [topk("d", 10)]))[0]["command"] > 1
        store.reopen()
    assert store.execute(Subscribe("ann", [topk("b", 3), topk("d", 3)]))[0]["replaced"] == ["b"]
    assert isinstance(store.execute(Subscribe("ann", [topk("d", 4)]))[0], InvalidInput)
    assert store.store.view.stats().kinds["topk"] == 4
    store.store.close()


def test_the_subscriptions_of_a_subscriber_take_at_most_so_many_bytes(tmp_path):
    def polygon(id_, n):
        ring = [[0.5 + 0.4 * math.cos(i * math.tau / n), 0.5 + 0.4 * math.sin(i * math.tau / n)] for i in range(n)]
        return {**boolean(id_), "region": {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}}

    small, large = polygon("a", 4), polygon("a", 300)
    most = 2 * len(json.dumps(large))
    store = Store(tmp_path, max_subscription_bytes=most)
    assert store.execute(Subscribe("ann", [polygon("a", 300), polygon("b", 300)]))[0]["created"] == ["a", "b"]
    for _ in range(2):
        (answer,) = store.execute(Subscribe("ann", [small | {"id": "c"}]))
        rule = f"subscriptions must take at most {most:,} bytes of JSON per subscriber"
        assert str(answer) == f"{rule}; got {most + len(json.dumps(small))}"
        assert store.execute(Subscribe("bob", [large]))[0]["command"] > 1
        store.reopen()
    assert store.execute(Subscribe("ann", [small, small | {"id": "c"}]))[0]["replaced"] == ["a"]
    store.execute(Unsubscribe("ann", ["b"]))
    assert store.execute(Subscribe("ann", [polygon("d", 300)]))[0]["created"] == ["d"]
    store.store.close()


def test_a_subscriber_above_a_quota_may_still_shrink(tmp_path):
    store = Store(tmp_path)
    store.execute(Subscribe("ann", [topk("a", 4), topk("b", 6)]))
    store.store.close()
    store = Store(tmp_path, max_subscriptions=1, max_results=5, max_subscription_bytes=10)
    assert store.execute(Subscribe("ann", [topk("b", 5)]))[0]["replaced"] == ["b"]
    assert store.execute(Unsubscribe("ann", ["a"]))[0]["updates"] == 0
    assert store.execute(Subscribe("ann", [topk("b", 5)]))[0]["replaced"] == ["b"]
    store.store.close()


async def test_requests_of_one_subscriber_leave_room_for_others(tmp_path):
    metrics = Metrics()
    limits = ServiceLimits(max_waiting=5, max_waiting_each=3)
    command_loop = CommandLoop(tmp_path, CONFIG, hub=Hub(metrics, max_queued=100), metrics=metrics, limits=limits)
    command_loop.start()
    try:
        assert await command_loop.wait_recovered() == "serving"

        def publish(subscriber):
            return command_loop.execute(Publish([message(1)]), subscriber=subscriber)

        def read(subscriber):
            return command_loop.read(lambda view: view.stats().messages, subscriber=subscriber)

        calls = [*(publish("ann") for _ in range(3)), read("ann"), *(read("bob") for _ in range(2)), publish("cleo")]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        statuses = [answer.status if isinstance(answer, Problem) else 200 for answer in answers]
        assert statuses == [200, 200, 200, 429, 200, 200, 429]
        assert [answers[3].detail, answers[6].detail] == [
            f"{n} requests are waiting; try again in a moment" for n in (3, 5)
        ]
        assert await read("ann") == 3
    finally:
        await command_loop.stop()
