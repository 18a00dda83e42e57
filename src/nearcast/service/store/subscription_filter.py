"""Filters: which subscriptions of a subscriber a query reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nearcast.errors import InvalidInput
from nearcast.space import Box

_BOX_RULE = "must be xmin,ymin,xmax,ymax: finite numbers, neither minimum above its maximum"


@dataclass(frozen=True)
class SubscriptionFilter:
    """Conditions that a subscription must meet, all of them."""

    search: str = ""
    """Words, each of which must occur in what a search reads, as a part of a word or as a whole; any case."""
    kind: str | None = None
    within: Box | None = None
    """The place must overlap this box."""
    ids: Sequence[str] | None = None

    def condition(self, subscriber: str) -> tuple[str, list[Any]]:
        """Return the condition on the table `subscriptions` in SQL, and its values."""
        terms, values = ["subscriber = ?"], [subscriber]
        for term, given in self._terms():
            terms.append(term)
            values += given
        return " AND ".join(terms), values

    def _terms(self) -> list[tuple[str, Sequence[Any]]]:
        terms: list[tuple[str, Sequence[Any]]] = [
            ("instr(words, ?)", [word]) for word in dict.fromkeys(self.search.casefold().split())
        ]
        if self.kind is not None:
            terms.append(("kind = ?", [self.kind]))
        if self.within is not None:
            xmin, ymin, xmax, ymax = self.within.as_tuple()
            terms.append(("xmin <= ? AND xmax >= ? AND ymin <= ? AND ymax >= ?", [xmax, xmin, ymax, ymin]))
        if self.ids is not None:
            terms.append((f"id IN ({', '.join('?' * len(self.ids))})", self.ids))
        return terms


def parse_box(text: str) -> Box:
    """Return the box of a query, or raise `InvalidInput`.

    >>> parse_box("0,0,2,1")
    Box(xmin=0.0, ymin=0.0, xmax=2.0, ymax=1.0)
    """
    try:
        xmin, ymin, xmax, ymax = map(float, text.split(","))
        box = Box(xmin, ymin, xmax, ymax)
        box.refuse_wrapping()
    except ValueError:
        raise InvalidInput("within", _BOX_RULE, text) from None
    return box
