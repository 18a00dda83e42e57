"""What all routes share: the parts of the running service, the caller, and common parameters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import Depends, Header, Path, Query, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.security.utils import get_authorization_scheme_param
from starlette.requests import HTTPConnection

from nearcast.model import find_kind
from nearcast.service.api.access import AccessControl, Caller, Scope
from nearcast.service.api.metrics import Metrics
from nearcast.service.api.problems import MEDIA_TYPE, title_of
from nearcast.service.api.schemas import ID_PATTERN, ID_RULE
from nearcast.service.command_loop import CommandLoop
from nearcast.service.push.hub import Hub
from nearcast.service.push.message_feed import MessageFeed
from nearcast.service.push.webhooks.dispatcher import WebhookDispatcher
from nearcast.service.store.subscription_filter import SubscriptionFilter


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


class Grant(NamedTuple):
    """The caller of a stream, and the check whether it is still allowed to read it."""

    caller: Caller
    check: Callable[[], object]
    """Raises a `Problem` if the token was revoked."""

    @classmethod
    def of(cls, connection: HTTPConnection, token: str | None, scope: Scope) -> Grant:
        """Return the grant for a request, or raise a `Problem`."""
        access, headers = service_of(connection).access, connection.headers

        def check() -> Caller:
            return access.caller(token, scope, headers=headers)

        return cls(check(), check)


def token_of(connection: HTTPConnection) -> str | None:
    """Return the token of a request, if its header has one."""
    scheme, credentials = get_authorization_scheme_param(connection.headers.get("authorization"))
    return credentials if scheme.lower() == "bearer" else None


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
MessageId = SubscriptionId
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
INCLUDED = "message"
Include = Annotated[
    Literal["message"] | None,
    Query(description="`message` adds the message, as it was published; null if it is not retained"),
]
Accept = Annotated[str, Header(include_in_schema=False)]


async def _filter(
    search: Annotated[
        str,
        Query(max_length=200, description="words that must all occur in its texts, its id or its kind, in any case"),
    ] = "",
    kind: Annotated[str | None, Query(description="only subscriptions of this kind")] = None,
) -> SubscriptionFilter:
    return SubscriptionFilter(search=search, kind=None if kind is None else find_kind(kind).kind)


Filter = Annotated[SubscriptionFilter, Depends(_filter)]


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the error responses of a route: the given ones and those of all routes."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemBody"}}}
    common = (400, 401, 403, 413, 422, 429, 503)
    return {status: {"description": title_of(status), "content": content} for status in sorted({*common, *statuses})}
