"""Decoding: rows that break a rule leave as `rejected`, with the engine's own error as the reason.

    messages ────── native conditions, exactly the rules ──┬── good
                                                           └── bad ── make the object, catch the error ─┐
    subscriptions ── the engine's own checks, in blocks ───┬── bad ─────────────────────────────────────┼── rejected
                                                           └── good                                     │
                     invalid UTF-8 ─────────────────────────────────────────────────────────────────────┤
    packed messages ─ the same, block by block ────────────┬── bad rows, and invalid blocks ────────────┘
                                                           └── good: left to dispatch, which opens them anyway

Attributes leave with the names that they have within a job, see `nearcast.jobs.message_rows`. Regions that are bytes
or geometries become WKB in hexadecimal digits.

Good messages run no Python here. Blocks of subscriptions and of packed messages are checked as a whole; a block that
fails is halved, down to the bad rows, so one bad row costs a few more checks. Missing optional columns become nulls;
a missing required column, or a column of the wrong type, is an error of the caller of `match`. In a packed block it
is a fault of that block.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial, reduce
from operator import and_
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    FractionalType,
    GeographyType,
    GeometryType,
    IntegralType,
    NullType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from nearcast.errors import InvalidInput, require
from nearcast.jobs.block import open_block
from nearcast.jobs.frame import EDGE, MESSAGE, SUBSCRIPTION
from nearcast.jobs.job import Job
from nearcast.jobs.message_rows import PUBLISH, REPLACE, RETRACT, attribute_columns
from nearcast.jobs.progress import EDGES, MESSAGES, SUBSCRIPTIONS
from nearcast.jobs.validate import (
    SUBSCRIBE,
    Bad,
    bad_edges,
    bad_messages,
    bad_subscriptions,
    fault,
    message_at,
    to_json,
)
from nearcast.model import Limits
from nearcast.model.attributes import LARGEST_INT
from nearcast.model.columns import TIMESTAMP, subscriptions_schema
from nearcast.model.timestamps import FARTHEST_US
from nearcast.spark.job_handle import JobHandle
from nearcast.spark.schema import quoted

REJECTED = "source string, row string, reason string"
_REJECTED_COLUMNS = pa.schema({"source": pa.string(), "row": pa.string(), "reason": pa.string()})

PAYLOAD = "payload"
"""The column of packed messages."""
_PAYLOADS = (PAYLOAD, "content")  # the second is the name in Spark's source of whole files
_REQUIRED = ("id", "x", "y", "text")


FindBad = Callable[[pa.Table, Job], Bad]
"""Finds the bad rows of a table."""


class Decoded(NamedTuple):
    """The rows of a source."""

    good: DataFrame
    rejected: DataFrame


class _SparkColumn(NamedTuple):
    """The Spark types that a column may have, and how it becomes a column of one of them."""

    name: str
    spark: str
    fits: Callable[[DataType], bool]
    plain: Callable[[Column, DataType], Column] = lambda column, _: column


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType) or (isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType))


_STRING = _SparkColumn("string", "string", lambda kind: isinstance(kind, StringType))
_TEXT = _SparkColumn("string or array<string>", "string", _is_text)
_NUMBER = _SparkColumn(
    "double or another number",
    "double",
    lambda kind: isinstance(kind, NumericType),
    lambda column, _: column.cast("double"),
)
_WHOLE = _SparkColumn("int or another integer", "int", lambda kind: isinstance(kind, IntegralType))
_TIME = _SparkColumn("timestamp", "timestamp", lambda kind: isinstance(kind, TimestampType))
_REGION = _SparkColumn(
    "string, binary, geometry or geography",
    "string",
    lambda kind: isinstance(kind, (StringType, BinaryType, GeometryType, GeographyType)),
    lambda column, kind: column if isinstance(kind, StringType) else F.hex(_wkb(column, kind)),
)
_ATTRIBUTES = {
    float: _NUMBER,
    int: _SparkColumn(
        "bigint or another integer, or double",
        "bigint",
        lambda kind: isinstance(kind, (IntegralType, FractionalType)) and not isinstance(kind, DecimalType),
        lambda column, kind: column.cast("bigint" if isinstance(kind, IntegralType) else "double"),
    ),
    str: _STRING,
    bool: _SparkColumn("boolean", "boolean", lambda kind: isinstance(kind, BooleanType)),
}
"""The columns of attributes, by type."""

_MESSAGE_COLUMNS = {"id": _STRING, "x": _NUMBER, "y": _NUMBER, "text": _TEXT, "at": _TIME, "place": _STRING}
_MORE_COLUMNS = {"op": _STRING, "expires_at": _TIME, "body": _STRING}
"""Further columns of messages, in frames that have them: a column of nulls would cost time."""
_EDGE_COLUMNS = {"op": _STRING, "user": _STRING, "place": _STRING, "at": _TIME}
_OF_ARROW = {pa.string(): _STRING, pa.float64(): _NUMBER, pa.int32(): _WHOLE, TIMESTAMP: _TIME}


def _subscription_columns() -> dict[str, _SparkColumn]:
    return {field.name: _OF_ARROW[field.type] for field in subscriptions_schema()} | {"region": _REGION}


def _wkb(column: Column, kind: DataType) -> Column:
    return column if isinstance(kind, BinaryType) else F.st_asbinary(column)


def plain_region(frame: DataFrame) -> DataFrame:
    """Return a frame of subscriptions whose regions are strings, if it has any."""
    kinds = {field.name: field.dataType for field in frame.schema}
    if not _REGION.fits(kinds.get("region", NullType())):
        return frame
    return frame.withColumn("region", _REGION.plain(F.col("region"), kinds["region"]))


def decode_messages(messages: DataFrame, handle: JobHandle) -> Decoded:
    """Separate good messages from rejected ones; packed ones stay packed, and dispatch skips the bad ones."""
    payload = payload_of(messages)
    if payload is not None:
        return Decoded(messages.select(F.col(payload).alias(PAYLOAD)), _reject_packed(messages, payload, handle))
    attributes = handle.job.config.attributes
    columns = _MORE_COLUMNS | {name: _ATTRIBUTES[attributes.type_of(name)] for name in attributes.names}
    columns = _MESSAGE_COLUMNS | {name: sort for name, sort in columns.items() if name in messages.columns}
    names = attribute_columns(attributes)
    known = _normal(messages, columns, _REQUIRED, "messages", {name: column for column, name in names.items()})
    good = _surely_good(known, handle.job)
    counted = known.withColumn("good", good).observe(MESSAGES, *_counts("good"))
    bad = _with_row(known.where(~good), messages.columns, names)
    for name in {"at", "expires_at"}.intersection(known.columns):
        bad = bad.withColumn(name, F.unix_micros(name))
    return Decoded(
        counted.where("good").drop("good"),
        bad.mapInArrow(partial(_name_faults, handle=handle), REJECTED),
    )


def decode_subscriptions(subscriptions: DataFrame, handle: JobHandle) -> Decoded:
    """Separate good subscription operations from rejected ones; an unsubscribe needs an id only."""
    known = _normal(subscriptions, _subscription_columns(), ("id", "kind"), "subscriptions")
    rows = _with_row(known, subscriptions.columns).withColumn("op", F.coalesce("op", F.lit(SUBSCRIBE)))
    marked = StructType([*known.schema, StructField("good", BooleanType())])
    check = partial(_mark_good, handle=handle, names=known.columns, find=bad_subscriptions)
    good = rows.drop("row").mapInArrow(check, marked).observe(SUBSCRIPTIONS, *_counts("good")).where("good")
    return Decoded(
        good.select(*(_fitting(field) for field in known.schema)),
        rows.mapInArrow(partial(_keep_bad, handle=handle, source=SUBSCRIPTION, find=bad_subscriptions), REJECTED),
    )


def decode_edges(edges: DataFrame, handle: JobHandle) -> Decoded:
    """Separate good changes of edges from rejected ones."""
    known = _normal(edges, _EDGE_COLUMNS, ("op", "user", "place"), "edges")
    rows = _with_row(known, edges.columns)
    marked = StructType([*known.schema, StructField("good", BooleanType())])
    check = partial(_mark_good, handle=handle, names=known.columns, find=bad_edges)
    good = rows.drop("row").mapInArrow(check, marked).observe(EDGES, *_counts("good")).where("good")
    return Decoded(
        good.drop("good"), rows.mapInArrow(partial(_keep_bad, handle=handle, source=EDGE, find=bad_edges), REJECTED)
    )


def _fitting(field: StructField) -> Column:
    """Return a column of good rows. An integer may be too large only where the kind, or the operation, ignores it."""
    if isinstance(field.dataType, IntegralType):
        return F.expr(f"try_cast({field.name} AS int)").alias(field.name)
    return F.col(field.name)


def payload_of(messages: DataFrame) -> str | None:
    """Return the column of packed messages, if there is one."""
    found = {field.name: field.dataType for field in messages.schema}
    if all(name in found for name in _REQUIRED):
        return None
    return next((name for name in _PAYLOADS if isinstance(found.get(name), BinaryType)), None)


def _counts(good: str) -> list[Column]:
    return [F.count("*").alias("rows"), F.count_if(~F.col(good)).alias("rejected")]


def _normal(
    frame: DataFrame,
    sorts: dict[str, _SparkColumn],
    required: Collection[str],
    what: str,
    renamed: Mapping[str, str] = MappingProxyType({}),
) -> DataFrame:
    """Return the known columns in order, with their types, some renamed; raise `InvalidInput` if that is impossible.

    An optional column of nulls without a type counts as missing.
    """
    found = {field.name: field.dataType for field in frame.schema}
    missing = [name for name in required if name not in found]
    require(not missing, "columns", f"must include {missing}", list(found), subject=what)
    columns = []
    for name, sort in sorts.items():
        if name not in found or (isinstance(found[name], NullType) and name not in required):
            column = F.lit(None).cast(sort.spark)
        else:
            kind = found[name]
            require(sort.fits(kind), name, f"must be a column of {sort.name}", kind.simpleString(), subject=what)
            column = sort.plain(F.col(quoted(name)), kind)
        columns.append(column.alias(renamed.get(name, name)))
    return frame.select(*columns)


def _surely_good(messages: DataFrame, job: Job) -> Column:
    """Return the rules for messages as one condition; null is bad, and Spark treats NaN as greater than any bound."""
    bounds, limits = job.config.space.bounds, job.config.limits
    text, limit = F.col("text"), F.lit(limits.text_bytes)
    if isinstance(messages.schema["text"].dataType, ArrayType):
        sizes = F.aggregate(text, F.lit(0).cast("long"), lambda total, term: total + F.octet_length(term))
        whole = F.forall(text, lambda term: term.isNotNull() & F.is_valid_utf8(term)) & (sizes <= limit)
    else:
        whole = F.is_valid_utf8(text) & (F.octet_length(text) <= limit)
    retraction = [F.is_valid_utf8("id") & (F.octet_length("id") <= limits.id_bytes), _is_time("at")]
    rules = [
        *retraction,
        F.col("x").between(bounds.xmin, bounds.xmax),
        F.col("y").between(bounds.ymin, bounds.ymax),
        whole,
        F.col("place").isNull() | (F.is_valid_utf8("place") & (F.octet_length("place") <= limits.id_bytes)),
    ]
    if job.config.window is not None and job.config.window.needs_time:
        rules.append(F.col("at").isNotNull())
    if "expires_at" in messages.columns:
        end, at = F.col("expires_at"), F.col("at")
        rules.append(_is_time("expires_at") & (end.isNull() | at.isNull() | (end > at)))
    if "body" in messages.columns:
        fits = F.is_valid_utf8("body") & (F.octet_length("body") <= limits.body_bytes)
        rules.append(F.col("body").isNull() | fits)
    attributes = job.config.attributes
    for column, name in attribute_columns(attributes).items():
        if column in messages.columns:
            rules += _attribute_rules(F.col(column), attributes.type_of(name), limits)
    good = reduce(and_, rules)
    if "op" in messages.columns:
        op = F.col("op")
        publishes = op.isNull() | op.isin(PUBLISH, REPLACE)
        good = F.when(op == RETRACT, reduce(and_, retraction)).otherwise(publishes & good)
    return F.coalesce(good, F.lit(False))


def _attribute_rules(column: Column, type_: type, limits: Limits) -> list[Column]:
    """Return the rules for the values of an attribute."""
    if type_ is bool:
        return []
    if type_ is str:
        rule = F.is_valid_utf8(column) & (F.octet_length(column) <= limits.id_bytes)
    else:
        most = LARGEST_INT if type_ is int else sys.float_info.max
        rule = column.between(-most, most)
        if type_ is int:
            rule &= F.rint(column) == column
    return [column.isNull() | rule]


def _is_time(name: str) -> Column:
    return F.col(name).isNull() | F.unix_micros(name).between(1 - FARTHEST_US, FARTHEST_US - 1)


def _with_row(known: DataFrame, given: Iterable[str], names: Mapping[str, str] = MappingProxyType({})) -> DataFrame:
    """Add the given columns as JSON, and the names of columns with invalid UTF-8, which are shown replaced.

    In the JSON, columns have the names that `names` says.
    """
    shown_as = {name: names.get(name, name) for name in known.columns if names.get(name, name) in set(given)}
    fields = [F.col(name).alias(alias) for name, alias in shown_as.items()]
    row = F.to_json(F.struct(*fields), {"ignoreNullFields": "false"}).alias("row")
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


def _name_faults(batches: Iterable[pa.RecordBatch], *, handle: JobHandle) -> Iterator[pa.RecordBatch]:
    """Find the reason for each bad message with an engine without subscriptions."""
    engine = handle.job.new_engine()
    for batch in batches:
        rows = batch.to_pylist()
        reasons = [fault(row, engine, handle.job) or "must break a rule; the engine finds none" for row in rows]
        yield rejected_rows(MESSAGE, [row["row"] for row in rows], reasons)


def _reject_packed(messages: DataFrame, payload: str, handle: JobHandle) -> DataFrame:
    """Return the bad rows of blocks; an invalid block is shown by its size and its other columns."""
    others = [name for name in messages.columns if name not in _PAYLOADS]
    row = F.to_json(F.struct(*others, F.octet_length(payload).alias("payload_bytes")), {"ignoreNullFields": "false"})
    blocks = messages.select(row.alias("row"), F.col(payload).alias(PAYLOAD))
    return blocks.mapInArrow(partial(_keep_bad_messages, handle=handle), REJECTED)


def _keep_bad_messages(batches: Iterable[pa.RecordBatch], *, handle: JobHandle) -> Iterator[pa.RecordBatch]:
    engine, attributes = handle.job.new_engine(), handle.job.config.attributes
    for batch in batches:
        for whole, payload in zip(batch["row"].to_pylist(), batch[PAYLOAD], strict=True):
            try:
                block = open_block(payload.as_py(), attributes)
            except InvalidInput as error:
                yield rejected_rows(MESSAGE, [whole], [str(error)])
                continue
            rows, reasons = [], []
            for row, reason in bad_messages(block, handle.job):
                message = message_at(block, row)
                rows.append(to_json(message, block.column_names, attributes))
                reasons.append(fault(message, engine, handle.job) or reason)
            yield rejected_rows(MESSAGE, rows, reasons)


def _mark_good(
    batches: Iterable[pa.RecordBatch], *, handle: JobHandle, names: list[str], find: FindBad
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        table = pa.Table.from_batches([batch])
        bad = {row for row, _ in find(table, handle.job)}
        good = pa.array([row not in bad for row in range(len(table))], pa.bool_())
        yield from table.select(names).append_column("good", good).to_batches()


def _keep_bad(
    batches: Iterable[pa.RecordBatch], *, handle: JobHandle, source: str, find: FindBad
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        table = pa.Table.from_batches([batch])
        bad = list(find(table, handle.job))
        rows = table["row"].take(pa.array([row for row, _ in bad], pa.int64())).to_pylist()
        yield rejected_rows(source, rows, [reason for _, reason in bad])


def rejected_rows(source: str, rows: list[str], reasons: list[str]) -> pa.RecordBatch:
    """Return rows of a source with the reason for each."""
    columns = [pa.repeat(source, len(rows)), pa.array(rows, pa.string()), pa.array(reasons, pa.string())]
    return pa.RecordBatch.from_arrays(columns, schema=_REJECTED_COLUMNS)
