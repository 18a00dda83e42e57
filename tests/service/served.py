"""A service for tests, and a client that talks to it without a network."""

import asyncio
from contextlib import asynccontextmanager

import httpx

from nearcast.service.access import Access
from nearcast.service.app import make_app
from nearcast.service.command_loop import CommandLoop
from nearcast.service.config import ServiceConfig
from nearcast.service.context import Service
from nearcast.service.durable_store import RetentionConfig
from nearcast.service.hub import Hub
from nearcast.service.meters import Meters
from nearcast.service.server import Server, bind
from nearcast.service.webhooks.client import WebhookClient
from nearcast.service.webhooks.dispatcher import WebhookDispatcher
from nearcast.service.webhooks.guard import Guard, read_networks
from nearcast.service.webhooks.retry import Retries
from nearcast.service.webhooks.store import WebhookStore

WORLD = ServiceConfig(bounds=(0, 0, 1, 1), window_count=100)


def make_dispatcher(folder, *, networks=("127.0.0.0/8",), delays_s=(0.0, 0.0), most_hooks=100, timeout_s=20.0, **how):
    """Webhooks that may reach this machine, and do not wait long."""
    book = WebhookStore(folder / "webhooks.sqlite", most=most_hooks)
    return WebhookDispatcher(
        book, WebhookClient(Guard(read_networks(networks)), timeout_s=timeout_s), retries=Retries(delays_s), **how
    )


def make_service(
    folder, world=WORLD, *, callers=None, most_bytes=100_000, most_queued=100, webhooks=None, **retention
):
    meters = Meters()
    hub = Hub(meters, most=most_queued)
    command_loop = CommandLoop(folder, world, hub=hub, meters=meters, retention=RetentionConfig(**retention))
    return Service(
        command_loop, hub, meters, Access(callers), most_bytes, make_dispatcher(folder, **(webhooks or {}))
    )


@asynccontextmanager
async def serving(folder, world=WORLD, **options):
    app = make_app(make_service(folder, world, **options))
    async with app.router.lifespan_context(app):
        assert await app.state.service.command_loop.freezing_gc() == "serving"
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            client.app = app
            yield client


def message(number, text="coffee sale", where=(0.2, 0.3), **more):
    return {"id": f"m{number}", "location": list(where), "text": text, **more}


KINDS = {
    "boolean": {"kind": "boolean", "region": [0, 0, 0.5, 0.5], "keywords": "coffee AND sale"},
    "similarity": {"kind": "similarity", "location": [0.2, 0.3], "keywords": "coffee", "delta": 0.5, "tau": 0.8},
    "topk": {"kind": "topk", "location": [0.2, 0.3], "keywords": "coffee", "k": 2, "alpha": 0.5},
    "nearest": {"kind": "nearest", "location": [0.2, 0.3], "keywords": ["coffee"], "k": 2},
}


@asynccontextmanager
async def listening(folder, world=WORLD, *, stalled_s=60.0, **options):
    """A service on a real port, and a client of it."""
    service = make_service(folder, world, **options)
    bound = asyncio.Event()
    server = Server(service, bind("127.0.0.1", 0, stalled_s=stalled_s), on_start=lambda address: bound.set())
    running = asyncio.ensure_future(server.serve())
    try:
        await bound.wait()
        assert await service.command_loop.freezing_gc() == "serving"
        async with httpx.AsyncClient(base_url=server.address) as client:
            client.service = service
            yield client
    finally:
        server.should_exit = True
        await running
