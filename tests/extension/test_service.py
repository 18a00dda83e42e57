"""The REST API serves a registered kind, with its schema in OpenAPI."""

import asyncio

from service.running_service import in_process, message

BODY = {"kind": "latest", "location": [0.2, 0.3], "keywords": "coffee", "k": 2, "radius": 0.1}


def test_a_registered_kind_is_subscribed_explained_and_restored(tmp_path):
    async def first_run():
        async with in_process(tmp_path) as client:
            assert (await client.put("/v1/subscriptions/l", json=BODY)).status_code == 201
            for number, location in enumerate([(0.2, 0.3), (0.9, 0.9), (0.25, 0.3), (0.2, 0.35)]):
                await client.post("/v1/messages", json=message(number, location=location))
            assert (await client.get("/v1/subscriptions/l")).json() == {"id": "l", **BODY}
            params = {"search": "coffee nearby", "kind": "latest", "within": "0.1,0.2,0.3,0.4"}
            assert (await client.get("/v1/subscriptions", params=params)).json()["kinds"] == {"latest": 1}
            return (await client.get("/v1/subscriptions/l/results")).json()["results"]

    async def second_run():
        async with in_process(tmp_path) as client:
            explained = (await client.get("/v1/subscriptions/l/explain", params={"message": "m1"})).json()
            return (await client.get("/v1/subscriptions/l/results")).json()["results"], explained

    results = asyncio.run(first_run())
    assert [result["message"] for result in results] == ["m3", "m2"]
    again, explained = asyncio.run(second_run())
    assert again == results
    assert not explained["passes"] and explained["parts"][0]["distance"] > 0.9


def test_openapi_and_kinds_describe_the_fields(tmp_path):
    async def run():
        async with in_process(tmp_path) as client:
            schemas = (await client.get("/openapi.json")).json()["components"]["schemas"]
            kinds = {kind["kind"]: kind for kind in (await client.get("/v1/kinds")).json()}
            bad = await client.put("/v1/subscriptions/l", json=BODY | {"radius": -1})
            return schemas, kinds, bad

    schemas, kinds, bad = asyncio.run(run())
    described = schemas["LatestSubscription"]["properties"]["radius"]
    assert described["description"] == "The greatest distance of a message."
    assert (described["minimum"], described["maximum"]) == (0, 10_000)
    assert kinds["latest"]["label"] == "Latest nearby"
    assert kinds["latest"]["fields"]["radius"]["step"] == 100
    assert bad.status_code == 422 and bad.json()["errors"][0]["field"] == "radius"
