"""The live map at /, and the routes that it uses besides the others: config, kinds, shards, previews and a feed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from importlib.resources import files
from itertools import count
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import FileResponse, StreamingResponse

from nearcast.engine.stats import Stats
from nearcast.model import Explanation, kinds
from nearcast.partition import Region
from nearcast.service.api.context import Admin, RunningService, Service, Subscriber, problems
from nearcast.service.api.explanations import part_body
from nearcast.service.api.problems import Problem
from nearcast.service.api.routes.updates import EVENT_STREAM, format_event
from nearcast.service.api.schemas import ConfigBody, KindBody, PreviewBody, ReachesBody, ShardsBody, StrictModel
from nearcast.service.api.subscription_schemas import SubscriptionSchemas, with_body
from nearcast.service.backends.backend import View
from nearcast.service.json_bodies import subscription_from
from nearcast.service.push.message_feed import MAX_BUFFERED, FeedViewer

WEB = str(files("nearcast.service") / "web")
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; worker-src 'self' blob:",
}
_MESSAGE_FIELDS = ("id", "location", "text", "at", "place")
_MESSAGES_EVERY_S = 0.25
_STATS_EVERY = 4  # rounds of messages


def make_router(schemas: SubscriptionSchemas) -> APIRouter:
    """Return the routes, for subscriptions of the given schemas."""
    router = APIRouter(tags=["live map"])
    events: dict[int | str, dict[str, Any]] = {200: {"content": {EVENT_STREAM: {"schema": {"type": "string"}}}}}
    router.get("/", include_in_schema=False)(page)
    router.get("/v1/config", response_model=ConfigBody, responses=problems())(config)
    router.get("/v1/kinds", response_model=list[KindBody], response_model_exclude_none=True, responses=problems())(
        list_kinds
    )
    router.get("/v1/shards", response_model=ShardsBody, responses=problems())(shards)
    router.post("/v1/preview", response_model=PreviewBody, responses=problems(409))(with_body(preview, schemas.named))
    router.post("/v1/reaches", response_model=ReachesBody, responses=problems())(with_body(reaches, schemas.many))
    router.get("/v1/feed", responses={**events, **problems()})(feed)
    return router


async def page() -> Response:
    """Return the live map, which may send requests to this service only."""
    return FileResponse(f"{WEB}/index.html", headers=_HEADERS)


async def config(service: RunningService, caller: Subscriber) -> Any:
    """Return the space and the window of the service, with suggestions of terms and users."""
    return service.command_loop.config.describe()


async def list_kinds(service: RunningService, caller: Subscriber) -> Any:
    """Return all kinds of subscriptions with their fields, as a form needs them."""
    return [kind.describe() for kind in kinds()]


async def shards(service: RunningService, caller: Subscriber) -> Any:
    """Return the region of each shard and its number of subscriptions."""

    def read(view: View) -> tuple[list[Region], Stats]:
        return view.regions(), view.stats()

    regions, stats = await service.command_loop.read(read)
    parts = [{"box": list(box), "shards": [i for i in range(64) if mask >> i & 1]} for box, mask in regions]
    return {"regions": parts, "loads": list(stats.shards)}


async def preview(body: StrictModel, service: RunningService, caller: Subscriber) -> Any:
    """Return the result that a subscription would have among the newest messages, with all parts of each score.

    Nothing is subscribed.
    """
    subscription = subscription_from(body.model_dump(), caller.subscriber)
    found: list[Explanation] = await service.command_loop.read(lambda view: view.preview(subscription))
    ids = [str(explanation.message) for explanation in found]
    messages = await asyncio.to_thread(service.command_loop.reader.messages, ids)
    results = [_preview_result(one, messages.get(str(one.message)) or {}) for one in found]
    return {"results": results, "hints": list(subscription.hints())}


async def reaches(body: list[StrictModel], service: RunningService, caller: Subscriber) -> Any:
    """Return how far from each subscription a message can be and still match. Nothing is subscribed."""
    subscriptions = [subscription_from(one.model_dump(), caller.subscriber) for one in body]
    max_distance = service.command_loop.config.space.max_distance
    return {"reaches": [subscription.reach(max_distance) for subscription in subscriptions]}


def _preview_result(explanation: Explanation, message: dict[str, Any]) -> dict[str, Any]:
    parts = [part_body(part) for part in explanation.parts]
    retained = {key: message.get(key) for key in ("location", "text")}
    return {"message": str(explanation.message), "score": explanation.score, "parts": parts, **retained}


async def feed(service: RunningService, caller: Admin) -> StreamingResponse:
    """Stream the newest `messages`, then new ones as they arrive (a sample under load), and `stats` every second."""
    service.command_loop.check_ready()
    return StreamingResponse(_feed(service), media_type=EVENT_STREAM, headers={"Cache-Control": "no-store"})


async def _feed(service: Service) -> AsyncIterator[str]:
    viewer, totals = FeedViewer(), await _totals(service)
    viewer.put(await asyncio.to_thread(service.command_loop.reader.newest_messages, MAX_BUFFERED))
    service.feed.viewers.add(viewer)
    try:
        yield format_event("ready", "{}")
        for turn in count(1):
            await asyncio.sleep(_MESSAGES_EVERY_S)
            if service.hub.is_closed:
                return
            messages = [{key: message.get(key) for key in _MESSAGE_FIELDS} for message in viewer.take()]
            if messages:
                yield format_event("messages", json.dumps(messages))
            if turn % _STATS_EVERY == 0:
                before, totals = totals, await _totals(service)
                yield format_event("stats", json.dumps(_rates(before, totals)))
    finally:
        service.feed.viewers.discard(viewer)


async def _totals(service: Service) -> dict[str, float]:
    """Return the current totals; those of the engine only if it is not busy."""
    totals = {"at": time.monotonic(), **service.metrics.totals()}
    try:
        stats: Stats = await service.command_loop.read(lambda view: view.stats())
    except Problem:
        return totals
    return totals | {name: float(getattr(stats, name)) for name in ("visited", "candidates", "verified")}


def _rates(before: dict[str, float], after: dict[str, float]) -> dict[str, float | None]:
    """Return the differences of two totals, per second and per message."""
    seconds = max(after["at"] - before["at"], 1e-9)
    deltas = {name: after[name] - before[name] for name in after if name in before}
    messages, commands = deltas["messages"], deltas["commands"]
    rates: dict[str, float | None] = {
        "messages_per_second": messages / seconds,
        "updates_per_second": deltas["updates"] / seconds,
        "latency_ms": 1000 * deltas["seconds"] / commands if commands else None,
    }
    for name in ("visited", "candidates", "verified"):
        rates[f"{name}_per_message"] = deltas[name] / messages if messages and name in deltas else None
    return rates
