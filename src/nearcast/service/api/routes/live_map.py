"""The live map at /, and the routes that it uses besides the others, such as kinds, previews, clusters and a feed."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from importlib.resources import files
from itertools import count
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import FileResponse, StreamingResponse
from starlette.requests import HTTPConnection

from nearcast.engine.stats import Stats
from nearcast.model import Explanation, Preview, kinds
from nearcast.partition import ShardArea
from nearcast.partition.balance.adjustment import Adjustment
from nearcast.service.api.context import (
    Admin,
    Filter,
    Grant,
    RunningService,
    Service,
    Subscriber,
    problems,
    token_of,
)
from nearcast.service.api.explanations import part_body
from nearcast.service.api.problems import Problem
from nearcast.service.api.routes.updates import EVENT_STREAM, format_event
from nearcast.service.api.schemas import ConfigBody, KindBody, PreviewBody, ReachesBody, ShardsBody, StrictModel
from nearcast.service.api.subscription_schemas import SubscriptionSchemas, with_body
from nearcast.service.backends.backend import View
from nearcast.service.json_bodies import subscription_from
from nearcast.service.push.message_feed import MAX_BUFFERED, FeedViewer
from nearcast.service.store.clusters import Cluster
from nearcast.service.store.subscription_filter import parse_box

WEB = str(files("nearcast.service") / "web")
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data: blob:; worker-src 'self' blob:; frame-ancestors 'none'"
    ),
}
_MESSAGE_FIELDS = ("id", "location", "text", "at", "place", "attributes")
_MESSAGES_EVERY_S = 0.25
_STATS_EVERY = 4  # rounds of messages
_RATES_OVER = 10  # statistics; a job on Spark reports in batches, and between two of them nothing


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
    overview = {"response_model": schemas.overview, "response_model_exclude_unset": True}
    router.get("/v1/clusters", responses=problems(), **overview)(clusters)
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
    """Return the region of each shard, its number of subscriptions, and the last adjustment to the load."""

    def read(view: View) -> tuple[list[ShardArea], Stats, Sequence[Adjustment]]:
        return view.shard_areas(), view.stats(), view.adjustments

    regions, stats, adjustments = await service.command_loop.read(read, subscriber=caller.subscriber)
    parts = [
        {"box": list(box), "shards": [i for i in range(mask.bit_length()) if mask >> i & 1]} for box, mask in regions
    ]
    return {
        "regions": parts,
        "loads": list(stats.shards),
        "adjustments": len(adjustments),
        "last_adjustment": adjustments[-1].summary() if adjustments else None,
    }


async def preview(body: StrictModel, service: RunningService, caller: Subscriber) -> Any:
    """Return the result that a subscription would have among the newest messages, with all parts of each score.

    Nothing is subscribed.
    """
    subscription = await asyncio.to_thread(subscription_from, body.to_json(), caller.subscriber)
    read = service.command_loop.read(lambda view: view.preview(subscription), subscriber=caller.subscriber)
    found: Preview = await read
    ids = [str(explanation.message) for explanation in found.results]
    messages = await asyncio.to_thread(service.command_loop.reader.messages, ids)
    results = [_preview_result(one, messages.get(str(one.message)) or {}) for one in found.results]
    return {"results": results, "total": found.total, "among": found.among, "hints": list(subscription.hints())}


async def clusters(
    service: RunningService,
    caller: Subscriber,
    filter_: Filter,
    within: Annotated[str, Query(description="the view, as xmin,ymin,xmax,ymax")],
    limit: Annotated[int, Query(ge=0, le=1000, description="more subscriptions than this are clusters")] = 200,
) -> Any:
    """Return the subscriptions whose place overlaps a view, or clusters of them if there are many."""
    reader, view = service.command_loop.reader, parse_box(within)

    def read() -> dict[str, Any]:
        with reader.snapshot():
            found = reader.clusters(caller.subscriber, view, filter_)
            total = sum(cluster.n_subscriptions for cluster in found)
            if total > limit:
                return {"total": total, "subscriptions": [], "clusters": list(map(_cluster_body, found))}
            shown = reader.subscriptions(caller.subscriber, replace(filter_, within=view), limit=limit)
        return {"total": total, "subscriptions": shown, "clusters": []}

    return await asyncio.to_thread(read)


def _cluster_body(cluster: Cluster) -> dict[str, Any]:
    count, x, y, *box = cluster
    return {"location": [x, y], "count": count, "box": box}


async def reaches(body: list[StrictModel], service: RunningService, caller: Subscriber) -> Any:
    """Return how far from each subscription a message can be and still match. Nothing is subscribed."""
    max_distance = service.command_loop.config.space.max_distance

    def compute() -> list[float | None]:  # large regions take time
        subscriptions = (subscription_from(one.to_json(), caller.subscriber) for one in body)
        return [subscription.reach(max_distance) for subscription in subscriptions]

    return {"reaches": await asyncio.to_thread(compute)}


def _preview_result(explanation: Explanation, message: dict[str, Any]) -> dict[str, Any]:
    parts = [part_body(part) for part in explanation.parts]
    retained = {key: message.get(key) for key in ("location", "text")}
    return {"message": str(explanation.message), "score": explanation.score, "parts": parts, **retained}


async def _admin_grant(connection: HTTPConnection) -> Grant:
    return Grant.of(connection, token_of(connection), "admin")


async def feed(
    service: RunningService, caller: Admin, grant: Annotated[Grant, Depends(_admin_grant)]
) -> StreamingResponse:
    """Stream the newest `messages`, then new ones as they arrive (a sample under load), and `stats` every second."""
    service.command_loop.check_ready()
    return StreamingResponse(_feed(service, grant), media_type=EVENT_STREAM, headers={"Cache-Control": "no-store"})


async def _feed(service: Service, grant: Grant) -> AsyncIterator[str]:
    viewer, history = FeedViewer(), deque([await _totals(service)], maxlen=_RATES_OVER)
    viewer.put(await asyncio.to_thread(service.command_loop.reader.newest_messages, MAX_BUFFERED))
    service.feed.viewers.add(viewer)
    try:
        yield format_event("ready", "{}")
        for turn in count(1):
            await asyncio.sleep(_MESSAGES_EVERY_S)
            if service.hub.is_closed:
                return
            try:
                grant.check()
            except Problem as problem:
                yield format_event("closed", json.dumps({"reason": problem.detail}))
                return
            messages = [{key: message.get(key) for key in _MESSAGE_FIELDS} for message in viewer.take()]
            if messages:
                yield format_event("messages", json.dumps(messages))
            if turn % _STATS_EVERY == 0:
                history.append(await _totals(service))
                stats = {**_rates(history[0], history[-1]), "is_reporting": service.command_loop.is_reporting}
                yield format_event("stats", json.dumps(stats))
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
