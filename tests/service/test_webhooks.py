"""Is a receiver told everything, in order, whatever happens on the way, and can it trust what it is told?"""

import json

import httpx
import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from nearcast.service.webhooks.retry import Retries
from service.receiver import receiving
from service.served import KINDS, listening, message
from service.test_access import CALLERS, by
from service.test_serve import started, until_ready

HERE = "127.0.0.0/8"


async def hooked(client, url, id_="h1", **more):
    """Put a hook, and a subscription that every message reaches; return the hook as it was answered."""
    await client.put("/v1/subscriptions/boolean", json=KINDS["boolean"])
    said = await client.put(f"/v1/webhooks/{id_}", json={"url": url, **more})
    assert said.status_code == 201, said.text
    return said.json()


async def publish(client, *numbers):
    assert (await client.post("/v1/messages", json=[message(n) for n in numbers])).status_code == 200


async def until(client, id_="h1", **wanted):
    """Return the state of a hook once it is so; True stands for anything but None."""
    while True:
        state = (await client.get(f"/v1/webhooks/{id_}")).json()
        if all(state[k] is not None if v is True else state[k] == v for k, v in wanted.items()):
            return state


def told(*deliveries):
    return [update["message"] for one in deliveries for update in json.loads(one.body)["data"]["updates"]]


async def test_updates_are_delivered_signed_and_in_order(tmp_path):
    async with receiving() as receiver, listening(tmp_path) as client:
        made = await hooked(client, receiver.url)
        await publish(client, 1, 2)
        await publish(client, 3)
        first, second = await receiver.take(2)
        for delivery in (first, second):
            said = Webhook(made["secret"]).verify(delivery.body, delivery.headers)
            assert (said["type"], said["data"]["webhook"]) == ("updates", "h1")
            with pytest.raises(WebhookVerificationError):
                Webhook(made["secret"]).verify(delivery.body + b" ", delivery.headers)
        assert told(first, second) == ["m1", "m2", "m3"]
        assert first.id != second.id and first.headers["content-type"] == "application/json"
        update = json.loads(first.body)["data"]["updates"][0]
        assert update == {
            "cursor": "2.1", "seq": 1, "at": None, "subscription": "boolean", "message": "m1", "change": "enter",
            "score": update["score"],
        }  # fmt: skip
        state = await until(client, cursor="3.1")
        assert "secret" not in state and (state["failures"], state["disabled"]) == (0, None)


async def test_what_failed_is_sent_again_as_it_was_and_nothing_overtakes_it(tmp_path):
    answers = [(500, {}), (301, {"Location": "http://127.0.0.1/"}), (200, {})]
    async with receiving(*answers) as receiver, listening(tmp_path) as client:
        made = await hooked(client, receiver.url)
        for n in range(250):
            await publish(client, n)
        tries = await receiver.take(3)
        assert len({(one.id, one.body) for one in tries}) == 1 and told(tries[0])[0] == "m0"
        for delivery in tries:
            Webhook(made["secret"]).verify(delivery.body, delivery.headers)
        got = told(tries[2])
        while len(got) < 250:
            (delivery,) = await receiver.take()
            got += told(delivery)
            assert len(told(delivery)) <= 100
        assert got == [f"m{n}" for n in range(250)]
        assert (await until(client, cursor="251.1"))["last_error"] is None
        counted = (await client.get("/metrics")).text
        assert 'nearcast_webhook_deliveries_total{outcome="failed"} 2.0' in counted
        assert 'nearcast_webhooks{state="enabled"} 1.0' in counted


async def test_no_answer_in_time_is_a_failure(tmp_path):
    async with receiving(None) as receiver, listening(tmp_path, webhooks={"timeout_s": 0.05}) as client:
        await hooked(client, receiver.url)
        await publish(client, 1)
        first, again = await receiver.take(2)
        assert (first.id, first.body) == (again.id, again.body)


async def test_a_receiver_that_is_away_is_told_when_it_is_back(tmp_path):
    """Also if the service was started again meanwhile."""
    async with receiving() as receiver:
        port = receiver.port
        async with listening(tmp_path) as client:
            await hooked(client, receiver.url)
            await publish(client, 1)
            await receiver.take()
            await until(client, cursor="2.1")
    async with listening(tmp_path, webhooks={"delays_s": (3600,)}) as client:
        await publish(client, 2)
        state = await until(client, failures=1)
        assert state["next_attempt"] > 0 and state["last_error"].startswith("no answer: ")
        await publish(client, 3)
    async with receiving(port=port) as receiver, listening(tmp_path) as client:
        await client.put("/v1/webhooks/h1", json={"url": receiver.url})  # and not in an hour
        got = []
        while len(got) < 2:
            got += told(*await receiver.take())
        assert got == ["m2", "m3"]


async def test_who_answers_410_is_left_alone_until_the_hook_is_put_again(tmp_path):
    async with receiving((410, {})) as receiver, listening(tmp_path) as client:
        await hooked(client, receiver.url)
        await publish(client, 1)
        state = await until(client, disabled=True)
        assert "410" in state["disabled"] and state["next_attempt"] is None
        await publish(client, 2)
        assert (await client.put("/v1/webhooks/h1", json={"url": receiver.url})).status_code == 200
        first, again, more = await receiver.take(3)
        assert (first.id, first.body) == (again.id, again.body) and told(again, more) == ["m1", "m2"]
        assert (await until(client, cursor="3.1"))["disabled"] is None


async def test_after_the_last_attempt_the_hook_is_disabled(tmp_path):
    async with receiving(*[(503, {})] * 3) as receiver, listening(tmp_path) as client:
        await hooked(client, receiver.url)
        await publish(client, 1)
        state = await until(client, disabled=True)
        assert state["disabled"] == "given up after 3 attempts: the receiver answered 503"
        assert (state["failures"], len(await receiver.take(3))) == (3, 3)
        while 'nearcast_webhooks{state="disabled"} 1.0' not in (await client.get("/metrics")).text:
            pass


async def test_a_receiver_can_say_when_to_come_back(tmp_path):
    async with receiving((429, {"retry-after": "1000"})) as receiver, listening(tmp_path) as client:
        await hooked(client, receiver.url)
        await publish(client, 1)
        (delivery,) = await receiver.take()
        state = await until(client, next_attempt=True)
        assert 900 < state["next_attempt"] - int(delivery.headers["webhook-timestamp"]) < 1100


def test_waits_grow_and_differ():
    retries = Retries()
    waits = [[retries.wait_s(n) for n in range(1, 11)] for _ in range(2)]
    assert waits[0] != waits[1]
    for *some, last in waits:
        assert last is None, "given up"
        assert all(0.8 * delay <= wait <= 1.2 * delay for wait, delay in zip(some, retries.delays_s, strict=True))
    assert list(retries.delays_s) == sorted(retries.delays_s)


async def test_a_new_secret_signs_beside_the_old_one(tmp_path):
    async with receiving() as receiver, listening(tmp_path) as client:
        old = (await hooked(client, receiver.url))["secret"]
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


async def test_a_hook_begins_at_a_cursor_and_hears_only_what_it_asked_for(tmp_path):
    async with receiving() as receiver, listening(tmp_path) as client:
        for kind in ("boolean", "nearest"):
            await client.put(f"/v1/subscriptions/{kind}", json=KINDS[kind])
        await publish(client, 1)
        await publish(client, 2)
        await hooked(client, receiver.url, subscriptions=["nearest"], after="3.2")
        (delivery,) = await receiver.take()
        updates = json.loads(delivery.body)["data"]["updates"]
        assert {(one["subscription"], one["message"]) for one in updates} == {("nearest", "m2")}
        await client.put("/v1/webhooks/h1", json={"url": receiver.url, "after": "2.0"})
        (delivery,) = await receiver.take()
        assert json.loads(delivery.body)["data"]["updates"][0]["cursor"] == "3.1"


async def test_a_cursor_that_is_gone_disables_the_hook_but_not_one_that_had_nothing_to_hear(tmp_path):
    hooks = {"delays_s": (3600.0,), "noted_every_s": 0.01}
    async with (
        receiving((500, {})) as receiver,
        listening(tmp_path, snapshot_every=5, snapshot_share=1.0, updates=5, webhooks=hooks) as client,
    ):
        await hooked(client, receiver.url, "behind")
        await hooked(client, receiver.url, "idle", subscriptions=["nothing"])
        for n in range(40):
            await publish(client, n)
        await until(client, "behind", failures=1)
        await until(client, "idle", cursor="42.1")
        await client.put("/v1/webhooks/behind", json={"url": receiver.url})
        state = await until(client, "behind", disabled=True)
        assert told(*await receiver.take(2)) == ["m0"] * 2, (
            "what was begun is sent, also if it is gone from the journal"
        )
        assert "what came before is not kept any more" in state["disabled"]
        assert (await client.get("/v1/webhooks/idle")).json()["disabled"] is None


async def test_hooks_are_each_subscribers_own_and_so_many(tmp_path):
    async with listening(tmp_path, callers=CALLERS, webhooks={"most_hooks": 3}) as client:
        body = {"url": "https://hooks.example/"}
        for id_ in "abc":
            assert (await client.put(f"/v1/webhooks/{id_}", json=body, headers=by("ann"))).status_code == 201
        refused = await client.put("/v1/webhooks/d", json=body, headers=by("ann"))
        assert (refused.status_code, refused.json()["detail"]) == (
            409, "a subscriber can have 3 webhooks; delete one first",
        )  # fmt: skip
        assert (await client.put("/v1/webhooks/a", json=body, headers=by("bob"))).status_code == 201
        assert (await client.put("/v1/webhooks/a", json=body, headers=by("eve"))).status_code == 403
        page = (await client.get("/v1/webhooks?limit=2", headers=by("ann"))).json()
        rest = (await client.get(f"/v1/webhooks?cursor={page['next']}", headers=by("ann"))).json()
        assert [one["id"] for one in page["webhooks"] + rest["webhooks"]] == ["a", "b", "c"] and rest["next"] is None
        assert (await client.delete("/v1/webhooks/b", headers=by("bob"))).status_code == 404
        assert (await client.delete("/v1/webhooks/b", headers=by("ann"))).status_code == 204
        for method, path in (("GET", "b"), ("POST", "b/secret"), ("DELETE", "b")):
            gone = await client.request(method, f"/v1/webhooks/{path}", headers=by("ann"))
            assert (gone.status_code, gone.json()["errors"][0]["value"]) == (404, "b")
        assert (await client.put("/v1/webhooks/d", json=body, headers=by("ann"))).status_code == 201
        assert (tmp_path / "webhooks.sqlite").stat().st_mode & 0o077 == 0, "secrets are nobody else's"


async def test_killed_between_an_attempt_and_its_answer_the_same_is_sent_again(tmp_path):
    async with receiving(None) as receiver:
        with started(tmp_path, "--bounds", "0,0,1,1", "--webhook-networks", HERE) as (process, address):
            with httpx.Client(base_url=address) as client:
                until_ready(client)
                client.put("/v1/subscriptions/boolean", json=KINDS["boolean"]).raise_for_status()
                client.put("/v1/webhooks/h1", json={"url": receiver.url}).raise_for_status()
                client.post("/v1/messages", json=[message(n) for n in range(3)]).raise_for_status()
            (first,) = await receiver.take()
            process.kill()
        with started(tmp_path, "--webhook-networks", HERE) as (process, address):
            (again,) = await receiver.take()
            assert (first.id, first.body) == (again.id, again.body) and told(again) == ["m0", "m1", "m2"]
            with httpx.Client(base_url=address) as client:
                until_ready(client)
                client.post("/v1/messages", json=message(3)).raise_for_status()
            (following,) = await receiver.take()
            assert told(following) == ["m3"] and following.id != first.id
