"""What do all routes need? The parts of a running service, and who asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Header, Path, Query, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import HTTPConnection

from nearcast.service.access import Access, Caller, Scope
from nearcast.service.command_loop import CommandLoop
from nearcast.service.feed import Feed
from nearcast.service.hub import Hub
from nearcast.service.meters import Meters
from nearcast.service.problem import MEDIA_TYPE, title_of
from nearcast.service.schema import ID_PATTERN, ID_RULE
from nearcast.service.webhooks.dispatcher import WebhookDispatcher


@dataclass(frozen=True)
class Service:
    """The parts of a running service."""

    command_loop: CommandLoop
    hub: Hub
    meters: Meters
    access: Access
    most_bytes: int
    """Of a request, or of a line of a stream."""
    webhooks: WebhookDispatcher
    feed: Feed = field(default_factory=Feed)


def service_of(connection: HTTPConnection) -> Service:
    """Return the service that a request came to."""
    service: Service = connection.app.state.service
    return service


async def _running(connection: HTTPConnection) -> Service:
    return service_of(connection)  # dependencies that do not wait would be called in another thread


def caller_with(scope: Scope) -> Callable[..., Awaitable[Caller]]:
    """Return a dependency that lets in who has a scope."""

    async def let_in(
        connection: HTTPConnection,
        sent: Annotated[HTTPAuthorizationCredentials | None, Security(HTTPBearer(auto_error=False))],
    ) -> Caller:
        token = None if sent is None else sent.credentials
        return service_of(connection).access.caller(token, scope, headers=connection.headers)

    return let_in


Running = Annotated[Service, Depends(_running)]
Publisher = Annotated[Caller, Depends(caller_with("publish"))]
Subscriber = Annotated[Caller, Depends(caller_with("subscribe"))]
Admin = Annotated[Caller, Depends(caller_with("admin"))]
SubscriptionId = Annotated[str, Path(pattern=ID_PATTERN, description=ID_RULE)]
WebhookId = SubscriptionId
Limit = Annotated[int, Query(ge=1, le=1000)]
IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", min_length=1, max_length=255, description="the same request is done once"),
]
Accept = Annotated[str, Header(include_in_schema=False)]


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Say which errors a route can answer with, besides those that all can."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemBody"}}}
    always = (400, 401, 403, 413, 422, 429, 503)
    return {status: {"description": title_of(status), "content": content} for status in sorted({*always, *statuses})}
