"""Who asks for what, what reaches them, and why?"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from nearcast.model import Explanation, Message
from nearcast.service import geojson
from nearcast.service.access import Caller
from nearcast.service.commands import Subscribe, Unsubscribe, engine_id, message_of
from nearcast.service.context import (
    Accept,
    IdempotencyKey,
    Running,
    Service,
    Subscriber,
    SubscriptionId,
    problems,
)
from nearcast.service.problem import unknown_subscription
from nearcast.service.schema import (
    ExplanationBody,
    MessageBody,
    NamedSubscriptionBody,
    ResultPage,
    Subscribed,
    SubscriptionBody,
    SubscriptionPage,
    Subscriptions,
    Unsubscribed,
)

router = APIRouter(prefix="/v1/subscriptions", tags=["subscriptions"])

_MAP: dict[int | str, dict[str, Any]] = {200: {"content": {geojson.MEDIA_TYPE: {"schema": {"type": "object"}}}}}
Limit = Annotated[int, Query(ge=1, le=1000)]


@router.put("/{id}", response_model=Subscribed, responses={201: {"model": Subscribed}, **problems(409)})
async def put(
    id: SubscriptionId,
    body: SubscriptionBody,
    service: Running,
    caller: Subscriber,
    response: Response,
    key: IdempotencyKey = None,
) -> Any:
    """Create a subscription, or replace it; as JSON, or as a GeoJSON feature with a box or a point."""
    command = Subscribe(caller.subscriber, [{"id": id, **body.model_dump()}])
    answer = await service.command_loop.carry_out(command, subscriber=caller.subscriber, key=key)
    response.status_code = 201 if answer["created"] else 200
    return answer


@router.post("", response_model=Subscribed, responses=problems(409))
async def post(
    body: Subscriptions,
    service: Running,
    caller: Subscriber,
    key: IdempotencyKey = None,
) -> Any:
    """Create or replace subscriptions, or the features of a collection that are some, all or none."""
    command = Subscribe(caller.subscriber, [one.model_dump() for one in body])
    return await service.command_loop.carry_out(command, subscriber=caller.subscriber, key=key)


@router.get("", response_model=SubscriptionPage, responses={**_MAP, **problems()})
async def listed(
    service: Running, caller: Subscriber, cursor: str = "", limit: Limit = 100, accept: Accept = ""
) -> Any:
    """List subscriptions in the order of their ids, page by page."""
    found = await asyncio.to_thread(
        service.command_loop.reader.subscriptions, caller.subscriber, after=cursor, limit=limit + 1
    )
    page, following = found[:limit], found[limit - 1]["id"] if len(found) > limit else None
    if geojson.wanted(accept):
        features = map(geojson.of_subscription, page)
        return JSONResponse(geojson.collection(features, next=following), media_type=geojson.MEDIA_TYPE)
    return {"subscriptions": page, "next": following}


@router.get("/{id}", response_model=NamedSubscriptionBody, responses={**_MAP, **problems(404)})
async def read(id: SubscriptionId, service: Running, caller: Subscriber, accept: Accept = "") -> Any:
    """Read a subscription."""
    body = await _subscription(service, caller, id)
    if geojson.wanted(accept):
        return JSONResponse(geojson.of_subscription(body), media_type=geojson.MEDIA_TYPE)
    return body


@router.delete("/{id}", response_model=Unsubscribed, responses=problems(404))
async def delete(id: SubscriptionId, service: Running, caller: Subscriber, key: IdempotencyKey = None) -> Any:
    """Forget a subscription."""
    command = Unsubscribe(caller.subscriber, [id])
    return await service.command_loop.carry_out(command, subscriber=caller.subscriber, key=key)


@router.get("/{id}/results", response_model=ResultPage, responses={**_MAP, **problems(404, 409)})
async def results(
    id: SubscriptionId, service: Running, caller: Subscriber, limit: Limit = 100, accept: Accept = ""
) -> Any:
    """Tell what the result holds now, best first; for kinds that only grow, what is still in the window."""
    name = engine_id(caller.subscriber, id)
    held = await service.command_loop.ask(lambda engine: engine.results(name)[:limit])

    def look_up() -> list[dict[str, Any]]:
        return [_result(one.message, one.score, service.command_loop.reader.message(one.message)) for one in held]

    rows = await asyncio.to_thread(look_up)
    if geojson.wanted(accept):
        features = map(geojson.of_result, rows)
        return JSONResponse(geojson.collection(features, subscription=id), media_type=geojson.MEDIA_TYPE)
    return {"subscription": id, "results": rows}


@router.get("/{id}/explain", response_model=ExplanationBody, responses=problems(404))
async def explain(
    id: SubscriptionId,
    service: Running,
    caller: Subscriber,
    message: Annotated[str, Query(description="the id of a message in the window")],
) -> Any:
    """Say how a message fares for a subscription: each part of its score, and the bar it must pass."""
    return await _explain(service, caller, id, message)


@router.post("/{id}/explain", response_model=ExplanationBody, responses=problems(404))
async def explain_unpublished(id: SubscriptionId, body: MessageBody, service: Running, caller: Subscriber) -> Any:
    """Say how a message would fare for a subscription if it were published now; it is not."""
    return await _explain(service, caller, id, message_of(body.body()))


async def _subscription(service: Service, caller: Caller, id_: str) -> dict[str, Any]:
    body = await asyncio.to_thread(service.command_loop.reader.subscription, caller.subscriber, id_)
    if body is None:
        raise unknown_subscription(id_)
    return body


async def _explain(service: Service, caller: Caller, id_: str, message: Message | str) -> dict[str, Any]:
    name = engine_id(caller.subscriber, id_)
    said: Explanation = await service.command_loop.ask(lambda engine: engine.explain(name, message))
    return {**asdict(said), "subscription": id_}


def _result(message: str, score: float, body: dict[str, Any] | None) -> dict[str, Any]:
    known = {key: (body or {}).get(key) for key in ("location", "text", "at", "place")}
    return {"message": message, "score": score, **known}
