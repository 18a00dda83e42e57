"""Subscriptions that shards reject: whether a row is good depends on the time, or on the order across sources.

All shards decide alike: those where a subscription does not live receive what the decision needs with its marker. If
several shards hold a subscription, the first of them reports it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.engine.admission import expired_error
from nearcast.errors import InvalidInput
from nearcast.jobs.frame import ELSEWHERE, PLACEMENTS, SUBSCRIPTION, masks_from_arrow
from nearcast.jobs.rejections import Rejection
from nearcast.jobs.validate import SUBSCRIBE
from nearcast.model import NEVER
from nearcast.model.columns import TIMESTAMP, subscriptions_schema
from nearcast.partition import are_empty, before_it

Rows = npt.NDArray[np.int64]
Row = dict[str, Any]


def are_added(table: pa.Table) -> npt.NDArray[np.bool_]:
    """Return which operations add a subscription, here or in other shards."""
    return np.asarray(pc.is_in(table["op"], value_set=pa.array([SUBSCRIBE, ELSEWHERE])))


def ends_of(table: pa.Table) -> Rows | None:
    """Return when the subscriptions of operations expire, NEVER where they do not; None if none does."""
    column = table["expires_at"]
    if column.null_count == len(table):
        return None
    ends: Rows = pc.fill_null(column.cast(pa.int64()), NEVER).to_numpy()
    return np.where(are_added(table), ends, NEVER)


def rejections_of(table: pa.Table, error_of: Callable[[Row], InvalidInput], *, shard: int) -> list[Rejection]:
    """Return the rejections of operations that this shard reports; times in the rows are in microseconds."""
    placements = masks_from_arrow(table, PLACEMENTS)
    is_first = np.ones(len(table), np.bool_) if placements is None else are_empty(before_it(placements, shard))
    reported = table.filter(pc.and_(pa.array(is_first), pc.equal(table["op"], SUBSCRIBE)))
    return [
        Rejection(SUBSCRIPTION, _to_json(row), str(error_of(row))) for row in _with_times_in_us(reported).to_pylist()
    ]


def expired_rejections(table: pa.Table, now_us: int, *, shard: int) -> list[Rejection]:
    """Return the rejections of subscriptions that have expired by the time at which they are added."""

    def error_of(row: Row) -> InvalidInput:
        return expired_error(row["id"], row["expires_at"], now_us=now_us)

    return rejections_of(table, error_of, shard=shard)


def _with_times_in_us(table: pa.Table) -> pa.Table:
    """Return operations with times as numbers, since Python has no names for some."""
    fields = [
        pa.field(field.name, pa.int64() if field.type == TIMESTAMP else field.type)
        for field in subscriptions_schema()
    ]
    return table.select([field.name for field in fields]).cast(pa.schema(fields))


def _to_json(row: Row) -> str:
    """Return a row with the fields that it has."""
    times = {field.name for field in subscriptions_schema() if field.type == TIMESTAMP}
    given = {
        name: f"{np.datetime64(value // 1000, 'ms')}Z" if name in times else value
        for name, value in row.items()
        if value is not None
    }
    return json.dumps(given, ensure_ascii=False)
