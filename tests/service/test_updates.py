"""Clients receive every update once and in order, across disconnects, lag and restarts."""

import asyncio
import json
import socket as socketlib
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from service.running_service import SUBSCRIPTIONS, message, on_network


def open_socket(client, **query):
    url = client.base_url.copy_with(scheme="ws", path="/v1/updates").copy_merge_params(query)
    return connect(str(url), compression=None, max_queue=None)


async def receive_ready(socket):
    first = json.loads(await socket.recv())
    assert first["type"] == "ready"
    return first["cursor"]


async def receive(socket, n):
    updates = [json.loads(await socket.recv()) for _ in range(n)]
    assert {update.pop("type") for update in updates} <= {"update"}
    return updates


async def subscribe(client, *kinds):
    for kind in kinds or SUBSCRIPTIONS:
        assert (await client.put(f"/v1/subscriptions/{kind}", json=SUBSCRIPTIONS[kind])).status_code == 201


async def publish(client, numbers):
    answer = await client.post("/v1/messages", json=[message(n) for n in numbers])
    return answer.json()["updates"]


async def test_updates_are_pushed_live_and_replayed_from_a_cursor(tmp_path):
    async with on_network(tmp_path) as client:
        await subscribe(client)
        async with open_socket(client) as socket:
            start = await receive_ready(socket)
            live = await receive(socket, await publish(client, range(6)))
        assert [one["message"] for one in live if one["subscription"] == "boolean"] == [f"m{n}" for n in range(6)]
        cursors = [one["cursor"] for one in live]
        assert len(set(cursors)) == len(cursors) and [int(c.split(".")[1]) for c in cursors] == list(
            range(1, len(live) + 1)
        )
        for ordinal, cursor in enumerate([start, *cursors]):
            async with open_socket(client, after=cursor) as socket:
                assert await receive_ready(socket) == cursor
                assert await receive(socket, len(live) - ordinal) == live[ordinal:]


async def test_listening_to_an_unknown_subscription_says_so(tmp_path):
    async with on_network(tmp_path) as client:
        await subscribe(client, "boolean")
        named = {"subscription": ["boolean", "nothing"]}
        async with open_socket(client, **named) as socket:
            assert json.loads(await socket.recv())["unknown"] == ["nothing"]
        async with open_events(client, params=named) as stream:
            assert json.loads((await anext(stream))["data"])["unknown"] == ["nothing"]
        async with open_socket(client, subscription="boolean") as socket:
            assert "unknown" not in json.loads(await socket.recv())


async def test_updates_can_be_restricted_to_subscriptions(tmp_path):
    async with on_network(tmp_path) as client:
        await subscribe(client)
        async with open_socket(client, subscription=["boolean", "nearest"], after="0.0") as socket:
            await receive_ready(socket)
            await publish(client, [1])
            await publish(client, [2])
            updates = await receive(socket, 4)
        assert [update["subscription"] for update in updates] == ["boolean", "nearest"] * 2


async def test_there_is_no_gap_between_journal_and_live_updates(tmp_path):
    """Clients connect, lag, disconnect and return while messages are published."""
    async with on_network(tmp_path, max_queued=10_000) as client:
        await subscribe(client, "boolean", "topk")
        total = 0

        async def follow(at_a_time):
            updates, cursor = [], "0.0"
            while len(updates) < at_a_time * 8:
                async with open_socket(client, after=cursor) as socket:
                    assert await receive_ready(socket) == cursor
                    updates += await receive(socket, at_a_time)
                    cursor = updates[-1]["cursor"]
            return updates

        async def publish_all():
            nonlocal total
            for n in range(100):
                total += await publish(client, [2 * n, 2 * n + 1])

        *followed, _ = await asyncio.gather(*(follow(n) for n in (3, 17, 60)), publish_all())
        async with open_socket(client, after="0.0") as socket:
            await receive_ready(socket)
            expected = await receive(socket, total)
    for updates in followed:
        assert updates == expected[: len(updates)]


N_LONG = 1000


async def test_a_lagging_client_is_closed_and_delays_no_other(tmp_path):
    """A client that reads nothing fills the buffers of the network and then its queue, and is closed."""
    async with on_network(tmp_path, max_queued=2 * N_LONG, max_body_bytes=10_000_000) as client:
        await subscribe(client, "boolean")
        async with open_socket(client) as slow, open_socket(client) as quick:
            await receive_ready(slow)
            await receive_ready(quick)
            slow.transport.pause_reading()
            n_received = rounds = 0
            while "nearcast_lagged_clients_total 1.0" not in (await client.get("/metrics")).text:
                assert (rounds := rounds + 1) < 100
                await publish_long_ids(client)
                n_received += len(await receive(quick, N_LONG))
            assert n_received == rounds * N_LONG, "other clients receive everything"
            slow.transport.resume_reading()
            last = None
            with pytest.raises(ConnectionClosed) as closed:
                while True:
                    last = json.loads(await slow.recv())["cursor"]
            assert closed.value.rcvd.code == 1013 and "lagged" in closed.value.rcvd.reason
            async with open_socket(client, after=last) as again:
                assert await receive_ready(again) == last
                following = json.loads(await again.recv())["cursor"]
            command, place = map(int, last.split("."))
            assert following in (f"{command}.{place + 1}", f"{command + 1}.1"), "it resumes at its cursor"


@pytest.mark.skipif(
    not hasattr(socketlib, "TCP_USER_TIMEOUT"), reason="the system has no timeout for stalled clients"
)
@pytest.mark.parametrize("path", ["/v1/updates/events", "/v1/feed"])
async def test_a_client_that_reads_nothing_is_disconnected(tmp_path, path):
    """It never reads and never disconnects; afterwards all its resources are released."""
    async with on_network(tmp_path, stalled_s=0.2, max_queued=50, max_body_bytes=10_000_000) as client:
        await subscribe(client, "boolean")
        with socketlib.socket() as stalled:
            stalled.setsockopt(socketlib.SOL_SOCKET, socketlib.SO_RCVBUF, 4096)
            stalled.connect((client.base_url.host, client.base_url.port))
            stalled.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            service = client.service
            while not (service.feed.viewers or has_event_client(await client.get("/metrics"))):
                pass
            rounds = 0
            while service.feed.viewers or has_event_client(await client.get("/metrics")):
                assert (rounds := rounds + 1) < 1000
                await publish_long_ids(client)


async def publish_long_ids(client):
    """Publish messages whose updates, which contain the ids, have half a megabyte in all."""
    bodies = [{**message(0), "id": f"{'x' * 500}{i}"} for i in range(N_LONG)]
    assert (await client.post("/v1/messages", json=bodies)).status_code == 200


def has_event_client(metrics):
    return 'nearcast_push_clients{transport="sse"} 1.0' in metrics.text


async def test_lines_of_a_stream_are_published_as_they_arrive(tmp_path):
    """Not only at the end of the stream, or of a chunk."""
    async with on_network(tmp_path) as client:
        await subscribe(client, "boolean")
        async with open_socket(client) as socket:
            await receive_ready(socket)
            updates = []

            async def lines():
                for n in range(3):
                    yield json.dumps(message(n)).encode() + b"\n"
                    updates.extend(await receive(socket, 1))

            answer = await client.post("/v1/messages/stream", content=lines())
        assert answer.json()["messages"] == 3
        assert [update["message"] for update in updates] == ["m0", "m1", "m2"]


@asynccontextmanager
async def open_events(client, **options):
    async with client.stream("GET", "/v1/updates/events", **options) as response:
        assert response.status_code == 200, (await response.aread()).decode()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield _parse(response)


async def _parse(response):
    event = {}
    async for line in response.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            event[name] = value
        elif event:
            yield event
            event = {}


async def test_events_resume_after_the_last_id(tmp_path):
    async with on_network(tmp_path) as client:
        await subscribe(client, "boolean")
        async with open_events(client) as stream:
            assert (await anext(stream))["event"] == "ready"
            await publish(client, [1, 2])
            first, second = await anext(stream), await anext(stream)
        assert (first["event"], json.loads(first["data"])["message"], first["id"]) == ("update", "m1", "2.1")
        async with open_events(client, headers={"Last-Event-ID": first["id"]}, params={"after": "0.0"}) as stream:
            assert (await anext(stream))["id"] == "2.1"
            assert await anext(stream) == second


async def test_clients_learn_that_the_service_is_stopping(tmp_path):
    async with on_network(tmp_path) as client:
        stream = open_events(client)
        received_events = await stream.__aenter__()
        await anext(received_events)
        async with open_socket(client) as socket:
            await receive_ready(socket)
            client.service.hub.close()
            closed = await anext(received_events)
            assert closed["event"] == "closed" and "the service is stopping" in closed["data"]
            with pytest.raises(ConnectionClosed) as disconnected:
                await socket.recv()
            assert disconnected.value.rcvd.code == 1012
        await stream.__aexit__(None, None, None)


@pytest.mark.parametrize("options", [{"max_updates": 5}, {"max_bytes": 1}], ids=["updates", "bytes"])
async def test_an_invalid_or_pruned_cursor_is_rejected(tmp_path, options):
    async with on_network(tmp_path, snapshot_every=5, snapshot_share=1.0, **options) as client:
        await subscribe(client, "boolean")
        for n in range(40):
            await publish(client, [n])
        for after, status in (("99.1", 422), ("x", 422), ("1", 422), ("2.1", 410)):
            response = await client.get("/v1/updates/events", params={"after": after})
            assert (response.status_code, response.json()["errors"][0]["field"]) == (status, "after")
            with pytest.raises(InvalidStatus) as rejected:
                await open_socket(client, after=after).__aenter__()
            assert rejected.value.response.status_code == status
            assert json.loads(rejected.value.response.body)["status"] == status


async def test_pages_of_other_origins_receive_no_updates(tmp_path):
    async with on_network(tmp_path) as client:
        url = str(client.base_url.copy_with(scheme="ws", path="/v1/updates"))
        with pytest.raises(InvalidStatus) as rejected:
            await connect(url, origin="http://elsewhere.example").__aenter__()
        assert rejected.value.response.status_code == 403
        async with connect(url, origin=str(client.base_url).rstrip("/")) as socket:
            await receive_ready(socket)
