"""Edges of the social graph change over HTTP; results follow, and what was answered survives a restart."""

import json

import pytest

from nearcast.service.config import ServiceConfig
from service.running_service import in_process

CONFIG = ServiceConfig(bounds=(0, 0, 1, 1), window_count=100)
BRUNCH = {"kind": "social", "location": [0.5, 0.5], "keywords": "brunch", "k": 1, "user": "ann"}
MUSEUM = {"user": "ann", "place": "museum"}
MESSAGES = [
    {"id": "cafe", "location": [0.5, 0.5], "text": "brunch", "place": "cafe"},
    {"id": "bar", "location": [0.5, 0.5], "text": "brunch", "place": "bar"},
]


async def winner(client):
    found = (await client.get("/v1/subscriptions/s/results")).json()["results"]
    return [result["message"] for result in found]


async def test_results_follow_the_edges(tmp_path):
    async with in_process(tmp_path, CONFIG) as client:
        await client.post("/v1/edges", json=MUSEUM)
        assert (await client.put("/v1/subscriptions/s", json=BRUNCH)).status_code == 201
        await client.post("/v1/messages", json=MESSAGES)
        assert await winner(client) == ["bar"], "the newer of two equal ones"
        added = await client.post("/v1/edges", json={"user": "ann", "place": "cafe"})
        assert added.status_code == 200 and added.json() == {"command": 4, "updates": 2}
        assert await winner(client) == ["cafe"]
        again = await client.post(
            "/v1/edges", json=[{"user": "ann", "place": "cafe"}, {"user": "bob", "place": "new"}]
        )
        assert again.json()["updates"] == 0
        removed = await client.delete("/v1/edges", params={"user": "ann", "place": "cafe"})
        assert removed.json() == {"command": 6, "updates": 2} and await winner(client) == ["bar"]


async def test_edges_survive_a_restart_with_and_without_a_snapshot(tmp_path):
    async with in_process(tmp_path, CONFIG) as client:
        await client.post("/v1/edges", json=MUSEUM)
        await client.put("/v1/subscriptions/s", json=BRUNCH)
        await client.post("/v1/messages", json=MESSAGES)
        await client.post("/v1/edges", json={"user": "ann", "place": "cafe"}, headers={"Idempotency-Key": "once"})
        before = client.app.state.service.command_loop._store.position
    for _ in range(2):
        async with in_process(tmp_path, CONFIG) as client:
            assert await winner(client) == ["cafe"]
            sent = {"json": {"user": "ann", "place": "cafe"}, "headers": {"Idempotency-Key": "once"}}
            assert (await client.post("/v1/edges", **sent)).json()["updates"] == 2
            assert client.app.state.service.command_loop._store.position == before, "executed once"


async def test_a_user_without_edges_stays_known(tmp_path):
    async with in_process(tmp_path, CONFIG) as client:
        await client.post("/v1/edges", json=MUSEUM)
        assert (await client.delete("/v1/edges", params=MUSEUM)).status_code == 200
        assert (await client.put("/v1/subscriptions/s", json=BRUNCH)).status_code == 201
        unknown = await client.put("/v1/subscriptions/t", json={**BRUNCH, "user": "zoe"})
        assert unknown.status_code == 422 and unknown.json()["errors"][0]["field"] == "user"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"user": "ann"}, "place"),
        ({"user": 7, "place": "cafe"}, "user"),
        ({"user": "ann", "place": "cafe", "op": "add"}, "op"),
        ([], "body"),
        ([{"user": "ann", "place": "cafe"}] * 1_001, "body"),
        ({"user": "u" * 513, "place": "cafe"}, "edges"),
        ([{"user": "ann", "place": "cafe"}, {"user": "ann", "place": "\ud800"}], "place"),
    ],
)
async def test_bad_edges_are_refused_with_their_field_and_change_nothing(tmp_path, body, field):
    async with in_process(tmp_path, CONFIG) as client:
        answer = await client.post(
            "/v1/edges", content=json.dumps(body), headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 422, answer.text
        assert field in answer.json()["errors"][0]["field"]
        assert client.app.state.service.command_loop._store.position.command == 0


async def test_an_edge_that_does_not_exist_cannot_be_removed(tmp_path):
    async with in_process(tmp_path, CONFIG) as client:
        answer = await client.delete("/v1/edges", params={"user": "ann", "place": "cafe"})
        assert answer.status_code == 422
        assert answer.json()["detail"] == "edges must be edges of the social graph; got ('ann', 'cafe')"
