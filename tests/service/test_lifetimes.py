"""Subscriptions and messages of a service end at their time, also without traffic and across restarts."""

import pytest

from nearcast.engine.clock import Clock
from nearcast.service.config import ServiceConfig
from service.running_service import SUBSCRIPTIONS, in_process, message

COUNTED = ServiceConfig(bounds=(0, 0, 1, 1), window_count=100)
NEAREST = SUBSCRIPTIONS["nearest"]
START = 1_000_000.0


class Host:
    """A host whose time passes only when it is told to."""

    def __init__(self):
        self.elapsed = 0.0

    def clock(self):
        return Clock(wall_s=lambda: START + self.elapsed, elapsed_s=lambda: self.elapsed)


async def ids(client):
    page = (await client.get("/v1/subscriptions")).json()
    assert page["total"] == len(page["subscriptions"])
    return [one["id"] for one in page["subscriptions"]]


def test_the_clock_of_a_service_is_the_wall_clock_whatever_its_window():
    assert COUNTED.clock == "wall" and ServiceConfig(bounds=(0, 0, 1, 1)).advances
    assert ServiceConfig(bounds=(0, 0, 1, 1), clock="event").clock == "event"


async def test_a_subscription_is_forgotten_once_its_time_has_come(tmp_path):
    host = Host()
    async with in_process(tmp_path, COUNTED, clock=host.clock(), max_subscriptions=2) as client:
        for id_, more in (("short", {"expires_at": START + 10}), ("long", {})):
            assert (await client.put(f"/v1/subscriptions/{id_}", json={**NEAREST, **more})).status_code == 201
        assert (await client.get("/v1/subscriptions/short")).json()["expires_at"] == START + 10
        assert "expires_at" not in (await client.get("/v1/subscriptions/long")).json()
        host.elapsed = 9.0
        assert (await client.post("/v1/messages", json=message(1))).json()["updates"] == 2
        host.elapsed = 11.0
        assert (await client.post("/v1/messages", json=message(2))).json()["updates"] == 1
        assert await ids(client) == ["long"]
        assert (await client.get("/v1/subscriptions/short/results")).status_code == 404
        again = await client.put("/v1/subscriptions/other", json=NEAREST)
        assert again.status_code == 201, "what has expired leaves the quota"


async def test_a_subscription_expires_without_traffic_and_stays_gone_after_a_restart(tmp_path):
    host = Host()
    async with in_process(tmp_path, COUNTED, clock=host.clock()) as client:
        await client.put("/v1/subscriptions/s", json={**NEAREST, "expires_at": START + 10})
        store = client.app.state.service.command_loop._store
        assert store.idle_s is not None, "it wakes up by itself"
        host.elapsed = 12.0
        while await ids(client):
            pass
    host.elapsed = 0.5  # the host's clock was set back
    async with in_process(tmp_path, COUNTED, clock=host.clock()) as client:
        assert await ids(client) == []
        assert (await client.post("/v1/messages", json=message(1))).json()["updates"] == 0


async def test_a_message_expires_by_the_clock_in_a_window_of_messages(tmp_path):
    host = Host()
    async with in_process(tmp_path, COUNTED, clock=host.clock()) as client:
        await client.put("/v1/subscriptions/s", json=NEAREST)
        await client.post("/v1/messages", json=message(1, expires_at=START + 10))
        host.elapsed = 11.0
        while (await client.get("/v1/subscriptions/s/results")).json()["results"]:
            pass
        late = await client.post("/v1/messages", json=message(2, expires_at=START + 5))
        assert late.json() == {"command": 4, "messages": 1, "late": 1, "seq": 2, "updates": 0}


@pytest.mark.parametrize("end", [START - 1, "2026-01-01T00:00:00", "soon", True])
async def test_an_end_that_has_passed_or_is_no_time_is_refused(tmp_path, end):
    async with in_process(tmp_path, COUNTED, clock=Host().clock()) as client:
        answer = await client.put("/v1/subscriptions/s", json={**NEAREST, "expires_at": end})
        assert answer.status_code == 422 and answer.json()["errors"][0]["field"] == "expires_at"
        assert await ids(client) == []


async def test_an_end_may_be_a_time_with_its_zone(tmp_path):
    async with in_process(tmp_path, COUNTED, clock=Host().clock()) as client:
        await client.put("/v1/subscriptions/s", json={**NEAREST, "expires_at": "2096-01-01T00:00:00+01:00"})
        assert (await client.get("/v1/subscriptions/s")).json()["expires_at"] == 3976210800.0
