"""With a wall clock a quiet stream expires, wrong clocks are rejected, and a replay gives the same updates."""

import json
import random
import shutil
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from websockets.asyncio.client import connect

import nearcast as nc
from nearcast.engine.clock import Clock
from nearcast.engine.clocked_engine import ClockedEngine
from nearcast.errors import InvalidInput
from nearcast.service.api.metrics import Metrics
from nearcast.service.backends.engine_backend import EngineBackend, EngineTarget
from nearcast.service.commands import Advance, Publish, Subscribe, Unsubscribe, canonical_order
from nearcast.service.config import ServiceConfig
from nearcast.service.json_bodies import subscription_from
from nearcast.service.store import durable_store
from nearcast.service.store.cursor import START, Cursor
from nearcast.service.store.data_folder import DataFolder
from nearcast.service.store.durable_store import CommandRequest, DurableStore, ReadRequest
from nearcast.service.store.limits import ServiceLimits
from service.running_service import SUBSCRIPTIONS, in_process, on_network
from service.simulated_host import DAY, START_S, SimulatedHost
from service.webhook_receiver import run_receiver

CONFIG = ServiceConfig(bounds=(0, 0, 1, 1), window_seconds=60)
EVENT = ServiceConfig(bounds=(0, 0, 1, 1), window_seconds=60, clock="event")
END = Cursor(1 << 40, 0)


def message(number, **fields):
    return {"id": f"m{number}", "location": [0.2, 0.3], "text": "coffee", **fields}


def topk(id_="t1", k=2):
    return {"id": id_, "kind": "topk", "location": [0.2, 0.3], "keywords": "coffee", "k": k, "alpha": 0.5}


class Service:
    """A durable store on a simulated host, which is stopped, killed and started again."""

    def __init__(self, folder, config=CONFIG, *, host=None, **limits):
        self._folder, self._config, self._limits = folder, config, limits
        self.host = host or SimulatedHost()
        self.pushed = []
        self.start()

    def start(self):
        folder = DataFolder(self._folder, self._config)
        self.store = DurableStore(
            folder, EngineBackend(folder), metrics=Metrics(), limits=ServiceLimits(**self._limits),
            clock=self.host.clock(),
        )  # fmt: skip
        self.store.recover()
        self.store.finish(self._deliver)

    def stop(self):
        self.store.save()
        self.store.close()

    def kill(self):
        self.store.close()

    def _deliver(self, result):
        self.pushed += [json.loads(update.json) for update in result.updates]
        self.answers = result.answers

    def execute(self, *commands):
        self.store.execute([CommandRequest.of(one, subscriber="ann") for one in commands], self._deliver)
        return self.answers

    def publish(self, *messages):
        (answer,) = self.execute(Publish(list(messages)))
        return answer

    def idle(self, seconds):
        """Let time pass as the command loop does: it wakes up when the store says so."""
        left = seconds
        while (wait := self.store.idle_s) is not None and wait <= left:
            self.host.sleep(wait)
            left -= wait
            self.store.advance(self._deliver)
        self.host.sleep(left)

    def take_pushed(self):
        pushed, self.pushed = self.pushed, []
        return [(update["change"], update["message"]) for update in pushed]

    def read(self, query):
        self.store.execute([ReadRequest(query)], self._deliver)
        return self.answers[0]

    def results(self, id_="ann/t1"):
        return self.read(lambda view: [one.message for one in view.results(id_)])

    def commands(self):
        rows = self.store._journal._db.execute("SELECT name FROM commands ORDER BY number")
        return [name for (name,) in rows]

    def updates(self):
        found = self.store.reader.updates("ann", after=START, up_to=END, limit=10_000)
        return [json.loads(update.json) for update in found]


@pytest.fixture
def service(tmp_path):
    made = Service(tmp_path)
    yield made
    made.kill()


def test_a_quiet_stream_expires_and_its_leaves_carry_the_last_seq_and_the_time(service):
    service.execute(Subscribe("ann", [topk(k=3)]))
    for number in range(3):
        service.publish(message(number))
        service.idle(10)
    assert service.take_pushed() == [("enter", "m0"), ("enter", "m1"), ("enter", "m2")]
    service.idle(32)
    leaves = service.updates()[3:]
    assert [(one["change"], one["message"], one["seq"]) for one in leaves] == [("leave", "m0", 3)]
    assert START_S + 60 <= leaves[0]["at"] <= START_S + 62
    service.idle(20)
    assert service.results() == []
    leaves = service.updates()[3:]
    assert [(one["message"], one["seq"]) for one in leaves] == [("m0", 3), ("m1", 3), ("m2", 3)]
    assert all(START_S + 60 + 10 * n <= one["at"] <= START_S + 62 + 10 * n for n, one in enumerate(leaves))
    assert [one["cursor"] for one in leaves] == ["5.1", "6.1", "7.1"]
    assert service.take_pushed() == [("leave", f"m{number}") for number in range(3)]


def test_the_journal_does_not_grow_while_nothing_happens(service):
    service.execute(Subscribe("ann", [topk()]))
    service.publish(message(1))
    before = service.commands()
    service.idle(58)
    assert service.commands() == before
    service.idle(4)
    assert service.commands() == [*before, "advance"]
    assert service.store.idle_s is None, "an empty window needs no clock"
    service.idle(DAY)
    assert service.commands() == [*before, "advance"]


def test_commands_of_a_second_are_written_with_one_time(service):
    service.execute(Subscribe("ann", [topk()]))
    for number in range(5):
        service.publish(message(number))
        service.host.sleep(0.4)
    assert service.commands() == ["subscribe", *["publish"] * 5], "no rows for the time alone"
    times = [at - START_S for _, at, _ in service.store._journal.commands(after=0)]
    assert times == pytest.approx([0, 0, 0, 0, 1.2, 1.2], abs=1e-6)


def test_a_rejected_or_a_read_request_writes_nothing(service):
    service.host.sleep(5)
    assert isinstance(service.publish(message(1, at=START_S + DAY)), InvalidInput)
    assert service.read(lambda view: view.stats()).messages == 0
    assert service.commands() == []


STEPS = [
    lambda s: s.execute(Subscribe("ann", [topk(k=1), topk("t2", k=3)])),
    lambda s: s.publish(message(1), message(2, at=START_S - 55)),
    lambda s: s.idle(3),
    lambda s: s.publish(message(3, at=START_S + 290)),
    lambda s: s.idle(4.5),
    lambda s: s.execute(Subscribe("ann", [topk("t3", k=5)])),
    lambda s: s.publish(message(4, at=START_S - 53), message(5, at=START_S - 52), message(6)),
    lambda s: s.idle(0.5),
    lambda s: s.execute(Unsubscribe("ann", ["t2"]), Publish([message(7, at=START_S - 51.5)])),
    lambda s: s.idle(56),
    lambda s: s.execute(Subscribe("ann", [topk("t4", k=5)])),
    lambda s: s.idle(8.5),
    lambda s: s.publish(message(8)),
    lambda s: s.idle(70),
]


@pytest.mark.parametrize("end", [Service.stop, Service.kill])
def test_a_restart_in_the_middle_changes_nothing(tmp_path, end):
    """Stopped or killed after each step, updates, answers and results equal those of a service that never stops."""
    one, other = Service(tmp_path / "one"), Service(tmp_path / "other")
    for number, step in enumerate(STEPS):
        expected, found = step(one), step(other)
        if expected is not None:
            assert _without_number(found) == _without_number(expected)
        if number % 2:
            end(other)
            other.start()
        assert {id_: other.results(f"ann/{id_}") for id_ in ("t1", "t3") if number >= 6} == {
            id_: one.results(f"ann/{id_}") for id_ in ("t1", "t3") if number >= 6
        }
    expected, found = one.updates(), other.updates()
    assert [{**_without_number(update), "at": None} for update in found] == [
        {**_without_number(update), "at": None} for update in expected
    ]
    assert all(abs(a["at"] - b["at"]) <= 1 for a, b in zip(expected, found, strict=True)), (
        "the start of a second moves"
    )
    assert len(expected) > 15 and one.store.view.stats().late == other.store.view.stats().late > 0
    one.kill(), other.kill()


def _without_number(answer):
    """Leave out command numbers: what leaves in one second may leave in two."""
    if isinstance(answer, list):
        return [_without_number(one) for one in answer]
    return {name: value for name, value in answer.items() if name not in ("command", "cursor")}


def test_a_replay_from_the_start_gives_the_same_updates_and_results(tmp_path):
    service = Service(tmp_path / "data")
    for number, step in enumerate(STEPS):
        step(service)
        if number == 6:
            service.stop()
            service.start()
    assert_replayed(service)
    assert any(isinstance(one.command, Advance) for one in service.store._journal.commands(after=0))
    bodies = service.updates()
    service.stop()
    shutil.rmtree(tmp_path / "data" / "snapshots")
    service.start()
    assert service.updates() == bodies and service.store.view.stats().messages == 8
    service.kill()


@pytest.mark.parametrize("seed", range(8))
def test_random_histories_with_restarts_replay_to_the_same_updates_and_results(tmp_path, seed):
    """The window holds what is younger than a minute by the clock, but for a second; a replay needs no clock."""
    chance, number = random.Random(seed), 0
    service = Service(tmp_path, max_commit_updates=chance.choice([5, 100_000]))
    ids = [f"t{n}" for n in range(4)]
    service.execute(Subscribe("ann", [topk(id_, k=chance.randint(1, 4)) for id_ in ids]))
    times = {}
    for _ in range(60):
        step = chance.choice(
            ["publish", "publish", "publish", "idle", "idle", "subscribe", "stop", "kill", "set", "fail"]
        )
        now = service.store._clock.now()
        if step == "publish":
            ats = [now + chance.uniform(-70, 20) for _ in range(chance.randint(1, 4))]
            ats += [now + chance.uniform(20, 299)] * chance.randint(0, 1)
            bodies = [message(number + i, at=at) for i, at in enumerate(ats)]
            number += len(ats)
            times |= {body["id"]: body["at"] for body in bodies}
            assert service.publish(*bodies)["messages"] == len(ats)
        elif step == "idle":
            service.idle(chance.choice([0.3, 1.0, 7.7, 40.0]))
        elif step == "subscribe":
            service.execute(Subscribe("ann", [topk(chance.choice(ids), k=chance.randint(1, 4))]))
        elif step == "set":
            service.host.set_clock(chance.uniform(-DAY, DAY))
        elif step == "fail":
            service.store.recover()  # as after a write that failed
        else:
            {"stop": service.stop, "kill": service.kill}[step]()
            service.host.sleep(chance.choice([0.0, 0.5, 30.0]))
            service.host.wall_s = max(service.host.wall_s, now) if chance.random() < 0.5 else service.host.wall_s
            service.start()
        held, now = set(service.results("ann/t0")), service.store._clock.now()
        assert all(times[id_] > now - 61 for id_ in held)
    assert_replayed(service)
    service.kill()


def assert_replayed(service):
    """Check that the journal alone gives the same updates and results."""
    engine = CONFIG.engine()
    target = EngineTarget(engine)
    recorded = list(service.store._journal.commands(after=0))
    replayed = [update for _, at, command in recorded for update in canonical_order(command.replay(target, at=at))]
    fields = ("seq", "at", "message", "change", "score")
    assert [tuple(getattr(update, name) for name in fields) for update in replayed] == [
        tuple(body[name] for name in fields) for body in service.updates()
    ]
    view = service.store.view
    for subscription in engine.subscriptions():
        assert engine.results(subscription.id) == view.results(subscription.id)
    assert engine.stats().late == view.stats().late


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_expired_unnoticed_before_a_snapshot_stays_expired_without_it(service, is_restarted):
    service.publish(message(1))
    service.host.sleep(61)
    assert service.read(lambda view: view.stats().window) == 0
    service.store.save()
    if is_restarted:
        service.kill()
        service.start()
    else:
        service.store.recover()
    (answer,) = service.execute(Subscribe("ann", [topk()]))
    assert answer["updates"] == 0
    assert_replayed(service)


def test_a_window_that_passed_while_the_service_was_stopped_expires_at_the_start(service):
    service.execute(Subscribe("ann", [topk()]))
    service.publish(message(1))
    service.stop()
    service.host.sleep(100)
    service.start()
    assert service.store.idle_s == 0, "it does not wait for a request"
    service.take_pushed()
    service.idle(0)
    assert service.take_pushed() == [("leave", "m1")]


def test_after_a_long_pause_a_large_window_expires_in_several_commits(tmp_path):
    service = Service(tmp_path, max_commit_updates=20)
    service.execute(Subscribe("ann", [topk(f"t{n}", k=10) for n in range(20)]))
    for number in range(10):
        service.publish(message(number))
        service.idle(5)
    sizes = []
    service.stop()
    service.host.sleep(1_000)
    service.start()
    service.store.advance(lambda result: sizes.append(len(result.updates)))
    assert service.results("ann/t0") == [] and sizes == [20] * 10
    service.kill()


@pytest.mark.parametrize("jump", [DAY, -DAY])
def test_a_jump_of_the_hosts_clock_neither_empties_windows_nor_prunes(tmp_path, jump):
    service = Service(tmp_path, max_age_s=3600.0)
    service.execute(Subscribe("ann", [topk()]))
    service.publish(message(1))
    service.idle(5)
    service.host.set_clock(jump)
    service.publish(message(2))
    service.idle(10)
    service.store.save()
    service.publish(message(3, at=START_S + 16))
    service.store.save()
    assert service.results() == ["m3", "m2"]
    assert service.store.reader.message("m2")["at"] == pytest.approx(START_S + 5)
    assert service.take_pushed() == [("enter", "m1"), ("enter", "m2"), ("leave", "m1"), ("enter", "m3")]
    assert service.store.reader.pruned() == 0 and len(service.updates()) == 4
    service.idle(62)
    assert service.results() == []
    service.kill()


def test_a_clock_that_was_set_back_between_two_runs_continues_from_the_last_recorded_time(service):
    service.execute(Subscribe("ann", [topk()]))
    service.publish(message(1))
    service.idle(30)
    service.publish(message(2))
    service.stop()
    service.host.set_clock(-DAY)
    service.start()
    service.publish(message(3))
    assert START_S + 30 <= service.store.reader.message("m3")["at"] <= START_S + 31
    service.idle(31)
    assert service.results() == ["m3", "m2"] and ("leave", "m1") in service.take_pushed()
    service.idle(31)
    assert service.results() == []


def test_history_is_pruned_by_the_clock_of_the_service(tmp_path):
    service = Service(tmp_path, max_age_s=3600.0)
    service.execute(Subscribe("ann", [topk()]))
    for number in range(4):
        service.publish(message(number))
        service.store.save()
        service.host.sleep(1_700)
    assert ("m0", "enter") not in [(update["message"], update["change"]) for update in service.updates()]
    assert service.store.reader.pruned() > 0
    service.kill()


@pytest.mark.parametrize(("ahead", "is_accepted"), [(299, True), (300, True), (301, False), (2_300_000_000, False)])
def test_a_message_too_far_ahead_of_the_clock_is_rejected_with_a_reason(service, ahead, is_accepted):
    service.execute(Subscribe("ann", [topk()]))
    service.publish(message(1))
    answer = service.publish(message(2), message(3, at=START_S + ahead))
    if is_accepted:
        assert answer["messages"] == 2 and service.results() == ["m3", "m2"]
        service.idle(59)
        assert len(service.take_pushed()) == 4, "it expired no other message early"
        return
    assert (answer.field, answer.value, answer.subject) == ("at", START_S + ahead, "message 'm3'")
    assert answer.rule == f"must be at most 300 s ahead of the clock of the service, {START_S:.3f}"
    assert service.results() == ["m1"], "all or none"
    assert service.publish(message(4))["seq"] == 2


def test_one_wrong_clock_among_many_requests_rejects_that_request_only(service):
    requests = [Publish([message(1)]), Publish([message(2, at=4_070_908_800.0)]), Publish([message(3)])]
    first, wrong, last = service.execute(*requests)
    assert (first["seq"], last["seq"]) == (1, 2) and isinstance(wrong, InvalidInput)


def test_the_limit_can_be_changed_and_is_not_applied_to_what_was_accepted(tmp_path):
    service = Service(tmp_path, max_ahead_s=1e12)
    assert service.publish(message(1, at=START_S + DAY))["seq"] == 1
    service.kill()
    service = Service(tmp_path, max_ahead_s=5.0, host=service.host)
    assert service.store.view.stats().messages == 1
    assert isinstance(service.publish(message(2, at=START_S + 6)), InvalidInput)
    assert service.publish(message(2, at=START_S + 5))["seq"] == 2
    service.kill()


def test_with_the_event_clock_only_messages_move_the_window(tmp_path):
    service = Service(tmp_path, EVENT)
    service.execute(Subscribe("ann", [topk()]))
    service.publish(message(1, at=1_000.0))
    assert service.store.idle_s is None
    service.idle(DAY)
    service.store.advance(service._deliver)
    assert service.results() == ["m1"] and service.commands() == ["subscribe", "publish"]
    service.publish(message(2, at=4_070_908_800.0))
    assert service.take_pushed() == [("enter", "m1"), ("leave", "m1"), ("enter", "m2")]
    service.kill()


def test_the_clock_is_recorded_with_the_folder_and_wall_by_default(tmp_path):
    assert CONFIG.clock == "wall" and ServiceConfig(bounds=(0, 0, 1, 1), window_count=5).clock == "wall"
    Service(tmp_path).kill()
    with pytest.raises(InvalidInput, match="clock must be 'wall', as the data folder was created with; got 'event'"):
        Service(tmp_path, EVENT)
    with pytest.raises(InvalidInput, match="clock must be one of wall, event; got 'sun'"):
        ServiceConfig(bounds=(0, 0, 1, 1), clock="sun")
    folder = DataFolder(tmp_path, None)
    recorded = folder.config.to_json()
    folder.close()
    assert recorded.pop("clock") == "wall"
    earlier = ServiceConfig.from_json(recorded)
    assert earlier.clock == "event", "before there was a choice, messages moved the window"
    EVENT.check_same(recorded)


def test_with_a_full_disk_the_clock_waits(service, monkeypatch):
    service.execute(Subscribe("ann", [topk()]))
    service.publish(message(1))
    with monkeypatch.context() as full:
        full.setattr(durable_store, "free_bytes", lambda folder: 0)
        service.idle(100)
        assert service.commands()[-1] == "publish" and 0 < service.store.idle_s <= 1
    service.idle(2)
    assert service.take_pushed() == [("enter", "m1"), ("leave", "m1")]


class RunningClock(Clock):
    """A clock by which a long time passes between any two looks, once it is started."""

    is_started = False

    def now(self):
        if self.is_started:
            self._origin += 100.0
        return super().now()


@asynccontextmanager
async def websocket(client, parameters=""):
    address = str(client.base_url).replace("http://", "ws://")
    async with connect(f"{address}/v1/updates{parameters}") as socket:
        assert json.loads(await socket.recv())["type"] == "ready"
        yield socket


async def test_leaves_of_a_quiet_stream_are_pushed_without_any_request(tmp_path):
    """Over the WebSocket, as events and to webhooks."""
    clock = RunningClock()
    async with (
        run_receiver() as receiver,
        on_network(tmp_path, CONFIG, clock=clock) as client,
        websocket(client) as socket,
    ):
        await client.put("/v1/webhooks/w1", json={"url": receiver.url})
        await client.put("/v1/subscriptions/t1", json={name: topk()[name] for name in topk() if name != "id"})
        await client.post("/v1/messages", json=[message(1), message(2)])
        entered = [json.loads(await socket.recv()) for _ in range(2)]
        assert [(one["change"], one["message"]) for one in entered] == [("enter", "m1"), ("enter", "m2")]
        (delivery,) = await receiver.take()
        clock.is_started = True
        left = [json.loads(await socket.recv()) for _ in range(2)]
        expected = [("leave", "m1", 2), ("leave", "m2", 2)]
        assert [(one["change"], one["message"], one["seq"]) for one in left] == expected
        assert await events_after(client, entered[1]["cursor"], 2) == [{**one, "type": "update"} for one in left]
        delivered = json.loads(delivery.body)["data"]["updates"]
        while len(delivered) < 4:
            (delivery,) = await receiver.take()
            delivered += json.loads(delivery.body)["data"]["updates"]
        assert [one["cursor"] for one in delivered] == [one["cursor"] for one in entered + left]


async def events_after(client, cursor, n):
    """Return the next n updates after a cursor, as server-sent events have them."""
    events = []
    async with client.stream("GET", "/v1/updates/events", params={"after": cursor}) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: ") and "change" in line:
                events.append({"type": "update", **json.loads(line.removeprefix("data: "))})
            if len(events) == n:
                break
    return events


async def test_requests_with_a_wrong_clock_are_answered_with_field_rule_and_value(tmp_path):
    host = SimulatedHost()
    async with in_process(tmp_path, CONFIG, clock=host.clock()) as client:
        rule = f"must be at most 300 s ahead of the clock of the service, {START_S:.3f}"
        for wrong in (message(2, at="2099-01-01T00:00:00Z"), [message(1), message(2, at=4_070_908_800)]):
            answer = await client.post("/v1/messages", json=wrong)
            assert answer.status_code == 422
            assert answer.json()["errors"] == [{"field": "at", "rule": rule, "value": 4070908800.0}]
            assert answer.json()["detail"].startswith(f"at {rule}; got 4070908800")
        times = [START_S - 1, 4_070_908_800, START_S + 299, START_S + 301, START_S]
        lines = "\n".join(json.dumps(message(n, at=at)) for n, at in enumerate(times))
        counts = (await client.post("/v1/messages/stream", content=lines)).json()
        assert (counts["messages"], counts["rejected"], counts["late"]) == (3, 2, 0)
        assert counts["errors"] == [
            {"line": 2, "field": "at", "rule": rule, "value": 4070908800.0},
            {"line": 4, "field": "at", "rule": rule, "value": START_S + 301},
        ]


@pytest.mark.parametrize("options", [{}, {"workers": 3}, {"workers": 3, "partitioner": "keyword"}])
def test_an_engine_with_a_clock_gives_the_results_of_a_scan(options):
    """Messages ahead of the clock and behind it, in any order; every kind."""
    chance = random.Random(5)
    engines = [
        ClockedEngine(space=CONFIG.space, window=nc.TimeWindow(60), **one) for one in ({"index": "scan"}, options)
    ]
    made = [
        subscription_from({"id": f"{kind}{n}", **body}, "ann")
        for kind, body in SUBSCRIPTIONS.items()
        for n in range(3)
    ]
    now, late, alive, n_updates = START_S, 0, [], 0
    for step in range(40):
        now += chance.choice([0.0, 1.0, 9.0])
        texts = [chance.choice(["coffee sale", "coffee", "tea", "coffee and tea"]) for _ in range(6)]
        ats = [now + chance.choice([-70, -30, 0, 30, 299]) + chance.random() for _ in texts]
        messages = [
            nc.Message(f"m{step}.{n}", (chance.random() / 2, chance.random() / 2), text, at=at)
            for n, (text, at) in enumerate(zip(texts, ats, strict=True))
        ]
        found = []
        for engine in engines:
            updates = engine.subscribe([made[step % len(made)]]) + engine.advance(now) + engine.publish(messages)
            updates = [replace(update, score=round(update.score, 9)) for update in canonical_order(updates)]
            found.append((updates, engine.stats().late, engine.stats().window))
        assert found[0] == found[1]
        late += sum(at <= now - 60 for at in ats)
        alive = [at for at in [*alive, *ats] if at > now - 60]
        assert found[0][1:] == (late, len(alive)), "only the clock moves the window"
        n_updates += len(found[0][0])
    assert late > 20 and n_updates > 300


def test_a_clock_passes_but_cannot_be_set():
    host = SimulatedHost()
    clock = host.clock()
    host.set_clock(-DAY)
    host.sleep(3)
    assert clock.now() == START_S + 3
    clock.resume(START_S)
    assert clock.now() == START_S + 3, "it never goes back"
    clock.resume(START_S + 100)
    host.sleep(1)
    assert clock.now() == START_S + 101
