"""Who is let in? Subscriptions are checked, all of a batch or none, and gathered by kind.

A table of millions is checked by whole columns. If that leaves any doubt, its rows become objects one by one, which
know what to say about what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.engine.shard import choose_index
from nearcast.engine.state import EngineConfig
from nearcast.errors import InvalidInput, StateError
from nearcast.model import ScoringContext, Subscription, SubscriptionBatch, kinds
from nearcast.model.columns import subscriptions_from_table
from nearcast.model.fields import has_strings
from nearcast.model.subscription_rows import store_table


class Admission:
    """Checks subscriptions against the rules of one engine."""

    def __init__(self, config: EngineConfig, scoring: ScoringContext) -> None:
        self._config = config
        self._scoring = scoring

    def subscription_batches(self, subscriptions: Any) -> list[SubscriptionBatch]:
        """Return one cohort a kind; of an id given twice, the last counts."""
        if isinstance(subscriptions, pa.Table):
            at_once = self._by_columns(subscriptions)
            if at_once is not None:
                return at_once
            subscriptions = subscriptions_from_table(subscriptions)
        return self._one_by_one(subscriptions)

    def _by_columns(self, table: pa.Table) -> list[SubscriptionBatch] | None:
        if not (has_strings(table, "id") and has_strings(table, "kind")):
            return None
        if "op" in table.column_names and pc.any(pc.not_equal(table["op"], "subscribe")).as_py():
            return None
        if pc.count_distinct(table["id"]).as_py() < len(table):
            return None
        by_name = {kind.kind: kind for kind in kinds()}
        subscription_batches = []
        for name in pc.unique(table["kind"]).to_pylist():
            kind = by_name.get(name)
            rows = table.filter(pc.equal(table["kind"], name))
            if kind is None or not kind.all_valid(rows, self._scoring, self._config.limits):
                return None
            self._check_kind(kind, f"subscription {rows['id'][0].as_py()!r}")
            subscription_batches.append(SubscriptionBatch(kind, store_table(rows, kind), self._scoring))
        return subscription_batches

    def _one_by_one(self, subscriptions: Iterable[Any]) -> list[SubscriptionBatch]:
        checked: dict[Any, Subscription] = {}
        for i, subscription in enumerate(subscriptions):
            if not isinstance(subscription, kinds()):
                raise InvalidInput("subscriptions", "must hold subscriptions", subscription, subject=f"item {i}")
            subscription.check(self._scoring, self._config.limits)
            self._check_kind(type(subscription), subscription.subject)
            checked[subscription.id] = subscription
        by_kind: dict[str, list[Subscription]] = {}
        for subscription in checked.values():
            by_kind.setdefault(subscription.kind, []).append(subscription)
        return [SubscriptionBatch.of(group, self._scoring) for group in by_kind.values()]

    def _check_kind(self, kind: type[Subscription], subject: str) -> None:
        if kind.result_policy.needs_window and self._config.window is None:
            raise StateError(f"{subject} of kind {kind.kind!r} needs a window; give one")
        choose_index(self._config.index, kind.kind)
