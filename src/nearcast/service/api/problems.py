"""Problems: all errors in one format (RFC 9457), with the field, the rule and the value of invalid input."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from nearcast.errors import InvalidInput, NearcastError, StateError, UnknownMessage, UnknownSubscription, shown
from nearcast.service.store.disk import DiskFull
from nearcast.service.subscription_key import SubscriptionKey

MEDIA_TYPE = "application/problem+json"
_TITLES = {
    400: "Bad request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    406: "Not acceptable",
    409: "Conflict",
    410: "Gone",
    413: "Content too large",
    415: "Unsupported media type",
    422: "Invalid input",
    429: "Too many requests",
    500: "Internal server error",
    503: "Service unavailable",
    507: "Insufficient storage",
}
_MAX_VALUE_LENGTH = 120
_OWN_ID = re.compile(r"(subscription )'[^'/]*/([^']*)'")
"""The id of a subscription in the engine, with that of its subscriber, which its clients never see."""


class Problem(Exception):
    """An error response."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        errors: Sequence[Mapping[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.errors = status, detail, list(errors)
        self.headers, self.members = dict(headers or {}), members

    def body(self) -> bytes:
        """Return the problem as JSON."""
        body: dict[str, Any] = {
            "type": "about:blank",
            "title": title_of(self.status),
            "status": self.status,
            "detail": self.detail,
        }
        if self.errors:
            body["errors"] = self.errors
        return json.dumps({**body, **self.members}).encode()


def title_of(status: int) -> str:
    """Return the title of a status."""
    return _TITLES.get(status, "Error")


def field_error(field: str, rule: str, value: Any) -> dict[str, Any]:
    """Return one violated rule."""
    return {"field": field, "rule": rule, "value": json_value(value)}


def json_value(value: Any) -> Any:
    """Return a value in a form that JSON can represent, shortened if it is long.

    >>> json_value(1.7), json_value(float("nan")), json_value("x" * 200)[-20:]
    (1.7, 'nan', '... (202 characters)')
    """
    if value is None or isinstance(value, bool) or (isinstance(value, float) and isfinite(value)):
        return value
    if isinstance(value, int) and abs(value) < 1 << 53:
        return value
    if isinstance(value, str) and len(value) <= _MAX_VALUE_LENGTH:
        return value
    text = shown(value)
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}... ({len(text)} characters)"


def invalid_field(field: str, rule: str, value: Any) -> Problem:
    """Return the problem of one violated rule."""
    return problem_from(InvalidInput(field, rule, value))


def problem_from(error: NearcastError) -> Problem:
    """Return the problem of an error of the engine."""
    if isinstance(error, InvalidInput):
        error = error.about(_OWN_ID.sub(r"\1'\2'", error.subject))
        return Problem(422, str(error), errors=[field_error(error.field, error.rule, error.value)])
    if isinstance(error, UnknownSubscription):
        return unknown_subscription(SubscriptionKey.parse(error.args[0]).id)
    if isinstance(error, UnknownMessage):
        return Problem(404, str(error), errors=[field_error("message", "must be in the window", error.args[0])])
    if isinstance(error, StateError):
        return Problem(409, str(error))
    if isinstance(error, DiskFull):
        return Problem(507, str(error), headers={"Retry-After": "60"})
    return Problem(500, str(error))


def unknown_subscription(id_: str) -> Problem:
    """Return the problem of an id that is not subscribed."""
    return Problem(404, f"there is no subscription {id_!r}", errors=[field_error("id", "must be subscribed", id_)])


def queue_full(max_waiting: int) -> Problem:
    """Return the problem of a full queue."""
    return Problem(429, f"{max_waiting} requests are waiting; try again in a moment", headers={"Retry-After": "1"})


def not_ready(detail: str) -> Problem:
    """Return the problem of a service that is not ready."""
    return Problem(503, detail, headers={"Retry-After": "1"})
