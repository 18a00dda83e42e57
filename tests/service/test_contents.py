"""Clients that ask for it get the message with each update and result: an alert needs no second request."""

import json

import pytest

from nearcast.service.config import ServiceConfig
from service.running_service import SUBSCRIPTIONS, in_process, message, on_network
from service.test_updates import open_events, open_socket, receive, receive_ready
from service.test_webhooks import create_webhook, wait_state
from service.webhook_receiver import run_receiver

RICH = message(1, place="cafe", at=5.0, expires_at=60.0, body='{"price": 3}')
NEAREST = {**SUBSCRIPTIONS["nearest"], "k": 1}


async def put(client, **subscriptions):
    for id_, body in subscriptions.items():
        assert (await client.put(f"/v1/subscriptions/{id_}", json=body)).status_code == 201


async def test_updates_carry_the_message_if_the_client_asks(tmp_path):
    async with on_network(tmp_path) as client:
        await put(client, n=NEAREST)
        async with open_socket(client, include="message") as socket, open_socket(client) as plain:
            await receive_ready(socket)
            await receive_ready(plain)
            await client.post("/v1/messages", json=RICH)
            (update,) = await receive(socket, 1)
            assert update["content"] == RICH and update["message"] == "m1" and update["at"] == 5.0
            assert (await receive(plain, 1)) == [{k: v for k, v in update.items() if k != "content"}]
        async with open_socket(client, include="message", after="0.0") as socket:
            await receive_ready(socket)
            assert await receive(socket, 1) == [update], "the same from the journal"
        async with open_events(client, params={"include": "message", "after": "0.0"}) as stream:
            assert (await anext(stream))["event"] == "ready"
            assert json.loads((await anext(stream))["data"])["content"] == RICH


async def test_a_message_that_enters_again_is_the_one_that_matched(tmp_path):
    async with on_network(tmp_path) as client:
        await put(client, n=NEAREST)
        far, near = message(1, location=(0.4, 0.3), body="far"), message(2, body="near")
        await client.post("/v1/messages", json=[far, near])
        await client.post("/v1/messages", json={**far, "location": [0.9, 0.9], "body": "another with its id"})
        async with open_socket(client, include="message") as socket:
            await receive_ready(socket)
            await client.delete("/v1/messages/m2")
            left, entered = await receive(socket, 2)
        assert (left["change"], left["content"]) == ("leave", None), "what was withdrawn is not handed out"
        assert (entered["change"], entered["content"]) == ("enter", far)


async def test_a_webhook_delivers_the_message_if_it_includes_messages(tmp_path):
    async with run_receiver() as receiver, on_network(tmp_path) as client:
        created = await create_webhook(client, receiver.url, include="message")
        assert created["include"] == "message"
        await client.post("/v1/messages", json=RICH)
        (delivery,) = await receiver.take()
        (update,) = json.loads(delivery.body)["data"]["updates"]
        assert update["content"] == RICH
        await wait_state(client, cursor=update["cursor"])  # or the pending delivery would be sent again
        assert (await client.put("/v1/webhooks/h1", json={"url": receiver.url})).json()["include"] is None
        await client.post("/v1/messages", json=message(2))
        (delivery,) = await receiver.take()
        assert "content" not in json.loads(delivery.body)["data"]["updates"][0]


async def test_results_and_messages_carry_the_body(tmp_path):
    async with in_process(tmp_path) as client:
        await put(client, n=NEAREST)
        await client.post("/v1/messages", json=RICH)
        (result,) = (await client.get("/v1/subscriptions/n/results?include=message")).json()["results"]
        assert result["content"] == RICH and result["text"] == RICH["text"]
        (result,) = (await client.get("/v1/subscriptions/n/results")).json()["results"]
        assert "content" not in result
        assert (await client.get("/v1/messages/m1")).json() == RICH


@pytest.mark.parametrize("path", ["/v1/subscriptions/n/results?include=all", "/v1/updates/events?include="])
async def test_other_things_cannot_be_included(tmp_path, path):
    async with in_process(tmp_path) as client:
        answer = await client.get(path)
        assert answer.status_code == 422 and answer.json()["errors"][0]["field"] == "include"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"body": "x" * 65_537}, "body"),
        ({"body": 7}, "body"),
        ({"at": 5.0, "expires_at": 5.0}, "expires_at"),
        ({"expires_at": "tomorrow"}, "expires_at"),
    ],
)
async def test_bad_bodies_and_ends_are_refused(tmp_path, fields, field):
    async with in_process(tmp_path) as client:
        answer = await client.post("/v1/messages", json=message(1, **fields))
        assert answer.status_code == 422 and answer.json()["errors"][0]["field"] == field


async def test_a_message_with_an_end_leaves_results_then_also_after_a_restart(tmp_path):
    config = ServiceConfig(bounds=(0, 0, 1, 1), window_count=100, clock="event")
    async with in_process(tmp_path, config) as client:
        await put(client, n=NEAREST)
        await client.post("/v1/messages", json=message(1, at=1.0, expires_at=10.0))
    async with in_process(tmp_path, config) as client:
        found = (await client.get("/v1/subscriptions/n/results")).json()["results"]
        assert [result["message"] for result in found] == ["m1"]
        answer = await client.post("/v1/messages", json=message(3, text="tea", at=10.0))
        assert answer.json()["updates"] == 1
        assert (await client.get("/v1/subscriptions/n/results")).json()["results"] == []
