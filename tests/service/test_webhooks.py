"""Webhooks deliver every update in order, signed, across failures, restarts and crashes."""

import json

import httpx
import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from nearcast.errors import FormatError
from nearcast.service.push.webhooks.retry_policy import RetryPolicy
from nearcast.service.push.webhooks.store import WebhookStore
from service.running_service import SUBSCRIPTIONS, message, on_network
from service.serve_process import run_serve, wait_ready
from service.test_access import CALLERS, token_of
from service.webhook_receiver import run_receiver

LOOPBACK = "127.0.0.0/8"


async def create_webhook(client, url, id_="h1", **fields):
    """Create a webhook and a subscription that every message matches; return the answer."""
    await client.put("/v1/subscriptions/boolean", json=SUBSCRIPTIONS["boolean"])
    answer = await client.put(f"/v1/webhooks/{id_}", json={"url": url, **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def publish(client, *numbers):
    assert (await client.post("/v1/messages", json=[message(n) for n in numbers])).status_code == 200


async def wait_state(client, id_="h1", **expected):
    """Return the state of a webhook once it has the expected values; True stands for anything but None."""
    while True:
        state = (await client.get(f"/v1/webhooks/{id_}")).json()
        if all(state[k] is not None if v is True else state[k] == v for k, v in expected.items()):
            return state


def message_ids(*deliveries):
    bodies = (json.loads(delivery.body) for delivery in deliveries)
    return [update["message"] for body in bodies for update in body["data"]["updates"]]


async def test_updates_are_delivered_signed_and_in_order(tmp_path):
    async with run_receiver() as receiver, on_network(tmp_path) as client:
        created = await create_webhook(client, receiver.url)
        await publish(client, 1, 2)
        (first,) = await receiver.take()
        await publish(client, 3)  # only now, or one delivery may have all three
        (second,) = await receiver.take()
        for delivery in (first, second):
            payload = Webhook(created["secret"]).verify(delivery.body, delivery.headers)
            assert (payload["type"], payload["data"]["webhook"]) == ("updates", "h1")
            with pytest.raises(WebhookVerificationError):
                Webhook(created["secret"]).verify(delivery.body + b" ", delivery.headers)
        assert message_ids(first, second) == ["m1", "m2", "m3"]
        assert first.id != second.id and first.headers["content-type"] == "application/json"
        update = json.loads(first.body)["data"]["updates"][0]
        assert update == {
            "cursor": "2.1", "seq": 1, "at": None, "subscription": "boolean", "message": "m1", "change": "enter",
            "score": update["score"],
        }  # fmt: skip
        state = await wait_state(client, cursor="3.1")
        assert "secret" not in state and (state["failures"], state["disabled"]) == (0, None)


async def test_a_failed_delivery_is_repeated_unchanged_before_any_other(tmp_path):
    answers = [(500, {}), (301, {"Location": "http://127.0.0.1/"}), (200, {})]
    async with run_receiver(*answers) as receiver, on_network(tmp_path) as client:
        created = await create_webhook(client, receiver.url)
        for n in range(250):
            await publish(client, n)
        attempts = await receiver.take(3)
        assert len({(one.id, one.body) for one in attempts}) == 1 and message_ids(attempts[0])[0] == "m0"
        for delivery in attempts:
            Webhook(created["secret"]).verify(delivery.body, delivery.headers)
        received = message_ids(attempts[2])
        while len(received) < 250:
            (delivery,) = await receiver.take()
            received += message_ids(delivery)
            assert len(message_ids(delivery)) <= 100
        assert received == [f"m{n}" for n in range(250)]
        assert (await wait_state(client, cursor="251.1"))["last_error"] is None
        metrics = (await client.get("/metrics")).text
        assert 'nearcast_webhook_deliveries_total{outcome="failed"} 2.0' in metrics
        assert 'nearcast_webhooks{state="enabled"} 1.0' in metrics


async def test_a_timeout_is_a_failure(tmp_path):
    async with run_receiver(None) as receiver, on_network(tmp_path, webhooks={"timeout_s": 0.05}) as client:
        await create_webhook(client, receiver.url)
        await publish(client, 1)
        first, repeat = await receiver.take(2)
        assert (first.id, first.body) == (repeat.id, repeat.body)


async def test_an_unavailable_receiver_gets_all_updates_when_it_returns(tmp_path):
    """Also if the service was restarted meanwhile."""
    async with run_receiver() as receiver:
        port = receiver.port
        async with on_network(tmp_path) as client:
            await create_webhook(client, receiver.url)
            await publish(client, 1)
            await receiver.take()
            await wait_state(client, cursor="2.1")
    async with on_network(tmp_path, webhooks={"delays_s": (3600,)}) as client:
        await publish(client, 2)
        state = await wait_state(client, failures=1)
        assert state["next_attempt"] > 0 and state["last_error"].startswith("no answer: ")
        await publish(client, 3)
    async with run_receiver(port=port) as receiver, on_network(tmp_path) as client:
        await client.put("/v1/webhooks/h1", json={"url": receiver.url})  # retries at once, not in an hour
        received = []
        while len(received) < 2:
            received += message_ids(*await receiver.take())
        assert received == ["m2", "m3"]


async def test_an_answer_of_410_disables_the_webhook_until_it_is_put_again(tmp_path):
    async with run_receiver((410, {})) as receiver, on_network(tmp_path) as client:
        await create_webhook(client, receiver.url)
        await publish(client, 1)
        state = await wait_state(client, disabled=True)
        assert "410" in state["disabled"] and state["next_attempt"] is None
        await publish(client, 2)
        assert (await client.put("/v1/webhooks/h1", json={"url": receiver.url})).status_code == 200
        first, repeat, following = await receiver.take(3)
        assert (first.id, first.body) == (repeat.id, repeat.body) and message_ids(repeat, following) == ["m1", "m2"]
        assert (await wait_state(client, cursor="3.1"))["disabled"] is None


async def test_the_last_failed_attempt_disables_the_webhook(tmp_path):
    async with run_receiver(*[(503, {})] * 3) as receiver, on_network(tmp_path) as client:
        await create_webhook(client, receiver.url)
        await publish(client, 1)
        state = await wait_state(client, disabled=True)
        assert state["disabled"] == "given up after 3 attempts: the receiver answered 503"
        assert (state["failures"], len(await receiver.take(3))) == (3, 3)
        while 'nearcast_webhooks{state="disabled"} 1.0' not in (await client.get("/metrics")).text:
            pass


async def test_retry_after_of_the_receiver_is_respected(tmp_path):
    async with run_receiver((429, {"retry-after": "1000"})) as receiver, on_network(tmp_path) as client:
        await create_webhook(client, receiver.url)
        await publish(client, 1)
        (delivery,) = await receiver.take()
        state = await wait_state(client, next_attempt=True)
        assert 900 < state["next_attempt"] - int(delivery.headers["webhook-timestamp"]) < 1100


def test_delays_grow_and_are_randomised():
    retries = RetryPolicy()
    waits = [[retries.wait_s(n) for n in range(1, 11)] for _ in range(2)]
    assert waits[0] != waits[1]
    for *delays, last in waits:
        assert last is None, "given up"
        assert all(0.8 * delay <= wait <= 1.2 * delay for wait, delay in zip(delays, retries.delays_s, strict=True))
    assert list(retries.delays_s) == sorted(retries.delays_s)


async def test_a_new_secret_signs_beside_the_old_one(tmp_path):
    async with run_receiver() as receiver, on_network(tmp_path) as client:
        old = (await create_webhook(client, receiver.url))["secret"]
        new = (await client.post("/v1/webhooks/h1/secret")).json()["secret"]
        await publish(client, 1)
        (delivery,) = await receiver.take()
        for secret in (old, new):
            assert Webhook(secret).verify(delivery.body, delivery.headers)
        newest = (await client.post("/v1/webhooks/h1/secret")).json()["secret"]
        await publish(client, 2)
        (delivery,) = await receiver.take()
        assert Webhook(newest).verify(delivery.body, delivery.headers)
        with pytest.raises(WebhookVerificationError):
            Webhook(old).verify(delivery.body, delivery.headers)


async def test_a_webhook_starts_at_a_cursor_and_can_be_restricted_to_subscriptions(tmp_path):
    async with run_receiver() as receiver, on_network(tmp_path) as client:
        for kind in ("boolean", "nearest"):
            await client.put(f"/v1/subscriptions/{kind}", json=SUBSCRIPTIONS[kind])
        await publish(client, 1)
        await publish(client, 2)
        await create_webhook(client, receiver.url, subscriptions=["nearest"], after="3.2")
        (delivery,) = await receiver.take()
        updates = json.loads(delivery.body)["data"]["updates"]
        assert {(one["subscription"], one["message"]) for one in updates} == {("nearest", "m2")}
        await client.put("/v1/webhooks/h1", json={"url": receiver.url, "after": "2.0"})
        (delivery,) = await receiver.take()
        assert json.loads(delivery.body)["data"]["updates"][0]["cursor"] == "3.1"


async def test_a_pruned_cursor_disables_a_webhook_but_not_an_idle_one(tmp_path):
    options = {"delays_s": (3600.0,), "record_every_s": 0.01}
    async with (
        run_receiver((500, {})) as receiver,
        on_network(tmp_path, snapshot_every=5, snapshot_share=1.0, max_updates=5, webhooks=options) as client,
    ):
        await create_webhook(client, receiver.url, "behind")
        await create_webhook(client, receiver.url, "idle", subscriptions=["missing"])
        for n in range(40):
            await publish(client, n)
        await wait_state(client, "behind", failures=1)
        await wait_state(client, "idle", cursor="42.1")
        await client.put("/v1/webhooks/behind", json={"url": receiver.url})
        state = await wait_state(client, "behind", disabled=True)
        first, repeat = await receiver.take(2)
        assert message_ids(first)[0] == "m0" and (repeat.id, repeat.body) == (first.id, first.body), (
            "a stored delivery is sent, even if the journal has pruned its updates"
        )
        assert "earlier updates are not retained" in state["disabled"]
        assert (await client.get("/v1/webhooks/idle")).json()["disabled"] is None


async def test_webhooks_belong_to_a_subscriber_and_are_limited(tmp_path):
    async with on_network(tmp_path, callers=CALLERS, webhooks={"max_webhooks": 3}) as client:
        body = {"url": "https://hooks.example/"}
        for id_ in "abc":
            assert (await client.put(f"/v1/webhooks/{id_}", json=body, headers=token_of("ann"))).status_code == 201
        rejected = await client.put("/v1/webhooks/d", json=body, headers=token_of("ann"))
        assert (rejected.status_code, rejected.json()["detail"]) == (
            409, "a subscriber can have 3 webhooks; delete one first",
        )  # fmt: skip
        assert (await client.put("/v1/webhooks/a", json=body, headers=token_of("bob"))).status_code == 201
        assert (await client.put("/v1/webhooks/a", json=body, headers=token_of("eve"))).status_code == 403
        page = (await client.get("/v1/webhooks?limit=2", headers=token_of("ann"))).json()
        rest = (await client.get(f"/v1/webhooks?cursor={page['next']}", headers=token_of("ann"))).json()
        assert [one["id"] for one in page["webhooks"] + rest["webhooks"]] == ["a", "b", "c"] and rest["next"] is None
        assert (await client.delete("/v1/webhooks/b", headers=token_of("bob"))).status_code == 404
        assert (await client.delete("/v1/webhooks/b", headers=token_of("ann"))).status_code == 204
        for method, path in (("GET", "b"), ("POST", "b/secret"), ("DELETE", "b")):
            gone = await client.request(method, f"/v1/webhooks/{path}", headers=token_of("ann"))
            assert (gone.status_code, gone.json()["errors"][0]["value"]) == (404, "b")
        assert (await client.put("/v1/webhooks/d", json=body, headers=token_of("ann"))).status_code == 201
        assert (tmp_path / "webhooks.sqlite").stat().st_mode & 0o077 == 0, "only the owner can read the secrets"


async def test_a_crash_between_attempt_and_answer_repeats_the_same_delivery(tmp_path):
    async with run_receiver(None) as receiver:
        with run_serve(tmp_path, "--bounds", "0,0,1,1", "--webhook-networks", LOOPBACK) as (process, address):
            with httpx.Client(base_url=address) as client:
                wait_ready(client)
                client.put("/v1/subscriptions/boolean", json=SUBSCRIPTIONS["boolean"]).raise_for_status()
                client.put("/v1/webhooks/h1", json={"url": receiver.url}).raise_for_status()
                client.post("/v1/messages", json=[message(n) for n in range(3)]).raise_for_status()
            (first,) = await receiver.take()
            process.kill()
        with run_serve(tmp_path, "--webhook-networks", LOOPBACK) as (process, address):
            (repeat,) = await receiver.take()
            assert (first.id, first.body) == (repeat.id, repeat.body) and message_ids(repeat) == ["m0", "m1", "m2"]
            with httpx.Client(base_url=address) as client:
                wait_ready(client)
                client.post("/v1/messages", json=message(3)).raise_for_status()
            (following,) = await receiver.take()
            assert message_ids(following) == ["m3"] and following.id != first.id


def test_a_damaged_store_of_webhooks_is_refused(tmp_path):
    file = tmp_path / "webhooks.sqlite"
    file.write_bytes(b"not a file of SQLite" * 100)
    with pytest.raises(FormatError, match=r"webhooks\.sqlite is damaged, read-only or no SQLite file"):
        WebhookStore(file)
