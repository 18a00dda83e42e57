"""Decoding: rows that break a rule leave as `rejected`, with the engine's own error as the reason.

    messages ────── native conditions, exactly the rules ──┬── good
                                                           └── bad ── make the object, catch the error ─┐
    subscriptions ── the engine's own checks, in blocks ───┬── bad ─────────────────────────────────────┼── rejected
                                                           └── good                                     │
                     invalid UTF-8 ─────────────────────────────────────────────────────────────────────┤
    packed messages ─ the same, block by block ────────────┬── bad rows, and invalid blocks ────────────┘
                                                           └── good: left to dispatch, which opens them anyway

Good messages run no Python here. Blocks of subscriptions and of packed messages are checked as a whole; a block that
fails is halved, down to the bad rows, so one bad row costs a few more checks. Missing optional columns become nulls;
a missing required column, or a column of the wrong type, is an error of the caller of `match`. In a packed block it
is a fault of that block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial, reduce
from operator import and_
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegralType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from nearcast.errors import InvalidInput, require
from nearcast.jobs.block import open_block
from nearcast.jobs.frame import MESSAGE, SUBSCRIPTION
from nearcast.jobs.job import Job
from nearcast.jobs.progress import MESSAGES, SUBSCRIPTIONS
from nearcast.jobs.validate import SUBSCRIBE, bad_messages, bad_subscriptions, fault, message_at, to_json
from nearcast.model.columns import TIMESTAMP, subscriptions_schema
from nearcast.spark.broadcast import BroadcastJob

REJECTED = "source string, row string, reason string"
_REJECTED_COLUMNS = pa.schema({"source": pa.string(), "row": pa.string(), "reason": pa.string()})

PAYLOAD = "payload"
"""The column of packed messages."""
_PAYLOADS = (PAYLOAD, "content")  # the second is the name in Spark's source of whole files
_REQUIRED = ("id", "x", "y", "text")


class Decoded(NamedTuple):
    """The rows of a source."""

    good: DataFrame
    rejected: DataFrame


class _SparkColumn(NamedTuple):
    """The Spark types that a column may have."""

    name: str
    spark: str
    fits: Callable[[DataType], bool]


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType) or (isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType))


_STRING = _SparkColumn("string", "string", lambda kind: isinstance(kind, StringType))
_TEXT = _SparkColumn("string or array<string>", "string", _is_text)
_NUMBER = _SparkColumn("double or another number", "double", lambda kind: isinstance(kind, NumericType))
_WHOLE = _SparkColumn("int or another integer", "int", lambda kind: isinstance(kind, IntegralType))
_TIME = _SparkColumn("timestamp", "timestamp", lambda kind: isinstance(kind, TimestampType))

_MESSAGE_COLUMNS = {"id": _STRING, "x": _NUMBER, "y": _NUMBER, "text": _TEXT, "at": _TIME, "place": _STRING}
_OF_ARROW = {pa.string(): _STRING, pa.float64(): _NUMBER, pa.int32(): _WHOLE, TIMESTAMP: _TIME}


def _subscription_columns() -> dict[str, _SparkColumn]:
    return {field.name: _OF_ARROW[field.type] for field in subscriptions_schema()}


def decode_messages(messages: DataFrame, broadcast: BroadcastJob) -> Decoded:
    """Separate good messages from rejected ones; packed ones stay packed, and dispatch skips the bad ones."""
    payload = _payload_of(messages)
    if payload is not None:
        return Decoded(messages.select(F.col(payload).alias(PAYLOAD)), _reject_packed(messages, payload, broadcast))
    known = _normal(messages, _MESSAGE_COLUMNS, _REQUIRED, "messages")
    good = _surely_good(known, broadcast.job)
    counted = known.withColumn("good", good).observe(MESSAGES, *_counts("good"))
    bad = _with_row(known.where(~good), messages.columns).withColumn("at", F.unix_micros("at"))
    return Decoded(
        counted.where("good").drop("good"),
        bad.mapInArrow(partial(_name_faults, broadcast=broadcast), REJECTED),
    )


def decode_subscriptions(subscriptions: DataFrame, broadcast: BroadcastJob) -> Decoded:
    """Separate good subscription operations from rejected ones; an unsubscribe needs an id only."""
    known = _normal(subscriptions, _subscription_columns(), ("id", "kind"), "subscriptions")
    rows = _with_row(known, subscriptions.columns).withColumn("op", F.coalesce("op", F.lit(SUBSCRIBE)))
    marked = StructType([*known.schema, StructField("good", BooleanType())])
    checked = rows.drop("row").mapInArrow(partial(_mark_good, broadcast=broadcast, names=known.columns), marked)
    return Decoded(
        checked.observe(SUBSCRIPTIONS, *_counts("good")).where("good").drop("good"),
        rows.mapInArrow(partial(_keep_bad, broadcast=broadcast), REJECTED),
    )


def _payload_of(messages: DataFrame) -> str | None:
    """Return the column of packed messages, if there is one."""
    found = {field.name: field.dataType for field in messages.schema}
    if all(name in found for name in _REQUIRED):
        return None
    return next((name for name in _PAYLOADS if isinstance(found.get(name), BinaryType)), None)


def _counts(good: str) -> list[Column]:
    return [F.count("*").alias("rows"), F.count_if(~F.col(good)).alias("rejected")]


def _normal(frame: DataFrame, sorts: dict[str, _SparkColumn], required: Iterable[str], what: str) -> DataFrame:
    """Return the known columns in order and with their types; raise `InvalidInput` if that is impossible."""
    found = {field.name: field.dataType for field in frame.schema}
    missing = [name for name in required if name not in found]
    require(not missing, "columns", f"must include {missing}", list(found), subject=what)
    columns = []
    for name, sort in sorts.items():
        if name not in found:
            columns.append(F.lit(None).cast(sort.spark).alias(name))
            continue
        kind = found[name]
        require(sort.fits(kind), name, f"must be a column of {sort.name}", kind.simpleString(), subject=what)
        columns.append(F.col(name).cast("double").alias(name) if sort is _NUMBER else F.col(name))
    return frame.select(*columns)


def _surely_good(messages: DataFrame, job: Job) -> Column:
    """Return the rules for messages as one condition; null is bad, and Spark treats NaN as greater than any bound."""
    bounds, limit = job.config.space.bounds, F.lit(job.config.limits.text_bytes)
    text = F.col("text")
    if isinstance(messages.schema["text"].dataType, ArrayType):
        sizes = F.aggregate(text, F.lit(0).cast("long"), lambda total, term: total + F.octet_length(term))
        whole = F.forall(text, lambda term: term.isNotNull() & F.is_valid_utf8(term)) & (sizes <= limit)
    else:
        whole = F.is_valid_utf8(text) & (F.octet_length(text) <= limit)
    rules = [
        F.is_valid_utf8("id"),
        F.col("x").between(bounds.xmin, bounds.xmax),
        F.col("y").between(bounds.ymin, bounds.ymax),
        whole,
        F.col("place").isNull() | F.is_valid_utf8("place"),
    ]
    if job.config.window is not None and job.config.window.needs_time:
        rules.append(F.col("at").isNotNull())
    return F.coalesce(reduce(and_, rules), F.lit(False))


def _with_row(known: DataFrame, given: Iterable[str]) -> DataFrame:
    """Add the given columns as JSON, and the names of fields with invalid UTF-8, which are shown replaced."""
    names = [name for name in known.columns if name in set(given)]
    row = F.to_json(F.struct(*names), {"ignoreNullFields": "false"}).alias("row")
    shown, broken = [], []
    for field in known.schema:
        column = F.col(field.name)
        if isinstance(field.dataType, StringType):
            broken.append(F.when(~F.is_valid_utf8(column), F.lit(field.name)))
            shown.append(F.make_valid_utf8(column).alias(field.name))
        elif isinstance(field.dataType, ArrayType):
            sound = F.forall(column, lambda term: F.coalesce(F.is_valid_utf8(term), F.lit(True)))
            broken.append(F.when(~sound, F.lit(field.name)))
            shown.append(F.transform(column, F.make_valid_utf8).alias(field.name))
        else:
            shown.append(column)
    return known.select(*shown, row, F.array_compact(F.array(*broken)).alias("broken"))


def _name_faults(batches: Iterable[pa.RecordBatch], *, broadcast: BroadcastJob) -> Iterator[pa.RecordBatch]:
    """Find the reason for each bad message with an engine without subscriptions."""
    engine = broadcast.job.new_engine()
    for batch in batches:
        rows = batch.to_pylist()
        reasons = [fault(row, engine) or "must break a rule; the engine finds none" for row in rows]
        yield _rejected(MESSAGE, [row["row"] for row in rows], reasons)


def _reject_packed(messages: DataFrame, payload: str, broadcast: BroadcastJob) -> DataFrame:
    """Return the bad rows of blocks; an invalid block is shown by its size and its other columns."""
    others = [name for name in messages.columns if name not in _PAYLOADS]
    row = F.to_json(F.struct(*others, F.octet_length(payload).alias("payload_bytes")), {"ignoreNullFields": "false"})
    blocks = messages.select(row.alias("row"), F.col(payload).alias(PAYLOAD))
    return blocks.mapInArrow(partial(_keep_bad_messages, broadcast=broadcast), REJECTED)


def _keep_bad_messages(batches: Iterable[pa.RecordBatch], *, broadcast: BroadcastJob) -> Iterator[pa.RecordBatch]:
    engine = broadcast.job.new_engine()
    for batch in batches:
        for whole, payload in zip(batch["row"].to_pylist(), batch[PAYLOAD], strict=True):
            try:
                block = open_block(payload.as_py())
            except InvalidInput as error:
                yield _rejected(MESSAGE, [whole], [str(error)])
                continue
            rows, reasons = [], []
            for row, reason in bad_messages(block, broadcast.job):
                message = message_at(block, row)
                rows.append(to_json(message, block.column_names))
                reasons.append(fault(message, engine) or reason)
            yield _rejected(MESSAGE, rows, reasons)


def _mark_good(
    batches: Iterable[pa.RecordBatch], *, broadcast: BroadcastJob, names: list[str]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        table = pa.Table.from_batches([batch])
        bad = {row for row, _ in bad_subscriptions(table, broadcast.job)}
        good = pa.array([row not in bad for row in range(len(table))], pa.bool_())
        yield from table.select(names).append_column("good", good).to_batches()


def _keep_bad(batches: Iterable[pa.RecordBatch], *, broadcast: BroadcastJob) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        table = pa.Table.from_batches([batch])
        bad = list(bad_subscriptions(table, broadcast.job))
        rows = table["row"].take(pa.array([row for row, _ in bad], pa.int64())).to_pylist()
        yield _rejected(SUBSCRIPTION, rows, [reason for _, reason in bad])


def _rejected(source: str, rows: list[str], reasons: list[str]) -> pa.RecordBatch:
    columns = [pa.repeat(source, len(rows)), pa.array(rows, pa.string()), pa.array(reasons, pa.string())]
    return pa.RecordBatch.from_arrays(columns, schema=_REJECTED_COLUMNS)
