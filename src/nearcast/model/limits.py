"""How much is too much? Limits that keep one bad row from hurting everyone."""

from __future__ import annotations

from dataclasses import dataclass, fields

from nearcast.errors import require


@dataclass(frozen=True)
class Limits:
    """The most a message or subscription may hold.

    >>> Limits(k=100).terms
    1024
    """

    text_bytes: int = 64 * 1024
    """UTF-8 bytes of text in a message."""
    terms: int = 1024
    """Distinct terms in a subscription."""
    branches: int = 1024
    """AND-branches of a boolean expression once it is an OR of ANDs."""
    k: int = 10_000
    """Results of a subscription that keeps the best."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            ok = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            require(ok, limit.name, "must be an integer of 1 or more", value, subject="limits")
