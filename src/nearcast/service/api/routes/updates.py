"""Routes of updates, over a WebSocket or as server-sent events; both resume from a cursor."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Response, WebSocket, WebSocketDisconnect
from fastapi.responses import StreamingResponse
from starlette.requests import HTTPConnection

from nearcast.errors import NearcastError, require
from nearcast.service.api.context import INCLUDED, Grant, Include, RunningService, problems, service_of, token_of
from nearcast.service.api.problems import MEDIA_TYPE, Problem, problem_from
from nearcast.service.push.hub import LAGGED
from nearcast.service.push.update_follower import UpdateFollower
from nearcast.service.store.journal import JournaledUpdate

router = APIRouter(prefix="/v1/updates", tags=["updates"])

EVENT_STREAM = "text/event-stream"
_HEARTBEAT_S = 15.0
_CLOSING_S = 60.0  # how long a client that reads nothing has to receive the reason
_LAGGED_CODE, _STOPPED_CODE, _GONE_CODE = 1013, 1012, 1008  # try again later, service restart, policy violation


async def _authorize(
    connection: HTTPConnection,
    token: Annotated[str | None, Query(description="for clients that cannot set a header")] = None,
) -> Grant:
    return Grant.of(connection, token_of(connection) or token, "subscribe")


UpdateReceiver = Annotated[Grant, Depends(_authorize)]
SubscriptionIds = Annotated[
    list[str] | None, Query(alias="subscription", description="only updates of these subscriptions; all if omitted")
]
After = Annotated[str | None, Query(description="a cursor: all updates after it are sent first")]
LastEventId = Annotated[
    str | None, Header(alias="Last-Event-ID", description="same as `after`, and takes precedence over it")
]


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={200: {"content": {EVENT_STREAM: {"schema": {"type": "string"}}}}, **problems(410)},
)
async def events(
    service: RunningService,
    grant: UpdateReceiver,
    subscription: SubscriptionIds = None,
    after: After = None,
    last: LastEventId = None,
    include: Include = None,
) -> Response:
    """Stream updates as server-sent events: `ready` with a cursor, then `update`; `closed` ends it with a reason."""
    ids = frozenset(subscription or ())
    follower = UpdateFollower(
        service, grant.caller.subscriber, ids, last or after, transport="sse", has_contents=include is not None
    )
    return StreamingResponse(_events(follower, grant), media_type=EVENT_STREAM, headers={"Cache-Control": "no-store"})


async def _events(follower: UpdateFollower, grant: Grant) -> AsyncIterator[str]:
    with follower:
        yield format_event("ready", json.dumps(await follower.greeting()), id_=str(follower.after))
        while follower.close_reason is None:
            try:
                page = await _next(follower, grant)
                if page is None:
                    yield ": heartbeat\n\n"
            except Problem as problem:
                yield format_event("closed", json.dumps({"reason": problem.detail}))
                return
            if page:
                yield "".join(format_event("update", update.json, id_=str(update.cursor)) for update in page)
        yield format_event("closed", json.dumps({"reason": follower.close_reason}))


async def _next(follower: UpdateFollower, grant: Grant) -> list[JournaledUpdate] | None:
    """Wait for a page of updates; return None after a while, and raise a `Problem` if the token was revoked."""
    page: list[JournaledUpdate] | None = None
    with suppress(TimeoutError):
        page = await asyncio.wait_for(follower.next(), _HEARTBEAT_S)
    grant.check()
    return page


def format_event(name: str, data: str, *, id_: str = "") -> str:
    """Return a server-sent event.

    >>> format_event("ready", "{}", id_="1.0")
    'event: ready\\nid: 1.0\\ndata: {}\\n\\n'
    """
    return f"event: {name}\n" + (f"id: {id_}\n" if id_ else "") + f"data: {data}\n\n"


@router.websocket("")
async def socket(websocket: WebSocket) -> None:
    """Send updates as JSON, one per frame, after a first frame with `ready` and a cursor."""
    try:
        follower, grant = _follower(websocket)
    except (Problem, NearcastError) as error:
        problem = error if isinstance(error, Problem) else problem_from(error)
        await websocket.send_denial_response(Response(problem.body(), problem.status, problem.headers, MEDIA_TYPE))
        return
    await websocket.accept()
    with follower:
        code, reason = await _send_until_closed(websocket, follower, grant)
    if code is not None:
        with suppress(TimeoutError, RuntimeError, WebSocketDisconnect):  # it disconnected, or reads nothing
            async with asyncio.timeout(_CLOSING_S):
                await websocket.close(code, reason)


def _follower(websocket: WebSocket) -> tuple[UpdateFollower, Grant]:
    query = websocket.query_params
    grant = Grant.of(websocket, token_of(websocket) or query.get("token"), "subscribe")
    after = websocket.headers.get("last-event-id") or query.get("after")
    ids, include = frozenset(query.getlist("subscription")), query.get("include")
    require(include in (None, INCLUDED), "include", f"must be {INCLUDED!r}, or be left out", include)
    service, subscriber, has_contents = service_of(websocket), grant.caller.subscriber, include is not None
    return UpdateFollower(service, subscriber, ids, after, transport="websocket", has_contents=has_contents), grant


async def _send_until_closed(websocket: WebSocket, follower: UpdateFollower, grant: Grant) -> tuple[int | None, str]:
    """Send updates until the end; return the code and reason to close with, no code if the client disconnected."""
    sending = asyncio.ensure_future(_send(websocket, follower, grant))
    leaving = asyncio.ensure_future(_wait_disconnected(websocket))
    ending = asyncio.ensure_future(follower.wait_closed())  # also ends a send that a client blocks
    tasks = (sending, leaving, ending)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()
    except Problem as problem:
        return _GONE_CODE, problem.detail[:120]
    except (WebSocketDisconnect, RuntimeError):
        return None, ""
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if follower.close_reason is None:
        return None, ""
    return (_LAGGED_CODE if follower.close_reason == LAGGED else _STOPPED_CODE), follower.close_reason


async def _send(websocket: WebSocket, follower: UpdateFollower, grant: Grant) -> None:
    await websocket.send_text(json.dumps({"type": "ready", **await follower.greeting()}))
    while follower.close_reason is None:
        for update in await _next(follower, grant) or ():
            await websocket.send_text(f'{{"type": "update", {update.json[1:]}')


async def _wait_disconnected(websocket: WebSocket) -> None:
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass  # messages of clients are ignored
