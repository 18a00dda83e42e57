"""Everything of a request but its body: headers, cursors, paths and queries of any bytes are answered."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effort import search
from fuzz.service_client import ServiceClient, check_answer
from nearcast.errors import InvalidInput
from nearcast.service.api.access import Caller, hash_token
from nearcast.service.store.cursor import Cursor
from service.running_service import SUBSCRIPTIONS, message


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    client = ServiceClient(tmp_path_factory.mktemp("open"), max_body_bytes=20_000)
    client.fill()
    yield client
    client.close()


TOKEN = "ann-token"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """Run a service with one token."""
    scopes = frozenset(["publish", "subscribe", "admin"])
    client = ServiceClient(tmp_path_factory.mktemp("guarded"), callers={hash_token(TOKEN): Caller("ann", scopes)})
    yield client
    client.close()


JSON_TYPE = (b"content-type", b"application/json")
HOST = (b"host", b"localhost")
VALUES = st.one_of(
    st.binary(max_size=12).map(lambda value: value.replace(b"\r", b"").replace(b"\n", b"").strip()),
    st.sampled_from([
        b"", b"localhost", b"localhost:99999", b"localhost:-1", b"[", b"[::1", b"[::1]", b"[::1]:80", b"[v1.x]", b"127.0.0.1",
        b"127.1", b"0x7f.1", b"127.0.0.1.", b"localhost.", b"localhost@evil.example", b"evil.example#localhost", b"LOCALHOST",
        b"\xe2\x84\xaa.example", b"xn--", b"a" * 5000, b"null", b"http://localhost", b"http://[", b"http://localhost:80",
        b"Bearer", b"Bearer ", b"Bearer  x", b"bearer x", b"Basic eDp5", b"Basic !", b"Bearer \xff", b"Bearer ann-token x",
        b"application/json", b"application/json; charset=utf-7", b"application/geo+json", b"text/html", b"application/", b"/", b";",
        b"multipart/form-data", b"multipart/form-data; boundary=", b"application/x-www-form-urlencoded", b"application/json" * 99,
        b"-1", b"1.0", b"99999999999999999999.1", b"1", b"0", b"chunked", b"gzip", b"100-continue", b"bytes=0-", b"*/*",
    ]),
)  # fmt: skip
NAMES = st.sampled_from([
    b"host", b"origin", b"authorization", b"content-type", b"content-length", b"accept", b"idempotency-key", b"last-event-id",
    b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip", b"via", b"expect", b"range",
    b"transfer-encoding", b"content-encoding", b"connection", b"upgrade", b"cookie", b"x-http-method-override",
])  # fmt: skip
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=4)
CALLS = st.sampled_from([
    ("GET", b"/v1/subscriptions", b""),
    ("GET", b"/v1/subscriptions/topk", b""),
    ("GET", b"/v1/subscriptions/topk/results", b""),
    ("POST", b"/v1/messages", json.dumps(message(5)).encode()),
    ("POST", b"/v1/messages/stream", json.dumps(message(6)).encode()),
    ("PUT", b"/v1/subscriptions/new", json.dumps(SUBSCRIPTIONS["nearest"]).encode()),
    ("DELETE", b"/v1/subscriptions/none", b""),
    ("GET", b"/v1/updates/events", b""),
    ("GET", b"/v1/webhooks", b""),
    ("GET", b"/metrics", b""),
    ("GET", b"/health/ready", b""),
    ("GET", b"/", b""),
    ("GET", b"/web/app.js", b""),
])  # fmt: skip
STATIC = (b"/", b"/web/app.js")
OPEN = (b"/health/ready", *STATIC)
"""What everyone may read."""


@search(usual=120)
@given(call=CALLS, headers=HEADERS)
def test_any_headers_are_answered(service, call, headers):
    method, target, body = call
    names = [name for name, _ in headers]
    given_headers = [pair for pair in (HOST, JSON_TYPE) if pair[0] not in names] + headers
    before = service.state()
    status, answered, answer = service.send_raw(method, target, given_headers, body)
    if target in STATIC:
        assert status < 500  # ranges of files, which the library of the server refuses in its own words
        return
    check_answer(status, answered, answer)
    if status >= 400:
        assert service.state() == before
    proxied = {b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via"} & set(names)
    if proxied and target not in OPEN:
        assert status >= 400, "a request of a proxy was answered without tokens"


@search(usual=120)
@given(call=CALLS, headers=HEADERS)
def test_no_headers_replace_a_token(guarded, call, headers):
    method, target, body = call
    before = guarded._client.app.state.service.command_loop.reader.last_seq()
    status, answered, answer = guarded.send_raw(method, target, [HOST, JSON_TYPE, *headers], body)
    if target in STATIC:
        return
    check_answer(status, answered, answer)
    has_token = any(name == b"authorization" and TOKEN.encode() in value for name, value in headers)
    if target not in OPEN and not has_token:
        assert status >= 400
        assert guarded._client.app.state.service.command_loop.reader.last_seq() == before


CURSORS = st.one_of(
    st.text(max_size=10), st.builds("{}.{}".format, st.integers(0), st.integers(0)), st.builds(str, st.integers()),
    st.sampled_from(["", ".", "0.0", "1.0", "1.1", "-1.0", "1.-1", "1e3.0", "٣.0", "1.0.0", "9" * 18 + ".0", "9" * 19 + ".0", "\0",
                     "topk", "~", "0", "2", "999999999", "9999999999", "%", "'", "\ud800"]),
)  # fmt: skip


@search(usual=100)
@given(data=st.data())
def test_any_cursor_is_followed_or_refused(service, data):
    cursor = data.draw(CURSORS).encode(errors="surrogatepass")
    path, name = data.draw(st.sampled_from([
        (b"/v1/subscriptions", b"cursor"), (b"/v1/webhooks", b"cursor"), (b"/v1/subscriptions/topk/results", b"cursor"),
        (b"/v1/updates/events", b"after"),
    ]))  # fmt: skip
    before = service.state()
    target = path + b"?" + name + b"=" + b"".join(b"%%%02X" % byte for byte in cursor)
    check_answer(*service.send_raw("GET", target, [HOST]))
    if path == b"/v1/updates/events":
        check_answer(*service.send_raw("GET", path, [HOST, (b"last-event-id", cursor)]))
        body = json.dumps({"url": "http://127.0.0.1:9/", "after": cursor.decode(errors="surrogatepass")}).encode()
        status, headers, answer = service.send_raw("PUT", b"/v1/webhooks/w1", [HOST, JSON_TYPE], body)
        check_answer(status, headers, answer)
        if status < 400:
            return
    assert service.state() == before


@search(usual=100)
@given(text=CURSORS)
def test_a_cursor_is_parsed_as_it_is_written(text):
    try:
        cursor = Cursor.parse(text)
    except InvalidInput:
        return
    assert Cursor.parse(str(cursor)) == cursor and min(cursor) >= 0


PIECES = st.sampled_from([
    b"/v1", b"/subscriptions", b"/messages", b"/webhooks", b"/updates", b"/events", b"/topk", b"/results", b"/explain", b"/secret",
    b"/stream", b"/", b"//", b"/..", b"/.", b"/%00", b"/%2e%2e", b"/\xff", b"/web", b"/web/..", b"/web/../../config.py",
    b"/web/%2e%2e/config.py", b"/metrics", b"/clusters", b"/feed", b"/w1", b"/" + b"x" * 200, b"/~", b"/a b", b"/kinds",
])  # fmt: skip
QUERIES = st.lists(
    st.tuples(
        st.sampled_from([b"limit", b"cursor", b"search", b"kind", b"within", b"id", b"parts", b"message", b"after", b"token",
                         b"subscription", b"x"]),
        VALUES | st.sampled_from([b"0,0,1,1", b"1,1,0,0", b"nan,0,1,1", b"0,0,1e999,1", b"0,0,1", b"true", b"1000", b"1001",
                                  b"%FF", b"%ED%A0%80", b"%00", b"%F0%9F%98%80", b"topk", b"m1", b"1e400", b"%", b"9" * 5000]),
    ),
    max_size=4,
).map(lambda pairs: b"&".join(name + b"=" + value for name, value in pairs))  # fmt: skip


@search(usual=150)
@given(
    method=st.sampled_from(["GET", "GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "FOO"]),
    path=st.lists(PIECES, min_size=1, max_size=5).map(b"".join) | CALLS.map(lambda call: call[1]) | st.sampled_from([
        b"/v1/clusters", b"/v1/subscriptions/topk/explain", b"/v1/shards", b"/v1/config"]),
    query=QUERIES,
)  # fmt: skip
def test_any_path_and_query_is_answered(service, method, path, query):
    target = path + b"?" + query
    status, headers, answer = service.send_raw(method, target, [HOST, JSON_TYPE])
    if status == 404 and not answer.startswith(b"{"):
        assert path.startswith(b"/web")
        return
    if method != "HEAD":
        check_answer(status, headers, answer)
    assert status < 500
    assert b"class ServiceConfig" not in answer
