"""Limits on the size of messages and subscriptions, so that one bad row cannot starve the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from nearcast.errors import require
from nearcast.space import MultiPolygon, Polygon, Region
from nearcast.space.region_formats import MAX_POINTS

_MAX = (1 << 31) - 1
_MAX_TEXT_BYTES = 128 * 1024
"""A longer text could have more different terms than the order of terms has numbers for, see `TermOrder`."""


@dataclass(frozen=True)
class Limits:
    """The greatest sizes that a message or subscription may have.

    >>> Limits(k=100).terms
    1024
    """

    text_bytes: int = 64 * 1024
    """UTF-8 bytes of text in a message."""
    body_bytes: int = 64 * 1024
    """UTF-8 bytes of the body of a message."""
    id_bytes: int = 512
    """UTF-8 bytes of an id, a place or a user."""
    keywords_bytes: int = 16 * 1024
    """UTF-8 bytes of the keywords of a subscription."""
    terms: int = 1024
    """Distinct terms in a subscription."""
    branches: int = 256
    """AND-branches of a boolean expression as an OR of ANDs."""
    k: int = 10_000
    """Results of a subscription."""
    region_points: int = MAX_POINTS
    """Points of the region of a subscription; a region with more than 10,000 is refused in any case."""

    @classmethod
    def greatest(cls) -> Limits:
        """Return the greatest limits there can be, for messages and subscriptions that were checked before."""
        most = {limit.name: _MAX for limit in fields(cls)}
        return cls(**{**most, "text_bytes": _MAX_TEXT_BYTES})

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            ok = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            require(ok, limit.name, "must be an integer of 1 or more", value, subject="limits")
        fits = self.text_bytes <= _MAX_TEXT_BYTES
        require(fits, "text_bytes", f"must be at most {_MAX_TEXT_BYTES}", self.text_bytes, subject="limits")

    def check_id(self, value: str | int | None, field: str, *, subject: str = "") -> None:
        """Raise `InvalidInput` if an id, a place or a user is too long."""
        if isinstance(value, str):
            check_bytes(value, self.id_bytes, field, subject=subject)

    def check_keywords(self, value: str | Sequence[str], field: str, *, subject: str = "") -> None:
        """Raise `InvalidInput` if keywords are too long."""
        check_bytes(value, self.keywords_bytes, field, subject=subject)

    def check_region(self, value: Region, field: str, *, subject: str = "") -> None:
        """Raise `InvalidInput` if a region has too many points."""
        if isinstance(value, (Polygon, MultiPolygon)):
            n = sum(map(len, value.rings))
            require(
                n <= self.region_points, field, f"must have at most {self.region_points} points", n, subject=subject
            )

    def check_text(self, value: str | Sequence[str], field: str, *, subject: str = "") -> None:
        """Raise `InvalidInput` if the text of a message is too long."""
        check_bytes(value, self.text_bytes, field, subject=subject)

    def check_body(self, value: str | None, *, subject: str = "") -> None:
        """Raise `InvalidInput` if the body of a message is too long."""
        if value is not None:
            check_bytes(value, self.body_bytes, "body", subject=subject)


def check_bytes(value: str | Sequence[str], most: int, field: str, *, subject: str = "") -> None:
    """Raise `InvalidInput` if a string, or the strings of a list, have more than `most` bytes as UTF-8.

    >>> check_bytes("café", 4, "id")
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: id must be at most 4 bytes; got 5
    """
    n = _n_bytes(value) if isinstance(value, str) else sum(map(_n_bytes, value))
    require(n <= most, field, f"must be at most {most} bytes", n, subject=subject)


def _n_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
