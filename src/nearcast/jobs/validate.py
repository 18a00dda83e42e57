"""Validation of rows: the engine's own checks, applied to many rows at once where all are good.

    block ── check ──┬── no error: all rows are good
                     └── an error: halve, and check both halves ── ... ── a single row: it is bad

One bad row among thousands therefore costs a few more checks. The reason for a bad message is the engine's error for
that message as an object, in whichever form it came.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from math import isfinite, isnan
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.engine import Engine
from nearcast.errors import InvalidInput, NearcastError
from nearcast.jobs.edge_rows import check_edges
from nearcast.jobs.job import Job
from nearcast.jobs.message_rows import MESSAGE_ROWS, RETRACT, are, attribute_columns, check_op, has_ops, readable
from nearcast.model import NO_ATTRIBUTES, NO_TIME, Attributes, Message, find_kind
from nearcast.model.columns import ids_from_table

SUBSCRIBE, UNSUBSCRIBE = "subscribe", "unsubscribe"

Bad = Iterator[tuple[int, str]]
"""Rows, ascending, with the reason for each."""


def bad_subscriptions(table: pa.Table, job: Job) -> Bad:
    """Yield the bad rows of a table of subscriptions."""
    columns = table.drop_columns(["at"])  # no rule applies to it
    return _validate(len(table), lambda start, n: _check_subscriptions(columns.slice(start, n), job))


def bad_messages(table: pa.Table, job: Job) -> Bad:
    """Yield the bad rows of an opened block of messages."""
    return _validate(len(table), lambda start, n: _check_messages(table.slice(start, n), job))


def bad_edges(table: pa.Table, job: Job) -> Bad:
    """Yield the bad rows of a table of edges."""
    columns = table.drop_columns(["at"])  # no rule applies to it
    return _validate(len(table), lambda start, n: check_edges(columns.slice(start, n), job))


def good_messages(table: pa.Table, job: Job) -> pa.Table:
    """Return an opened block of messages without the bad ones."""
    bad = [row for row, _ in bad_messages(table, job)]
    if not bad:
        return table
    is_good = np.ones(len(table), dtype=np.bool_)
    is_good[bad] = False
    return table.filter(pa.array(is_good))


def fault(row: dict[str, Any], engine: Engine, job: Job) -> str | None:
    """Return the engine's error for a row of messages, or None; `broken` names columns that are not UTF-8."""
    op, subject, bounds = row.get("op"), f"message {row['id']!r}", job.config.space.bounds
    names = attribute_columns(job.config.attributes)
    try:
        if op == RETRACT:  # the engine checks what is left of the row as a message
            row = row | {"x": bounds.xmin, "y": bounds.ymin, "text": "", "place": None}
            row |= {"at": row["at"] or 0, "expires_at": None, "body": None} | dict.fromkeys(names)
            row["broken"] = [name for name in row["broken"] if name == "id"]
        _refuse_broken(row, subject, names)
        check_op(op, subject)
        at, expires_at = (None if us is None else us / 1_000_000 for us in (row["at"], row.get("expires_at")))
        place, body, location = row["place"], row.get("body"), (row["x"], row["y"])
        attributes = {name: row.get(column) for column, name in names.items()}
        message = Message(row["id"], location, row["text"], at, place, expires_at, body, attributes or None)
        engine.check_messages([message])
    except NearcastError as error:
        return str(error)
    return None


def message_at(table: pa.Table, row: int) -> dict[str, Any]:
    """Return a message of an opened block as `fault` takes it, with replacement characters for invalid UTF-8."""
    shown: dict[str, Any] = dict.fromkeys(MESSAGE_ROWS.names) | {"broken": []}
    for name in table.column_names:
        value = table[name].slice(row, 1).combine_chunks()
        if pa.types.is_timestamp(value.type):
            value = value.cast(pa.int64())
        if value.null_count or not (pa.types.is_string(value.type) or pa.types.is_list(value.type)):
            shown[name] = value[0].as_py()
            continue
        is_list = pa.types.is_list(value.type)
        words = (value.flatten() if is_list else value).cast(pa.binary()).to_pylist()
        texts = [None if word is None else word.decode(errors="replace") for word in words]
        if [None if word is None else word.encode() for word in texts] != words:
            shown["broken"].append(name)
        shown[name] = texts if is_list else texts[0]
    return shown


def to_json(message: dict[str, Any], columns: list[str], attributes: Attributes = NO_ATTRIBUTES) -> str:
    """Return some columns of a message as JSON, as Spark writes it.

    >>> to_json({"id": "m", "x": float("nan"), "at": 1_500_000}, ["id", "x", "at"])
    '{"id":"m","x":"NaN","at":"1970-01-01T00:00:01.500Z"}'
    """
    names, row = attribute_columns(attributes), {}
    for column in columns:
        value = message[column]
        if isinstance(value, float) and not isfinite(value):
            value = "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
        elif column in ("at", "expires_at") and value is not None:
            value = f"{np.datetime64(value // 1000, 'ms')}Z"
        row[names.get(column, column)] = value
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


def _validate(n: int, check: Callable[[int, int], None]) -> Bad:
    """Yield the bad ones of n rows; `check(start, n)` raises an error if one of the given rows is bad."""

    def parts(start: int, n: int) -> Bad:
        try:
            check(start, n)
        except MemoryError:
            raise
        except Exception as error:
            if n > 1:
                yield from parts(start, n // 2)
                yield from parts(start + n // 2, n - n // 2)
            elif isinstance(error, NearcastError):
                yield start, str(error)
            else:  # whatever a row holds, it must not stop the stream
                yield start, f"the row cannot be read: {type(error).__name__}: {error}"

    return parts(0, n)


def _check_messages(table: pa.Table, job: Job) -> None:
    """Raise an error if a row of a table of messages is bad."""
    if has_ops(table):
        for op in pc.unique(table["op"]).cast(pa.binary()).to_pylist():
            check_op(None if op is None else op.decode(errors="replace"), "messages")
        table = readable(table, job.config.space.bounds)
    for name in table.column_names:
        for chunk in table[name].chunks:
            texts = chunk.flatten() if pa.types.is_list(chunk.type) else chunk
            try:
                if pa.types.is_string(texts.type):
                    texts.validate(full=True)
            except pa.ArrowInvalid:
                raise InvalidInput(name, "must be UTF-8", None) from None
    batch = job.read_messages(table)
    batch.check(job.config.space)
    window, has_no_time = job.config.window, (batch.ats_us == NO_TIME) & ~are(RETRACT, table)
    if window is not None and window.needs_time and has_no_time.any():
        raise InvalidInput("at", "must be given where the window is a TimeWindow", None)


def _check_subscriptions(table: pa.Table, job: Job) -> None:
    """Raise the error of the first bad row of a table of subscriptions."""
    for row in table.filter(pc.greater(pc.list_value_length(table["broken"]), 0)).to_pylist():
        _refuse_broken(row, f"subscription {row['id']!r}")
    ops = set(pc.unique(table["op"]).to_pylist())
    for op in ops - {SUBSCRIBE, UNSUBSCRIBE}:
        rule = f"must be {SUBSCRIBE!r} or {UNSUBSCRIBE!r}"
        id_ = table["id"][table["op"].index(op).as_py()].as_py()
        raise InvalidInput("op", rule, op, subject=f"subscription {id_!r}")
    ids_from_table(table)
    comes = table if ops == {SUBSCRIBE} else table.filter(pc.equal(table["op"], SUBSCRIBE))
    job.admit(comes.select([name for name in comes.column_names if name not in ("row", "broken")]))
    for name in pc.unique(comes["kind"]).to_pylist():  # not only of those that no later row replaces
        job.check_kind(find_kind(name), f"subscription {comes['id'][comes['kind'].index(name).as_py()].as_py()!r}")


def _refuse_broken(row: dict[str, Any], subject: str, names: Mapping[str, str] = MappingProxyType({})) -> None:
    for column in row["broken"]:
        raise InvalidInput(names.get(column, column), "must be UTF-8", row[column], subject=subject)
