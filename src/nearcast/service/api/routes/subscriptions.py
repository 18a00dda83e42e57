"""Routes of subscriptions, their results and their explanations."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from nearcast.model import Explanation, Message
from nearcast.service.api import geojson
from nearcast.service.api.context import (
    Accept,
    IdempotencyKey,
    Limit,
    RunningService,
    Service,
    Subscriber,
    SubscriptionId,
    problems,
)
from nearcast.service.api.explanations import explanation_body
from nearcast.service.api.problems import unknown_subscription
from nearcast.service.api.schemas import (
    ExplanationBody,
    MessageBody,
    ResultPage,
    StrictModel,
    SubscribeAnswer,
    UnsubscribeAnswer,
)
from nearcast.service.api.subscription_schemas import SubscriptionSchemas, with_body
from nearcast.service.commands import Subscribe, Unsubscribe
from nearcast.service.json_bodies import Body, message_from
from nearcast.service.subscription_key import SubscriptionKey

_GEOJSON: dict[int | str, dict[str, Any]] = {200: {"content": {geojson.MEDIA_TYPE: {"schema": {"type": "object"}}}}}


def make_router(schemas: SubscriptionSchemas) -> APIRouter:
    """Return the routes, for subscriptions of the given schemas."""
    router = APIRouter(prefix="/v1/subscriptions", tags=["subscriptions"])
    created: dict[int | str, dict[str, Any]] = {201: {"model": SubscribeAnswer}}
    router.put("/{id}", response_model=SubscribeAnswer, responses={**created, **problems(409)})(
        with_body(put, schemas.subscription)
    )
    router.post("", response_model=SubscribeAnswer, responses=problems(409))(with_body(post, schemas.many))
    router.get("", response_model=schemas.page, responses={**_GEOJSON, **problems()})(list_page)
    router.get("/{id}", response_model=schemas.named, responses={**_GEOJSON, **problems(404)})(get)
    router.delete("/{id}", response_model=UnsubscribeAnswer, responses=problems(404))(delete)
    router.get("/{id}/results", response_model=ResultPage, responses={**_GEOJSON, **problems(404, 409)})(results)
    router.get("/{id}/explain", response_model=ExplanationBody, responses=problems(404))(explain)
    router.post("/{id}/explain", response_model=ExplanationBody, responses=problems(404))(explain_unpublished)
    return router


async def put(
    id: SubscriptionId,
    body: StrictModel,
    service: RunningService,
    caller: Subscriber,
    response: Response,
    key: IdempotencyKey = None,
) -> Any:
    """Create or replace a subscription, sent as JSON or as a GeoJSON feature with a box or a point."""
    command = Subscribe(caller.subscriber, [{"id": id, **body.model_dump()}])
    answer = await service.command_loop.execute(command, subscriber=caller.subscriber, key=key)
    response.status_code = 201 if answer["created"] else 200
    return answer


async def post(
    body: list[StrictModel],
    service: RunningService,
    caller: Subscriber,
    key: IdempotencyKey = None,
) -> Any:
    """Create or replace a list of subscriptions, all or none, sent as JSON or as a GeoJSON feature collection."""
    command = Subscribe(caller.subscriber, [subscription.model_dump() for subscription in body])
    return await service.command_loop.execute(command, subscriber=caller.subscriber, key=key)


async def list_page(
    service: RunningService, caller: Subscriber, cursor: str = "", limit: Limit = 100, accept: Accept = ""
) -> Any:
    """List subscriptions ordered by id, page by page."""
    found = await asyncio.to_thread(
        service.command_loop.reader.subscriptions, caller.subscriber, after=cursor, limit=limit + 1
    )
    page, following = found[:limit], found[limit - 1]["id"] if len(found) > limit else None
    if geojson.is_accepted(accept):
        features = map(geojson.subscription_feature, page)
        return JSONResponse(geojson.feature_collection(features, next=following), media_type=geojson.MEDIA_TYPE)
    return {"subscriptions": page, "next": following}


async def get(id: SubscriptionId, service: RunningService, caller: Subscriber, accept: Accept = "") -> Any:
    """Return a subscription."""
    key = SubscriptionKey(caller.subscriber, id)
    body = await asyncio.to_thread(service.command_loop.reader.subscription, key)
    if body is None:
        raise unknown_subscription(id)
    if geojson.is_accepted(accept):
        return JSONResponse(geojson.subscription_feature(body), media_type=geojson.MEDIA_TYPE)
    return body


async def delete(id: SubscriptionId, service: RunningService, caller: Subscriber, key: IdempotencyKey = None) -> Any:
    """Delete a subscription."""
    command = Unsubscribe(caller.subscriber, [id])
    return await service.command_loop.execute(command, subscriber=caller.subscriber, key=key)


async def results(
    id: SubscriptionId, service: RunningService, caller: Subscriber, limit: Limit = 100, accept: Accept = ""
) -> Any:
    """Return the current result, best first; for kinds whose result only grows, the part in the window."""
    key = SubscriptionKey(caller.subscriber, id)
    found = await service.command_loop.read(lambda view: view.results(key.engine_id)[:limit])

    def with_messages() -> list[dict[str, Any]]:
        reader = service.command_loop.reader
        return [_result(result.message, result.score, reader.message(result.message)) for result in found]

    rows = await asyncio.to_thread(with_messages)
    if geojson.is_accepted(accept):
        features = map(geojson.result_feature, rows)
        return JSONResponse(geojson.feature_collection(features, subscription=id), media_type=geojson.MEDIA_TYPE)
    return {"subscription": id, "results": rows}


async def explain(
    id: SubscriptionId,
    service: RunningService,
    caller: Subscriber,
    message: Annotated[str, Query(description="id of a message in the window")],
) -> Any:
    """Explain a message of the window for a subscription: all parts of its score, and the threshold."""
    return await _explain(service, SubscriptionKey(caller.subscriber, id), message)


async def explain_unpublished(
    id: SubscriptionId, body: MessageBody, service: RunningService, caller: Subscriber
) -> Any:
    """Explain a message for a subscription as if it were published now; it is not published."""
    return await _explain(service, SubscriptionKey(caller.subscriber, id), message_from(body.body()))


async def _explain(service: Service, key: SubscriptionKey, message: Message | str) -> dict[str, Any]:
    explanation: Explanation = await service.command_loop.read(lambda view: view.explain(key.engine_id, message))
    return explanation_body(explanation)


def _result(message: str, score: float, body: Body | None) -> dict[str, Any]:
    retained = {key: (body or {}).get(key) for key in ("location", "text", "at", "place")}
    return {"message": message, "score": score, **retained}
