"""Columns of Arrow tables of messages, subscriptions and updates, and how such tables are read and written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import InvalidInput, require
from nearcast.model.attributes import NO_ATTRIBUTES, Attributes
from nearcast.model.batch import MessageBatch
from nearcast.model.fields import has_strings
from nearcast.model.id_column import IdColumn
from nearcast.model.identity import Id, check_id, is_id
from nearcast.model.kind_registry import find_kind, kinds
from nearcast.model.limits import Limits
from nearcast.model.message import LATER
from nearcast.model.subscription import Subscription
from nearcast.model.timestamps import FARTHEST_SECONDS, FARTHEST_US, NEVER, NO_TIME
from nearcast.model.update import Update
from nearcast.text import Vocabulary
from nearcast.text.encode import bytes_of

TIMESTAMP = pa.timestamp("us", tz="UTC")

MESSAGES = pa.schema(
    {"id": pa.string(), "x": pa.float64(), "y": pa.float64(), "text": pa.string(), "at": TIMESTAMP,
     "place": pa.string(), "expires_at": TIMESTAMP, "body": pa.string()}
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
BODY = pa.field("body", pa.string())
"""The last column of updates and of groups, if the engine has bodies; null where a message leaves."""


def updates_schema(*, bodies: bool) -> pa.Schema:
    """Return the columns of tables of updates, with or without bodies."""
    return UPDATES.append(BODY) if bodies else UPDATES


def groups_schema(*, bodies: bool) -> pa.Schema:
    """Return the columns of tables of groups, with or without bodies."""
    return GROUPS.append(BODY) if bodies else GROUPS


def subscriptions_schema() -> pa.Schema:
    """Return the columns of tables of subscriptions: those of all kinds, registered ones included.

    >>> subscriptions_schema().names[:5]
    ['op', 'id', 'kind', 'x', 'y']
    """
    columns = {name: pa.field(name, pa.string()) for name in ("op", "id", "kind")}
    fields = [(type_, name, kind) for kind in kinds() for name, type_ in kind.all_field_types().items()]
    for type_, name, kind in sorted(fields, key=lambda field: (field[0].order, field[1])):
        for column in type_.columns(name):
            known = columns.setdefault(column.name, column)
            rule = f"must be a column of {known.type}, as in other kinds"
            same = known.type == column.type
            require(same, column.name, rule, str(column.type), subject=f"kind {kind.kind!r}")
    return pa.schema([*columns.values(), pa.field("at", TIMESTAMP)])


def subscription_columns() -> list[str]:
    """Return the columns that a call reads from a table of subscriptions; Spark alone reads the time."""
    return [name for name in subscriptions_schema().names if name != "at"]


ID_COLUMNS = ("id",)
EDGE_COLUMNS = ("user", "place")
_TOO_FAR = f"must be closer to the epoch than {FARTHEST_SECONDS:g} seconds"


class ArrowTable(Protocol):
    """A `pyarrow.ArrowTable`, for annotations; Arrow ships no type hints."""

    @property
    def num_rows(self) -> int:
        """Number of rows."""

    @property
    def column_names(self) -> list[str]:
        """Names of the columns."""


def message_columns(attributes: Attributes) -> list[str]:
    """Return the columns that an engine reads from a table of messages."""
    return [*MESSAGES.names, *attributes.names]


def messages_from_table(
    table: pa.Table,
    *,
    vocabulary: Vocabulary,
    limits: Limits,
    first_seq: int,
    attributes: Attributes = NO_ATTRIBUTES,
) -> MessageBatch:
    """Read a table of messages with the columns `id`, `x`, `y` and `text`; all others are optional."""
    _require_columns(table, ("id", "x", "y", "text"), "messages")
    ids = _ids(table, "message")
    _check_lengths(ids.columns["id"], "id", ids, limits.id_bytes)
    texts, ats_us = _texts(table, ids, limits), _times(table, "at")
    return MessageBatch.from_columns(
        ids=ids,
        xs=_numbers(table, "x", ids),
        ys=_numbers(table, "y", ids),
        ats_us=ats_us,
        places=_places(table, ids, limits),
        texts=texts,
        vocabulary=vocabulary,
        first_seq=first_seq,
        expires_us=_expires_us(table, ats_us, ids),
        bodies=_bodies(table, ids, limits),
        codes=_codes(table, attributes, vocabulary, ids, limits),
    )


def _codes(
    table: pa.Table, attributes: Attributes, vocabulary: Vocabulary, ids: IdColumn, limits: Limits
) -> npt.NDArray[np.int64] | None:
    """Return the values of attributes, or None if the engine declares none."""
    if not len(attributes):
        return None
    return attributes.encode_table(table, vocabulary.hash_key, limits, lambda row: f"message {ids[row]!r}")


def subscriptions_from_table(table: pa.Table) -> Iterator[Subscription]:
    """Read a table of subscriptions with the columns `id`, `kind`, and those that the kind of each row needs."""
    _require_columns(table, ("id", "kind"), "subscriptions")
    if "expires_at" in table.column_names:
        ends = _times(table, "expires_at")
        seconds = pa.array(ends / 1_000_000, mask=ends == NO_TIME)
        table = table.set_column(table.column_names.index("expires_at"), "expires_at", seconds)
    for i, row in enumerate(table.to_pylist()):
        subject = f"row {i}" if row["id"] is None else f"subscription {row['id']!r}"
        op = "subscribe" if row.get("op") is None else row["op"]
        require(op == "subscribe", "op", "must be 'subscribe' here", op, subject=subject)
        yield find_kind(row["kind"], subject=subject).from_row(row, subject=subject)


def ids_from_table(table: pa.Table) -> IdColumn:
    """Return the `id` column."""
    _require_columns(table, ID_COLUMNS, "ids")
    return _ids(table, "subscription")


def edges_from_table(table: pa.Table) -> list[tuple[Any, Any]]:
    """Return the columns `user` and `place` as pairs."""
    _require_columns(table, EDGE_COLUMNS, "edges")
    return list(zip(table["user"].to_pylist(), table["place"].to_pylist(), strict=True))


def updates_to_table(updates: Sequence[Update], *, bodies: bool = False) -> pa.Table:
    """Return updates as a table, with a column of bodies if that is wanted; ids become strings."""
    ats = [None if u.at is None else round(u.at * 1_000_000) for u in updates]
    columns = [
        pa.array([u.seq for u in updates], pa.int64()),
        pa.array(ats, pa.int64()).cast(TIMESTAMP),
        pa.array([str(u.subscription) for u in updates], pa.string()),
        pa.array([str(u.message) for u in updates], pa.string()),
        pa.array([u.change for u in updates], pa.string()),
        pa.array([u.score for u in updates], pa.float64()),
    ]
    if bodies:
        columns.append(pa.array([u.body for u in updates], pa.string()))
    return pa.Table.from_arrays(columns, schema=updates_schema(bodies=bodies))


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


def _check_lengths(values: pa.StringArray, field: str, ids: IdColumn, most: int) -> None:
    """Raise `InvalidInput` for the first string of more than so many bytes."""
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    if len(values) and np.diff(offsets).max() > most:  # a tenth of the time that Arrow's functions take
        sizes = pc.fill_null(pc.binary_length(values), 0)
        _refuse(pc.greater(sizes, most), field, f"must be at most {most} bytes", sizes, ids)


def _places(table: pa.Table, ids: IdColumn, limits: Limits) -> list[Id | None] | pa.Array:
    if "place" not in table.column_names or pa.types.is_null(table["place"].type):
        return pa.nulls(len(table), pa.string())
    if pa.types.is_string(table["place"].type):
        places = one_array(table["place"])
        _check_lengths(places, "place", ids, limits.id_bytes)
        return places
    listed: list[Id | None] = table["place"].to_pylist()
    for id_, place in zip(ids, listed, strict=True):
        if place is not None:
            check_id(place, "place", subject=f"message {id_!r}")
            limits.check_id(place, "place", subject=f"message {id_!r}")
    return listed


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
    if column.null_count:
        _refuse(column.is_null(), "text", "must not be null", column, ids)
    if not len(column):
        return column
    if is_list:
        bounds = column.offsets.to_numpy().astype(np.int64)
        terms = column.values[int(bounds[0]) : int(bounds[-1])]
        bounds -= bounds[0]
        if terms.null_count:
            row = int(np.searchsorted(bounds, pc.index(terms.is_null(), True).as_py(), side="right")) - 1
            raise InvalidInput("text", "must not hold null", column[row].as_py(), subject=f"message {ids[row]!r}")
        sizes = np.diff(bytes_of(terms)[1][bounds]) if len(terms) else np.zeros(1, np.int64)
    else:
        sizes = np.diff(bytes_of(column)[1])
    if sizes.max() > limits.text_bytes:
        rule = f"must be at most {limits.text_bytes} bytes"
        _refuse(pa.array(sizes > limits.text_bytes), "text", rule, pa.array(sizes), ids)
    return column


def _bodies(table: pa.Table, ids: IdColumn, limits: Limits) -> pa.Array | None:
    """Return the bodies, or None if no message has one."""
    if "body" not in table.column_names or table["body"].null_count == len(table):
        return None
    column = one_array(table["body"])
    if not pa.types.is_string(column.type):
        raise InvalidInput("body", "must be a column of strings", str(column.type))
    _check_lengths(column, "body", ids, limits.body_bytes)
    return column


def _expires_us(table: pa.Table, ats_us: npt.NDArray[np.int64], ids: IdColumn) -> npt.NDArray[np.int64] | None:
    """Return when messages expire, or None if none does."""
    if "expires_at" not in table.column_names or table["expires_at"].null_count == len(table):
        return None
    given = _times(table, "expires_at")
    ends = np.where(given == NO_TIME, NEVER, given)
    if (ends <= ats_us).any():
        row = int(np.argmax(ends <= ats_us))
        raise InvalidInput("expires_at", LATER, table["expires_at"][row].as_py(), subject=f"message {ids[row]!r}")
    return ends


def _microseconds(column: pa.ChunkedArray, name: str) -> npt.NDArray[np.int64]:
    if column.type == TIMESTAMP and not column.null_count and len(column):
        plain: npt.NDArray[np.int64] = one_array(column).view(pa.int64()).to_numpy().copy()
        if max(-int(plain.min()), int(plain.max())) < FARTHEST_US:
            return plain
    try:
        given = column.cast(TIMESTAMP, safe=column.type.unit != "ns").cast(pa.int64())
    except pa.ArrowInvalid:
        raise InvalidInput(name, _TOO_FAR, str(column.type)) from None
    lowest, highest = (value.as_py() for value in pc.min_max(given).values())
    if lowest is not None and max(-lowest, highest) >= FARTHEST_US:
        farthest = lowest if -lowest >= FARTHEST_US else highest
        raise InvalidInput(name, _TOO_FAR, f"{farthest} microseconds")
    times: npt.NDArray[np.int64] = pc.fill_null(given, NO_TIME).to_numpy()
    return times


def _refuse(bad: pa.Array, field: str, rule: str, values: pa.Array, ids: IdColumn) -> None:
    """Raise `InvalidInput` for the first bad row."""
    row = pc.index(bad, True).as_py()
    if row >= 0:
        raise InvalidInput(field, rule, values[row].as_py(), subject=f"message {ids[row]!r}")


def _times(table: pa.Table, name: str) -> npt.NDArray[np.int64]:
    """Return a column of times, NO_TIME where there is none."""
    if name not in table.column_names:
        return np.full(len(table), NO_TIME, dtype=np.int64)
    column = table[name]
    kind = column.type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        seconds = column.cast(pa.float64(), safe=False).to_numpy()
        too_far = np.abs(seconds) >= FARTHEST_SECONDS
        if too_far.any():
            raise InvalidInput(name, "must be finite seconds since the epoch", float(seconds[too_far][0]))
        return np.where(np.isnan(seconds), NO_TIME, np.rint(np.nan_to_num(seconds) * 1e6)).astype(np.int64)
    if pa.types.is_timestamp(kind):
        if kind.tz is None and column.null_count < len(column):
            hint = "Try a column with a time zone, such as UTC."
            raise InvalidInput(name, "must carry a time zone", str(kind), hint=hint)
        return _microseconds(column, name)
    if pa.types.is_null(kind):
        return np.full(len(table), NO_TIME, dtype=np.int64)
    raise InvalidInput(name, "must be a column of timestamps or of seconds", str(kind))
