"""Who may do what: a table of all requests, and thousands of random ones that are answered as it says.

The table is written after docs/service.md and docs/operations.md, not after the code. A token that is missing or unknown
is answered with 401, and one without the scope of the row with 403. Otherwise the status depends on whether the resource
belongs to the subscriber (own), to another one only (foreign), or to none (missing).
"""

import json
import random
import re
import sqlite3
from collections import Counter

import pytest

from fuzz.service_client import ServiceClient
from nearcast.service.api.access import Caller, hash_token
from nearcast.service.config import ServiceConfig
from service.running_service import SUBSCRIPTIONS, message

TABLE = """
request                                  scope       own  foreign  missing
GET    /v1/subscriptions                 subscribe   200  -        -
POST   /v1/subscriptions                 subscribe   200  200      200
PUT    /v1/subscriptions/{id}            subscribe   200  201      201
GET    /v1/subscriptions/{id}            subscribe   200  404      404
DELETE /v1/subscriptions/{id}            subscribe   200  404      404
GET    /v1/subscriptions/{id}/results    subscribe   200  404      404
GET    /v1/subscriptions/{id}/explain    subscribe   200  404      404
POST   /v1/subscriptions/{id}/explain    subscribe   200  404      404
POST   /v1/preview                       subscribe   200  -        -
POST   /v1/reaches                       subscribe   200  -        -
GET    /v1/clusters                      subscribe   200  -        -
GET    /v1/config                        subscribe   200  -        -
GET    /v1/kinds                         subscribe   200  -        -
GET    /v1/shards                        subscribe   200  -        -
GET    /v1/updates/events                subscribe   200  -        -
GET    /v1/webhooks                      subscribe   200  -        -
PUT    /v1/webhooks/{id}                 subscribe   200  201      201
GET    /v1/webhooks/{id}                 subscribe   200  404      404
DELETE /v1/webhooks/{id}                 subscribe   204  404      404
POST   /v1/webhooks/{id}/secret          subscribe   200  404      404
POST   /v1/messages                      publish     200  -        -
POST   /v1/messages/stream               publish     200  -        -
GET    /v1/messages/{id}                 subscribe   200  200      404
PUT    /v1/messages/{id}                 publish     200  200      200
DELETE /v1/messages/{id}                 publish     200  404      404
POST   /v1/edges                         admin       200  -        -
DELETE /v1/edges                         admin       422  -        -
GET    /v1/feed                          admin       200  -        -
GET    /metrics                          admin       200  -        -
GET    /health/live                      everyone    200  -        -
GET    /health/ready                     everyone    200  -        -
"""
ROWS = [line.split() for line in TABLE.strip().splitlines()[1:]]
OWNERSHIPS = ("own", "foreign", "missing")
READS = {"/v1/preview", "/v1/reaches", "/v1/subscriptions/{id}/explain"}
"""Requests with a body that change nothing."""

PRINCIPALS = {
    "no token": (None, ()),
    "unknown": (None, ()),
    "basic": (None, ()),
    "ann subscribe": ("ann", ("subscribe",)),
    "ann publish": ("ann", ("publish",)),
    "ann all": ("ann", ("publish", "subscribe", "admin")),
    "bob subscribe": ("bob", ("subscribe",)),
    "bob publish subscribe": ("bob", ("publish", "subscribe")),
    "bob admin": ("bob", ("admin",)),
    "eve publish": ("eve", ("publish",)),
    "root admin": ("root", ("admin",)),
}
"""The subscriber and the scopes of each principal."""
CALLERS = {
    hash_token(name): Caller(subscriber, frozenset(scopes))
    for name, (subscriber, scopes) in PRINCIPALS.items()
    if subscriber is not None
}
IDS = [f"r{i}" for i in range(5)]
N_DRAWS = 5_000


def authorization(name):
    if name == "no token":
        return []
    scheme = "Basic" if name == "basic" else "Bearer"
    return [(b"authorization", f"{scheme} {name}".encode())]


class Model:
    """What subscribers own, kept beside the service."""

    def __init__(self):
        self.owned = {"subscriptions": {}, "webhooks": {}, "messages": {}}  # (subscriber, id) -> what was put

    def ownership(self, kind, subscriber, id_):
        keys = self.owned[kind]
        if (subscriber, id_) in keys:
            return "own"
        return "foreign" if any(other == id_ for _, other in keys) else "missing"

    def ids(self, kind, subscriber):
        return sorted(id_ for owner, id_ in self.owned[kind] if owner == subscriber)


def expected_status(row, principal, ownership):
    """Return the status that the table gives."""
    _, path, scope, *statuses = row
    subscriber, scopes = PRINCIPALS[principal]
    if scope == "everyone":
        return 200
    if subscriber is None:
        return 401
    if scope not in scopes:
        return 403
    is_one_of_many = "{id}" in path or row[:2] == ["POST", "/v1/subscriptions"]
    return int(statuses[OWNERSHIPS.index(ownership) if is_one_of_many else 0])


def body_of(method, path, id_, mark):
    """Return a valid body for a request; `mark` shows who sent it."""
    named = {"id": id_, **SUBSCRIPTIONS["topk"], "keywords": f"coffee {mark}"}
    bodies = {
        ("PUT", "/v1/subscriptions/{id}"): {**SUBSCRIPTIONS["topk"], "keywords": f"coffee {mark}"},
        ("POST", "/v1/subscriptions"): [named],
        ("POST", "/v1/subscriptions/{id}/explain"): message(1),
        ("POST", "/v1/preview"): named,
        ("POST", "/v1/reaches"): [named],
        ("PUT", "/v1/webhooks/{id}"): {"url": f"http://127.0.0.1:9/{mark}"},
        ("PUT", "/v1/messages/{id}"): {"location": [0.2, 0.3], "text": f"coffee {mark}"},
        ("POST", "/v1/messages"): message(1, text=f"coffee {mark}"),
        ("POST", "/v1/edges"): {"user": mark, "place": "cafe"},
        ("POST", "/v1/messages/stream"): message(1, text=f"coffee {mark}"),
    }
    found = bodies.get((method, path))
    return b"" if found is None else json.dumps(found).encode()


class Records:
    """Everything that a request could change, read from the files of the service."""

    def __init__(self, folder):
        self._journal, self._webhooks = (
            sqlite3.connect(folder / f"{name}.sqlite") for name in ("journal", "webhooks")
        )

    def read(self):
        subscriptions = self._journal.execute("SELECT subscriber, id, body FROM subscriptions").fetchall()
        counts = self._journal.execute(
            "SELECT max(number), (SELECT max(seq) + 0.5 * sum(retracted) FROM messages) FROM commands"
        ).fetchall()
        return (
            subscriptions,
            self._webhooks.execute("SELECT subscriber, id, url, secret FROM hooks").fetchall(),
            counts,
        )

    def close(self):
        self._journal.close()
        self._webhooks.close()


@pytest.fixture
def service(tmp_path):
    config = ServiceConfig(bounds=(0, 0, 1, 1), window_count=1_000_000)
    client = ServiceClient(tmp_path, config=config, callers=CALLERS)
    yield client
    client.close()


@pytest.fixture
def records(service, tmp_path):
    made = Records(tmp_path)
    yield made
    made.close()


def test_the_table_has_a_row_for_every_request(service):
    description = service.send("GET", "/openapi.json").json()
    described = {(method.upper(), path) for path, methods in description["paths"].items() for method in methods}
    assert {(method, path) for method, path, *_ in ROWS} == described


def test_random_requests_are_answered_as_the_table_says(service, records):
    rng, model, cells = random.Random(12), Model(), Counter()
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    first = json.dumps(message(1)).encode()  # which explanations are about
    assert service.send_raw("POST", b"/v1/messages", [*headers, *authorization("eve publish")], first)[0] == 200
    for number in range(N_DRAWS):
        row, principal, id_ = rng.choice(ROWS), rng.choice(list(PRINCIPALS)), rng.choice(IDS)
        method, path = row[:2]
        subscriber, _ = PRINCIPALS[principal]
        kind = next((name for name in ("webhooks", "messages") if name in path), "subscriptions")
        ownership, mark = model.ownership(kind, subscriber, id_), f"mark{subscriber}{number}"
        target = path.replace("{id}", id_) + {"/v1/clusters": "?within=0,0,1,1"}.get(path, "")
        if (method, path) == ("GET", "/v1/subscriptions/{id}/explain"):
            target += "?message=m1"
        if (method, path) == ("DELETE", "/v1/edges"):
            target += "?user=ann&place=nowhere"  # an edge that does not exist
        before, sent = records.read(), body_of(method, path, id_, mark)
        status, _, body = service.send_raw(method, target.encode(), [*headers, *authorization(principal)], sent)
        expected = expected_status(row, principal, ownership)
        subject = (number, method, target, principal, ownership)
        assert status == expected, (*subject, status, body)
        cells[method, path, principal, ownership] += 1
        changes = method != "GET" and path not in READS
        if status >= 400 or not changes:
            assert records.read() == before, (*subject, "changed something")
        elif "{id}" in path or path == "/v1/subscriptions":
            apply(model, method, kind, (subscriber, id_), mark)
            check_records(model, records)
        if status < 400 and kind in path and subscriber is not None:
            check_seen(model, kind, path, subscriber, id_, body)
    resources = [row for row in ROWS if "{id}" in row[1] and "messages" not in row[1]]
    needed = {(row[0], row[1], name, own) for row in resources for name in PRINCIPALS for own in OWNERSHIPS
              if own != "own" or {"subscribe"} & set(PRINCIPALS[name][1])}  # fmt: skip
    missed = {cell for cell in needed if not cells[cell]}
    assert len(missed) < len(needed) / 20, "nearly every cell was drawn"


def apply(model, method, kind, key, mark):
    if method == "DELETE":
        del model.owned[kind][key]
    elif method == "PUT" or kind == "subscriptions":
        model.owned[kind][key] = mark


def check_records(model, records):
    """Check that the service stores what the model owns, with the content of its owner."""
    subscriptions, webhooks, _ = records.read()
    stored = {(subscriber, id_): json.loads(body)["keywords"].split()[1] for subscriber, id_, body in subscriptions}
    assert stored == model.owned["subscriptions"]
    assert {(owner, id_): url.rpartition("/")[2] for owner, id_, url, _ in webhooks} == model.owned["webhooks"]


def check_seen(model, kind, path, subscriber, id_, body):
    """Check that an answer shows only what belongs to the subscriber."""
    marks = set(re.findall(r"mark([a-z]+)\d+", body.decode())) - {"eve"}
    if path in ("/v1/subscriptions", "/v1/webhooks") and body.startswith(b'{"' + kind.encode()):
        assert [one["id"] for one in json.loads(body)[kind]] == model.ids(kind, subscriber)
        assert marks <= {subscriber}
    elif path in ("/v1/subscriptions/{id}", "/v1/webhooks/{id}"):
        assert marks <= {subscriber}
