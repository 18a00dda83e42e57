"""A service for tests, with a client that calls it in process or over the network."""

import asyncio
from contextlib import asynccontextmanager

import httpx

from nearcast.service.api.access import AccessControl
from nearcast.service.api.app import make_app
from nearcast.service.api.context import Service
from nearcast.service.api.metrics import Metrics
from nearcast.service.command_loop import CommandLoop
from nearcast.service.config import ServiceConfig
from nearcast.service.push.hub import Hub
from nearcast.service.push.webhooks.address_guard import AddressGuard, parse_networks
from nearcast.service.push.webhooks.client import WebhookClient
from nearcast.service.push.webhooks.dispatcher import WebhookDispatcher
from nearcast.service.push.webhooks.retry_policy import RetryPolicy
from nearcast.service.push.webhooks.store import WebhookStore
from nearcast.service.server import Server, bind
from nearcast.service.store.limits import ServiceLimits

CONFIG = ServiceConfig(bounds=(0, 0, 1, 1), window_count=100, clock="event")

SUBSCRIPTIONS = {
    "boolean": {"kind": "boolean", "region": [0, 0, 0.5, 0.5], "keywords": "coffee AND sale"},
    "similarity": {"kind": "similarity", "location": [0.2, 0.3], "keywords": "coffee", "delta": 0.5, "tau": 0.8},
    "topk": {"kind": "topk", "location": [0.2, 0.3], "keywords": "coffee", "k": 2, "alpha": 0.5},
    "nearest": {"kind": "nearest", "location": [0.2, 0.3], "keywords": ["coffee"], "k": 2},
}
"""One body per kind, all of which match `message()`."""


def message(number, text="coffee sale", location=(0.2, 0.3), **fields):
    return {"id": f"m{number}", "location": list(location), "text": text, **fields}


def make_dispatcher(
    folder, *, networks=("127.0.0.0/8",), delays_s=(0.0, 0.0), max_webhooks=100, timeout_s=20.0, **options
):
    """Return a dispatcher that may reach this machine and retries at once."""
    store = WebhookStore(folder / "webhooks.sqlite", max_per_subscriber=max_webhooks)
    client = WebhookClient(AddressGuard(parse_networks(networks)), timeout_s=timeout_s)
    return WebhookDispatcher(store, client, retries=RetryPolicy(delays_s), **options)


def make_service(
    folder,
    config=CONFIG,
    *,
    callers=None,
    access=None,
    max_body_bytes=100_000,
    max_queued=100,
    webhooks=None,
    clock=None,
    **limits,
):
    metrics = Metrics()
    hub = Hub(metrics, max_queued=max_queued)
    command_loop = CommandLoop(folder, config, hub=hub, metrics=metrics, limits=ServiceLimits(**limits), clock=clock)
    dispatcher = make_dispatcher(folder, **(webhooks or {}))
    return Service(command_loop, hub, metrics, access or AccessControl(callers), max_body_bytes, dispatcher)


@asynccontextmanager
async def in_process(folder, config=CONFIG, **options):
    """Run a service and lend a client that calls it without a network."""
    app = make_app(make_service(folder, config, **options))
    async with app.router.lifespan_context(app):
        assert await app.state.service.command_loop.wait_recovered() == "serving"
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            client.app = app
            yield client


@asynccontextmanager
async def on_network(folder, config=CONFIG, *, stalled_s=60.0, **options):
    """Run a service on a port and lend a client of it."""
    service = make_service(folder, config, **options)
    is_bound = asyncio.Event()
    bound = bind("127.0.0.1", 0, stalled_s=stalled_s)
    server = Server(service, bound, on_start=lambda address: is_bound.set())
    task = asyncio.ensure_future(server.serve())
    try:
        await is_bound.wait()
        assert await service.command_loop.wait_recovered() == "serving"
        async with httpx.AsyncClient(base_url=server.address) as client:
            client.service = service
            yield client
    finally:
        server.should_exit = True
        await task
