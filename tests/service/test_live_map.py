"""What the live map uses: its files, the configuration, the kinds, previews, reaches, shards and the feed."""

import asyncio
import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from nearcast import Balance
from nearcast.model import TopKSubscription, register_kind
from nearcast.service import config
from nearcast.service.api.routes.live_map import WEB
from nearcast.service.config import ServiceConfig
from service.running_service import SUBSCRIPTIONS, in_process, message, on_network

SHARDED = ServiceConfig(bounds=(0, 0, 1, 1), window_count=100, workers=3, partitioner="location")


async def test_the_page_and_all_its_files_are_served(tmp_path):
    async with in_process(tmp_path) as client:
        page = await client.get("/")
        assert page.status_code == 200
        paths = set(re.findall(r'(?:src|href)="(web/[^"]+)"', page.text))
        for script in Path(WEB).glob("*.js"):
            paths |= {f"web/{name}" for name in re.findall(r'from "\./([^"]+)"', script.read_text())}
        assert "web/vendor/maplibre-gl.mjs" in paths
        for name in sorted({*paths, "web/land.json"}):
            assert (await client.get(name)).status_code == 200, name
        assert "http" not in page.text, "nothing comes from other hosts"
        assert page.headers["content-security-policy"].startswith("default-src 'self'")


async def test_a_preview_returns_the_result_and_subscribes_nothing(tmp_path):
    async with in_process(tmp_path) as client:
        await client.post("/v1/messages", json=[message(1), message(2, "tea"), message(3, location=(0.9, 0.9))])
        results = (await client.post("/v1/preview", json={"id": "x", **SUBSCRIPTIONS["topk"]})).json()["results"]
        assert [one["message"] for one in results] == ["m1", "m3"]
        assert results[0]["text"] == "coffee sale" and results[0]["location"] == [0.2, 0.3]
        near, text = results[0]["parts"]
        assert near["value"] * near["weight"] + text["value"] * text["weight"] == results[0]["score"]
        assert (near["distance"], near["shared_terms"]) == (0.0, None)
        assert (text["distance"], text["shared_terms"]) == (None, ["coffee"])
        assert (await client.get("/v1/subscriptions")).json()["subscriptions"] == []
        rejected = await client.post("/v1/preview", json={"id": "x", **SUBSCRIPTIONS["topk"], "alpha": 2})
        assert rejected.status_code == 422
        assert rejected.json()["errors"][0]["field"] == "alpha"


async def test_kinds_are_described_with_their_fields(tmp_path):
    async with in_process(tmp_path) as client:
        kinds = {kind["kind"]: kind for kind in (await client.get("/v1/kinds")).json()}
        assert set(kinds) == {*SUBSCRIPTIONS, "social"}
        fields = kinds["topk"]["fields"]
        needed = [name for name, field in fields.items() if not field["is_optional"]]
        assert needed == ["location", "keywords", "k", "alpha"]
        forms = {"require": "text", "region": "region", "where": "condition", "expires_at": "time"}
        assert {name: field["form"] for name, field in fields.items() if field["is_optional"]} == forms
        alpha = kinds["topk"]["fields"]["alpha"]
        assert (alpha["form"], alpha["minimum"], alpha["maximum"]) == ("number", 0, 1)
        assert kinds["boolean"]["fields"]["keywords"]["operators"] == ["AND", "OR", "NOT"]
        assert [kinds[kind]["is_stateful"] for kind in ("boolean", "topk")] == [False, True]


async def test_a_registered_kind_is_described_and_validated(tmp_path, monkeypatch):
    monkeypatch.setitem(register_kind.__globals__, "_REGISTERED", {})
    register_kind(type("CornerSubscription", (TopKSubscription,), {"kind": "corner", "label": "Corner"}))
    async with in_process(tmp_path) as client:
        assert {"corner": "Corner"}.items() <= {
            k["kind"]: k["label"] for k in (await client.get("/v1/kinds")).json()
        }.items()
        description = (await client.get("/openapi.json")).json()
        assert "CornerSubscription" in description["components"]["schemas"]
        body = {"id": "c", **SUBSCRIPTIONS["topk"], "kind": "corner"}
        assert (await client.post("/v1/reaches", json=[body])).json() == {"reaches": [None]}
        rejected = await client.post("/v1/reaches", json=[{**body, "k": "two"}])
        assert rejected.json()["errors"] == [{"field": "0.k", "rule": "must be a valid integer", "value": "two"}]


async def test_reaches_are_finite_only_where_distance_alone_rules_messages_out(tmp_path):
    async with in_process(tmp_path) as client:
        bodies = [{"id": kind, **body} for kind, body in SUBSCRIPTIONS.items()]
        bodies.append({"id": "words-alone", **SUBSCRIPTIONS["similarity"], "tau": 0.5})
        reaches = (await client.post("/v1/reaches", json=bodies)).json()["reaches"]
        assert reaches == [None, pytest.approx((1 - 0.3 / 0.5) * 2**0.5), None, None, None]


async def test_configuration_and_shards(tmp_path):
    async with in_process(tmp_path, SHARDED) as client:
        described = (await client.get("/v1/config")).json()
        assert (described["bounds"], described["window_count"]) == ([0, 0, 1, 1], 100)
        assert (described["terms"], described["users"]) == ([], [])
        subscriptions = [
            {"id": f"s{i}", **SUBSCRIPTIONS["nearest"], "location": [i % 5 / 5, i // 5 / 5]} for i in range(25)
        ]
        await client.post("/v1/subscriptions", json=subscriptions)
        shards = (await client.get("/v1/shards")).json()
        assert [region["shards"] for region in shards["regions"]] == [[0], [1], [2]]
        assert sum(shards["loads"]) == 25
        assert (shards["adjustments"], shards["last_adjustment"]) == (0, None)


async def test_shards_show_the_last_adjustment_to_the_load(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "Balance", partial(Balance, every=1, messages=20))
    async with in_process(tmp_path, replace(SHARDED, partitioner="space_kd", balance=1.0)) as client:
        places = [[0.05 * (i % 7), 0.02 * i] for i in range(40)]
        subscriptions = [
            {"id": f"s{i}", "kind": "boolean", "region": [x, y, x + 0.05, y + 0.05], "keywords": "coffee"}
            for i, (x, y) in enumerate(places)
        ]
        assert (await client.post("/v1/subscriptions", json=subscriptions)).is_success
        messages = [{**message(i), "text": "coffee", "location": [0.01 * (i % 5), 0.3]} for i in range(20)]
        assert (await client.post("/v1/messages", json=messages)).is_success
        shards = (await client.get("/v1/shards")).json()
        assert shards["adjustments"] == 1 and len(shards["loads"]) == 3
        last = shards["last_adjustment"]
        assert last["action"] == "move"
        assert last["load_ratio_before"] > last["load_ratio_after"] >= 1
        assert last["steps"] > 0 and last["moved_bytes"] >= last["moved_subscriptions"] > 0


async def test_the_feed_streams_messages_and_statistics(tmp_path):
    async with on_network(tmp_path) as client:
        await client.post("/v1/messages", json=message(6))
        async with client.stream("GET", "/v1/feed") as feed:
            lines = feed.aiter_lines()
            assert await anext(lines) == "event: ready"
            await client.post("/v1/messages", json=message(7))
            name, received = "ready", {"messages": [], "stats": []}
            async with asyncio.timeout(20):
                while len(received["messages"]) < 2 or not received["stats"]:
                    line = await anext(lines)
                    if line.startswith("event: "):
                        name = line.removeprefix("event: ")
                    elif line.startswith("data: ") and name in received:
                        data = json.loads(line.removeprefix("data: "))
                        received[name] += data if name == "messages" else [data]
        assert received["messages"] == [message(number, at=None, place=None, attributes=None) for number in (6, 7)]
        assert sum(stats["messages_per_second"] for stats in received["stats"]) > 0
        assert received["stats"][0]["is_reporting"], "an engine always reports"
