"""What does a client hear when something is wrong? One form for all errors (RFC 9457), with field, rule and value."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from nearcast.errors import InvalidInput, NearcastError, StateError, UnknownMessage, UnknownSubscription

MEDIA_TYPE = "application/problem+json"
_TITLES = {
    400: "Bad request",
    401: "Who are you?",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    406: "Not acceptable",
    409: "Does not fit",
    410: "Gone",
    413: "Too large",
    415: "Unknown form",
    422: "Invalid input",
    429: "Too much at once",
    500: "Our mistake",
    503: "Not ready",
}
_LONGEST_VALUE = 120


class Problem(Exception):
    """An error on its way to a client."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        errors: Sequence[Mapping[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.errors = status, detail, list(errors)
        self.headers, self.more = dict(headers or {}), more

    def body(self) -> bytes:
        """Return the error as JSON."""
        said: dict[str, Any] = {
            "type": "about:blank",
            "title": title_of(self.status),
            "status": self.status,
            "detail": self.detail,
        }
        if self.errors:
            said["errors"] = self.errors
        return json.dumps({**said, **self.more}).encode()


def title_of(status: int) -> str:
    """Return the few words that go with a status."""
    return _TITLES.get(status, "Error")


def fault(field: str, rule: str, value: Any) -> dict[str, Any]:
    """Return one broken rule."""
    return {"field": field, "rule": rule, "value": shown(value)}


def shown(value: Any) -> Any:
    """Return a value as JSON can say it, shortened.

    >>> shown(1.7), shown(float("nan")), shown("x" * 200)[-20:]
    (1.7, 'nan', '... (202 characters)')
    """
    if value is None or isinstance(value, bool) or (isinstance(value, float) and isfinite(value)):
        return value
    if isinstance(value, int) and abs(value) < 1 << 53:
        return value
    if isinstance(value, str) and len(value) <= _LONGEST_VALUE:
        return value
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        text = "a very long number"
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}... ({len(text)} characters)"


def invalid(field: str, rule: str, value: Any) -> Problem:
    """Return the problem of one broken rule."""
    return of_error(InvalidInput(field, rule, value))


def of_error(error: NearcastError) -> Problem:
    """Return an error of the engine as a client hears it."""
    if isinstance(error, InvalidInput):
        return Problem(422, str(error), errors=[fault(error.field, error.rule, error.value)])
    if isinstance(error, UnknownSubscription):
        return unknown_subscription(str(error.args[0]).partition("/")[2])
    if isinstance(error, UnknownMessage):
        return Problem(404, str(error), errors=[fault("message", "must be in the window", error.args[0])])
    if isinstance(error, StateError):
        return Problem(409, str(error))
    return Problem(500, str(error))


def unknown_subscription(id_: str) -> Problem:
    """Return the problem of an id that nobody subscribed."""
    return Problem(404, f"there is no subscription {id_!r}", errors=[fault("id", "must be subscribed", id_)])


def busy(most: int) -> Problem:
    """Return the problem of a full queue."""
    return Problem(429, f"{most} requests wait already; try again in a moment", headers={"Retry-After": "1"})


def not_ready(why: str) -> Problem:
    """Return the problem of a service that is not up."""
    return Problem(503, why, headers={"Retry-After": "1"})
