"""What does the page at / need, besides what programs ask? The world, who does which part, previews, and a feed."""

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
from nearcast.model import Explanation
from nearcast.partition import Region
from nearcast.service.commands import subscription_of
from nearcast.service.context import Admin, Running, Service, Subscriber, problems
from nearcast.service.durable_store import View
from nearcast.service.feed import MOST_SHOWN, Watcher
from nearcast.service.problem import Problem
from nearcast.service.routes.updates import EVENTS, event
from nearcast.service.schema import ConfigBody, NamedSubscriptionBody, Preview, Shards

router = APIRouter(tags=["page"])

WEB = str(files("nearcast.service") / "web")
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; worker-src 'self' blob:",
}
_SHOWN = ("id", "location", "text", "at", "place")
_SHOWN_EVERY_S = 0.25
_COUNTED_EVERY = 4  # times that messages are shown


@router.get("/", include_in_schema=False)
async def page() -> Response:
    """Return the page, which may ask nobody but this service."""
    return FileResponse(f"{WEB}/index.html", headers=_HEADERS)


@router.get("/v1/world", response_model=ConfigBody, responses=problems())
async def world(service: Running, caller: Subscriber) -> Any:
    """Say where everything is, and how long messages stay."""
    return service.command_loop.world.described()


@router.get("/v1/shards", response_model=Shards, responses=problems())
async def shards(service: Running, caller: Subscriber) -> Any:
    """Say which part of space belongs to which worker, and how many subscriptions each has."""

    def look(view: View) -> tuple[list[Region], Stats]:
        return view.regions(), view.stats()

    regions, stats = await service.command_loop.ask(look)
    parts = [{"box": list(box), "shards": [i for i in range(64) if mask >> i & 1]} for box, mask in regions]
    return {"regions": parts, "loads": list(stats.shards)}


@router.post("/v1/preview", response_model=Preview, responses=problems(409, 413))
async def preview(body: NamedSubscriptionBody, service: Running, caller: Subscriber) -> Any:
    """Say what a subscription would hold among the newest messages, and why; nothing is subscribed."""
    subscription = subscription_of(body.model_dump(), caller.subscriber)
    found: list[Explanation] = await service.command_loop.ask(lambda engine: engine.preview(subscription))
    names = [str(said.message) for said in found]
    known = await asyncio.to_thread(service.command_loop.reader.messages, names)
    return {"results": [_shown(said, known.get(str(said.message)) or {}) for said in found]}


def _shown(said: Explanation, message: dict[str, Any]) -> dict[str, Any]:
    parts = [
        {"name": part.name, "value": part.value, "weight": part.weight, "note": part.note} for part in said.parts
    ]
    known = {key: message.get(key) for key in ("location", "text")}
    return {"message": str(said.message), "score": said.score, "parts": parts, **known}


@router.get("/v1/feed", responses={200: {"content": {EVENTS: {"schema": {"type": "string"}}}}, **problems()})
async def feed(service: Running, caller: Admin) -> StreamingResponse:
    """Send the newest `messages`, then others as they come, some where there are many, and `stats` every second."""
    service.command_loop.check_ready()
    return StreamingResponse(_feed(service), media_type=EVENTS, headers={"Cache-Control": "no-store"})


async def _feed(service: Service) -> AsyncIterator[str]:
    watcher, counted = Watcher(), await _counts(service)
    watcher.put(await asyncio.to_thread(service.command_loop.reader.newest, MOST_SHOWN))
    service.feed.watchers.add(watcher)
    try:
        yield event("ready", "{}")
        for turn in count(1):
            await asyncio.sleep(_SHOWN_EVERY_S)
            if service.hub.is_closed:
                return
            messages = [{key: said.get(key) for key in _SHOWN} for said in watcher.take()]
            if messages:
                yield event("messages", json.dumps(messages))
            if turn % _COUNTED_EVERY == 0:
                before, counted = counted, await _counts(service)
                yield event("stats", json.dumps(_rates(before, counted)))
    finally:
        service.feed.watchers.discard(watcher)


async def _counts(service: Service) -> dict[str, float]:
    """Return what was counted so far; of a busy engine nothing."""
    counts = {"at": time.monotonic(), **service.meters.so_far()}
    try:
        stats: Stats = await service.command_loop.ask(lambda engine: engine.stats())
    except Problem:
        return counts
    return counts | {name: float(getattr(stats, name)) for name in ("visited", "candidates", "verified")}


def _rates(before: dict[str, float], after: dict[str, float]) -> dict[str, float | None]:
    """Return what happened between two counts, a second and a message."""
    seconds = max(after["at"] - before["at"], 1e-9)
    grown = {name: after[name] - before[name] for name in after if name in before}
    messages, commands = grown["messages"], grown["commands"]
    rates: dict[str, float | None] = {
        "messages_per_second": messages / seconds,
        "updates_per_second": grown["updates"] / seconds,
        "answer_ms": 1000 * grown["seconds"] / commands if commands else None,
    }
    for name in ("visited", "candidates", "verified"):
        rates[f"{name}_per_message"] = grown[name] / messages if messages and name in grown else None
    return rates
