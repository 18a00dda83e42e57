"""Overviews of many subscriptions: filters, counts and clusters; and pages of results."""

from contextlib import closing

import pytest

from nearcast.service.api.access import Caller, hash_token
from nearcast.service.store.journal import Journal, JournalReader
from service.running_service import SUBSCRIPTIONS, in_process, message

KINDS = list(SUBSCRIPTIONS)
N = 240


def many(n=N):
    """Return subscriptions of all kinds, one per column of a grid of 20 x 12; every tenth is about tea."""
    return [grid_subscription(number) for number in range(n)]


def grid_subscription(number):
    body = dict(SUBSCRIPTIONS[KINDS[number % len(KINDS)]])
    x, y = (number % 20 + 0.5) / 20, (number // 20 + 0.5) / 12
    place = {"region": [x, y, x + 0.01, y + 0.01]} if "region" in body else {"location": [x, y]}
    words = {"keywords": "Green Tea"} if number % 10 == 0 else {}
    return {"id": f"s{number:03d}", **body, **place, **words}


async def ids_of(client, **params):
    """Return the ids of all pages of a list."""
    ids, cursor = [], ""
    while cursor is not None:
        page = (await client.get("/v1/subscriptions", params={**params, "limit": 7, "cursor": cursor})).json()
        ids += [one["id"] for one in page["subscriptions"]]
        assert (page["total"] is None) == bool(cursor), "only the first page counts"
        cursor = page["next"]
    return ids


async def test_a_list_is_filtered_and_counted(tmp_path):
    bodies = many()
    teas = [body["id"] for body in bodies if body["keywords"] == "Green Tea"]
    async with in_process(tmp_path) as client:
        await client.post("/v1/subscriptions", json=bodies)
        assert await ids_of(client, search="TEA gre") == teas
        assert await ids_of(client, search="tea s01") == ["s010"]
        assert await ids_of(client, search="green%") == [], "no pattern"
        topk = [body["id"] for body in bodies if body["kind"] == "topk"]
        assert await ids_of(client, kind="topk") == topk == await ids_of(client, search="best matches")
        assert await ids_of(client, search="tea", kind="topk") == sorted({*teas} & {*topk})
        assert await ids_of(client, id=["s003", "s001", "unknown"]) == ["s001", "s003"]
        page = (await client.get("/v1/subscriptions", params={"search": "tea", "kind": "topk", "limit": 1})).json()
        assert (page["total"], page["kinds"]) == (12, {"boolean": 12, "topk": 12})
        assert (await client.get("/v1/subscriptions")).json()["total"] == N
        await client.put("/v1/subscriptions/s010", json=SUBSCRIPTIONS["topk"])
        await client.delete("/v1/subscriptions/s000")
        assert await ids_of(client, search="tea") == teas[2:], "replaced and deleted ones are not found any more"


async def test_a_list_is_restricted_to_a_box(tmp_path):
    async with in_process(tmp_path) as client:
        await client.post("/v1/subscriptions", json=many())
        inside = [f"s{row * 20 + column:03d}" for row in range(6) for column in range(10)]
        assert await ids_of(client, within="0,0,0.5,0.5") == inside
        assert await ids_of(client, within="0.034,0,0.036,0.1") == ["s000"], "its box overlaps the edge"
        assert await ids_of(client, within="0.025,0.125,0.025,0.125") == ["s020"], "a point may be the box"


@pytest.mark.parametrize("within", ["", "0,0,1", "0,0,1,1,1", "0,0,1,x", "0,0,1,nan", "1,0,0,1"])
async def test_a_bad_box_is_named(tmp_path, within):
    async with in_process(tmp_path) as client:
        for path in ("/v1/subscriptions", "/v1/clusters"):
            answer = await client.get(path, params={"within": within})
            (error,) = answer.json()["errors"]
            assert (answer.status_code, error["field"], error["value"]) == (422, "within", within)
            assert "xmin,ymin,xmax,ymax" in error["rule"]
        unknown = await client.get("/v1/subscriptions", params={"kind": "circle"})
        assert unknown.json()["errors"][0]["field"] == "kind"


async def test_a_view_shows_subscriptions_or_clusters_that_sum_up(tmp_path):
    async with in_process(tmp_path) as client:

        async def overview(**params):
            return (await client.get("/v1/clusters", params=params)).json()

        await client.post("/v1/subscriptions", json=many())
        whole = await overview(within="0,0,1,1")
        assert whole["total"] == sum(cluster["count"] for cluster in whole["clusters"]) == N
        assert whole["subscriptions"] == [] and 16 <= len(whole["clusters"]) <= 81
        for cluster in whole["clusters"]:
            xmin, ymin, xmax, ymax = cluster["box"]
            assert xmin <= cluster["location"][0] <= xmax <= xmin + 0.125
            assert ymin <= cluster["location"][1] <= ymax <= ymin + 0.125
        moved = await overview(within="0.001,0.001,1.001,1.001")
        boxes = [{str(cluster["box"]) for cluster in view["clusters"]} for view in (whole, moved)]
        assert boxes[0] == boxes[1], "cells stay where they are"
        part = await overview(within="0,0,0.5,0.5")
        assert (part["total"], part["clusters"]) == (60, [])
        assert [one["id"] for one in part["subscriptions"]] == await ids_of(client, within="0,0,0.5,0.5")
        few = await overview(within="0,0,0.5,0.5", limit=59)
        assert few["subscriptions"] == [] and sum(cluster["count"] for cluster in few["clusters"]) == 60
        assert (await overview(within="0,0,1,1", search="tea", kind="topk"))["total"] == 12
        assert (await overview(within="-1e308,-1e308,1e308,1e308"))["total"] == N
        assert (await overview(within="2,2,3,3")) == {"total": 0, "subscriptions": [], "clusters": []}
        same = [{"id": f"same-{number}", **SUBSCRIPTIONS["topk"]} for number in range(9)]
        await client.post("/v1/subscriptions", json=same)
        (stacked,) = (await overview(within="0.2,0.3,0.2,0.3", limit=5))["clusters"]
        assert stacked == {"location": pytest.approx([0.2, 0.3]), "count": 9, "box": [0.2, 0.3, 0.2, 0.3]}


async def test_other_subscribers_are_not_counted(tmp_path):
    callers = {hash_token(name): Caller(name, frozenset({"subscribe"})) for name in ("ann", "bob")}
    async with in_process(tmp_path, callers=callers) as client:
        for name, n in (("ann", N), ("bob", 3)):
            client.headers["authorization"] = f"Bearer {name}"
            await client.post("/v1/subscriptions", json=many(n))
        page = (await client.get("/v1/subscriptions")).json()
        view = (await client.get("/v1/clusters", params={"within": "0,0,1,1"})).json()
        assert (len(page["subscriptions"]), page["total"], sum(page["kinds"].values())) == (3, 3, 3)
        assert (view["total"], len(view["subscriptions"])) == (3, 3)


@pytest.mark.parametrize("kind", ["boolean", "topk", "nearest"])
async def test_results_have_pages_and_parts(tmp_path, kind):
    async with in_process(tmp_path) as client:
        await client.put(
            "/v1/subscriptions/s", json={**SUBSCRIPTIONS[kind]} | ({"k": 25} if kind != "boolean" else {})
        )
        await client.post("/v1/messages", json=[message(i, location=(0.2, 0.3 + i / 1000)) for i in range(25)])
        whole = (await client.get("/v1/subscriptions/s/results")).json()
        assert (whole["total"], whole["next"], len(whole["results"])) == (25, None, 25)
        rows, cursor, sizes = [], "", []
        while cursor is not None:
            params = {"limit": 10, "cursor": cursor, "parts": True}
            page = (await client.get("/v1/subscriptions/s/results", params=params)).json()
            assert page["total"] == 25
            rows, cursor, sizes = rows + page["results"], page["next"], [*sizes, len(page["results"])]
        assert sizes == [10, 10, 5]
        for row, plain in zip(rows, whole["results"], strict=True):
            explained = (await client.get("/v1/subscriptions/s/explain", params={"message": row["message"]})).json()
            assert row == {**plain, "parts": explained["parts"]} and row["parts"]
        bad = await client.get("/v1/subscriptions/s/results", params={"cursor": "-1"})
        assert bad.json()["errors"][0]["field"] == "cursor"


async def test_parts_are_known_of_messages_that_left_the_window(tmp_path):
    async with in_process(tmp_path) as client:
        await client.put("/v1/subscriptions/s", json=SUBSCRIPTIONS["nearest"])
        await client.post("/v1/messages", json=message(1))
        await client.post("/v1/messages", json=[message(i, "tea") for i in range(2, 150)])
        assert (await client.get("/v1/subscriptions/s/explain", params={"message": "m1"})).status_code == 404
        (row,) = (await client.get("/v1/subscriptions/s/results", params={"parts": True})).json()["results"]
        assert row["parts"][0]["distance"] == 0


async def test_a_preview_counts_what_the_result_would_hold(tmp_path):
    async with in_process(tmp_path) as client:
        await client.post(
            "/v1/messages", json=[message(i, "tea" if i % 3 == 0 else "coffee sale") for i in range(90)]
        )
        for kind, total in (("boolean", 60), ("topk", 2)):
            preview = (await client.post("/v1/preview", json={"id": "x", **SUBSCRIPTIONS[kind]})).json()
            assert (preview["total"], len(preview["results"]), preview["among"]) == (total, total, 90)


async def test_a_page_and_its_counts_are_of_one_moment(tmp_path, monkeypatch):
    count = JournalReader.count_by_kind
    async with in_process(tmp_path) as client:
        await client.post("/v1/subscriptions", json=many(3))

        def delete_first(reader, subscriber, filter_):
            """Delete a subscription between the page and its counts."""
            with closing(Journal(next(tmp_path.rglob("journal.sqlite")))) as journal, journal.transaction():
                journal.delete_subscriptions(subscriber, ["s001"])
            return count(reader, subscriber, filter_)

        monkeypatch.setattr(JournalReader, "count_by_kind", delete_first)
        page = (await client.get("/v1/subscriptions")).json()
        assert page["total"] == len(page["subscriptions"]) == 3
        monkeypatch.undo()
        assert await ids_of(client) == ["s000", "s002"]
