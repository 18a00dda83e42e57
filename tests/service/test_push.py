"""Does a client get every update, once and in order, whatever happens on the way?"""

import asyncio
import json
import socket as socketlib
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from service.served import KINDS, listening, message


def socket_of(client, **query):
    url = client.base_url.copy_with(scheme="ws", path="/v1/updates").copy_merge_params(query)
    return connect(str(url), compression=None, max_queue=None)


async def ready(socket):
    first = json.loads(await socket.recv())
    assert first["type"] == "ready"
    return first["cursor"]


async def received(socket, n):
    got = [json.loads(await socket.recv()) for _ in range(n)]
    assert {one.pop("type") for one in got} <= {"update"}
    return got


async def subscribed(client, *kinds):
    for kind in kinds or KINDS:
        assert (await client.put(f"/v1/subscriptions/{kind}", json=KINDS[kind])).status_code == 201


async def publish(client, numbers):
    said = await client.post("/v1/messages", json=[message(n) for n in numbers])
    return said.json()["updates"]


async def test_updates_come_as_they_happen_and_again_from_a_cursor(tmp_path):
    async with listening(tmp_path) as client:
        await subscribed(client)
        async with socket_of(client) as socket:
            start = await ready(socket)
            live = await received(socket, await publish(client, range(6)))
        assert [one["message"] for one in live if one["subscription"] == "boolean"] == [f"m{n}" for n in range(6)]
        cursors = [one["cursor"] for one in live]
        assert len(set(cursors)) == len(cursors) and [int(c.split(".")[1]) for c in cursors] == list(
            range(1, len(live) + 1)
        )
        for place, cursor in enumerate([start, *cursors]):
            async with socket_of(client, after=cursor) as socket:
                assert await ready(socket) == cursor
                assert await received(socket, len(live) - place) == live[place:]


async def test_only_the_subscriptions_asked_for(tmp_path):
    async with listening(tmp_path) as client:
        await subscribed(client)
        async with socket_of(client, subscription=["boolean", "nearest"], after="0.0") as socket:
            await ready(socket)
            await publish(client, [1])
            await publish(client, [2])
            got = await received(socket, 4)
        assert [one["subscription"] for one in got] == ["boolean", "nearest"] * 2


async def test_there_is_no_gap_between_what_was_missed_and_what_comes(tmp_path):
    """Clients that join, lag, leave and come back, all the time while messages are published."""
    async with listening(tmp_path, most_queued=10_000) as client:
        await subscribed(client, "boolean", "topk")
        total = 0

        async def listen(at_a_time):
            got, cursor = [], "0.0"
            while len(got) < at_a_time * 8:
                async with socket_of(client, after=cursor) as socket:
                    assert await ready(socket) == cursor
                    got += await received(socket, at_a_time)
                    cursor = got[-1]["cursor"]
            return got

        async def talk():
            nonlocal total
            for n in range(100):
                total += await publish(client, [2 * n, 2 * n + 1])

        *heard, _ = await asyncio.gather(*(listen(n) for n in (3, 17, 60)), talk())
        async with socket_of(client, after="0.0") as socket:
            await ready(socket)
            everything = await received(socket, total)
    for got in heard:
        assert got == everything[: len(got)]


async def test_a_client_that_lags_is_closed_and_slows_nobody(tmp_path):
    """One that reads nothing: once the buffers of the network are full, its queue is, and it has to go."""
    async with listening(tmp_path, most_queued=50, most_bytes=10_000_000) as client:
        await subscribed(client, "boolean")
        async with socket_of(client) as slow, socket_of(client) as quick:
            await ready(slow)
            await ready(quick)
            slow.transport.pause_reading()
            n_heard = rounds = 0
            while "nearcast_lagging_clients_total 1.0" not in (await client.get("/metrics")).text:
                assert (rounds := rounds + 1) < 100
                long = "x" * 20_000  # an id comes with each update
                await client.post("/v1/messages", json=[{**message(i), "id": f"{long}{i}"} for i in range(40)])
                n_heard += len(await received(quick, 40))
            assert n_heard == rounds * 40, "others hear everything"
            slow.transport.resume_reading()
            last = None
            with pytest.raises(ConnectionClosed) as closed:
                while True:
                    last = json.loads(await slow.recv())["cursor"]
            assert closed.value.rcvd.code == 1013 and "lagged" in closed.value.rcvd.reason
            async with socket_of(client, after=last) as again:
                assert await ready(again) == last
                following = json.loads(await again.recv())["cursor"]
            command, place = map(int, last.split("."))
            assert following in (f"{command}.{place + 1}", f"{command + 1}.1"), "it goes on where it was"


@pytest.mark.skipif(
    not hasattr(socketlib, "TCP_USER_TIMEOUT"), reason="the system has no timeout for stalled clients"
)
@pytest.mark.parametrize("path", ["/v1/updates/events", "/v1/feed"])
async def test_who_takes_nothing_of_a_stream_is_hung_up_on(tmp_path, path):
    """It never reads and never leaves; nothing of it stays behind."""
    async with listening(tmp_path, stalled_s=0.2, most_queued=50, most_bytes=10_000_000) as client:
        await subscribed(client, "boolean")
        with socketlib.socket() as stalled:
            stalled.setsockopt(socketlib.SOL_SOCKET, socketlib.SO_RCVBUF, 4096)
            stalled.connect((client.base_url.host, client.base_url.port))
            stalled.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            service = client.service
            while not (service.feed.watchers or gauge(await client.get("/metrics"))):
                pass
            rounds = 0
            while service.feed.watchers or gauge(await client.get("/metrics")):
                assert (rounds := rounds + 1) < 1000
                long = "x" * 20_000
                await client.post("/v1/messages", json=[{**message(i), "id": f"{long}{i}"} for i in range(40)])


def gauge(metrics):
    return 'nearcast_clients{transport="sse"} 1.0' in metrics.text


async def test_lines_are_published_as_they_come(tmp_path):
    """Not when the stream ends, or enough of them are there."""
    async with listening(tmp_path) as client:
        await subscribed(client, "boolean")
        async with socket_of(client) as socket:
            await ready(socket)
            heard = []

            async def lines():
                for n in range(3):
                    yield json.dumps(message(n)).encode() + b"\n"
                    heard.extend(await received(socket, 1))

            said = await client.post("/v1/messages/stream", content=lines())
        assert said.json()["messages"] == 3
        assert [one["message"] for one in heard] == ["m0", "m1", "m2"]


@asynccontextmanager
async def events(client, **options):
    async with client.stream("GET", "/v1/updates/events", **options) as response:
        assert response.status_code == 200, (await response.aread()).decode()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield _parsed(response)


async def _parsed(response):
    event = {}
    async for line in response.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            event[name] = value
        elif event:
            yield event
            event = {}


async def test_events_go_on_from_the_last_id(tmp_path):
    async with listening(tmp_path) as client:
        await subscribed(client, "boolean")
        async with events(client) as stream:
            assert (await anext(stream))["event"] == "ready"
            await publish(client, [1, 2])
            first, second = await anext(stream), await anext(stream)
        assert (first["event"], json.loads(first["data"])["message"], first["id"]) == ("update", "m1", "2.1")
        async with events(client, headers={"Last-Event-ID": first["id"]}, params={"after": "0.0"}) as stream:
            assert (await anext(stream))["id"] == "2.1"
            assert await anext(stream) == second


async def test_who_listens_is_told_that_the_service_stops(tmp_path):
    async with listening(tmp_path) as client:
        stream = events(client)
        parsed = await stream.__aenter__()
        await anext(parsed)
        async with socket_of(client) as socket:
            await ready(socket)
            client.service.hub.close()
            closed = await anext(parsed)
            assert closed["event"] == "closed" and "the service stops" in closed["data"]
            with pytest.raises(ConnectionClosed) as over:
                await socket.recv()
            assert over.value.rcvd.code == 1012
        await stream.__aexit__(None, None, None)


async def test_a_cursor_that_cannot_be_followed_is_refused(tmp_path):
    async with listening(tmp_path, snapshot_every=5, snapshot_share=1.0, updates=5) as client:
        await subscribed(client, "boolean")
        for n in range(40):
            await publish(client, [n])
        for after, status in (("99.1", 422), ("x", 422), ("1", 422), ("2.1", 410)):
            said = await client.get("/v1/updates/events", params={"after": after})
            assert (said.status_code, said.json()["errors"][0]["field"]) == (status, "after")
            with pytest.raises(InvalidStatus) as refused:
                await socket_of(client, after=after).__aenter__()
            assert refused.value.response.status_code == status
            assert json.loads(refused.value.response.body)["status"] == status


async def test_pages_of_elsewhere_may_not_listen(tmp_path):
    async with listening(tmp_path) as client:
        url = str(client.base_url.copy_with(scheme="ws", path="/v1/updates"))
        with pytest.raises(InvalidStatus) as refused:
            await connect(url, origin="http://elsewhere.example").__aenter__()
        assert refused.value.response.status_code == 403
        async with connect(url, origin=str(client.base_url).rstrip("/")) as socket:
            await ready(socket)
