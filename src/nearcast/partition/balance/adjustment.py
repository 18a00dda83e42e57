"""Adjustments: decisions to change a routing, as data that can be logged and replayed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from nearcast.errors import FormatError
from nearcast.partition.balance.steps import Refit, Retire, RoutingStep, from_json, to_json
from nearcast.partition.base import Routing

_FIELDS = ("selection", "sigma", "loads_before", "loads_after", "moved_subscriptions", "moved_bytes")


@dataclass(frozen=True)
class Adjustment:
    """A decision, with what was known when it was made."""

    steps: tuple[RoutingStep, ...]
    selection: str
    sigma: float
    loads_before: tuple[float, ...]
    """The load of each shard in the period that the decision looked at."""
    loads_after: tuple[float, ...]
    """What the load of each shard would have been in that period under the new routing."""
    moved_subscriptions: int
    """Subscriptions that come to a shard which did not have them, once for each of these shards."""
    moved_bytes: int

    def replay(self, routing: Routing) -> Routing:
        """Return the routing after the adjustment, given the one before it."""
        for step in self.steps:
            routing = step.apply(routing)
        return routing

    def content(self) -> dict[str, Any]:
        """Return the adjustment as JSON values, without loss."""
        values = {name: getattr(self, name) for name in _FIELDS}
        return {**values, "steps": [to_json(step) for step in self.steps]}

    def to_json(self) -> str:
        """Return the adjustment as JSON, without loss."""
        return json.dumps(self.content())

    @classmethod
    def from_json(cls, text: str | bytes) -> Adjustment:
        """Return the adjustment of JSON; raise `FormatError` if it is none."""
        try:
            content = json.loads(text)
            return cls(
                tuple(from_json(step) for step in content["steps"]),
                str(content["selection"]),
                float(content["sigma"]),
                tuple(map(float, content["loads_before"])),
                tuple(map(float, content["loads_after"])),
                int(content["moved_subscriptions"]),
                int(content["moved_bytes"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"an adjustment must be JSON with its fields and steps: {error!r}") from None

    @property
    def action(self) -> str:
        """What the decision does: `move` cells, begin a `refit`, or `retire` the old routing."""
        actions = (step.name for step in self.steps if isinstance(step, (Refit, Retire)))
        return next(actions, "move")

    def summary(self) -> dict[str, Any]:
        """Return the decision in a few values; ratios are those of the busiest to the idlest shard."""
        return {
            "action": self.action,
            "load_ratio_before": _ratio(self.loads_before),
            "load_ratio_after": _ratio(self.loads_after),
            "moved_subscriptions": self.moved_subscriptions,
            "moved_bytes": self.moved_bytes,
            "steps": len(self.steps),
        }

    def __str__(self) -> str:
        before, after = _ratio(self.loads_before), _ratio(self.loads_after)
        if self.action == Refit.name:
            gain = max(self.loads_before) / max(*self.loads_after, 1.0)
            return f"a fresh routing takes new subscriptions; with all of them the busiest shard does 1/{gain:,.2f}"
        moved = f"{self.moved_subscriptions:,} subscriptions ({self.moved_bytes:,} bytes) move"
        if self.action == Retire.name:
            return f"the old routing retires; {moved}"
        return f"busiest over idlest shard: {before:,.2f}, after {after:,.2f}; {moved} in {len(self.steps)} steps"


def _ratio(loads: tuple[float, ...]) -> float:
    """Return the load of the busiest shard over that of the idlest one; an idle shard counts as one unit of load."""
    return round(max(loads) / max(min(loads), 1.0), 3)
