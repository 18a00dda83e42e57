"""What all routes share: the parts of the running service, the caller, and common parameters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Header, Path, Query, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import HTTPConnection

from nearcast.service.api.access import AccessControl, Caller, Scope
from nearcast.service.api.metrics import Metrics
from nearcast.service.api.problems import MEDIA_TYPE, title_of
from nearcast.service.api.schemas import ID_PATTERN, ID_RULE
from nearcast.service.command_loop import CommandLoop
from nearcast.service.push.hub import Hub
from nearcast.service.push.message_feed import MessageFeed
from nearcast.service.push.webhooks.dispatcher import WebhookDispatcher


@dataclass(frozen=True)
class Service:
    """The parts of a running service."""

    command_loop: CommandLoop
    hub: Hub
    metrics: Metrics
    access: AccessControl
    max_body_bytes: int
    """Per request, or per line of a stream."""
    webhooks: WebhookDispatcher
    feed: MessageFeed = field(default_factory=MessageFeed)


def service_of(connection: HTTPConnection) -> Service:
    """Return the service that received a request."""
    service: Service = connection.app.state.service
    return service


async def _running_service(connection: HTTPConnection) -> Service:
    return service_of(connection)  # a coroutine, since FastAPI calls plain functions in another thread


def caller_with(scope: Scope) -> Callable[..., Awaitable[Caller]]:
    """Return a dependency that requires a scope and returns the caller."""

    async def authorize(
        connection: HTTPConnection,
        credentials: Annotated[HTTPAuthorizationCredentials | None, Security(HTTPBearer(auto_error=False))],
    ) -> Caller:
        token = None if credentials is None else credentials.credentials
        return service_of(connection).access.caller(token, scope, headers=connection.headers)

    return authorize


RunningService = Annotated[Service, Depends(_running_service)]
Publisher = Annotated[Caller, Depends(caller_with("publish"))]
Subscriber = Annotated[Caller, Depends(caller_with("subscribe"))]
Admin = Annotated[Caller, Depends(caller_with("admin"))]
SubscriptionId = Annotated[str, Path(pattern=ID_PATTERN, description=ID_RULE)]
WebhookId = SubscriptionId
Limit = Annotated[int, Query(ge=1, le=1000)]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="repeats of a request under the same key are executed once",
    ),
]
Accept = Annotated[str, Header(include_in_schema=False)]


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the error responses of a route: the given ones and those of all routes."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemBody"}}}
    common = (400, 401, 403, 413, 422, 429, 503)
    return {status: {"description": title_of(status), "content": content} for status in sorted({*common, *statuses})}
