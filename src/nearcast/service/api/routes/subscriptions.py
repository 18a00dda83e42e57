"""Routes of subscriptions, their results and their explanations."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from nearcast.errors import require
from nearcast.model import Explanation, Message
from nearcast.service.api import geojson
from nearcast.service.api.context import (
    Accept,
    Filter,
    IdempotencyKey,
    Include,
    Limit,
    RunningService,
    Service,
    Subscriber,
    SubscriptionId,
    problems,
)
from nearcast.service.api.explanations import explanation_body, part_body
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
from nearcast.service.backends.backend import View
from nearcast.service.commands import Subscribe, Unsubscribe
from nearcast.service.json_bodies import Body, message_from
from nearcast.service.store.journal import JournalQueries
from nearcast.service.store.subscription_filter import SubscriptionFilter, parse_box
from nearcast.service.subscription_key import SubscriptionKey
from nearcast.text import find_analyzer
from nearcast.window import ScoredMessage

MAX_IDS = 1000
"""Ids that one request may name."""
_MAX_RANK_DIGITS = 9
_GEOJSON: dict[int | str, dict[str, Any]] = {200: {"content": {geojson.MEDIA_TYPE: {"schema": {"type": "object"}}}}}


def make_router(schemas: SubscriptionSchemas) -> APIRouter:
    """Return the routes, for subscriptions of the given schemas."""
    router = APIRouter(prefix="/v1/subscriptions", tags=["subscriptions"])
    created: dict[int | str, dict[str, Any]] = {201: {"model": SubscribeAnswer}}
    router.put("/{id}", response_model=SubscribeAnswer, responses={**created, **problems(409, 507)})(
        with_body(put, schemas.subscription)
    )
    router.post("", response_model=SubscribeAnswer, responses=problems(409, 507))(with_body(post, schemas.many))
    router.get(
        "", response_model=schemas.page, response_model_exclude_unset=True, responses={**_GEOJSON, **problems()}
    )(list_page)
    router.get(
        "/{id}",
        response_model=schemas.named,
        response_model_exclude_unset=True,
        responses={**_GEOJSON, **problems(404)},
    )(get)
    router.delete("/{id}", response_model=UnsubscribeAnswer, responses=problems(404, 507))(delete)
    router.get(
        "/{id}/results",
        response_model=ResultPage,
        response_model_exclude_unset=True,
        responses={**_GEOJSON, **problems(404, 409)},
    )(results)
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
    """Create or replace a subscription, sent as JSON or as a GeoJSON feature with its region or point."""
    command = Subscribe(caller.subscriber, [{"id": id, **body.to_json()}])
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
    command = Subscribe(caller.subscriber, [subscription.to_json() for subscription in body])
    return await service.command_loop.execute(command, subscriber=caller.subscriber, key=key)


async def list_page(
    service: RunningService,
    caller: Subscriber,
    filter_: Filter,
    within: Annotated[
        str | None, Query(description="xmin,ymin,xmax,ymax; only subscriptions whose place overlaps this box")
    ] = None,
    id: Annotated[
        list[str] | None, Query(max_length=MAX_IDS, description="only the subscriptions with these ids")
    ] = None,
    cursor: str = "",
    limit: Limit = 100,
    accept: Accept = "",
) -> Any:
    """List subscriptions ordered by id, page by page; the first page also counts them."""
    filter_ = replace(filter_, within=None if within is None else parse_box(within), ids=id)
    reader, subscriber = service.command_loop.reader, caller.subscriber

    def read() -> tuple[list[Body], dict[str, Any]]:
        with reader.snapshot():
            found = reader.subscriptions(subscriber, filter_, after=cursor, limit=limit + 1)
            counts = {"total": None, "kinds": None} if cursor else _counts(reader, subscriber, filter_)
        following = found[limit - 1]["id"] if len(found) > limit else None
        return found[:limit], {"next": following, **counts}

    page, members = await asyncio.to_thread(read)
    if geojson.is_accepted(accept):
        features = map(geojson.subscription_feature, page)
        return JSONResponse(geojson.feature_collection(features, **members), media_type=geojson.MEDIA_TYPE)
    return {"subscriptions": page, **members}


def _counts(reader: JournalQueries, subscriber: str, filter_: SubscriptionFilter) -> dict[str, Any]:
    """Return how many subscriptions pass a filter, and how many of each kind pass it without its kind."""
    kinds = reader.count_by_kind(subscriber, replace(filter_, kind=None))
    return {"total": sum(kinds.values()) if filter_.kind is None else kinds.get(filter_.kind, 0), "kinds": kinds}


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
    id: SubscriptionId,
    service: RunningService,
    caller: Subscriber,
    parts: Annotated[bool, Query(description="true adds the parts of each score")] = False,
    include: Include = None,
    cursor: str = "",
    limit: Limit = 100,
    accept: Accept = "",
) -> Any:
    """Return the current result, best first, page by page; for kinds whose result only grows, the part in the window.

    A cursor is a rank, so a page shows the result as it is at that moment.
    """
    key, start = SubscriptionKey(caller.subscriber, id), _rank_of(cursor)
    total, found = await service.command_loop.read(
        lambda view: _page_of(view.scored_messages(key.engine_id), start, limit), subscriber=caller.subscriber
    )
    bodies = await asyncio.to_thread(service.command_loop.reader.messages_at, [scored.seq for scored in found])
    rows = [_result(scored, bodies.get(scored.seq)) for scored in found]
    if include is not None:
        rows = [{**row, "content": bodies.get(scored.seq)} for row, scored in zip(rows, found, strict=True)]
    if parts:
        explained = await service.command_loop.read(
            lambda view: _parts(view, key, bodies), subscriber=caller.subscriber
        )
        rows = [{**row, "parts": explained.get(scored.seq, [])} for row, scored in zip(rows, found, strict=True)]
    members = {"subscription": id, "total": total, "next": str(start + limit) if start + limit < total else None}
    if geojson.is_accepted(accept):
        features = map(geojson.result_feature, rows)
        return JSONResponse(geojson.feature_collection(features, **members), media_type=geojson.MEDIA_TYPE)
    return {"results": rows, **members}


def _rank_of(cursor: str) -> int:
    """Return the number of results before a page."""
    is_rank = cursor.isascii() and cursor.isdigit() and len(cursor) <= _MAX_RANK_DIGITS
    require(is_rank or not cursor, "cursor", "must be a cursor that came with a page of results", cursor)
    return int(cursor or 0)


def _page_of(found: list[ScoredMessage], start: int, limit: int) -> tuple[int, list[ScoredMessage]]:
    """Return the number of results and those of a page."""
    return len(found), found[start : start + limit]


def _parts(view: View, key: SubscriptionKey, bodies: dict[int, Body]) -> dict[int, list[dict[str, Any]]]:
    """Return the parts of the score of each message, by its seq."""
    explained = {seq: view.explain(key.engine_id, message_from(body)) for seq, body in bodies.items()}
    return {seq: [part_body(part) for part in explanation.parts] for seq, explanation in explained.items()}


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
    return await _explain(service, SubscriptionKey(caller.subscriber, id), message_from(body.to_json()))


async def _explain(service: Service, key: SubscriptionKey, message: Message | str) -> dict[str, Any]:
    explanation: Explanation = await service.command_loop.read(
        lambda view: view.explain(key.engine_id, message), subscriber=key.subscriber
    )
    if explanation.highlights is None and isinstance(message, str):
        body = await asyncio.to_thread(service.command_loop.reader.message, message)
        if body is not None:
            analyzer = find_analyzer(service.command_loop.config.analyzer)
            explanation = explanation.with_highlights(body["text"], analyzer)
    return explanation_body(explanation)


def _result(scored: ScoredMessage, body: Body | None) -> dict[str, Any]:
    retained = {key: (body or {}).get(key) for key in ("location", "text", "at", "place")}
    return {"message": str(scored.message), "score": scored.score, **retained}
