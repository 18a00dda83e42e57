"""Does the page get what it needs? Its files, the world, previews, who does what, and a feed of what is said."""

import asyncio
import json
import re
from pathlib import Path

from nearcast.service.config import ServiceConfig
from nearcast.service.routes.page import WEB
from service.served import KINDS, listening, message, serving

SHARED = ServiceConfig(bounds=(0, 0, 1, 1), window_count=100, workers=3, partitioner="location")


async def test_the_page_and_all_that_it_names_are_served(tmp_path):
    async with serving(tmp_path) as client:
        page = await client.get("/")
        assert page.status_code == 200
        named = set(re.findall(r'(?:src|href)="(web/[^"]+)"', page.text))
        for script in Path(WEB).glob("*.js"):
            named |= {f"web/{name}" for name in re.findall(r'from "\./([^"]+)"', script.read_text())}
        assert "web/vendor/maplibre-gl.mjs" in named
        for name in sorted({*named, "web/land.json"}):
            assert (await client.get(name)).status_code == 200, name
        assert "http" not in page.text, "nothing comes from elsewhere"
        assert page.headers["content-security-policy"].startswith("default-src 'self'")


async def test_a_preview_is_what_a_subscription_would_hold_and_subscribes_nothing(tmp_path):
    async with serving(tmp_path) as client:
        await client.post("/v1/messages", json=[message(1), message(2, "tea"), message(3, where=(0.9, 0.9))])
        said = (await client.post("/v1/preview", json={"id": "x", **KINDS["topk"]})).json()["results"]
        assert [one["message"] for one in said] == ["m1", "m3"]
        assert said[0]["text"] == "coffee sale" and said[0]["location"] == [0.2, 0.3]
        assert sum(part["value"] * part["weight"] for part in said[0]["parts"]) == said[0]["score"]
        assert (await client.get("/v1/subscriptions")).json()["subscriptions"] == []
        refused = await client.post("/v1/preview", json={"id": "x", **KINDS["topk"], "alpha": 2})
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["field"] == "alpha"


async def test_the_world_and_who_does_which_part(tmp_path):
    async with serving(tmp_path, SHARED) as client:
        world = (await client.get("/v1/world")).json()
        assert (world["bounds"], world["window_count"], world["words"], world["people"]) == (
            [0, 0, 1, 1],
            100,
            [],
            [],
        )
        subscriptions = [{"id": f"s{i}", **KINDS["nearest"], "location": [i % 5 / 5, i // 5 / 5]} for i in range(25)]
        await client.post("/v1/subscriptions", json=subscriptions)
        shards = (await client.get("/v1/shards")).json()
        assert [region["shards"] for region in shards["regions"]] == [[0], [1], [2]]
        assert sum(shards["loads"]) == 25


async def test_the_feed_shows_what_was_said_last_what_is_said_and_how_it_goes(tmp_path):
    async with listening(tmp_path) as client:
        await client.post("/v1/messages", json=message(6))
        async with client.stream("GET", "/v1/feed") as feed:
            lines = feed.aiter_lines()
            assert await anext(lines) == "event: ready"
            await client.post("/v1/messages", json=message(7))
            name, seen = "ready", {"messages": [], "stats": []}
            async with asyncio.timeout(20):
                while len(seen["messages"]) < 2 or not seen["stats"]:
                    line = await anext(lines)
                    if line.startswith("event: "):
                        name = line.removeprefix("event: ")
                    elif line.startswith("data: ") and name in seen:
                        said = json.loads(line.removeprefix("data: "))
                        seen[name] += said if name == "messages" else [said]
        assert seen["messages"] == [message(number, at=None, place=None) for number in (6, 7)]
        assert sum(stats["messages_per_second"] for stats in seen["stats"]) > 0
