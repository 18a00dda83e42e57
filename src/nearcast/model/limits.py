"""Limits on the size of messages and subscriptions, so that one bad row cannot starve the rest."""

from __future__ import annotations

from dataclasses import dataclass, fields

from nearcast.errors import require


@dataclass(frozen=True)
class Limits:
    """The greatest sizes that a message or subscription may have.

    >>> Limits(k=100).terms
    1024
    """

    text_bytes: int = 64 * 1024
    """UTF-8 bytes of text in a message."""
    terms: int = 1024
    """Distinct terms in a subscription."""
    branches: int = 1024
    """AND-branches of a boolean expression as an OR of ANDs."""
    k: int = 10_000
    """Results of a subscription."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            ok = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            require(ok, limit.name, "must be an integer of 1 or more", value, subject="limits")
