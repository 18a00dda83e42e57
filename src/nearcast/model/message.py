"""Messages: an id, a location, a text, and optionally a time, a place, an end and a body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nearcast.errors import WHOLE, InvalidInput, is_finite, is_whole, require
from nearcast.model.identity import Id, check_id, plain_id
from nearcast.model.timestamps import Timestamp, to_end_us, to_us
from nearcast.space import Point
from nearcast.text import Text

LATER = "must be later than at"
"""The rule for `expires_at` of a message."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    Once `now >= expires_at` it leaves every result, whatever the window. `body` is an opaque string; an engine with
    `bodies=True` returns it with every update at which the message enters a result.

    >>> Message(id="m1", location=(0.21, 0.3), text="Coffee sale today")
    Message(id='m1', location=(0.21, 0.3), text='Coffee sale today', at=None, place=None)
    """

    id: Id
    location: Point
    text: Text
    at: Timestamp | None = None
    place: Id | None = None
    expires_at: Timestamp | None = field(default=None, repr=False)
    body: str | None = field(default=None, repr=False)
    attributes: Mapping[str, Any] | None = field(default=None, repr=False, hash=False)
    """Values of the attributes that the engine declares, such as `{"price": 250.0}`; missing ones are null."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", plain_id(self.id))
        check_id(self.id, "id", subject="message")
        subject = f"message {self.id!r}"
        object.__setattr__(self, "location", check_point(self.location, subject=subject))
        check_text(self.text, "text", subject=subject)
        at_us = to_us(self.at, subject=subject)
        if self.place is not None:
            object.__setattr__(self, "place", plain_id(self.place))
            check_id(self.place, "place", subject=subject)
        if self.expires_at is not None:
            is_later = to_end_us(self.expires_at, subject=subject) > at_us
            require(is_later, "expires_at", LATER, self.expires_at, subject=subject)
        if self.body is not None:
            require(isinstance(self.body, str), "body", "must be a string", self.body, subject=subject)
            require(is_whole(self.body), "body", WHOLE, self.body, subject=subject)
        if self.attributes is not None:
            rule = "must map names of attributes to values"
            require(isinstance(self.attributes, Mapping), "attributes", rule, self.attributes, subject=subject)
            object.__setattr__(self, "attributes", dict(self.attributes))


def check_point(value: Any, *, subject: str, field: str = "location") -> Point:
    """Return a point as a pair of floats, or raise `InvalidInput`."""
    rule = "must be a pair of finite numbers"
    value = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise InvalidInput(field, rule, value, subject=subject)
    x, y = value
    require(is_finite(x) and is_finite(y), field, rule, value, subject=subject)
    return float(x), float(y)


def check_text(value: Any, field: str, *, subject: str) -> None:
    """Raise `InvalidInput` unless the value is a string or a sequence of strings."""
    ok = isinstance(value, str) or (
        isinstance(value, Sequence)
        and not isinstance(value, (bytes, bytearray))
        and all(isinstance(term, str) for term in value)
    )
    require(ok, field, "must be a string or a list of strings", value, subject=subject)
    require(all(map(is_whole, [value] if isinstance(value, str) else value)), field, WHOLE, value, subject=subject)
