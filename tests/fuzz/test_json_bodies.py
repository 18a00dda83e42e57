"""Bodies of requests: any JSON, GeoJSON, lines of JSON, or bytes are answered, and a refused body changes nothing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effort import search
from fuzz.service_client import ServiceClient, check_answer
from fuzz.test_spark_stages import damaged
from nearcast.service.config import ServiceConfig
from nearcast.service.region_json import circle_json
from service.running_service import SUBSCRIPTIONS, message

CONFIG = ServiceConfig(
    bounds=(0, 0, 1, 1), window_count=100, clock="event", attributes={"price": "float", "stars": "int", "name": "str"}
)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    client = ServiceClient(tmp_path_factory.mktemp("bodies"), config=CONFIG, max_body_bytes=20_000)
    client.fill()
    yield client
    client.close()


NUMBERS = st.one_of(
    st.integers(), st.floats(), st.floats(0, 1), st.integers(0, 3),
    st.sampled_from([1 << 53, 1 << 63, 1 << 64, 10**400, -(10**400), 1e308, -0.0, float("nan"), float("inf")]),
)  # fmt: skip
WORDS = st.one_of(
    st.text(max_size=8), st.sampled_from(["coffee", "sale AND (x", "(" * 300, "x " * 2000, "\ud800", "\0", "2026-01-01T12:00:00Z",
        "9999-12-31T23:59:59.999999-23:59", "0001-01-01T00:00:00+23:59", "NaN", "Feature", "é" * 600]),
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | WORDS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
KEYS = ("id", "kind", "location", "region", "keywords", "k", "alpha", "delta", "tau", "text", "at", "place", "user",
        "type", "geometry", "properties", "coordinates", "features", "url", "subscriptions", "after", "where", "require",
        "attributes", "price", "stars", "name", "op", "args", "property", "radius")  # fmt: skip


def changed(body):
    """Draw a body with some values replaced, removed, added or wrapped, at any depth."""

    @st.composite
    def drawn(draw):
        made = json.loads(json.dumps(body))
        for _ in range(draw(st.integers(0, 3))):
            outer, key = made, None
            while isinstance(outer, (dict, list)) and outer:
                keys = sorted(outer) if isinstance(outer, dict) else list(range(len(outer)))
                key = draw(st.sampled_from(keys))
                if not isinstance(outer[key], (dict, list)) or draw(st.booleans()):
                    break
                outer = outer[key]
            if not outer:
                break
            how = draw(st.sampled_from(["set", "set", "remove", "wrap", "add"]))
            if how == "remove":
                del outer[key]
            elif how == "wrap":
                outer[key] = draw(st.sampled_from([[outer[key]], {"id": outer[key]}, str(outer[key])]))
            elif how == "add" and isinstance(outer, dict):
                outer[draw(st.sampled_from(KEYS))] = draw(JSON)
            else:
                outer[key] = draw(JSON)
        return made

    return drawn()


def feature(body, geometry=None):
    properties = {name: value for name, value in body.items() if name not in ("id", "location", "region")}
    point = {"type": "Point", "coordinates": body.get("location", [0.2, 0.3])}
    return {"type": "Feature", "id": body.get("id", "f"), "geometry": geometry or point, "properties": properties}


BOX = {"type": "Polygon", "coordinates": [[[0, 0], [0.5, 0], [0.5, 0.5], [0, 0.5], [0, 0]]]}
POLYGON = {
    "type": "Polygon",
    "coordinates": [[[0, 0], [0.5, 0], [0.1, 0.5], [0, 0]], [[0.1, 0.1], [0.2, 0.1], [0.1, 0.2]]],
}
MULTIPOLYGON = {"type": "MultiPolygon", "coordinates": [POLYGON["coordinates"]]}
WHERE = {
    "op": "and",
    "args": [
        {"op": "not", "args": [{"op": "between", "args": [{"property": "price"}, 1, 2]}]},
        {"op": "in", "args": [{"property": "name"}, ["a", "b"]]},
        {"op": "isNull", "args": [{"property": "stars"}]},
    ],
}
FILTERED = [
    {**SUBSCRIPTIONS["boolean"], "region": POLYGON, "where": WHERE},
    {**SUBSCRIPTIONS["topk"], "region": circle_json([0.2, 0.3], 0.1), "where": "price <= 3", "require": "NOT sale"},
    {**SUBSCRIPTIONS["nearest"], "region": MULTIPOLYGON, "where": {"op": "<", "args": [3, {"property": "stars"}]}},
    {**SUBSCRIPTIONS["similarity"], "region": [0, 0, 1, 1], "require": ["coffee"]},
]
MESSAGES = [
    message(7),
    message(6, attributes={"price": 2.5, "stars": 3, "name": None}),
    message(8, text=["coffee", "sale"], at=3.5, place="p"),
    [message(7), message(8)],
    feature(message(9)),
    {"type": "FeatureCollection", "features": [feature(message(9)), feature(message(10))]},
]
ONE = [
    *SUBSCRIPTIONS.values(),
    *FILTERED,
    feature(FILTERED[0], POLYGON),
    feature(SUBSCRIPTIONS["topk"]),
    feature(SUBSCRIPTIONS["boolean"], BOX),
]
MANY = [
    [{"id": "n1", **SUBSCRIPTIONS["topk"]}, {"id": "n2", **SUBSCRIPTIONS["boolean"]}],
    {"type": "FeatureCollection", "features": [feature({"id": "n1", **SUBSCRIPTIONS["nearest"]})]},
]
NAMED = [{"id": "n1", **body} for body in (*SUBSCRIPTIONS.values(), *FILTERED)]
WEBHOOKS = [
    {"url": "http://127.0.0.1:9/hook", "subscriptions": ["topk"], "after": "1.0"},
    {"url": "https://127.0.0.1:9"},
]
REQUESTS = [
    ("POST", "/v1/messages", MESSAGES),
    ("PUT", "/v1/subscriptions/new", ONE),
    ("PUT", "/v1/subscriptions/topk", ONE),
    ("POST", "/v1/subscriptions", MANY),
    ("POST", "/v1/preview", NAMED),
    ("POST", "/v1/reaches", MANY),
    ("POST", "/v1/subscriptions/topk/explain", MESSAGES),
    ("PUT", "/v1/webhooks/w1", WEBHOOKS),
    ("PUT", "/v1/webhooks/w2", WEBHOOKS),
]
READS = ("/v1/preview", "/v1/reaches", "/v1/subscriptions/topk/explain")


def exchange(service, method, path, body, content_type=b"application/json"):
    """Send a body; a refusal, and a request that only reads, must change nothing."""
    before = service.state()
    headers = [(b"host", b"localhost"), (b"content-type", content_type), (b"content-length", b"%d" % len(body))]
    status, answered, answer = service.send_raw(method, path.encode(), headers, body)
    check_answer(status, answered, answer)
    if status >= 400 or path in READS:
        assert service.state() == before, f"changed by a refused request: {answer!r}"
    return status, answer


@search(usual=120)
@given(data=st.data())
def test_any_json_is_accepted_or_refused_as_a_whole(service, data):
    method, path, bodies = data.draw(st.sampled_from(REQUESTS))
    body = data.draw(changed(data.draw(st.sampled_from(bodies))) | JSON)
    exchange(service, method, path, json.dumps(body).encode())


@search(usual=60)
@given(data=st.data())
def test_any_bytes_are_accepted_or_refused_as_a_whole(service, data):
    method, path, bodies = data.draw(st.sampled_from(REQUESTS))
    whole = json.dumps(data.draw(st.sampled_from(bodies))).encode()
    deep = st.builds(lambda piece, n: piece * n, st.sampled_from([b"[", b'{"a":', b'[{"id":']), st.integers(1, 3000))
    body = data.draw(damaged(whole) | st.binary(max_size=50) | deep | st.just(b'"' + b"x" * 30_000))
    exchange(service, method, path, body)


@search(usual=60)
@given(data=st.data())
def test_every_line_of_a_stream_is_published_or_reported(service, data):
    whole = [json.dumps(body).encode() for body in (message(1), message(2, at=5), feature(message(3)))]
    line = st.one_of(
        st.sampled_from([*whole, b"", b"  ", b"\r"]),
        st.sampled_from(whole).flatmap(damaged).map(lambda text: text.replace(b"\n", b" ")),
        changed(message(4)).map(lambda body: json.dumps(body).encode()),
        st.sampled_from([b"[" * 5000, b"x" * 25_000, b"\xff\xfe"]),
    )
    lines = data.draw(st.lists(line, max_size=8))
    ends = data.draw(st.sampled_from([b"\n", b"\r\n"]))
    before = service.state()[2]
    status, answer = exchange(service, "POST", "/v1/messages/stream", ends.join(lines), b"application/x-ndjson")
    assert status == 200
    counts = json.loads(answer)
    n_lines = sum(bool(line.strip()) for line in lines)
    assert counts["messages"] + counts["rejected"] == n_lines
    assert service.state()[2] == before + counts["messages"]
    assert len(counts["errors"]) == min(counts["rejected"], 20)
