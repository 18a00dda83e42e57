"""Plain tables: the columns that a call reads, in the few types that the engine knows, with valid content.

    any Arrow table ── the known columns, each once ── plain types ── offsets and UTF-8 checked ── a plain table

A caller's table may hold any of Arrow's types and any bytes. Types with the same values become one type
(dictionaries, run-ends, half floats, strings and lists of other widths); a column of any other type is refused here,
unless it holds nulls only. Code behind this therefore meets null, bool, integers, floats, strings, lists of strings,
and timestamps in `at` and `expires_at`, whose values can all be read. The bytes of `region`, which are WKB, become
strings of hexadecimal digits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import InvalidInput, require

_RULE = "must be a column of strings, numbers or lists of strings"
_TIMES = ("at", "expires_at")
_WKB = "region"
_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), "<u2")
"""The two digits of each byte."""


def plain_table(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return the named columns that a table has as plain columns; raise `InvalidInput` if that is impossible.

    >>> words = pa.array(["jazz", "jazz"]).dictionary_encode()
    >>> str(plain_table(pa.table({"id": words, "colour": ["red", "blue"]}), ["id"]).schema)
    'id: string'
    """
    given = table.column_names
    known = [name for name in given if name in names]
    for name in known:
        require(given.count(name) == 1, "columns", f"must include {name!r} once", given)
    made = table.select(known)
    for i, name in enumerate(known):
        column = _plain_column(made.column(i), name)
        if column is not made.column(i):
            made = made.set_column(i, name, column)
        _check_content(column, name)
    return made


def _plain_column(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    kind = column.type
    try:
        if pa.types.is_run_end_encoded(kind):
            decoded = [pc.run_end_decode(chunk) for chunk in column.chunks]
            return _plain_column(pa.chunked_array(decoded, kind.value_type), name)
        if name == _WKB and (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
            return pa.chunked_array([_in_hex(chunk) for chunk in column.chunks], pa.string())
        plain = _plain_type(kind, name)
        if plain is None:
            if column.null_count == len(column):
                return pa.chunked_array([pa.nulls(len(column))])
            raise InvalidInput(name, _RULE, str(kind))
        return column if plain == kind else column.cast(plain)
    except (pa.ArrowException, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(name, _RULE, str(kind), subject=str(error).partition("\n")[0]) from None


def _in_hex(cells: pa.Array) -> pa.Array:
    """Return bytes as hexadecimal digits."""
    cells = cells.cast(pa.large_binary())
    cells.validate()
    _, offsets, data = cells.buffers()
    n = len(cells)
    ends = np.frombuffer(offsets, np.int64)[cells.offset : cells.offset + n + 1] if n else np.zeros(1, np.int64)
    held = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
    starts = pa.py_buffer(2 * (ends - ends[0]))
    digits = pa.py_buffer(_HEX[held])
    is_valid = cells.is_valid().buffers()[1] if cells.null_count else None
    made = pa.Array.from_buffers(pa.large_string(), n, [is_valid, starts, digits])
    return made.cast(pa.string())


def _plain_type(kind: pa.DataType, name: str) -> pa.DataType | None:
    """Return the type that stands for a type, or None if the engine reads no such values."""
    types = pa.types
    if types.is_dictionary(kind):
        return _plain_type(kind.value_type, name)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_list(kind) or types.is_large_list(kind):
        inner = _plain_type(kind.value_type, name)
        return pa.list_(pa.string()) if inner == pa.string() or types.is_null(kind.value_type) else None
    if types.is_float16(kind):
        return pa.float64()
    is_plain = types.is_null(kind) or types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)
    return kind if is_plain or (name in _TIMES and types.is_timestamp(kind)) else None


def _check_content(column: pa.ChunkedArray, name: str) -> None:
    """Raise `InvalidInput` unless all strings of a column are UTF-8, and its offsets are valid."""
    kind = column.type
    if not (pa.types.is_string(kind) or pa.types.is_list(kind)):
        return
    try:
        for chunk in column.chunks:
            check_offsets(chunk)
            if pa.types.is_list(kind):
                _check_lists(chunk)
            else:
                chunk.validate(full=True)
    except pa.ArrowException as error:
        reason = str(error).partition("\n")[0]
        raise InvalidInput(name, "must be UTF-8", None, subject=_first_broken(column) or reason) from None


def _check_lists(array: pa.ListArray) -> None:
    """Raise an error of Arrow unless lists of strings are valid; the cost is that of a slice, not of its table."""
    array.validate()
    if not len(array):
        return
    buffer = array.buffers()[1]
    offsets = np.frombuffer(buffer, np.int32, buffer.size // 4)[array.offset : array.offset + len(array) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    if first < 0 or last > len(array.values) or (np.diff(offsets) < 0).any():
        raise pa.ArrowInvalid("offsets of lists must ascend, within their values")
    array.values.slice(first, last - first).validate(full=True)


def check_offsets(array: pa.Array) -> None:
    """Raise an error of Arrow if the offsets of strings or lists end within a number; Arrow does not check it."""
    kind, types = array.type, pa.types
    is_list = types.is_list(kind) or types.is_large_list(kind)
    if not (is_list or types.is_string(kind) or types.is_large_string(kind)):
        return
    size = 8 if types.is_large_list(kind) or types.is_large_string(kind) else 4
    offsets = array.buffers()[1]
    if offsets is not None and offsets.size % size:
        raise pa.ArrowInvalid(f"offsets must be numbers of {size} bytes; got {offsets.size} bytes")
    if is_list:
        check_offsets(array.values)


def _first_broken(column: pa.ChunkedArray) -> str:
    """Return where the first string is that is not UTF-8; nothing if the column has another fault."""
    for row, value in enumerate(column):
        try:
            value.as_py()
        except UnicodeDecodeError as error:
            return f"row {row}: {bytes(error.object)[:40]!r}"
        except pa.ArrowException:
            break
    return ""
