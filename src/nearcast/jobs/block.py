"""Blocks of packed messages and updates: an Arrow stream of many rows as one row for Spark.

    a table of messages ── pack_messages ── bytes ── a broker, or a file ── open_block ── the columns of messages

A block may come from anywhere, so opening it is defensive. Bytes that are not Arrow, a missing column and a column of
another type are refused as a whole. Offsets and sizes are checked before any value is read; whether texts are UTF-8
is checked per row, in `validate`. Arrow files (which can be read from both ends) are accepted as well as streams.

Updates leave in the same form, in blocks of groups (`Matched.packed`). Packing and opening need no Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import pyarrow as pa

from nearcast.engine import ungroup
from nearcast.errors import InvalidInput, require
from nearcast.jobs.frame import pack, unpack
from nearcast.jobs.message_rows import attribute_columns
from nearcast.model import NO_ATTRIBUTES, Attributes
from nearcast.model.columns import TIMESTAMP
from nearcast.model.plain_table import check_offsets

_FILE = b"ARROW1"  # the first bytes of an Arrow file; no stream begins like this
_REQUIRED = ("id", "x", "y", "text")
_RULE = "must be an Arrow stream of messages"


class _BlockColumn(NamedTuple):
    """The types that a column may have, and the type that it is converted to."""

    name: str
    fits: Callable[[pa.DataType], bool]
    plain: Callable[[pa.DataType], pa.DataType]


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind))


Sorts = Mapping[str, _BlockColumn]
_STRING = _BlockColumn("string", _is_string, lambda _: pa.string())
_TEXT = _BlockColumn(
    "string or list of strings",
    lambda kind: _is_string(kind) or (_is_list(kind) and _is_string(kind.value_type)),
    lambda kind: pa.list_(pa.string()) if _is_list(kind) else pa.string(),
)
_NUMBER = _BlockColumn(
    "double or another number",
    lambda kind: bool(pa.types.is_floating(kind) or pa.types.is_integer(kind)),
    lambda _: pa.float64(),
)
_TIME = _BlockColumn("timestamp", lambda kind: bool(pa.types.is_timestamp(kind)), lambda _: TIMESTAMP)
_COLUMNS = {
    "id": _STRING, "x": _NUMBER, "y": _NUMBER, "text": _TEXT, "at": _TIME, "place": _STRING, "op": _STRING,
    "expires_at": _TIME, "body": _STRING,
}  # fmt: skip
_ATTRIBUTES = {
    float: _NUMBER,
    int: _BlockColumn("int or another number", _NUMBER.fits, lambda kind: kind if _is_whole(kind) else pa.float64()),
    str: _STRING,
    bool: _BlockColumn("bool", lambda kind: bool(pa.types.is_boolean(kind)), lambda _: pa.bool_()),
}
"""The columns of attributes, by type."""


def pack_messages(messages: pa.Table, *, attributes: Mapping[str, type | str] | None = None) -> bytes:
    """Return a table of messages as one block, for a `payload` column of `match`.

    The columns are `id, x, y, text` and optionally `at`, `place`, `op`, `expires_at`, `body` and those of
    `attributes`, which are given as for `match`; others are left out. A few thousand messages make a good block. A
    table with wrong columns is refused here; rows are not checked.

        >>> block = pack_messages(pa.table({"id": ["m1"], "x": [0.2], "y": [0.3], "text": ["Coffee sale today"]}))
        >>> open_block(block).num_rows
        1
        >>> pack_messages(pa.table({"id": [1], "x": [0.2], "y": [0.3], "text": ["Coffee"]}))
        Traceback (most recent call last):
            ...
        nearcast.errors.InvalidInput: id must be a column of string; got 'int64' (messages)
    """
    sorts = _sorts(Attributes.of(attributes))
    return pack(_plain(_known(messages, sorts), sorts))


def unpack_updates(payload: bytes) -> pa.Table:
    """Return the updates of one `payload` of `Matched.packed`, one per row, in order."""
    return ungroup(unpack(payload))


def open_block(payload: bytes | None, attributes: Attributes = NO_ATTRIBUTES) -> pa.Table:
    """Return the rows of a block in plain columns; raise `InvalidInput` if the bytes are not such a block.

    Attributes have their columns within a job, see `message_rows`.

    >>> open_block(b"what is this?")
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: payload must be an Arrow stream of messages; got 13 bytes (...)
    """
    if payload is None:
        raise InvalidInput("payload", _RULE, None)
    try:
        opened = pa.ipc.open_file(payload) if payload[: len(_FILE)] == _FILE else pa.ipc.open_stream(payload)
        sorts = _sorts(attributes)
        known = _known(opened.read_all(), sorts)
        for column in known.columns:
            for chunk in column.chunks:
                _check_shape(chunk)
        own = {name: column for column, name in attribute_columns(attributes).items()}
        return _plain(known, sorts).rename_columns([own.get(name, name) for name in known.column_names])
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput("payload", _RULE, _Bytes(len(payload)), subject=_first_line(error)) from None


class _Bytes(int):
    """A number of bytes, as shown in an error."""

    def __repr__(self) -> str:
        return f"{int(self)} bytes"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _sorts(attributes: Attributes) -> Sorts:
    """Return the columns of a block."""
    return _COLUMNS | {name: _ATTRIBUTES[attributes.type_of(name)] for name in attributes.names}


def _known(table: pa.Table, sorts: Sorts) -> pa.Table:
    """Return the known columns after a check of their types; an optional column of nulls counts as missing."""
    names = table.column_names
    missing = [name for name in _REQUIRED if name not in names]
    require(not missing, "columns", f"must include {missing}", names, subject="messages")
    known = [name for name in sorts if name in names]
    for name in known:
        require(names.count(name) == 1, "columns", f"must include {name!r} once", names, subject="messages")
    known = [name for name in known if name in _REQUIRED or not pa.types.is_null(table[name].type)]
    may_be_null = ("x", "y", "text") if "op" in known else ()  # in a block of retractions
    for name in known:
        sort, kind = sorts[name], table[name].type
        if name in may_be_null and pa.types.is_null(kind):
            continue
        require(sort.fits(kind), name, f"must be a column of {sort.name}", str(kind), subject="messages")
    return table.select(known)


def _plain(table: pa.Table, sorts: Sorts) -> pa.Table:
    """Return columns in one type each; nanoseconds and integers are rounded."""
    columns = {}
    for name in table.column_names:
        sort, kind = sorts[name], table[name].type
        is_exact = sort is _TIME and kind.unit != "ns"  # so that a time outside the range of timestamps is an error
        columns[name] = table[name].cast(sort.plain(kind), safe=is_exact)
    return pa.table(columns)


def _check_shape(array: pa.Array) -> None:
    """Raise Arrow's error for an array with invalid offsets or sizes; texts that are not UTF-8 pass."""
    check_offsets(array)
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        _as_bytes(array).validate(full=True)


def _as_bytes(array: pa.Array) -> pa.Array:
    """Return an array with binary instead of string type; reads no values."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return array.view(pa.binary() if pa.types.is_string(kind) else pa.large_binary())
    if _is_list(kind):
        items = _as_bytes(array.values)
        outer = pa.list_(items.type) if pa.types.is_list(kind) else pa.large_list(items.type)
        return pa.Array.from_buffers(outer, len(array), array.buffers()[:2], offset=array.offset, children=[items])
    return array
