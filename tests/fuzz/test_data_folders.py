"""Data folders: a damaged journal, snapshot or store of webhooks is refused with `FormatError`, or opened with what it holds."""

import asyncio
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nearcast as nc
from effort import search
from fuzz.test_spark_stages import damaged
from nearcast.service.api.metrics import Metrics
from nearcast.service.command_loop import CommandLoop
from nearcast.service.push.hub import Hub
from nearcast.service.push.webhooks.store import WebhookStore
from nearcast.service.store.data_folder import DataFolder
from nearcast.service.store.journal import Journal
from nearcast.service.store.limits import ServiceLimits
from service.running_service import CONFIG, SUBSCRIPTIONS, in_process, message


@pytest.fixture(scope="module")
def folder(folders):
    """Return the data folder of a service that was killed: SQLite has logs of its last writes."""
    return folders[0]


@pytest.fixture(scope="module")
def stopped(folders):
    """Return the data folder of a service that has stopped: its files are complete without logs."""
    return folders[1]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    live, copy = tmp_path_factory.mktemp("live"), tmp_path_factory.mktemp("data") / "data"

    async def run():
        async with in_process(live, snapshot_every=4) as client:
            for kind, body in SUBSCRIPTIONS.items():
                await client.put(f"/v1/subscriptions/{kind}", json=body)
            for i in range(6):
                await client.post("/v1/messages", json=[message(2 * i), message(2 * i + 1)])
            client.app.state.service.webhooks._start_sender = lambda key: None
            await client.put("/v1/webhooks/w1", json={"url": "http://127.0.0.1:9/"})
            shutil.copytree(live, copy)

    asyncio.run(run())
    return copy, live


def copy_of(folder, tmp_path_factory):
    copy = tmp_path_factory.getbasetemp() / "folder"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    return copy


def recovered(folder):
    """Start a service on a folder; return its state and what it holds, or None if it refused the folder."""

    async def run():
        metrics = Metrics()
        loop = CommandLoop(folder, CONFIG, hub=Hub(metrics, max_queued=10), metrics=metrics, limits=ServiceLimits())
        loop.start()
        try:
            state = await loop.wait_recovered()
            if state != "serving":
                assert loop.state_detail
                return state, None
            stats = await loop.read(lambda view: view.stats())
            return state, (stats.messages, stats.subscriptions)
        finally:
            await loop.stop()

    try:
        return asyncio.run(run())
    except nc.NearcastError as error:
        return "refused", str(error)


def test_a_whole_folder_is_recovered(folder, tmp_path_factory):
    assert recovered(copy_of(folder, tmp_path_factory)) == ("serving", (12, 4))


@search(usual=15, soak=100)
@given(data=st.data())
def test_a_torn_log_of_the_last_writes_loses_whole_commands_only(folder, tmp_path_factory, data):
    """What SQLite had not finished writing is left out, from some commit on; never a part of a command."""
    copy = copy_of(folder, tmp_path_factory)
    log = copy / "journal.sqlite-wal"
    whole = log.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    tail = data.draw(st.sampled_from([b"", b"\0" * 5000, b"\xff" * 100]) | st.binary(max_size=50))
    log.write_bytes(whole[:cut] + tail)
    journal = Journal(copy / "journal.sqlite")
    numbers = [number for number, _ in journal._db.execute("SELECT number, name FROM commands ORDER BY number")]
    per_command = journal._db.execute("SELECT command, count(*) FROM messages GROUP BY command").fetchall()
    journal.close()
    assert numbers == list(range(1, len(numbers) + 1))
    assert all(n == 2 for _, n in per_command), "a command has all its messages"


@search(usual=25, soak=100)
@given(data=st.data())
def test_a_damaged_file_is_refused_by_an_error_of_the_project_or_opened(folder, stopped, tmp_path_factory, data):
    copy = copy_of(data.draw(st.sampled_from([folder, stopped])), tmp_path_factory)
    file = data.draw(st.sampled_from(sorted(copy.glob("*.sqlite*"))))
    file.write_bytes(data.draw(damaged(file.read_bytes()) | st.binary(max_size=200)))
    for make in (lambda: DataFolder(copy, CONFIG), lambda: WebhookStore(copy / "webhooks.sqlite")):
        try:
            opened = make()
        except nc.NearcastError as error:
            assert len(str(error)) < 2_000
        else:
            opened.close()


@search(usual=6, soak=100)
@given(data=st.data())
def test_a_damaged_snapshot_is_replaced_by_the_journal(folder, tmp_path_factory, data):
    copy = copy_of(folder, tmp_path_factory)
    files = sorted((copy / "snapshots").rglob("*.*"))
    file = data.draw(st.sampled_from(files))
    file.write_bytes(data.draw(damaged(file.read_bytes())))
    assert recovered(copy) == ("serving", (12, 4))
