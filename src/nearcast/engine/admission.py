"""Admission of subscriptions: a batch is checked as a whole and grouped by kind.

Tables are checked column by column, except for rows that have to be parsed, such as expressions with NOT. If that
leaves a doubt, all rows become objects one by one, whose checks raise the error.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.engine.config import EngineConfig
from nearcast.engine.shard import choose_index
from nearcast.errors import InvalidInput, StateError
from nearcast.model import NO_TIME, Id, Subscription, SubscriptionBatch, kinds, to_seconds
from nearcast.model.columns import subscriptions_from_table
from nearcast.model.fields import has_strings
from nearcast.model.subscription_rows import store_table


class Admission:
    """Checks subscriptions against the configuration of one engine."""

    def __init__(self, config: EngineConfig) -> None:
        self._config, self._scoring = config, config.scoring

    def admit(self, subscriptions: Any, *, now_us: int = NO_TIME) -> list[SubscriptionBatch]:
        """Return one batch per kind; if an id is given twice, the last one counts.

        With the time of the engine, subscriptions that have expired by then are refused.
        """
        batches = None
        if isinstance(subscriptions, pa.Table):
            batches = self._by_columns(subscriptions)
            subscriptions = subscriptions_from_table(subscriptions)
        if batches is None:
            batches = self._one_by_one(subscriptions)
        for batch in batches:
            if batch.expires_us is not None:
                _refuse_expired(batch, batch.expires_us <= now_us, now_us)
        return batches

    def _by_columns(self, table: pa.Table) -> list[SubscriptionBatch] | None:
        """Return the batches of a table, or None if its rows have to be checked one by one."""
        if not (has_strings(table, "id") and has_strings(table, "kind")):
            return None
        if "op" in table.column_names and not _all_subscribe(table["op"]):
            return None
        if pc.count_distinct(table["id"]).as_py() < len(table):
            return None
        by_name = {kind.kind: kind for kind in kinds()}
        batches = []
        for name in pc.unique(table["kind"]).to_pylist():
            kind = by_name.get(name)
            rows = table.filter(pc.equal(table["kind"], name))
            if kind is None or not kind.all_valid(rows, self._scoring, self._config.limits):
                return None
            alone = kind.rows_alone(rows)
            if alone.any() and not self._are_valid(rows.filter(pa.array(alone))):
                return None
            self._check_kind(kind, f"subscription {rows['id'][0].as_py()!r}")
            batches.append(SubscriptionBatch(kind, store_table(rows, kind), self._scoring))
        return batches

    def _are_valid(self, table: pa.Table) -> bool:
        """Return whether all rows of a table become valid objects."""
        try:
            for subscription in subscriptions_from_table(table):
                subscription.check(self._scoring, self._config.limits)
        except InvalidInput:
            return False
        return True

    def _one_by_one(self, subscriptions: Iterable[Any]) -> list[SubscriptionBatch]:
        checked: dict[Any, Subscription] = {}
        known = kinds()
        for i, subscription in enumerate(subscriptions):
            if not isinstance(subscription, known):
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


def _refuse_expired(batch: SubscriptionBatch, are_over: npt.NDArray[np.bool_], now_us: int) -> None:
    """Raise `InvalidInput` for the first subscription that has expired."""
    if are_over.any():
        assert batch.expires_us is not None
        row = int(np.argmax(are_over))
        raise expired_error(batch.ids[row], int(batch.expires_us[row]), now_us=now_us)


def expired_error(id_: Id, expires_us: int, *, now_us: int) -> InvalidInput:
    """Return the error for a subscription that has expired when it is added."""
    rule = f"must be later than now, which is {to_seconds(now_us)}"
    return InvalidInput("expires_at", rule, to_seconds(expires_us), subject=f"subscription {id_!r}")


def _all_subscribe(operations: pa.ChunkedArray) -> bool:
    """Return whether all operations of a table are to subscribe, which null means too."""
    if not pa.types.is_string(operations.type):
        return bool(operations.null_count == len(operations))
    return not pc.any(pc.not_equal(operations, "subscribe")).as_py()
