"""Every generated request, valid or not, gets a response that the OpenAPI description allows."""

import asyncio
import json
import threading

import httpx
import pytest
import schemathesis
from hypothesis import given
from hypothesis import strategies as st
from schemathesis import GenerationMode, checks

from effort import search
from nearcast.service.server import Server, bind
from service.running_service import SUBSCRIPTIONS, make_service, message
from service.serve_process import wait_ready


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Run a service in a thread."""
    service = make_service(tmp_path_factory.mktemp("fuzz"))
    is_bound = threading.Event()
    server = Server(service, bind("127.0.0.1", 0), on_start=lambda address: is_bound.set())
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    is_bound.wait()
    yield server.address
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def operations(address):
    """Return the described operations of a service that holds a subscription, a message and a webhook."""
    with httpx.Client(base_url=address) as client:
        wait_ready(client)
        client.put("/v1/subscriptions/s1", json=SUBSCRIPTIONS["topk"]).raise_for_status()
        client.post("/v1/messages", json={**message(1), "id": "s1"}).raise_for_status()
        client.put("/v1/webhooks/s1", json={"url": "http://127.0.0.1:9/"}).raise_for_status()
    description = schemathesis.openapi.from_url(f"{address}/openapi.json")
    found = [operation.ok() for operation in description.get_all_operations()]
    assert len(found) == 31
    endless = {"/v1/updates/events", "/v1/feed"}
    return [operation for operation in found if operation.path not in endless]


@schemathesis.serializer("application/x-ndjson")
def lines(context, value):
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


CHECKS = (
    checks.not_a_server_error, checks.status_code_conformance, checks.content_type_conformance,
    checks.response_schema_conformance, checks.response_headers_conformance,
)  # fmt: skip
PATIENCE_S = 3600
"""The default of ten seconds is a deadline, which a busy machine may miss."""


@search(usual=300)
@given(data=st.data())
def test_every_request_is_answered_as_described(operations, data):
    """Requests that the description allows, and some that it does not."""
    operation = data.draw(st.sampled_from(operations))
    case = data.draw(operation.as_strategy(generation_mode=data.draw(st.sampled_from(GenerationMode))))
    case.call_and_validate(checks=CHECKS, timeout=PATIENCE_S)
    if "id" in (case.path_parameters or {}) and case.method != "DELETE":
        case.path_parameters["id"] = "s1"  # one that exists
        case.call_and_validate(checks=CHECKS, timeout=PATIENCE_S)
