"""Filters of subscriptions over REST: regions, conditions on attributes, and required words."""

import asyncio

import pytest

from nearcast.errors import InvalidInput
from nearcast.model import kinds
from nearcast.service.config import ServiceConfig
from nearcast.service.region_json import circle_json
from service.running_service import CONFIG, SUBSCRIPTIONS, in_process, message
from service.test_api import GEOJSON, problem

ATTRIBUTES = {"price": "float", "category": "str", "stars": "int", "is_open": "bool"}
WITH_ATTRIBUTES = ServiceConfig(bounds=(0, 0, 1, 1), window_count=100, clock="event", attributes=ATTRIBUTES)
RING = [[0, 0], [0.5, 0], [0.5, 0.5], [0, 0.5], [0, 0]]
HOLE = [[0.1, 0.1], [0.1, 0.2], [0.2, 0.2], [0.1, 0.1]]
TRIANGLE = [[0.6, 0.6], [0.9, 0.6], [0.6, 0.9], [0.6, 0.6]]
POLYGON = {"type": "Polygon", "coordinates": [RING, HOLE]}
AREAS = {"type": "MultiPolygon", "coordinates": [[RING, HOLE], [TRIANGLE]]}
CIRCLE = circle_json([0.2, 0.3], 0.1)
REGIONS = {"box": [0, 0, 0.5, 0.5], "polygon": POLYGON, "multipolygon": AREAS, "circle": CIRCLE}
CQL2_JSON = {
    "op": "and",
    "args": [
        {"op": "<=", "args": [{"property": "price"}, 300]},
        {"op": "in", "args": [{"property": "category"}, ["bike", "kid's bike"]]},
    ],
}
CQL2_TEXT = "price <= 300 AND category IN ('bike', 'kid''s bike')"


def bike(number, location=(0.2, 0.3), text="coffee sale", **attributes):
    return message(number, text, location, attributes=attributes)


async def matched(client, *messages):
    """Return the messages that entered the result of s1, of those published."""
    await client.post("/v1/messages", json=list(messages))
    results = (await client.get("/v1/subscriptions/s1/results")).json()["results"]
    return sorted(result["message"] for result in results)


@pytest.mark.parametrize("form", REGIONS)
async def test_a_region_decides_whatever_its_form_and_is_returned_as_sent(tmp_path, form):
    body = {**SUBSCRIPTIONS["boolean"], "region": REGIONS[form]}
    async with in_process(tmp_path) as client:
        assert (await client.put("/v1/subscriptions/s1", json=body)).status_code == 201
        assert (await client.get("/v1/subscriptions/s1")).json() == {"id": "s1", **body}
        at = {"box": (0.5, 0.5), "polygon": (0.15, 0.05), "multipolygon": (0.7, 0.7), "circle": (0.2, 0.39)}[form]
        outside = {"circle": (0.2, 0.41), "polygon": (0.12, 0.17), "multipolygon": (0.55, 0.55), "box": (0.51, 0.5)}
        assert await matched(client, message(1, location=at), message(2, location=outside[form])) == ["m1"]
        explained = (await client.post("/v1/subscriptions/s1/explain", json=message(3, location=(0.95, 0.95)))).json()
        region, _ = explained["parts"]
        assert (region["name"], region["passes"]) == ("region", False)
        assert len(region["note"]) < 100


@pytest.mark.parametrize(
    "spelled",
    [
        {"type": "Feature", "geometry": POLYGON, "properties": None},
        {**POLYGON, "bbox": [0, 0, 1, 1], "crs": {"of": "old files"}},
    ],
)
async def test_what_geojson_may_add_to_a_region_is_left_out(tmp_path, spelled):
    async with in_process(tmp_path) as client:
        await client.put("/v1/subscriptions/s1", json={**SUBSCRIPTIONS["boolean"], "region": spelled})
        assert (await client.get("/v1/subscriptions/s1")).json()["region"] == POLYGON


async def test_a_circle_may_have_its_radius_beside_its_centre(tmp_path):
    point = {"type": "Point", "coordinates": [0.2, 0.3], "radius": 0.1}
    async with in_process(tmp_path) as client:
        await client.put("/v1/subscriptions/s1", json={**SUBSCRIPTIONS["boolean"], "region": point})
        assert (await client.get("/v1/subscriptions/s1")).json()["region"] == CIRCLE


@pytest.mark.parametrize("kind", SUBSCRIPTIONS)
async def test_every_kind_takes_all_its_filters(tmp_path, kind):
    types = next(one for one in kinds() if one.kind == kind).all_field_types()
    given = {"region": POLYGON, "where": CQL2_TEXT, "require": 'sale NOT "no sale"'}
    body = {**SUBSCRIPTIONS[kind], **{name: value for name, value in given.items() if name in types}}
    if "k" in body:
        body["k"] = 10
    async with in_process(tmp_path, WITH_ATTRIBUTES) as client:
        assert (await client.put("/v1/subscriptions/s1", json=body)).status_code == 201
        assert (await client.get("/v1/subscriptions/s1")).json() == {"id": "s1", **body}
        passing = {"price": 250, "category": "bike"}
        found = await matched(
            client,
            bike(1, **passing),
            bike(2, **{**passing, "price": 300.5}),
            bike(3, category="bike"),  # a missing price is unknown
            bike(4, location=(0.12, 0.17), **passing),  # in the hole
            bike(5, text="coffee, no sale", **passing),
        )
        assert found == ["m1"] if "require" in body else ["m1", "m5"]
        explained = (
            await client.post("/v1/subscriptions/s1/explain", json=bike(6, price=999, category="bike"))
        ).json()
        where = next(part for part in explained["parts"] if part["name"] == "where")
        assert (where["passes"], where["condition"], where["weight"]) == (False, CQL2_TEXT, None)
        assert not explained["passes"] and "where" in explained["reason"]


async def test_cql2_json_is_stored_as_text(tmp_path):
    async with in_process(tmp_path, WITH_ATTRIBUTES) as client:
        body = {**SUBSCRIPTIONS["topk"], "where": CQL2_JSON}
        await client.put("/v1/subscriptions/s1", json=body)
        assert (await client.get("/v1/subscriptions/s1")).json()["where"] == CQL2_TEXT
        assert await matched(client, bike(1, price=1, category="kid's bike"), bike(2, price=1)) == ["m1"]
        (found,) = (await client.get("/v1/subscriptions?search=PRICE")).json()["subscriptions"]
        assert found["id"] == "s1"


@pytest.mark.parametrize(
    ("change", "field", "rule"),
    [
        (
            {"region": {"type": "LineString", "coordinates": []}},
            "region",
            "must be [xmin, ymin, xmax, ymax], a GeoJSON",
        ),
        ({"region": "POLYGON ((0 0, 1 0, 0 1))"}, "region", "must be [xmin, ymin, xmax, ymax], a GeoJSON"),
        ({"region": [0, 0, 1]}, "region", "List should have at least 4 items"),
        ({"region": [1, 0, 0, 1]}, "region", "must have xmin <= xmax on a plane"),
        ({"region": {"type": "Polygon"}}, "region.coordinates", "must be given"),
        ({"region": {"type": "Polygon", "coordinates": [[[0, "a"]]]}}, "region.coordinates.0.0.1", "must be a valid"),
        ({"region": {"type": "Polygon", "coordinates": []}}, "region", "must not be empty"),
        (
            {"region": {"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0], [0, 1]]]}},
            "region",
            "must be a valid",
        ),
        ({"region": circle_json([0, 0], -1)}, "region", "must be a region whose radius must be"),
        ({"region": circle_json([0, 0], None)}, "region.properties.radius", "must be a valid number"),
        ({"where": "price <="}, "where", "must be a condition on attributes"),
        ({"where": "colour = 'red'"}, "where", "must name attributes of the engine"),
        ({"where": "category < 'x'"}, "where", "must compare category, which is a str"),
        ({"where": {"op": "like", "args": []}}, "where", "must have an op among"),
        ({"where": {"op": "=", "args": [{"property": "price"}, None]}}, "where.args.1", "must compare with a finite"),
        ({"where": {"op": "=", "args": [{"property": "colour"}, 1]}}, "where", "must name attributes of the engine"),
        ({"where": f"price < {'1' * 20_000}"}, "where", "must be at most 16384 bytes"),
        ({"where": 7}, "where", "must be a valid string"),
        ({"require": "NOT ("}, "require", "must be words and phrases"),
        ({"require": " "}, "require", "must hold at least one term"),
    ],
)
async def test_an_error_of_a_filter_names_field_rule_and_value(tmp_path, change, field, rule):
    async with in_process(tmp_path, WITH_ATTRIBUTES) as client:
        body = problem(await client.put("/v1/subscriptions/s1", json={**SUBSCRIPTIONS["topk"], **change}), 422)
        (error,) = body["errors"]
        assert error["field"] == field and error["rule"].startswith(rule)
        assert len(body["detail"]) < 1000


async def test_a_region_has_a_limited_number_of_points(tmp_path):
    ring = [[0.5 + 0.1 * i / 20_000, 0.1 * (i % 2)] for i in range(20_000)]
    body = {**SUBSCRIPTIONS["boolean"], "region": {"type": "Polygon", "coordinates": [ring]}}
    async with in_process(tmp_path, max_body_bytes=8_000_000) as client:
        (error,) = problem(await client.put("/v1/subscriptions/s1", json=body), 422)["errors"]
        assert error == {"field": "region", "rule": "must have at most 10000 points", "value": 20_000}


@pytest.mark.parametrize(
    ("attributes", "field", "rule"),
    [
        ({"colour": 1}, "attributes", "must be declared by the engine"),
        ({"price": "9"}, "price", "must be a finite number"),
        ({"stars": 1.5}, "stars", "must be an integer"),
        ({"is_open": 1}, "is_open", "must be True or False"),
        ({"category": ["a"]}, "attributes.category", "must be a number, a string, a boolean or null"),
        ({"category": "x" * 600}, "category", "must be at most 512 bytes"),
        ([], "attributes", "must be a valid dictionary"),
    ],
)
async def test_a_bad_attribute_is_refused_with_its_name(tmp_path, attributes, field, rule):
    async with in_process(tmp_path, WITH_ATTRIBUTES) as client:
        body = message(1, attributes=attributes)
        (error,) = problem(await client.post("/v1/messages", json=body), 422)["errors"]
        assert error["field"] == field and error["rule"].startswith(rule)


async def test_attributes_are_returned_with_the_message(tmp_path):
    given = {"price": 2.5, "category": "bike", "stars": 4, "is_open": True}
    async with in_process(tmp_path, WITH_ATTRIBUTES) as client:
        await client.put("/v1/subscriptions/s1", json=SUBSCRIPTIONS["topk"])
        await client.post("/v1/messages", json=bike(1, **given))
        await client.put("/v1/messages/m2", json={"location": [0.2, 0.3], "text": "coffee", "attributes": given})
        assert (await client.get("/v1/messages/m1")).json()["attributes"] == given
        results = (await client.get("/v1/subscriptions/s1/results?include=message")).json()["results"]
        assert [result["content"]["attributes"] for result in results] == [given, given]
        assert (await client.get("/v1/config")).json()["attributes"] == ATTRIBUTES
        feature = {"type": "Feature", "id": "m3", "geometry": {"type": "Point", "coordinates": [0.2, 0.3]}}
        properties = {"text": "coffee", "attributes": given}
        assert (await client.post("/v1/messages", json={**feature, "properties": properties})).status_code == 200
        assert (await client.get("/v1/messages/m3")).json()["attributes"] == given


@pytest.mark.parametrize("form", REGIONS)
async def test_a_subscription_is_a_feature_of_its_region(tmp_path, form):
    body = {**SUBSCRIPTIONS["boolean"], "region": REGIONS[form]}
    filtered = {**SUBSCRIPTIONS["nearest"], "region": REGIONS[form]}
    async with in_process(tmp_path) as client:
        await client.put("/v1/subscriptions/a", json=body)
        await client.put("/v1/subscriptions/b", json=filtered)
        collection = (await client.get("/v1/subscriptions", headers=GEOJSON)).json()
        area, pin = collection["features"]
        expected = {"box": "Polygon", "polygon": "Polygon", "multipolygon": "MultiPolygon", "circle": "Point"}[form]
        assert area["geometry"]["type"] == expected
        assert area["properties"].get("radius") == (0.1 if form == "circle" else None)
        assert pin["geometry"] == {"type": "Point", "coordinates": [0.2, 0.3]}
        assert pin["properties"]["region"] == REGIONS[form]
        await client.post("/v1/subscriptions", json=collection)
        assert (await client.get("/v1/subscriptions/a")).json() == {"id": "a", **body}
        assert (await client.get("/v1/subscriptions/b")).json() == {"id": "b", **filtered}


async def test_queries_of_a_view_find_regions_by_their_extent(tmp_path):
    earth = ServiceConfig(bounds=(-180, -90, 180, 90), metric="haversine", window_count=9, clock="event")
    triangle = {"type": "Polygon", "coordinates": [[[10, 10], [20, 10], [10, 20], [10, 10]]]}
    regions = {"circle": circle_json([0, 0], 111_200), "polygon": triangle, "across": [170, -20, -170, -10]}
    async with in_process(tmp_path, earth) as client:
        for id_, region in regions.items():
            body = {**SUBSCRIPTIONS["boolean"], "region": region}
            assert (await client.put(f"/v1/subscriptions/{id_}", json=body)).status_code == 201
        for box, found in (
            ("0.9,0,2,1", {"circle"}),
            ("1.1,0,2,1", set()),
            ("15,15,30,30", {"polygon"}),
            ("175,-15,180,-12", {"across"}),
        ):
            page = (await client.get(f"/v1/subscriptions?within={box}")).json()
            assert {one["id"] for one in page["subscriptions"]} == found


@pytest.mark.parametrize("saves", [True, False], ids=["from a snapshot", "from the journal"])
async def test_attributes_and_filters_survive_a_restart(tmp_path, saves):
    body = {**SUBSCRIPTIONS["topk"], "k": 10, "region": AREAS, "where": CQL2_TEXT, "require": "sale"}
    async with in_process(tmp_path, WITH_ATTRIBUTES) as client:
        await client.put("/v1/subscriptions/s1", json=body)
        assert await matched(client, bike(1, price=1, category="bike"), bike(2, price=999, category="bike")) == ["m1"]
        if not saves:
            client.app.state.service.command_loop._store._backend.save = lambda number: None
    async with in_process(tmp_path, None) as client:
        assert (await client.get("/v1/config")).json()["attributes"] == ATTRIBUTES
        assert (await client.get("/v1/subscriptions/s1")).json() == {"id": "s1", **body}
        found = await matched(client, bike(3, price=2, category="bike"), bike(4, price=2, category="car"))
        assert found == ["m1", "m3"]
        explained = (await client.get("/v1/subscriptions/s1/explain?message=m2")).json()
        assert not explained["passes"] and "where" in explained["reason"], "the window holds its price"
        looser = {**body, "where": "price > 100"}
        await client.put("/v1/subscriptions/s1", json=looser)
        assert await matched(client) == ["m2"], "the window is searched by the attributes of old messages"


async def test_other_attributes_than_those_of_the_folder_are_refused(tmp_path):
    async with in_process(tmp_path, WITH_ATTRIBUTES):
        pass
    for attributes in ({}, {**ATTRIBUTES, "price": "int"}, {**ATTRIBUTES, "colour": "str"}):
        other = ServiceConfig(bounds=(0, 0, 1, 1), window_count=100, clock="event", attributes=attributes)
        with pytest.raises(InvalidInput, match=r"attributes must be .*, as the data folder was created with"):
            async with in_process(tmp_path, other):
                pass


async def test_a_folder_without_attributes_continues(tmp_path):
    async with in_process(tmp_path, CONFIG) as client:
        await client.put("/v1/subscriptions/s1", json=SUBSCRIPTIONS["topk"])
    async with in_process(tmp_path, CONFIG) as client:
        assert await matched(client, message(1)) == ["m1"]


async def test_many_filters_at_once_are_all_or_nothing(tmp_path):
    good = [{"id": f"s{i}", **SUBSCRIPTIONS["topk"], "where": f"price < {i}"} for i in range(20)]
    async with in_process(tmp_path, WITH_ATTRIBUTES) as client:
        bad = [*good, {"id": "bad", **SUBSCRIPTIONS["topk"], "where": "colour = 1"}]
        body = problem(await client.post("/v1/subscriptions", json=bad), 422)
        assert "subscription 'bad'" in body["detail"]
        assert (await client.get("/v1/subscriptions")).json()["total"] == 0
        answers = await asyncio.gather(*(client.post("/v1/subscriptions", json=[one]) for one in good))
        assert {answer.status_code for answer in answers} == {200}
