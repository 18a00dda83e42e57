"""Columns of Arrow tables of messages, subscriptions and updates, and how such tables are read and written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import InvalidInput, require
from nearcast.model.batch import MessageBatch
from nearcast.model.fields import has_strings
from nearcast.model.id_column import IdColumn
from nearcast.model.identity import Id, check_id, is_id
from nearcast.model.kind_registry import find_kind, kinds
from nearcast.model.limits import Limits
from nearcast.model.subscription import Subscription
from nearcast.model.timestamps import FARTHEST_SECONDS, NO_TIME
from nearcast.model.update import Update
from nearcast.text import Vocabulary

TIMESTAMP = pa.timestamp("us", tz="UTC")

MESSAGES = pa.schema(
    {"id": pa.string(), "x": pa.float64(), "y": pa.float64(), "text": pa.string(), "at": TIMESTAMP,
     "place": pa.string()}
)  # fmt: skip
UPDATES = pa.schema(
    {"seq": pa.int64(), "at": TIMESTAMP, "subscription": pa.string(), "message": pa.string(), "change": pa.string(),
     "score": pa.float64()}
)  # fmt: skip
GROUPS = pa.schema(
    {"seq": pa.int64(), "at": TIMESTAMP, "message": pa.string(), "change": pa.string(),
     "subscriptions": pa.list_(pa.string()), "scores": pa.list_(pa.float64())}
)  # fmt: skip
"""Updates that differ in subscription and score only share one row; see `engine.groups`."""


def subscriptions_schema() -> pa.Schema:
    """Return the columns of tables of subscriptions: those of all kinds, registered ones included.

    >>> subscriptions_schema().names[:5]
    ['op', 'id', 'kind', 'x', 'y']
    """
    columns = {name: pa.field(name, pa.string()) for name in ("op", "id", "kind")}
    fields = [(type_, name, kind) for kind in kinds() for name, type_ in kind.field_types().items()]
    for type_, name, kind in sorted(fields, key=lambda field: (field[0].order, field[1])):
        for column in type_.columns(name):
            known = columns.setdefault(column.name, column)
            rule = f"must be a column of {known.type}, as in other kinds"
            same = known.type == column.type
            require(same, column.name, rule, str(column.type), subject=f"kind {kind.kind!r}")
    return pa.schema([*columns.values(), pa.field("at", TIMESTAMP)])


class ArrowTable(Protocol):
    """A `pyarrow.ArrowTable`, for annotations; Arrow ships no type hints."""

    @property
    def num_rows(self) -> int:
        """Number of rows."""

    @property
    def column_names(self) -> list[str]:
        """Names of the columns."""


def messages_from_table(table: pa.Table, *, vocabulary: Vocabulary, limits: Limits, first_seq: int) -> MessageBatch:
    """Read a table of messages with the columns `id`, `x`, `y` and `text`; `at` and `place` are optional."""
    _require_columns(table, ("id", "x", "y", "text"), "messages")
    ids = _ids(table, "message")
    texts = _texts(table, ids, limits)
    return MessageBatch.from_columns(
        ids=ids,
        xs=_numbers(table, "x", ids),
        ys=_numbers(table, "y", ids),
        ats_us=_times(table),
        places=_places(table, ids),
        texts=texts,
        vocabulary=vocabulary,
        first_seq=first_seq,
    )


def subscriptions_from_table(table: pa.Table) -> Iterator[Subscription]:
    """Read a table of subscriptions with the columns `id`, `kind`, and those that the kind of each row needs."""
    _require_columns(table, ("id", "kind"), "subscriptions")
    for i, row in enumerate(table.to_pylist()):
        subject = f"row {i}" if row["id"] is None else f"subscription {row['id']!r}"
        op = row.get("op") or "subscribe"
        require(op == "subscribe", "op", "must be 'subscribe' here", op, subject=subject)
        yield find_kind(row["kind"], subject=subject).from_row(row, subject=subject)


def ids_from_table(table: pa.Table) -> IdColumn:
    """Return the `id` column."""
    _require_columns(table, ("id",), "ids")
    return _ids(table, "subscription")


def edges_from_table(table: pa.Table) -> list[tuple[Any, Any]]:
    """Return the columns `user` and `place` as pairs."""
    _require_columns(table, ("user", "place"), "edges")
    return list(zip(table["user"].to_pylist(), table["place"].to_pylist(), strict=True))


def updates_to_table(updates: Sequence[Update]) -> pa.Table:
    """Return updates as a table; ids become strings."""
    ats = [None if u.at is None else round(u.at * 1_000_000) for u in updates]
    columns = [
        pa.array([u.seq for u in updates], pa.int64()),
        pa.array(ats, pa.int64()).cast(TIMESTAMP),
        pa.array([str(u.subscription) for u in updates], pa.string()),
        pa.array([str(u.message) for u in updates], pa.string()),
        pa.array([u.change for u in updates], pa.string()),
        pa.array([u.score for u in updates], pa.float64()),
    ]
    return pa.Table.from_arrays(columns, schema=UPDATES)


def _require_columns(table: pa.Table, names: Sequence[str], what: str) -> None:
    missing = [name for name in names if name not in table.column_names]
    require(not missing, "columns", f"of {what} must include {missing}", table.column_names)


def _ids(table: pa.Table, what: str) -> IdColumn:
    if has_strings(table, "id"):
        return IdColumn(one_array(table["id"]).cast(pa.string()))
    ids: list[Id] = table["id"].to_pylist()
    for row, id_ in enumerate(ids):
        if not is_id(id_):
            check_id(id_, "id", subject=f"{what} in row {row}")
    return IdColumn.of(ids)


def _places(table: pa.Table, ids: IdColumn) -> list[Id | None] | pa.Array:
    if "place" not in table.column_names or pa.types.is_null(table["place"].type):
        return pa.nulls(len(table), pa.string())
    if pa.types.is_string(table["place"].type):
        return one_array(table["place"])
    places: list[Id | None] = table["place"].to_pylist()
    for id_, place in zip(ids, places, strict=True):
        if place is not None:
            check_id(place, "place", subject=f"message {id_!r}")
    return places


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, without a copy if it has one chunk."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _numbers(table: pa.Table, name: str, ids: IdColumn) -> npt.NDArray[np.float64]:
    column = table[name]
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        raise InvalidInput(name, "must be a column of numbers", str(column.type), subject="messages")
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise InvalidInput(name, "must be a finite number", None, subject=f"message {ids[row]!r}")
    return np.ascontiguousarray(column.to_numpy(), dtype=np.float64)


def _texts(table: pa.Table, ids: IdColumn, limits: Limits) -> pa.Array:
    column = one_array(table["text"])
    kind = column.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    word = kind.value_type if is_list else kind
    if not (pa.types.is_string(word) or pa.types.is_large_string(word)):
        raise InvalidInput("text", "must be a column of strings or of lists of strings", str(kind))
    _refuse(column.is_null(), "text", "must not be null", column, ids)
    sizes = pc.binary_length(column) if not is_list else None
    if is_list:
        terms = column.flatten()
        bounds = column.offsets.to_numpy().astype(np.int64)
        if terms.null_count:
            row = int(np.searchsorted(bounds - bounds[0], pc.index(terms.is_null(), True).as_py(), side="right")) - 1
            raise InvalidInput("text", "must not hold null", column[row].as_py(), subject=f"message {ids[row]!r}")
        lengths = np.concatenate([[0], np.cumsum(pc.binary_length(terms).to_numpy().astype(np.int64))])
        sizes = pa.array(np.diff(lengths[bounds - bounds[0]]))
    rule = f"must be at most {limits.text_bytes} bytes"
    _refuse(pc.greater(sizes, limits.text_bytes), "text", rule, sizes, ids)
    return column


def _refuse(bad: pa.Array, field: str, rule: str, values: pa.Array, ids: IdColumn) -> None:
    """Raise `InvalidInput` for the first bad row."""
    row = pc.index(bad, True).as_py()
    if row >= 0:
        raise InvalidInput(field, rule, values[row].as_py(), subject=f"message {ids[row]!r}")


def _times(table: pa.Table) -> npt.NDArray[np.int64]:
    if "at" not in table.column_names:
        return np.full(len(table), NO_TIME, dtype=np.int64)
    column = table["at"]
    kind = column.type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        seconds = column.cast(pa.float64(), safe=False).to_numpy()
        too_far = np.abs(seconds) >= FARTHEST_SECONDS
        if too_far.any():
            raise InvalidInput("at", "must be finite seconds since the epoch", float(seconds[too_far][0]))
        return np.where(np.isnan(seconds), NO_TIME, np.rint(np.nan_to_num(seconds) * 1e6)).astype(np.int64)
    if pa.types.is_timestamp(kind):
        if kind.tz is None and column.null_count < len(column):
            hint = "Try a column with a time zone, such as UTC."
            raise InvalidInput("at", "must carry a time zone", str(kind), hint=hint)
        times: npt.NDArray[np.int64] = pc.fill_null(column.cast(TIMESTAMP).cast(pa.int64()), NO_TIME).to_numpy()
        return times
    if pa.types.is_null(kind):
        return np.full(len(table), NO_TIME, dtype=np.int64)
    raise InvalidInput("at", "must be a column of timestamps or of seconds", str(kind))
