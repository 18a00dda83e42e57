"""The REST API: subscriptions, messages, GeoJSON, streams, errors, limits and health."""

import asyncio
import json
from dataclasses import replace

import pytest

from nearcast.service.config import ServiceConfig
from service.running_service import CONFIG, SUBSCRIPTIONS, in_process, message, on_network
from service.simulated_host import START_S, SimulatedHost

GEOJSON = {"accept": "application/geo+json"}
POINT = {"type": "Point", "coordinates": [0.2, 0.3]}


def problem(response, status):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["status"] == status and body["title"] and body["detail"]
    return body


@pytest.mark.parametrize("kind", SUBSCRIPTIONS)
async def test_a_subscription_is_created_replaced_read_and_deleted(tmp_path, kind):
    async with in_process(tmp_path) as client:
        created = await client.put("/v1/subscriptions/s1", json=SUBSCRIPTIONS[kind])
        assert created.status_code == 201 and created.json()["created"] == ["s1"]
        replaced = await client.put("/v1/subscriptions/s1", json=SUBSCRIPTIONS[kind])
        assert replaced.status_code == 200 and replaced.json()["replaced"] == ["s1"]
        assert (await client.get("/v1/subscriptions/s1")).json() == {"id": "s1", **SUBSCRIPTIONS[kind]}
        published = await client.post("/v1/messages", json=message(1))
        assert published.json() == {"command": 3, "messages": 1, "late": 0, "seq": 1, "updates": 1}
        results = (await client.get("/v1/subscriptions/s1/results")).json()
        (result,) = results["results"]
        assert result == {"message": "m1", "score": result["score"], "at": None, "place": None, "location": [0.2, 0.3], "text": "coffee sale"}  # fmt: skip
        explanation = (await client.get("/v1/subscriptions/s1/explain", params={"message": "m1"})).json()
        fields = [explanation[name] for name in ("kind", "subscription", "message", "passes")]
        assert fields == [kind, "s1", "m1", True]
        assert explanation["score"] == result["score"]
        hypothetical = (await client.post("/v1/subscriptions/s1/explain", json=message(2, "tea"))).json()
        assert hypothetical["message"] == "m2" and not hypothetical["passes"]
        assert (await client.delete("/v1/subscriptions/s1")).status_code == 200
        for path in ("s1", "s1/results", "s1/explain?message=m1"):
            body = problem(await client.get(f"/v1/subscriptions/{path}"), 404)
            assert body["errors"] == [{"field": "id", "rule": "must be subscribed", "value": "s1"}]
        problem(await client.delete("/v1/subscriptions/s1"), 404)


async def test_an_operator_in_small_letters_gets_a_hint(tmp_path):
    hint = "'or' is searched as a word. Write OR in capitals to use it as an operator."
    small, large = ({**SUBSCRIPTIONS["boolean"], "keywords": words} for words in ("coffee or tea", "coffee OR tea"))
    async with in_process(tmp_path) as client:
        answer = await client.post("/v1/subscriptions", json=[{"id": "small", **small}, {"id": "large", **large}])
        assert answer.json()["hints"] == {"small": [hint]}
        for id_, hints in (("small", [hint]), ("large", [])):
            explained = await client.post(f"/v1/subscriptions/{id_}/explain", json=message(1))
            assert explained.json()["hints"] == hints
        assert (await client.post("/v1/preview", json={"id": "new", **small})).json()["hints"] == [hint]


async def test_texts_are_analyzed_and_explanations_have_highlights(tmp_path):
    box = {"kind": "boolean", "region": [0, 0, 1, 1]}
    async with in_process(tmp_path, replace(CONFIG, analyzer="english")) as client:
        assert (await client.get("/v1/config")).json()["analyzer"] == "english"
        given = [{"id": "run", **box, "keywords": "runs AND shoe"}, {"id": "cafe", **box, "keywords": "カフェ"}]
        assert (await client.post("/v1/subscriptions", json=given)).status_code == 200
        texts = ["Running SHOES", "東京のカフェでセール", "runner", ["run", "shoe"]]
        published = await client.post("/v1/messages", json=[message(i, text) for i, text in enumerate(texts)])
        assert published.json()["updates"] == 3
        for id_, number, words in (
            ("run", 0, [(0, 7, "Running"), (8, 13, "SHOES")]), ("cafe", 1, [(3, 6, "カフェ")]), ("run", 2, []),
            ("run", 3, [(0, 1, "run"), (1, 2, "shoe")]),
        ):  # fmt: skip
            expected = [dict(zip(("start", "stop", "word"), word, strict=True)) for word in words]
            url = f"/v1/subscriptions/{id_}/explain"
            assert (await client.get(url, params={"message": f"m{number}"})).json()["highlights"] == expected
            unpublished = await client.post(url, json=message(number, texts[number]))
            assert unpublished.json()["highlights"] == expected


async def test_a_city_has_a_social_graph_and_times(tmp_path):
    async with in_process(tmp_path, ServiceConfig(city=0, window_seconds=60, clock="event")) as client:
        friends = {"kind": "social", "location": [9, 54.1], "keywords": "jazz", "k": 3, "user": "u1"}
        assert (await client.put("/v1/subscriptions/g1", json=friends)).status_code == 201
        body = message(1, "jazz", (9, 54.1), at="2026-01-01T00:00:00Z", place="p1")
        assert (await client.post("/v1/messages", json=body)).json()["updates"] == 1
        (result,) = (await client.get("/v1/subscriptions/g1/results")).json()["results"]
        assert (result["at"], result["place"]) == (1767225600.0, "p1")
        body = problem(await client.put("/v1/subscriptions/g2", json={**friends, "user": "unknown"}), 422)
        assert body["errors"] == [{"field": "user", "rule": "must be known to the social graph", "value": "unknown"}]


async def test_in_a_time_window_a_message_without_a_time_gets_the_time_of_arrival(tmp_path):
    config, clock = ServiceConfig(bounds=(0, 0, 1, 1), window_seconds=60), SimulatedHost().clock()
    async with in_process(tmp_path, config, clock=clock) as client:
        await client.put("/v1/subscriptions/s1", json=SUBSCRIPTIONS["topk"])
        first = await client.post("/v1/messages", json=message(1), headers={"Idempotency-Key": "a"})
        repeat = await client.post("/v1/messages", json=message(1), headers={"Idempotency-Key": "a"})
        assert first.status_code == 200 and repeat.json() == first.json(), "the same request, at any time"
        await client.post("/v1/messages", json=[message(2), message(3)])
        results = (await client.get("/v1/subscriptions/s1/results")).json()["results"]
        assert [one["message"] for one in results] == ["m3", "m2"]
        assert START_S <= results[1]["at"] < results[0]["at"] < START_S + 1e-3, "distinct times"


async def test_results_show_the_message_that_matched_and_no_later_one_under_its_id(tmp_path):
    """Another publisher must not replace what a subscriber reads."""
    async with in_process(tmp_path) as client:
        await client.put("/v1/subscriptions/s1", json=SUBSCRIPTIONS["topk"])
        await client.post("/v1/messages", json=message(1, "coffee at nine", place="cafe"))
        await client.post("/v1/messages", json=message(1, "buy something else"))
        (result,) = (await client.get("/v1/subscriptions/s1/results?parts=true")).json()["results"]
        assert (result["message"], result["text"], result["place"]) == ("m1", "coffee at nine", "cafe")
        assert sum(part["value"] * part["weight"] for part in result["parts"]) == pytest.approx(result["score"])


async def test_an_answer_counts_late_messages(tmp_path):
    """Also if several requests were applied together."""
    async with in_process(tmp_path, ServiceConfig(bounds=(0, 0, 1, 1), window_seconds=60, clock="event")) as client:
        await client.post("/v1/messages", json=message(1, at=1000))
        times = ([940, 1001], [1002], [100, 101])
        bodies = [[message(at, at=at) for at in batch] for batch in times]
        answers = await asyncio.gather(*(client.post("/v1/messages", json=body) for body in bodies))
        assert [answer.json()["late"] for answer in answers] == [1, 0, 2]
        lines = "\n".join(json.dumps(message(at, at=at)) for at in (1, 2, 1003))
        counts = (await client.post("/v1/messages/stream", content=lines)).json()
        assert (counts["messages"], counts["late"], counts["rejected"]) == (3, 2, 0)


@pytest.mark.parametrize(
    ("change", "field", "rule", "value"),
    [
        ({"alpha": 1.7}, "alpha", "must be in [0, 1]", 1.7),
        ({"k": 0}, "k", "must be an integer of 1 or more", 0),
        ({"k": "two"}, "k", "must be a valid integer", "two"),
        ({"location": [3, 3]}, "location", "must lie in Box(xmin=0.0, ymin=0.0, xmax=1.0, ymax=1.0)", "(3.0, 3.0)"),
        ({"keywords": ""}, "keywords", "must hold at least one term", ""),
        ({"keywords": None}, "keywords", "must be a valid string", None),
        ({"keywords": ["a", 2]}, "keywords.1", "must be a valid string", 2),
        ({"colour": 1}, "colour", "Extra inputs are not permitted", 1),
    ],
)
async def test_an_error_names_field_rule_and_value(tmp_path, change, field, rule, value):
    async with in_process(tmp_path) as client:
        body = problem(await client.put("/v1/subscriptions/s1", json={**SUBSCRIPTIONS["topk"], **change}), 422)
        assert body["errors"] == [{"field": field, "rule": rule, "value": value}]


async def test_bad_requests_get_distinct_statuses(tmp_path):
    async with in_process(tmp_path, ServiceConfig(bounds=(0, 0, 1, 1))) as client:
        for content in (b"{", b"[[[", b"1e999", b"null", b"NaN", b'"\\ud800"'):
            await check_rejected(client, content, 422)
        for content in (b"\xff", b"1" * 5000):
            await check_rejected(client, content, 400)
        for text, at in (("\ud800", 1), ("x", 1e300), ("x", "yesterday"), ("x", True), ("x" * 70_000, 1)):
            await check_rejected(client, json.dumps(message(1, text, location=(0, 0)) | {"at": at}).encode(), 422)
        await check_rejected(client, json.dumps(message(1, location=(float("nan"), 0))).encode(), 422)
        body = problem(await client.put("/v1/subscriptions/s1", json=SUBSCRIPTIONS["topk"]), 409)
        assert "needs a window" in body["detail"]
        problem(await client.put("/v1/subscriptions/.s1", json=SUBSCRIPTIONS["boolean"]), 422)
        problem(await client.get("/v1/nothing"), 404)
        problem(await client.patch("/v1/messages"), 405)
        assert (await client.post("/v1/messages", json=message(1))).json()["seq"] == 1, "no bad request had an effect"


async def check_rejected(client, content, status):
    response = await client.post("/v1/messages", content=content, headers={"content-type": "application/json"})
    problem(response, status)


async def test_a_batch_is_all_or_nothing(tmp_path):
    async with in_process(tmp_path) as client:
        problem(await client.post("/v1/messages", json=[message(1), message(2, location=(2, 2))]), 422)
        assert (await client.post("/v1/messages", json=[message(1), message(2)])).json()["seq"] == 2
        bulk = [{"id": f"s{i}", **body} for i, body in enumerate(SUBSCRIPTIONS.values())]
        problem(
            await client.post("/v1/subscriptions", json=[*bulk, {"id": "bad", **SUBSCRIPTIONS["topk"], "k": 0}]), 422
        )
        assert (await client.get("/v1/subscriptions")).json()["subscriptions"] == []
        assert (await client.post("/v1/subscriptions", json=bulk)).json()["created"] == ["s0", "s1", "s2", "s3"]


async def test_subscriptions_are_listed_in_pages(tmp_path):
    async with in_process(tmp_path) as client:
        await client.post("/v1/subscriptions", json=[{"id": f"s{i:02d}", **SUBSCRIPTIONS["topk"]} for i in range(25)])
        ids, cursor = [], ""
        while cursor is not None:
            page = (await client.get("/v1/subscriptions", params={"limit": 10, "cursor": cursor})).json()
            assert len(page["subscriptions"]) <= 10
            ids += [one["id"] for one in page["subscriptions"]]
            cursor = page["next"]
        assert ids == [f"s{i:02d}" for i in range(25)]
        problem(await client.get("/v1/subscriptions", params={"limit": 0}), 422)


async def test_geojson_is_returned_on_request(tmp_path):
    async with in_process(tmp_path) as client:
        client.headers.update(GEOJSON)
        await client.post(
            "/v1/subscriptions", json=[{"id": "b", **SUBSCRIPTIONS["boolean"]}, {"id": "t", **SUBSCRIPTIONS["topk"]}]
        )
        await client.post("/v1/messages", json=message(1))
        page = await client.get("/v1/subscriptions")
        assert page.headers["content-type"] == "application/geo+json"
        box, pin = page.json()["features"]
        assert box["geometry"]["coordinates"] == [[[0, 0], [0.5, 0], [0.5, 0.5], [0, 0.5], [0, 0]]]
        assert (pin["id"], pin["geometry"]) == ("t", {"type": "Point", "coordinates": [0.2, 0.3]})
        assert pin["properties"] == {"kind": "topk", "keywords": "coffee", "k": 2, "alpha": 0.5}
        assert (await client.get("/v1/subscriptions/t")).json() == pin
        (feature,) = (await client.get("/v1/subscriptions/t/results")).json()["features"]
        assert (feature["id"], feature["geometry"]["coordinates"]) == ("m1", [0.2, 0.3])


async def test_returned_features_are_accepted_in_requests(tmp_path):
    async with in_process(tmp_path) as client:
        bodies = [{"id": kind, **body} for kind, body in SUBSCRIPTIONS.items()]
        await client.post("/v1/subscriptions", json=bodies)
        collection = (await client.get("/v1/subscriptions", headers=GEOJSON)).json()
        for feature in collection["features"]:
            assert (await client.put(f"/v1/subscriptions/again-{feature['id']}", json=feature)).status_code == 201
        assert (await client.post("/v1/subscriptions", json=collection)).json()["replaced"] == sorted(SUBSCRIPTIONS)
        listed = (await client.get("/v1/subscriptions")).json()["subscriptions"]
        assert [one for one in listed if "again" in one["id"]] == [
            {**one, "id": f"again-{one['id']}"} for one in listed if "again" not in one["id"]
        ]
        feature = {"type": "Feature", "id": "m1", "geometry": POINT, "properties": {"text": "coffee sale"}}
        assert (await client.post("/v1/messages", json=feature)).json()["messages"] == 1
        many = {"type": "FeatureCollection", "features": [{**feature, "id": "m2"}, {**feature, "id": "m3"}]}
        assert (await client.post("/v1/messages", json=many)).json()["seq"] == 3
        lines = "".join(f"{json.dumps({**feature, 'id': f'm{i}'})}\n" for i in range(4, 6))
        assert (await client.post("/v1/messages/stream", content=lines)).json()["messages"] == 2
        results = (await client.get("/v1/subscriptions/topk/results", headers=GEOJSON)).json()["features"]
        assert results[0]["geometry"] == POINT


@pytest.mark.parametrize(
    "geometry",
    [
        None,
        {"type": "LineString", "coordinates": [[0, 0], [1, 1]]},
        POINT,
        {"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]]},
        {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]], [[0, 0]]]},
        {"type": "Polygon", "coordinates": [["a", "b", "c", "d", "e"]]},
        {"type": "Polygon", "coordinates": 7},
    ],
)
async def test_a_feature_without_a_usable_geometry_is_rejected(tmp_path, geometry):
    async with in_process(tmp_path) as client:
        feature = {"type": "Feature", "geometry": geometry, "properties": {"kind": "boolean", "keywords": "coffee"}}
        body = problem(await client.put("/v1/subscriptions/b", json=feature), 422)
        if geometry is None or geometry["type"] in ("LineString", "Point"):
            rule = "must have a geometry that is a Polygon, a MultiPolygon, or a Point with the property radius"
            assert rule in body["detail"]
        if geometry == POINT:
            return
        problem(await client.post("/v1/messages", json={**feature, "properties": {"text": "x"}}), 422)
        problem(await client.post("/v1/messages", json={**feature, "geometry": POINT, "properties": [1]}), 422)


async def test_a_stream_skips_and_reports_bad_lines(tmp_path):
    async with in_process(tmp_path, max_body_bytes=500) as client:
        await client.put("/v1/subscriptions/b1", json=SUBSCRIPTIONS["boolean"])
        lines = [json.dumps(message(n)) for n in range(1200)]
        lines[3], lines[700], lines[9] = "{nonsense", json.dumps(message(700, location=(2, 2))), '{"id": "m9"}'
        lines[20], lines[21] = "", json.dumps(message(21, "x" * 600))

        async def chunks():
            data = "\n".join(lines).encode()
            for start in range(0, len(data), 1_000):
                yield data[start : start + 1_000]

        counts = (await client.post("/v1/messages/stream", content=chunks())).json()
        assert (counts["messages"], counts["rejected"], counts["updates"]) == (1195, 4, 1195)
        assert [(one["line"], one["field"]) for one in counts["errors"]] == [
            (4, "body"), (10, "location"), (22, "line"), (701, "location"),
        ]  # fmt: skip


async def test_a_body_beyond_the_limit_is_rejected(tmp_path):
    async with in_process(tmp_path, max_body_bytes=1000) as client:
        large = json.dumps(message(1, "x" * 2000)).encode()

        async def parts():
            for start in range(0, len(large), 100):
                yield large[start : start + 100]

        headers = {"content-type": "application/json"}
        for content in (large, parts()):
            body = problem(await client.post("/v1/messages", content=content, headers=headers), 413)
            assert "at most 1000 bytes" in body["detail"]


async def test_a_client_that_sends_everything_before_it_reads_gets_413(tmp_path):
    async with on_network(tmp_path, max_body_bytes=1000) as client:
        body = b"x" * 20_000_000  # more than sockets buffer
        for length in (f"content-length: {len(body)}", "transfer-encoding: chunked"):
            is_chunked = "chunked" in length
            reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
            head = f"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{length}\r\n\r\n"
            writer.write(head.encode() + (f"{len(body):x}\r\n".encode() if is_chunked else b""))
            writer.write(body + (b"\r\n0\r\n\r\n" if is_chunked else b""))
            await writer.drain()
            assert (await reader.readline()).startswith(b"HTTP/1.1 413")
            writer.close()


async def test_text_that_is_not_json_is_named_with_its_place(tmp_path):
    async with in_process(tmp_path) as client:
        headers = {"content-type": "application/json"}
        body = problem(await client.post("/v1/messages", content=b'{"id": }', headers=headers), 422)
        assert body["detail"].startswith("body must be JSON (Expecting value at character 7)")
        assert body["errors"][0]["field"] == "body"


async def test_errors_name_the_id_that_the_caller_knows(tmp_path):
    async with in_process(tmp_path) as client:
        outside = {**SUBSCRIPTIONS["topk"], "location": [999.0, 0.0]}
        body = problem(await client.put("/v1/subscriptions/far", json=outside), 422)
        assert body["detail"].endswith("(subscription 'far')")


async def test_a_request_is_executed_once_per_key(tmp_path):
    async with in_process(tmp_path) as client:
        key = {"Idempotency-Key": "k1"}
        first, repeat = [
            await client.put("/v1/subscriptions/s1", json=SUBSCRIPTIONS["topk"], headers=key) for _ in range(2)
        ]
        assert first.status_code == repeat.status_code == 201 and first.json() == repeat.json()
        body = problem(await client.put("/v1/subscriptions/s2", json=SUBSCRIPTIONS["topk"], headers=key), 422)
        assert body["errors"][0]["field"] == "Idempotency-Key"


async def test_requests_beyond_the_queue_limit_are_rejected(tmp_path):
    async with in_process(tmp_path, max_waiting=2) as client:
        answers = await asyncio.gather(*(client.post("/v1/messages", json=message(n)) for n in range(20)))
        done = [a for a in answers if a.status_code == 200]
        for rejected in (a for a in answers if a.status_code != 200):
            problem(rejected, 429)
            assert rejected.headers["retry-after"] == "1"
        assert 2 <= len(done) < 20
        assert (await client.post("/v1/messages", json=message(99))).json()["seq"] == len(done) + 1


async def test_a_service_that_cannot_continue_is_not_called_alive(tmp_path):
    async with in_process(tmp_path) as client:
        assert (await client.get("/health/ready")).json() == {"ready": True, "writable": True}
        client.app.state.service.command_loop._set_state("failed", "the service cannot continue: no memory")
        for path in ("/health/live", "/health/ready"):
            assert problem(await client.get(path), 503)["detail"] == "the service cannot continue: no memory"


async def test_a_full_disk_is_reported_as_such(tmp_path):
    async with in_process(tmp_path, min_free_bytes=1 << 62) as client:
        body = problem(await client.post("/v1/messages", json=message(1)), 507)
        assert body["detail"].startswith("the disk is full: ")
        assert (await client.get("/health/ready")).json() == {"ready": True, "writable": False}
        assert (await client.get("/v1/subscriptions")).status_code == 200


async def test_health_and_metrics(tmp_path):
    async with in_process(tmp_path) as client:
        assert (await client.get("/health/live")).json() == {"live": True}
        assert (await client.get("/health/ready")).json() == {"ready": True, "writable": True}
        await client.put("/v1/subscriptions/t", json=SUBSCRIPTIONS["topk"])
        await client.post("/v1/messages", json=[message(1), message(2)])
        await client.post("/v1/messages", json=message(3, location=(2, 2)))
        text = (await client.get("/metrics")).text
        metrics = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        expected = {
            "nearcast_messages_total": 2, "nearcast_updates_total": 2, "nearcast_rejected_requests_total": 1,
            'nearcast_commands_total{command="publish"}': 1, "nearcast_engine_subscriptions": 1,
            "nearcast_engine_window_messages": 2, 'nearcast_engine_matched_total{kind="topk"}': 2,
            "nearcast_apply_seconds_count": 3, "nearcast_engine_messages_total": 2,
        }  # fmt: skip
        assert {name: float(metrics[name]) for name in expected} == expected
        service = client.app.state.service
        service.command_loop._set_state("recovering", "reading the journal")
        problem(await client.get("/health/ready"), 503)
        problem(await client.post("/v1/messages", json=message(1)), 503)
        assert "nearcast_engine_subscriptions 1.0" in (await client.get("/metrics")).text, "the last known value"


async def test_a_restart_restores_subscriptions_and_results(tmp_path):
    async with in_process(tmp_path) as client:
        await client.put("/v1/subscriptions/t", json=SUBSCRIPTIONS["topk"])
        await client.post("/v1/messages", json=message(1))
    async with in_process(tmp_path, CONFIG) as client:
        assert (await client.get("/v1/subscriptions/t")).json()["k"] == 2
        assert len((await client.get("/v1/subscriptions/t/results")).json()["results"]) == 1


async def test_a_path_that_ends_in_a_slash_is_not_redirected(tmp_path):
    """A redirect would name the host of the request, and failed on queries that are not ASCII."""
    async with in_process(tmp_path) as client:
        response = await client.get("/v1/subscriptions/", headers={"host": "localhost"})
        assert response.status_code == 404 and response.json()["title"] == "Not found"
