"""Answered commands survive restarts, crashes, failed writes and unreadable snapshots."""

import asyncio
import json
import sqlite3
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

import nearcast as nc
from nearcast.errors import FormatError, InvalidInput, StateError, UnknownSubscription
from nearcast.service.api.metrics import Metrics
from nearcast.service.api.problems import Problem
from nearcast.service.backends.engine_backend import EngineTarget
from nearcast.service.command_loop import CommandLoop
from nearcast.service.commands import Publish, Subscribe, Unsubscribe, canonical_order
from nearcast.service.config import ServiceConfig
from nearcast.service.push.hub import Hub
from nearcast.service.store import durable_store
from nearcast.service.store.cursor import START, Cursor
from nearcast.service.store.data_folder import DataFolder
from nearcast.service.store.disk import DiskFull
from nearcast.service.store.journal import VERSION, Journal
from nearcast.service.store.limits import ServiceLimits

CONFIG = ServiceConfig(bounds=(0, 0, 1, 1), window_count=5, clock="event")
END = Cursor(1 << 40, 0)


def message(number, text="coffee sale", at=(0.2, 0.3)):
    return {"id": f"m{number}", "location": list(at), "text": text}


def topk(id_="t1", k=2):
    return {"id": id_, "kind": "topk", "location": [0.2, 0.3], "keywords": "coffee", "k": k, "alpha": 0.5}


def boolean(id_="b1"):
    return {"id": id_, "kind": "boolean", "region": [0, 0, 0.5, 0.5], "keywords": "coffee AND sale"}


@asynccontextmanager
async def running(folder, config=CONFIG, **limits):
    metrics = Metrics()
    hub = Hub(metrics, max_queued=100)
    command_loop = CommandLoop(folder, config, hub=hub, metrics=metrics, limits=ServiceLimits(**limits))
    command_loop.start()
    try:
        assert await command_loop.wait_recovered() == "serving"
        yield command_loop
    finally:
        await command_loop.stop()


def journaled_updates(command_loop, subscriber="ann"):
    return command_loop.reader.updates(subscriber, after=START, up_to=END, limit=10_000)


def execute(command_loop, *commands):
    calls = (command_loop.execute(command, subscriber="ann") for command in commands)
    return asyncio.gather(*calls, return_exceptions=True)


async def result_ids(command_loop, subscription="ann/t1"):
    return [result.message for result in await command_loop.read(lambda view: view.results(subscription))]


async def test_commands_are_answered_and_their_updates_journaled(tmp_path):
    async with running(tmp_path) as command_loop:
        (subscribed,) = await execute(command_loop, Subscribe("ann", [topk(), boolean()]))
        assert subscribed == {"command": 1, "updates": 0, "created": ["t1", "b1"], "replaced": [], "hints": {}}
        (published,) = await execute(command_loop, Publish([message(1), message(2)]))
        assert published == {"command": 2, "updates": 4, "messages": 2, "late": 0, "seq": 2}
        updates = journaled_updates(command_loop)
        assert [str(update.cursor) for update in updates] == ["2.1", "2.2", "2.3", "2.4"]
        assert [update.key.id for update in updates] == ["b1", "t1", "b1", "t1"]
        assert updates[0].json == (
            '{"cursor": "2.1", "seq": 1, "at": null, "subscription": "b1", "message": "m1", "change": "enter", "score": 1.0}'
        )
        assert journaled_updates(command_loop, "bob") == []


async def test_rejected_commands_get_the_error_of_the_engine_and_are_not_written(tmp_path):
    async with running(tmp_path) as command_loop:
        answers = await execute(
            command_loop,
            Publish([message(1), message(2, at=(3, 3))]),
            Unsubscribe("ann", ["missing"]),
            Subscribe("ann", [topk(k=0)]),
            Publish([message(3)]),
        )
        assert [type(answer) for answer in answers] == [InvalidInput, UnknownSubscription, InvalidInput, dict]
        assert answers[3]["command"] == 1 and answers[3]["seq"] == 1, "a batch is all or nothing"


async def test_batched_commands_give_the_same_answers_and_updates_as_single_ones(tmp_path):
    """Also if one of many is invalid, or a key comes twice."""
    steps = [Subscribe("ann", [topk(k=1), boolean()])]
    steps += [Publish([message(n, at=(0.2, 0.3 + n / 1000)), message(100 + n, "sale")]) for n in range(9)]
    steps.insert(4, Publish([message(50, at=(3, 3))]))
    steps.insert(8, Subscribe("ann", [topk("t2", k=3)]))
    for folder, is_batched in (("batched", True), ("single", False)):
        async with running(tmp_path / folder) as command_loop:
            keys = [None, "a", "b", None, "c", None, "a2", None, "d", None, "e", "f"]
            requests = [
                command_loop.execute(step, subscriber="ann", key=key) for step, key in zip(steps, keys, strict=True)
            ]
            requests += [command_loop.execute(steps[1], subscriber="ann", key="a"), execute(command_loop, steps[2])]
            if is_batched:
                answers = await asyncio.gather(*requests, return_exceptions=True)
            else:
                answers = [(await asyncio.gather(request, return_exceptions=True))[0] for request in requests]
            assert isinstance(answers[4], InvalidInput) and answers[12] == answers[1]
            found = ([str(a) for a in answers], [update.json for update in journaled_updates(command_loop)])
        if is_batched:
            expected = found
    assert found == expected and len(found[1]) > 15


async def test_a_restart_resumes_from_snapshot_and_journal(tmp_path):
    """Restarted after each step, also without a snapshot, the updates equal those of an engine that never stops."""
    engine, expected = CONFIG.engine(), []
    target = EngineTarget(engine)
    steps = [Subscribe("ann", [topk(), boolean()]), *(Publish([message(n)]) for n in range(12))]
    steps.insert(7, Subscribe("ann", [topk(k=1)]))
    steps.insert(9, Unsubscribe("ann", ["b1"]))
    for number, step in enumerate(steps):
        expected += [(u.seq, u.subscription, u.message, u.change) for u in canonical_order(step.apply(target))]
        async with running(tmp_path) as command_loop:
            (answer,) = await execute(command_loop, step)
            assert answer["command"] == number + 1
            if number % 3:
                command_loop._store.save = lambda: None  # as if it had been killed
    async with running(tmp_path) as command_loop:
        bodies = [json.loads(update.body) for update in journaled_updates(command_loop)]
        assert [(u["seq"], f"ann/{u['subscription']}", u["message"], u["change"]) for u in bodies] == expected
        assert await command_loop.read(lambda view: view.results("ann/t1")) == engine.results("ann/t1")
        assert command_loop.reader.subscriptions("ann", after="", limit=9) == [topk(k=1)]


async def test_an_unreadable_snapshot_is_skipped(tmp_path):
    async with running(tmp_path) as command_loop:
        await execute(command_loop, Subscribe("ann", [topk()]), Publish([message(1)]))
    async with running(tmp_path) as command_loop:
        await execute(command_loop, Publish([message(2)]))
    newest = max((tmp_path / "snapshots").iterdir())
    next(newest.glob("window-*.arrow")).write_bytes(b"torn")
    async with running(tmp_path) as command_loop:
        assert await result_ids(command_loop) == ["m2", "m1"]


async def test_a_snapshot_ahead_of_the_journal_is_not_used(tmp_path):
    """As in a backup that copied the journal first."""
    async with running(tmp_path) as command_loop:
        await execute(command_loop, Subscribe("ann", [topk()]), Publish([message(1)]))
    copy = (tmp_path / "journal.sqlite").read_bytes()
    async with running(tmp_path) as command_loop:
        await execute(command_loop, Publish([message(2)]))
    (tmp_path / "journal.sqlite").write_bytes(copy)
    async with running(tmp_path) as command_loop:
        assert await result_ids(command_loop) == ["m1"]


async def test_a_pruned_journal_needs_a_snapshot(tmp_path):
    async with running(tmp_path, snapshot_every=5, snapshot_share=1.0, max_updates=5) as command_loop:
        await execute(command_loop, Subscribe("ann", [boolean()]))
        for n in range(30):
            await execute(command_loop, Publish([message(n)]))
    for path in (tmp_path / "snapshots").iterdir():
        (path / "manifest.json").write_text("{}")
    metrics = Metrics()
    command_loop = CommandLoop(tmp_path, None, hub=Hub(metrics, max_queued=1), metrics=metrics)
    command_loop.start()
    assert await command_loop.wait_recovered() == "failed"
    with pytest.raises(Problem, match=r"no snapshot from command .* on is readable, and the journal starts there"):
        await command_loop.read(lambda view: view.stats())
    await command_loop.stop()


async def test_a_failed_write_changes_nothing(tmp_path, monkeypatch):
    async with running(tmp_path) as command_loop:
        await execute(command_loop, Subscribe("ann", [topk()]), Publish([message(1)]))
        with monkeypatch.context() as broken:

            def fail():
                raise sqlite3.OperationalError("database or disk is full")

            broken.setattr(command_loop._store._journal, "commit", fail)
            failed = await execute(command_loop, Publish([message(2)]), Publish([message(3)]))
        assert [(answer.status, answer.headers["Retry-After"]) for answer in failed] == [(503, "1")] * 2
        assert await command_loop.wait_recovered() == "serving"
        assert await result_ids(command_loop) == ["m1"]
        (again,) = await execute(command_loop, Publish([message(2)]))
        assert (again["command"], again["seq"]) == (3, 2)


async def test_a_failed_snapshot_does_not_stop_the_service(tmp_path, monkeypatch):
    async with running(tmp_path, snapshot_every=2, snapshot_share=1.0) as command_loop:
        snapshots = command_loop._store._backend._snapshots
        with monkeypatch.context() as broken:

            def fail(engine, number):
                raise OSError(28, "No space left on device")

            broken.setattr(snapshots, "save", fail)
            for n in range(5):
                await execute(command_loop, Publish([message(n)]))
        assert snapshots.numbers() == []
        for n in range(5, 9):
            await execute(command_loop, Publish([message(n)]))
        (answer,) = await execute(command_loop, Publish([message(9)]))
        assert answer["seq"] == 10 and snapshots.numbers()


async def test_snapshots_take_no_more_than_their_share_of_the_time(tmp_path):
    async with running(tmp_path, snapshot_every=1, snapshot_share=1e-9) as command_loop:
        for number in range(5):
            await execute(command_loop, Publish([message(number)]))
        await command_loop.read(lambda view: None)
        assert command_loop._store._backend._snapshots.numbers() == [1], "the first, and then a pause"
    async with running(tmp_path) as command_loop:
        assert (await command_loop.read(lambda view: view.stats())).messages == 5


async def test_a_snapshot_that_fails_in_any_way_leaves_nothing_and_the_service_goes_on(tmp_path, monkeypatch):
    def fail(engine, path):
        path.mkdir()
        (path / "half").write_text("")
        raise ValueError("not an error of the disk")

    options = {"snapshot_every": 10, "snapshot_share": 1.0, "max_updates": 15}
    async with running(tmp_path, **options) as command_loop:
        await execute(command_loop, Subscribe("ann", [boolean()]))
        for n in range(21):
            await execute(command_loop, Publish([message(n)]))
        await command_loop.read(lambda view: None)
        snapshots, pruned = command_loop._store._backend._snapshots, command_loop.reader.pruned()
        good = snapshots.numbers()
        monkeypatch.setattr(nc.Engine, "save", fail)
        for n in range(21, 60):
            (answer,) = await execute(command_loop, Publish([message(n)]))
            assert answer["seq"] == n + 1
        await command_loop.read(lambda view: None)
        assert command_loop.state == "serving" and snapshots.numbers() == good
        assert pruned < command_loop.reader.pruned() == good[0], "the journal is pruned as far as snapshots allow"
    monkeypatch.undo()
    async with running(tmp_path, **options) as command_loop:
        assert (await command_loop.read(lambda view: view.stats())).messages == 60


async def test_a_snapshot_that_was_interrupted_is_removed_and_does_not_count(tmp_path, caplog):
    options = {"snapshot_every": 5, "snapshot_share": 1.0, "max_updates": 1}
    async with running(tmp_path, **options) as command_loop:
        await execute(command_loop, Subscribe("ann", [boolean()]))
        for n in range(12):
            await execute(command_loop, Publish([message(n)]))
    good = sorted(int(path.name) for path in (tmp_path / "snapshots").iterdir())
    half = tmp_path / "snapshots" / f"{good[-1] + 1:012d}"
    half.mkdir()
    (half / "window-01234567.arrow").write_text("half")  # the process was killed
    async with running(tmp_path, **options) as command_loop:
        assert "the process ended while it was saved" in caplog.text
        snapshots = command_loop._store._backend._snapshots
        assert (await command_loop.read(lambda view: (snapshots.numbers(), snapshots.needed))) == (good, good[0])
        assert (await command_loop.read(lambda view: view.stats())).messages == 12


async def test_with_a_full_disk_the_service_only_reads_until_there_is_space(tmp_path, monkeypatch):
    free = {"bytes": 1000}
    monkeypatch.setattr(durable_store, "free_bytes", lambda folder: free["bytes"])
    async with running(tmp_path, min_free_bytes=1000) as command_loop:
        await execute(command_loop, Subscribe("ann", [topk()]), Publish([message(1)]))
        free["bytes"] = 999
        refused, also = await execute(command_loop, Publish([message(2)]), Unsubscribe("ann", ["t1"]))
        assert isinstance(refused, DiskFull) and isinstance(also, DiskFull)
        assert str(refused) == "the disk is full: 999 bytes are free, and the service writes only if 1,000 are"
        assert await result_ids(command_loop) == ["m1"] and command_loop.is_disk_full
        free["bytes"] = 1000
        (answer,) = await execute(command_loop, Publish([message(2)]))
        assert answer["seq"] == 2 and await result_ids(command_loop) == ["m2", "m1"]


async def test_what_pruning_frees_within_the_journal_is_space_to_write(tmp_path, monkeypatch):
    async with running(
        tmp_path, snapshot_every=5, snapshot_share=1.0, max_age_s=-1.0, min_free_bytes=1000
    ) as command_loop:
        for n in range(30):
            await execute(command_loop, Publish([message(n, "x" * 5000)]))
        monkeypatch.setattr(durable_store, "free_bytes", lambda folder: 0)
        (answer,) = await execute(command_loop, Publish([message(30)]))
        assert answer["seq"] == 31


async def test_a_failing_query_does_not_affect_other_requests(tmp_path):
    async with running(tmp_path) as command_loop:
        calls = [
            command_loop.read(lambda view: 1 / 0),
            command_loop.execute(Publish([message(1)]), subscriber="ann"),
        ]
        failed, answer = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(failed, ZeroDivisionError) and answer["seq"] == 1


async def test_a_key_is_executed_once_also_after_a_restart(tmp_path):
    def publish(command_loop, number, *, subscriber="ann", key="k1", **fields):
        return command_loop.execute(Publish([message(number, **fields)]), subscriber=subscriber, key=key)

    async with running(tmp_path) as command_loop:
        first = await publish(command_loop, 1)
        assert await asyncio.gather(*(publish(command_loop, 1) for _ in range(3))) == [first] * 3
        with pytest.raises(
            InvalidInput, match="Idempotency-Key must not be reused for a different request; got 'k1'"
        ):
            await publish(command_loop, 2)
        other = await publish(command_loop, 1, subscriber="bob")
        assert other["seq"] == 2, "each subscriber has keys of its own"
    async with running(tmp_path) as command_loop:
        assert await publish(command_loop, 1) == first
        with pytest.raises(InvalidInput):
            await publish(command_loop, 3, key="k2", at=(3, 3))
        fixed = await publish(command_loop, 3, key="k2")
        assert fixed["seq"] == 3, "a rejected command does not use up its key"


async def test_a_full_queue_rejects_commands_unless_they_wait(tmp_path):
    async with running(tmp_path, max_waiting=3) as command_loop:
        answers = await execute(command_loop, *(Publish([message(n)]) for n in range(5)))
        assert [a.status if isinstance(a, Problem) else "done" for a in answers] == ["done"] * 3 + [429] * 2
        assert answers[-1].headers == {"Retry-After": "1"}
        waiting = [
            command_loop.execute(Publish([message(n)]), subscriber="ann", wait_for_room=True) for n in range(50)
        ]
        assert sorted(a["seq"] for a in await asyncio.gather(*waiting)) == list(range(4, 54))


async def test_pruning_deletes_old_updates_and_nothing_that_recovery_needs(tmp_path):
    async with running(tmp_path, snapshot_every=10, snapshot_share=1.0, max_updates=15) as command_loop:
        await execute(command_loop, Subscribe("ann", [boolean()]))
        for n in range(60):
            await execute(command_loop, Publish([message(n)]))
        older, newest = command_loop._store._backend._snapshots.numbers()
        assert newest - older == 10
        retained = [update.cursor.command for update in journaled_updates(command_loop)]
        assert retained == list(range(retained[0], 62)) and 15 <= len(retained) < 40
        assert retained[0] == command_loop.reader.pruned() + 1 <= older + 1
        assert command_loop.reader.message("m0") is None and command_loop.reader.message("m59") is not None
    async with running(tmp_path) as command_loop:
        (answer,) = await execute(command_loop, Publish([message(99)]))
        assert answer == {"command": 62, "updates": 1, "messages": 1, "late": 0, "seq": 61}


async def test_the_journal_is_bounded_by_bytes_and_retains_what_recovery_needs(tmp_path, caplog):
    """Large commands make snapshots due before their number does."""
    options, sizes = {"max_bytes": 1_000_000, "snapshot_share": 1.0}, []
    async with running(tmp_path, **options) as command_loop:
        await execute(command_loop, Subscribe("ann", [boolean()]))
        for n in range(150):
            await execute(command_loop, Publish([message(n, "coffee sale " * (30 * n))]))  # up to 54 KB
            sizes.append(await command_loop.read(lambda view: command_loop._store._journal.used_bytes()))
        assert max(sizes) <= 1_000_000 + 60_000 and min(sizes[-50:]) >= 500_000, "it is used as far as possible"
        pruned, retained = command_loop.reader.pruned(), journaled_updates(command_loop)
        assert [update.cursor.command for update in retained] == list(range(pruned + 1, 152))
        assert 0 < pruned <= command_loop._store._backend._snapshots.numbers()[0]
    newest = max((tmp_path / "snapshots").iterdir())
    (newest / "manifest.json").write_text("")  # the one before it is enough
    async with running(tmp_path, **options) as command_loop:
        assert (await command_loop.read(lambda view: view.stats())).messages == 150
    assert "no more can be deleted" not in caplog.text


async def test_a_journal_that_cannot_shrink_is_reported_and_loses_nothing(tmp_path, caplog):
    async with running(tmp_path, max_bytes=1, snapshot_share=1.0, snapshot_every=10) as command_loop:
        await execute(command_loop, Subscribe("ann", [boolean(f"s{n}") for n in range(50)]))
        for n in range(5):
            await execute(command_loop, Publish([message(n)]))
        older, _ = await command_loop.read(lambda view: command_loop._store._backend._snapshots.numbers())
        assert "no more can be deleted yet" in caplog.text
        assert command_loop.reader.pruned() <= older
        assert len(command_loop.reader.subscriptions("ann", limit=100)) == 50
    async with running(tmp_path) as command_loop:
        assert (await command_loop.read(lambda view: view.stats())).messages == 5


async def test_a_folder_has_one_service_and_one_configuration(tmp_path):
    async with running(tmp_path):
        with pytest.raises(StateError, match="is in use by another service"):
            async with running(tmp_path):
                pass
    with pytest.raises(InvalidInput, match="window_count must be 5, as the data folder was created with; got 7"):
        async with running(tmp_path, ServiceConfig(bounds=(0, 0, 1, 1), window_count=7)):
            pass
    async with running(tmp_path, None) as command_loop:
        assert replace(command_loop.config, hash_key=None) == CONFIG
    with pytest.raises(StateError, match="is new: it needs a configuration"):
        async with running(tmp_path / "new", None):
            pass


async def test_a_folder_keeps_its_analyzer(tmp_path):
    english = replace(CONFIG, analyzer="english")
    async with running(tmp_path, english) as command_loop:
        assert command_loop.config.describe()["analyzer"] == "english"
        assert command_loop.config.engine()._config.analyzer == "english"
    for other in (CONFIG, replace(CONFIG, analyzer="german")):
        with pytest.raises(
            InvalidInput, match="analyzer must be 'english', as the data folder was created with; got"
        ):
            async with running(tmp_path, other):
                pass
    with pytest.raises(InvalidInput, match="analyzer must be one of"):
        async with running(tmp_path / "new", replace(CONFIG, analyzer="klingon")):
            pass
    assert not (tmp_path / "new").exists()


def test_a_folder_without_a_recorded_analyzer_has_the_one_that_there_was():
    recorded = CONFIG.to_json()
    del recorded["analyzer"]
    assert ServiceConfig.from_json(recorded) == CONFIG
    CONFIG.check_same(recorded)


async def test_every_data_folder_keeps_a_hash_key_of_its_own(tmp_path):
    keys = []
    for name in ("a", "a", "b"):
        async with running(tmp_path / name) as command_loop:
            hash_key = command_loop.config.hash_key
            assert command_loop.config.engine()._config.hash_key.hex() == hash_key
            assert hash_key not in json.dumps(command_loop.config.describe()) + repr(command_loop.config)
            keys.append(hash_key)
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_a_journal_of_another_version_is_refused_and_unchanged(tmp_path, version):
    file = tmp_path / "journal.sqlite"
    Journal(file).close()
    with sqlite3.connect(file) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    before = file.read_bytes()
    with pytest.raises(FormatError, match=f"must be a journal of version {VERSION}; got version {version}"):
        Journal(file)
    assert file.read_bytes() == before


def test_updates_have_one_canonical_order():
    updates = [
        nc.Update(s, i, m, c, 0.0)
        for s, i, m, c in [
            (2, "b", "m", "enter"),
            (2, "a", "m", "enter"),
            (2, "a", "n", "leave"),
            (1, "z", "m", "enter"),
        ]
    ]
    assert [(u.seq, u.subscription, u.change) for u in canonical_order(updates)] == [
        (1, "z", "enter"), (2, "a", "leave"), (2, "a", "enter"), (2, "b", "enter"),
    ]  # fmt: skip


def damage_header(data):
    return b"not a file of SQLite" + data[20:]


def damage_schema(data):
    return data.replace(b"CREATE TABLE meta", b"CREATE TABEL meta")


def damage_words(data):
    """SQLite quotes them in its error."""
    return data.replace(b"CREATE TABLE meta", b"CREATE \xc5\xc5BLE meta")


def damage_version(data):
    """SQLite reads such a file and does not write it."""
    return data[:18] + b"\3" + data[19:]


@pytest.mark.parametrize("damage", [damage_header, damage_schema, damage_words, damage_version])
def test_a_damaged_journal_is_refused_and_can_be_replaced(tmp_path, damage):
    """The lock is released, so that a backup can be restored without a restart of the process."""
    DataFolder(tmp_path, CONFIG).close()
    file = tmp_path / "journal.sqlite"
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    with pytest.raises(FormatError, match=r"journal\.sqlite is damaged"):
        DataFolder(tmp_path, CONFIG)
    file.write_bytes(whole)
    DataFolder(tmp_path, None).close()
