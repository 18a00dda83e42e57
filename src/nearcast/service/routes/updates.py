"""What changes, as it happens? Updates over a WebSocket or as server-sent events; both go on from a cursor."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Response, WebSocket, WebSocketDisconnect
from fastapi.responses import StreamingResponse
from fastapi.security.utils import get_authorization_scheme_param
from starlette.requests import HTTPConnection

from nearcast.errors import NearcastError
from nearcast.service.access import Caller
from nearcast.service.context import Running, problems, service_of
from nearcast.service.follow import UpdateFollower
from nearcast.service.hub import LAGGED
from nearcast.service.problem import MEDIA_TYPE, Problem, of_error

router = APIRouter(prefix="/v1/updates", tags=["updates"])

EVENTS = "text/event-stream"
_HEARTBEAT_S = 15.0
_CLOSING_S = 60.0  # a client that takes nothing has as long to hear why
_LAGGED_CODE, _STOPPED_CODE, _GONE_CODE = 1013, 1012, 1008  # try again later, restart, policy


def _caller(connection: HTTPConnection, token: str | None) -> Caller:
    scheme, sent = get_authorization_scheme_param(connection.headers.get("authorization"))
    bearer = sent if scheme.lower() == "bearer" else None
    return service_of(connection).access.caller(bearer or token, "subscribe", headers=connection.headers)


async def _listening(
    connection: HTTPConnection, token: Annotated[str | None, Query(description="for who cannot set a header")] = None
) -> Caller:
    return _caller(connection, token)


Listening = Annotated[Caller, Depends(_listening)]
Ids = Annotated[list[str] | None, Query(alias="subscription", description="only of these; else of all")]
After = Annotated[str | None, Query(description="a cursor: what came behind it is sent first")]
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", description="as `after`, and before it")]


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={200: {"content": {EVENTS: {"schema": {"type": "string"}}}}, **problems(410)},
)
async def events(
    service: Running,
    caller: Listening,
    subscription: Ids = None,
    after: After = None,
    last: LastEventId = None,
) -> Response:
    """Send updates as server-sent events: `ready` with a cursor, then `update`s; `closed` says why it ends."""
    ids = frozenset(subscription or ())
    follower = UpdateFollower(service, caller.subscriber, ids, last or after, transport="sse")
    return StreamingResponse(_events(follower), media_type=EVENTS, headers={"Cache-Control": "no-store"})


async def _events(follower: UpdateFollower) -> AsyncIterator[str]:
    with follower:
        yield event("ready", json.dumps({"cursor": str(follower.after)}), id_=str(follower.after))
        while follower.closed is None:
            try:
                page = await asyncio.wait_for(follower.next(), _HEARTBEAT_S)
            except TimeoutError:
                yield ": still here\n\n"
                continue
            except Problem as gone:
                yield event("closed", json.dumps({"reason": gone.detail}))
                return
            if page:
                yield "".join(event("update", told.json, id_=str(told.cursor)) for told in page)
        yield event("closed", json.dumps({"reason": follower.closed}))


def event(name: str, data: str, *, id_: str = "") -> str:
    """Return an event as it is sent.

    >>> event("ready", "{}", id_="1.0")
    'event: ready\\nid: 1.0\\ndata: {}\\n\\n'
    """
    return f"event: {name}\n" + (f"id: {id_}\n" if id_ else "") + f"data: {data}\n\n"


@router.websocket("")
async def socket(websocket: WebSocket) -> None:
    """Send updates as JSON, one a frame, after one that says `ready` and a cursor."""
    try:
        follower = _follower(websocket)
    except (Problem, NearcastError) as error:
        problem = error if isinstance(error, Problem) else of_error(error)
        await websocket.send_denial_response(Response(problem.body(), problem.status, problem.headers, MEDIA_TYPE))
        return
    await websocket.accept()
    with follower:
        code, reason = await _converse(websocket, follower)
    if code is not None:
        with suppress(TimeoutError, RuntimeError, WebSocketDisconnect):  # it left meanwhile, or takes nothing
            async with asyncio.timeout(_CLOSING_S):
                await websocket.close(code, reason)


def _follower(websocket: WebSocket) -> UpdateFollower:
    asked = websocket.query_params
    caller = _caller(websocket, asked.get("token"))
    after = websocket.headers.get("last-event-id") or asked.get("after")
    ids = frozenset(asked.getlist("subscription"))
    return UpdateFollower(service_of(websocket), caller.subscriber, ids, after, transport="websocket")


async def _converse(websocket: WebSocket, follower: UpdateFollower) -> tuple[int | None, str]:
    """Send until something ends it; return the code and the reason to close with, no code if the client left."""
    sending = asyncio.ensure_future(_send(websocket, follower))
    leaving = asyncio.ensure_future(_until_left(websocket))
    ending = asyncio.ensure_future(follower.ended())  # also where the client takes nothing and sending is stuck
    tasks = (sending, leaving, ending)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()
    except Problem as gone:
        return _GONE_CODE, gone.detail[:120]
    except (WebSocketDisconnect, RuntimeError):
        return None, ""
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if follower.closed is None:
        return None, ""
    return (_LAGGED_CODE if follower.closed == LAGGED else _STOPPED_CODE), follower.closed


async def _send(websocket: WebSocket, follower: UpdateFollower) -> None:
    await websocket.send_text(json.dumps({"type": "ready", "cursor": str(follower.after)}))
    while follower.closed is None:
        for told in await follower.next():
            await websocket.send_text(f'{{"type": "update", {told.json[1:]}')


async def _until_left(websocket: WebSocket) -> None:
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass  # a client has nothing to say
