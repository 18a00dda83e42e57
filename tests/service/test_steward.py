"""Is what was answered still there, whatever happens?"""

import asyncio
import json
import sqlite3
from contextlib import asynccontextmanager

import pytest

import nearcast as nc
from nearcast.errors import InvalidInput, StateError, UnknownSubscription
from nearcast.service.command_loop import CommandLoop
from nearcast.service.commands import Publish, Subscribe, Unsubscribe, in_order
from nearcast.service.config import ServiceConfig
from nearcast.service.durable_store import RetentionConfig
from nearcast.service.hub import Hub
from nearcast.service.journal import Cursor
from nearcast.service.meters import Meters
from nearcast.service.problem import Problem

WORLD = ServiceConfig(bounds=(0, 0, 1, 1), window_count=5)
END = Cursor(1 << 40, 0)


def message(number, text="coffee sale", at=(0.2, 0.3)):
    return {"id": f"m{number}", "location": list(at), "text": text}


def topk(id_="t1", k=2):
    return {"id": id_, "kind": "topk", "location": [0.2, 0.3], "keywords": "coffee", "k": k, "alpha": 0.5}


def boolean(id_="b1"):
    return {"id": id_, "kind": "boolean", "region": [0, 0, 0.5, 0.5], "keywords": "coffee AND sale"}


@asynccontextmanager
async def running(folder, world=WORLD, **retention):
    meters = Meters()
    command_loop = CommandLoop(
        folder, world, hub=Hub(meters, most=100), meters=meters, retention=RetentionConfig(**retention)
    )
    command_loop.start()
    try:
        assert await command_loop.freezing_gc() == "serving"
        yield command_loop
    finally:
        await command_loop.stop()


async def told(command_loop, subscriber="ann"):
    return command_loop.reader.updates(subscriber, after=Cursor(0, 0), upto=END, limit=10_000)


def do(command_loop, *commands):
    return asyncio.gather(*(command_loop.carry_out(c, subscriber="ann") for c in commands), return_exceptions=True)


async def test_commands_are_answered_and_told(tmp_path):
    async with running(tmp_path) as command_loop:
        (subscribed,) = await do(command_loop, Subscribe("ann", [topk(), boolean()]))
        assert subscribed == {"command": 1, "updates": 0, "created": ["t1", "b1"], "replaced": []}
        (published,) = await do(command_loop, Publish([message(1), message(2)]))
        assert published == {"command": 2, "updates": 4, "messages": 2, "seq": 2}
        listed = await told(command_loop)
        assert [str(one.cursor) for one in listed] == ["2.1", "2.2", "2.3", "2.4"]
        assert [one.subscription for one in listed] == ["b1", "t1", "b1", "t1"]
        assert listed[0].json == (
            '{"cursor": "2.1", "seq": 1, "at": null, "subscription": "b1", "message": "m1", "change": "enter", "score": 1.0}'
        )
        assert await told(command_loop, "bob") == []


async def test_what_the_engine_refuses_is_answered_with_its_error_and_not_written(tmp_path):
    async with running(tmp_path) as command_loop:
        bad = await do(
            command_loop,
            Publish([message(1), message(2, at=(3, 3))]),
            Unsubscribe("ann", ["nobody"]),
            Subscribe("ann", [topk(k=0)]),
            Publish([message(3)]),
        )
        assert [type(one) for one in bad] == [InvalidInput, UnknownSubscription, InvalidInput, dict]
        assert bad[3]["command"] == 1 and bad[3]["seq"] == 1, "a batch is all or nothing"


async def test_what_waits_together_is_told_as_if_one_by_one(tmp_path):
    """Also where one of many is wrong, or a key comes twice."""
    steps = [Subscribe("ann", [topk(k=1), boolean()])]
    steps += [Publish([message(n, at=(0.2, 0.3 + n / 1000)), message(100 + n, "sale")]) for n in range(9)]
    steps.insert(4, Publish([message(50, at=(3, 3))]))
    steps.insert(8, Subscribe("ann", [topk("t2", k=3)]))
    for folder, is_together in (("together", True), ("apart", False)):
        async with running(tmp_path / folder) as command_loop:
            keys = [None, "a", "b", None, "c", None, "a2", None, "d", None, "e", "f"]
            orders = [
                command_loop.carry_out(step, subscriber="ann", key=key) for step, key in zip(steps, keys, strict=True)
            ]
            orders += [command_loop.carry_out(steps[1], subscriber="ann", key="a"), do(command_loop, steps[2])]
            if is_together:
                answers = await asyncio.gather(*orders, return_exceptions=True)
            else:
                answers = [(await asyncio.gather(order, return_exceptions=True))[0] for order in orders]
            assert isinstance(answers[4], InvalidInput) and answers[12] == answers[1]
            found = ([str(a) for a in answers], [one.json for one in await told(command_loop)])
        if is_together:
            expected = found
    assert found == expected and len(found[1]) > 15


async def test_a_service_goes_on_from_its_journal_and_its_snapshots(tmp_path):
    """Stopped after each step, also without a snapshot, it tells what one engine tells that never stops."""
    engine, expected = WORLD.engine(), []
    steps = [Subscribe("ann", [topk(), boolean()]), *(Publish([message(n)]) for n in range(12))]
    steps.insert(7, Subscribe("ann", [topk(k=1)]))
    steps.insert(9, Unsubscribe("ann", ["b1"]))
    for number, step in enumerate(steps):
        expected += [(u.seq, u.subscription, u.message, u.change) for u in in_order(step.apply(engine))]
        async with running(tmp_path) as command_loop:
            (answer,) = await do(command_loop, step)
            assert answer["command"] == number + 1
            if number % 3:
                command_loop._store.save = lambda: None  # as if it had been killed
    async with running(tmp_path) as command_loop:
        listed = await told(command_loop)
        bodies = [json.loads(one.body) for one in listed]
        assert [(u["seq"], f"ann/{u['subscription']}", u["message"], u["change"]) for u in bodies] == expected
        assert await command_loop.ask(lambda e: e.results("ann/t1")) == engine.results("ann/t1")
        assert command_loop.reader.subscriptions("ann", after="", limit=9) == [topk(k=1)]


async def test_an_unreadable_snapshot_is_passed_over(tmp_path):
    async with running(tmp_path) as command_loop:
        await do(command_loop, Subscribe("ann", [topk()]), Publish([message(1)]))
    async with running(tmp_path) as command_loop:
        await do(command_loop, Publish([message(2)]))
    newest = max((tmp_path / "snapshots").iterdir())
    (newest / "window.arrow").write_bytes(b"torn")
    async with running(tmp_path) as command_loop:
        assert [r.message for r in await command_loop.ask(lambda e: e.results("ann/t1"))] == ["m2", "m1"]


async def test_a_snapshot_that_is_ahead_of_the_journal_is_not_used(tmp_path):
    """As in a backup that copied the journal first."""
    async with running(tmp_path) as command_loop:
        await do(command_loop, Subscribe("ann", [topk()]), Publish([message(1)]))
    copy = (tmp_path / "journal.sqlite").read_bytes()
    async with running(tmp_path) as command_loop:
        await do(command_loop, Publish([message(2)]))
    (tmp_path / "journal.sqlite").write_bytes(copy)
    async with running(tmp_path) as command_loop:
        assert [r.message for r in await command_loop.ask(lambda e: e.results("ann/t1"))] == ["m1"]


async def test_a_journal_without_its_beginning_needs_a_snapshot(tmp_path):
    async with running(tmp_path, snapshot_every=5, snapshot_share=1.0, updates=5) as command_loop:
        await do(command_loop, Subscribe("ann", [boolean()]))
        for n in range(30):
            await do(command_loop, Publish([message(n)]))
    for path in (tmp_path / "snapshots").iterdir():
        (path / "manifest.json").write_text("{}")
    meters = Meters()
    command_loop = CommandLoop(tmp_path, None, hub=Hub(meters, most=1), meters=meters)
    command_loop.start()
    assert await command_loop.freezing_gc() == "failed"
    with pytest.raises(Problem, match=r"no snapshot from command .* can be read, and the journal begins there"):
        await command_loop.ask(lambda e: e.stats())
    await command_loop.stop()


async def test_when_writing_fails_nothing_has_happened(tmp_path, monkeypatch):
    async with running(tmp_path) as command_loop:
        await do(command_loop, Subscribe("ann", [topk()]), Publish([message(1)]))
        with monkeypatch.context() as broken:

            def full():
                raise sqlite3.OperationalError("database or disk is full")

            broken.setattr(command_loop._store._journal, "commit", full)
            failed = await do(command_loop, Publish([message(2)]), Publish([message(3)]))
        assert [(one.status, one.headers["Retry-After"]) for one in failed] == [(503, "1")] * 2
        assert await command_loop.freezing_gc() == "serving"
        assert [r.message for r in await command_loop.ask(lambda e: e.results("ann/t1"))] == ["m1"]
        (again,) = await do(command_loop, Publish([message(2)]))
        assert (again["command"], again["seq"]) == (3, 2)


async def test_a_snapshot_that_fails_stops_nobody(tmp_path, monkeypatch):
    async with running(tmp_path, snapshot_every=2, snapshot_share=1.0) as command_loop:
        with monkeypatch.context() as broken:

            def full(engine, number):
                raise OSError(28, "No space left on device")

            broken.setattr(command_loop._store._snapshots, "save", full)
            for n in range(5):
                await do(command_loop, Publish([message(n)]))
        assert command_loop._store._snapshots.numbers() == []
        for n in range(5, 9):
            await do(command_loop, Publish([message(n)]))
        (answer,) = await do(command_loop, Publish([message(9)]))
        assert answer["seq"] == 10 and command_loop._store._snapshots.numbers()


async def test_snapshots_take_their_share_of_the_time_and_no_more(tmp_path):
    async with running(tmp_path, snapshot_every=1, snapshot_share=1e-9) as command_loop:
        for number in range(5):
            await do(command_loop, Publish([message(number)]))
        await command_loop.ask(lambda engine: None)
        assert command_loop._store._snapshots.numbers() == [1], "the first, and then a rest"
    async with running(tmp_path) as command_loop:
        assert (await command_loop.ask(lambda engine: engine.stats())).messages == 5


async def test_a_question_that_goes_wrong_harms_nobody(tmp_path):
    async with running(tmp_path) as command_loop:
        asked = [command_loop.ask(lambda e: 1 / 0), command_loop.carry_out(Publish([message(1)]), subscriber="ann")]
        wrong, right = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(wrong, ZeroDivisionError) and right["seq"] == 1


async def test_a_key_is_carried_out_once_also_after_a_restart(tmp_path):
    async with running(tmp_path) as command_loop:
        once = [
            await command_loop.carry_out(Publish([message(1)]), subscriber="ann", key="k1"),
            *await asyncio.gather(
                *(command_loop.carry_out(Publish([message(1)]), subscriber="ann", key="k1") for _ in range(3))
            ),
        ]
        assert once == [once[0]] * 4
        with pytest.raises(Problem, match="Idempotency-Key must not be used again for another request; got 'k1'"):
            await command_loop.carry_out(Publish([message(2)]), subscriber="ann", key="k1")
        other = await command_loop.carry_out(Publish([message(1)]), subscriber="bob", key="k1")
        assert other["seq"] == 2, "keys are each subscriber's own"
    async with running(tmp_path) as command_loop:
        assert await command_loop.carry_out(Publish([message(1)]), subscriber="ann", key="k1") == once[0]
        with pytest.raises(InvalidInput):
            await command_loop.carry_out(Publish([message(3, at=(3, 3))]), subscriber="ann", key="k2")
        fixed = await command_loop.carry_out(Publish([message(3)]), subscriber="ann", key="k2")
        assert fixed["seq"] == 3, "what was refused has not happened"


async def test_more_than_fits_is_refused_and_the_patient_wait(tmp_path):
    async with running(tmp_path, most_waiting=3) as command_loop:
        answers = await do(command_loop, *(Publish([message(n)]) for n in range(5)))
        assert [a.status if isinstance(a, Problem) else "done" for a in answers] == ["done"] * 3 + [429] * 2
        assert answers[-1].headers == {"Retry-After": "1"}
        patient = [command_loop.carry_out(Publish([message(n)]), subscriber="ann", patient=True) for n in range(50)]
        assert sorted(a["seq"] for a in await asyncio.gather(*patient)) == list(range(4, 54))


async def test_old_updates_are_forgotten_but_nothing_that_recovery_needs(tmp_path):
    async with running(tmp_path, snapshot_every=10, snapshot_share=1.0, updates=15) as command_loop:
        await do(command_loop, Subscribe("ann", [boolean()]))
        for n in range(60):
            await do(command_loop, Publish([message(n)]))
        older, newest = command_loop._store._snapshots.numbers()
        assert newest - older == 10
        kept = [one.cursor.command for one in await told(command_loop)]
        assert kept == list(range(kept[0], 62)) and 15 <= len(kept) < 40
        assert kept[0] == command_loop.reader.pruned() + 1 <= older + 1
        assert command_loop.reader.message("m0") is None and command_loop.reader.message("m59") is not None
    async with running(tmp_path) as command_loop:
        (answer,) = await do(command_loop, Publish([message(99)]))
        assert answer == {"command": 62, "updates": 1, "messages": 1, "seq": 61}


async def test_one_folder_has_one_service_and_one_world(tmp_path):
    async with running(tmp_path):
        with pytest.raises(StateError, match="is in use by another service"):
            async with running(tmp_path):
                pass
    with pytest.raises(InvalidInput, match="window_count must be 5, as the data folder was made with; got 7"):
        async with running(tmp_path, ServiceConfig(bounds=(0, 0, 1, 1), window_count=7)):
            pass
    async with running(tmp_path, None) as command_loop:
        assert command_loop.world == WORLD
    with pytest.raises(StateError, match="is new: say which world it is for"):
        async with running(tmp_path / "new", None):
            pass


def test_updates_have_one_order_whoever_found_them():
    ups = [
        nc.Update(s, i, m, c, 0.0)
        for s, i, m, c in [
            (2, "b", "m", "enter"),
            (2, "a", "m", "enter"),
            (2, "a", "n", "leave"),
            (1, "z", "m", "enter"),
        ]
    ]
    assert [(u.seq, u.subscription, u.change) for u in in_order(ups)] == [
        (1, "z", "enter"), (2, "a", "leave"), (2, "a", "enter"), (2, "b", "enter"),
    ]  # fmt: skip
