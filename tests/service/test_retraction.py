"""Publishers retract and replace their own messages; what was answered survives a restart."""

import httpx
import pytest

from nearcast.service.api.access import Caller, hash_token
from nearcast.service.config import ServiceConfig
from service.running_service import in_process

CONFIG = ServiceConfig(bounds=(0, 0, 1, 1), window_count=100)
CALLERS = {hash_token(name): Caller(name, frozenset({"publish", "subscribe"})) for name in ("ann", "bob")}
NEAREST = {"kind": "nearest", "location": [0.5, 0.5], "keywords": "bike", "k": 1}
BOOLEAN = {"kind": "boolean", "region": [0, 0, 1, 1], "keywords": "bike"}


def message(id_, x=0.5, text="bike"):
    return {"id": id_, "location": [x, 0.5], "text": text}


def as_(name, **more):
    return {"headers": {"Authorization": f"Bearer {name}", **more}}


async def updates_of(client, name="ann"):
    found = client.app.state.service.command_loop.reader.updates(
        name, after=(0, 0), up_to=client.app.state.service.command_loop._store.position, limit=1_000
    )
    return [(u.key.id, u.body.partition('"message": "')[2].partition('"')[0], "enter" in u.body) for u in found]


async def test_a_retracted_message_leaves_the_results_of_all_subscribers(tmp_path):
    async with in_process(tmp_path, CONFIG, callers=CALLERS) as client:
        for id_, body in (("n", NEAREST), ("b", BOOLEAN)):
            await client.put(f"/v1/subscriptions/{id_}", json=body, **as_("ann"))
        await client.post("/v1/messages", json=[message("near"), message("far", 0.9)], **as_("bob"))
        answer = await client.delete("/v1/messages/near", **as_("bob"))
        assert answer.status_code == 200 and answer.json()["updates"] == 3
        assert (await updates_of(client))[-3:] == [("b", "near", False), ("n", "near", False), ("n", "far", True)]
        for id_, found in (("n", ["far"]), ("b", ["far"])):
            results = (await client.get(f"/v1/subscriptions/{id_}/results", **as_("ann"))).json()["results"]
            assert [result["message"] for result in results] == found
        assert (await client.get("/v1/messages/near", **as_("ann"))).status_code == 404
        assert (await client.delete("/v1/messages/near", **as_("bob"))).status_code == 404
        assert (await client.get("/v1/messages/far", **as_("ann"))).json() == message("far", 0.9)


async def test_only_the_publisher_of_a_message_retracts_or_replaces_it(tmp_path):
    async with in_process(tmp_path, CONFIG, callers=CALLERS) as client:
        await client.put("/v1/subscriptions/b", json=BOOLEAN, **as_("ann"))
        await client.post("/v1/messages", json=message("m", 0.1), **as_("ann"))
        assert (await client.delete("/v1/messages/m", **as_("bob"))).status_code == 404
        answer = await client.put("/v1/messages/m", json={"location": [0.2, 0.5], "text": "bike"}, **as_("bob"))
        assert answer.json()["updates"] == 1, "bob publishes under the id that ann uses, too"
        answer = await client.delete("/v1/messages/m", **as_("bob"))
        assert answer.json()["updates"] == 1
        results = (await client.get("/v1/subscriptions/b/results", **as_("ann"))).json()["results"]
        assert [result["location"] for result in results] == [[0.1, 0.5]]


async def test_a_replaced_message_leaves_and_the_new_one_enters(tmp_path):
    async with in_process(tmp_path, CONFIG, callers=CALLERS) as client:
        await client.put("/v1/subscriptions/n", json=NEAREST, **as_("ann"))
        first = await client.put("/v1/messages/m", json={"location": [0.6, 0.5], "text": "bike"}, **as_("ann"))
        assert first.json() == {"command": 2, "messages": 1, "late": 0, "seq": 1, "updates": 1}
        again = await client.put("/v1/messages/m", json={"location": [0.7, 0.5], "text": "bike"}, **as_("ann"))
        assert again.json() == {"command": 3, "messages": 1, "late": 0, "seq": 2, "updates": 2}
        gone = await client.put("/v1/messages/m", json={"location": [0.7, 0.5], "text": "car"}, **as_("ann"))
        assert gone.json()["updates"] == 1
        assert (await client.get("/v1/messages/m", **as_("ann"))).json()["text"] == "car"
        refused = await client.put("/v1/messages/m", json={"location": [7, 0.5], "text": "bike"}, **as_("ann"))
        assert refused.status_code == 422
        assert (await client.get("/v1/messages/m", **as_("ann"))).json()["text"] == "car"


async def test_a_restart_replays_retractions_and_replacements(tmp_path):
    key = {"Idempotency-Key": "once"}
    async with in_process(tmp_path, CONFIG, callers=CALLERS) as client:
        await client.put("/v1/subscriptions/n", json={**NEAREST, "k": 3}, **as_("ann"))
        await client.post("/v1/messages", json=[message(f"m{i}", 0.5 + i / 10) for i in range(4)], **as_("ann"))
        await client.put("/v1/messages/m2", json={"location": [0.5, 0.5], "text": "bike"}, **as_("ann"))
        deleted = await client.delete("/v1/messages/m0", **as_("ann", **key))
        before = (await client.get("/v1/subscriptions/n/results", **as_("ann"))).json()
        seen = await updates_of(client)
    for _ in range(2):
        async with in_process(tmp_path, CONFIG, callers=CALLERS) as client:
            assert (await client.get("/v1/subscriptions/n/results", **as_("ann"))).json() == before
            assert await updates_of(client) == seen
            repeated: httpx.Response = await client.delete("/v1/messages/m0", **as_("ann", **key))
            assert repeated.json() == deleted.json(), "a repeated request is not executed again"
        for snapshot in (tmp_path / "snapshots").iterdir():  # the second time everything is replayed
            (snapshot / "manifest.json").unlink()


@pytest.mark.parametrize("method", ["put", "delete"])
async def test_a_message_that_left_the_window_is_unknown(tmp_path, method):
    config = ServiceConfig(bounds=(0, 0, 1, 1), window_count=2)
    async with in_process(tmp_path, config, callers=CALLERS) as client:
        await client.post("/v1/messages", json=[message(f"m{i}") for i in range(4)], **as_("ann"))
        if method == "delete":
            assert (await client.delete("/v1/messages/m0", **as_("ann"))).status_code == 404
        else:
            body = {"location": [0.5, 0.5], "text": "bike"}
            assert (await client.put("/v1/messages/m0", json=body, **as_("ann"))).json()["seq"] == 5
