"""The row of a subscription in the journal: its body, and the columns that queries over many subscriptions need."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from nearcast.model import find_kind
from nearcast.service.json_bodies import Body
from nearcast.service.region_json import extent_of
from nearcast.space import Space


class SubscriptionRow(NamedTuple):
    """A row of the table `subscriptions`, in the order of its columns."""

    subscriber: str
    id: str
    kind: str
    words: str
    """What a search reads, case-folded: the texts and conditions, the id, the kind and the label of the kind."""
    xmin: float | None
    """The extent of its place, of which a point has equal corners; null if the kind has no place."""
    ymin: float | None
    xmax: float | None
    ymax: float | None
    expires_at: float | None
    body: str

    @classmethod
    def of(cls, subscriber: str, body: Body, space: Space) -> SubscriptionRow:
        """Return the row of a subscription.

        >>> body = {"id": "n1", "kind": "nearest", "location": [1, 2], "keywords": "Ramen", "k": 3}
        >>> SubscriptionRow.of("ann", body, Space.earth())[3:8]
        ('ramen n1 nearest nearest', 1, 2, 1, 2)
        """
        kind = find_kind(body["kind"])
        texts: list[str] = []
        extent: Sequence[float | None] = [None] * 4
        for name, type_ in kind.all_field_types().items():
            value: Any = body.get(name)
            if value is None:
                continue
            if type_.form in ("text", "condition"):
                texts += [value] if isinstance(value, str) else value
            elif type_.form == "point":
                extent = value * 2
            elif type_.form == "region" and not type_.is_optional:
                extent = extent_of(value, space)
        words = " ".join([*texts, body["id"], kind.kind, kind.label]).casefold()
        xmin, ymin, xmax, ymax = extent
        text = json.dumps(body)
        return cls(subscriber, body["id"], kind.kind, words, xmin, ymin, xmax, ymax, body.get("expires_at"), text)
