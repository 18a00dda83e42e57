"""Which rows are good? Rows that break a rule leave as `rejected`, with the words that the engine would have.

    messages ────── native conditions, exactly the rules ──┬── good
                                                           └── bad ── make the object, catch the error ─┐
    subscriptions ── the engine's own checks, in blocks ───┬── bad ─────────────────────────────────────┼── rejected
                                                           └── good                                     │
                     bytes that are no UTF-8 ───────────────────────────────────────────────────────────┘

Good messages pay no Python for it. Of subscriptions a block is checked as a whole; where that fails it is halved,
down to the rows at fault, so one bad row costs a few checks more. Columns that may be missing are filled with nulls;
a required one that is missing, or a column of the wrong type, is an error of whoever called `match`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial, reduce
from operator import and_
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegralType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from nearcast.engine import Engine
from nearcast.errors import InvalidInput, NearcastError, require
from nearcast.model import Message
from nearcast.model.columns import ids_from_table
from nearcast.spark.frame import MESSAGE, SUBSCRIPTION
from nearcast.spark.job import Job
from nearcast.spark.progress import MESSAGES, SUBSCRIPTIONS
from nearcast.spark.sent import Sent

REJECTED = "source string, row string, reason string"
_REJECTED_COLUMNS = pa.schema({"source": pa.string(), "row": pa.string(), "reason": pa.string()})

SUBSCRIBE, UNSUBSCRIBE = "subscribe", "unsubscribe"


class Decoded(NamedTuple):
    """The rows of a source."""

    good: DataFrame
    rejected: DataFrame


class _Sort(NamedTuple):
    """What a column may be."""

    name: str
    spark: str
    fits: Callable[[DataType], bool]


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType) or (isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType))


_STRING = _Sort("string", "string", lambda kind: isinstance(kind, StringType))
_TEXT = _Sort("string or array<string>", "string", _is_text)
_NUMBER = _Sort("double or another number", "double", lambda kind: isinstance(kind, NumericType))
_WHOLE = _Sort("int or another integer", "int", lambda kind: isinstance(kind, IntegralType))
_TIME = _Sort("timestamp", "timestamp", lambda kind: isinstance(kind, TimestampType))

_MESSAGE_COLUMNS = {"id": _STRING, "x": _NUMBER, "y": _NUMBER, "text": _TEXT, "at": _TIME, "place": _STRING}
_SUBSCRIPTION_COLUMNS = {
    "op": _STRING, "id": _STRING, "kind": _STRING,
    "x": _NUMBER, "y": _NUMBER, "xmin": _NUMBER, "ymin": _NUMBER, "xmax": _NUMBER, "ymax": _NUMBER,
    "keywords": _STRING, "k": _WHOLE, "alpha": _NUMBER, "delta": _NUMBER, "tau": _NUMBER, "user": _STRING,
    "at": _TIME,
}  # fmt: skip


def decode_messages(messages: DataFrame, sent: Sent) -> Decoded:
    """Part messages into good and rejected ones."""
    known = _normal(messages, _MESSAGE_COLUMNS, ("id", "x", "y", "text"), "messages")
    good = _surely_good(known, sent.job)
    counted = known.withColumn("good", good).observe(MESSAGES, *_counts("good"))
    bad = _with_row(known.where(~good), messages.columns).withColumn("at", F.unix_micros("at"))
    return Decoded(
        counted.where("good").drop("good"),
        bad.mapInArrow(partial(_name_faults, sent=sent), REJECTED),
    )


def decode_subscriptions(subscriptions: DataFrame, sent: Sent) -> Decoded:
    """Part subscriptions into good and rejected ones; who leaves needs an id and no more."""
    known = _normal(subscriptions, _SUBSCRIPTION_COLUMNS, ("id", "kind"), "subscriptions")
    rows = _with_row(known, subscriptions.columns).withColumn("op", F.coalesce("op", F.lit(SUBSCRIBE)))
    marked = StructType([*known.schema, StructField("good", BooleanType())])
    sieved = rows.drop("row").mapInArrow(partial(_mark_good, sent=sent, names=known.columns), marked)
    return Decoded(
        sieved.observe(SUBSCRIPTIONS, *_counts("good")).where("good").drop("good"),
        rows.mapInArrow(partial(_keep_bad, sent=sent), REJECTED),
    )


def _counts(good: str) -> list[Column]:
    return [F.count("*").alias("rows"), F.count_if(~F.col(good)).alias("rejected")]


def _normal(frame: DataFrame, sorts: dict[str, _Sort], required: Iterable[str], what: str) -> DataFrame:
    """Return the columns that are known, in order and of their types; raise `InvalidInput` where that cannot be."""
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
    """Return the rules for messages as one condition; a null is not good. NaN is greater than any bound to Spark."""
    bounds, limit = job.space.bounds, F.lit(job.config.limits.text_bytes)
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
    if job.window is not None and job.window.needs_time:
        rules.append(F.col("at").isNotNull())
    return F.coalesce(reduce(and_, rules), F.lit(False))


def _with_row(known: DataFrame, given: Iterable[str]) -> DataFrame:
    """Add what was given as JSON, and which fields are no UTF-8; these are shown with replacement characters."""
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


def _name_faults(batches: Iterable[pa.RecordBatch], *, sent: Sent) -> Iterator[pa.RecordBatch]:
    """Say of each bad message what is wrong with it: an engine without subscriptions knows."""
    engine = sent.job.new_engine()
    for batch in batches:
        rows = batch.to_pylist()
        yield _rejected(MESSAGE, [row["row"] for row in rows], [_fault(row, engine) for row in rows])


def _fault(row: dict[str, Any], engine: Engine) -> str:
    at = None if row["at"] is None else row["at"] / 1_000_000
    try:
        _refuse_broken(row, f"message {row['id']!r}")
        engine.publish([Message(row["id"], (row["x"], row["y"]), row["text"], at, row["place"])])
    except NearcastError as error:
        return str(error)
    raise AssertionError(f"conditions and engine disagree on message {row!r}")


def _mark_good(batches: Iterable[pa.RecordBatch], *, sent: Sent, names: list[str]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        table = pa.Table.from_batches([batch])
        bad = {row for row, _ in _sieve(table, sent.job)}
        good = pa.array([row not in bad for row in range(len(table))], pa.bool_())
        yield from table.select(names).append_column("good", good).to_batches()


def _keep_bad(batches: Iterable[pa.RecordBatch], *, sent: Sent) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        table = pa.Table.from_batches([batch])
        bad = list(_sieve(table, sent.job))
        rows = table["row"].take(pa.array([row for row, _ in bad], pa.int64())).to_pylist()
        yield _rejected(SUBSCRIPTION, rows, [reason for _, reason in bad])


def _sieve(table: pa.Table, job: Job) -> Iterator[tuple[int, str]]:
    """Yield the rows of a table of subscriptions that are bad, ascending, and why."""
    columns = table.drop_columns(["at"])  # no rule is about it

    def check(start: int, stop: int) -> Iterator[tuple[int, str]]:
        part = columns.slice(start, stop - start)
        try:
            _check_block(part, job)
        except NearcastError as error:
            if stop - start == 1:
                yield start, str(error)
            else:
                middle = (start + stop) // 2
                yield from check(start, middle)
                yield from check(middle, stop)

    yield from check(0, len(table))


def _check_block(table: pa.Table, job: Job) -> None:
    """Raise the error of a row of a table of subscriptions, if one is bad."""
    for row in table.filter(pc.greater(pc.list_value_length(table["broken"]), 0)).to_pylist():
        _refuse_broken(row, f"subscription {row['id']!r}")
    ops = set(pc.unique(table["op"]).to_pylist())
    for op in ops - {SUBSCRIBE, UNSUBSCRIBE}:
        rule = f"must be {SUBSCRIBE!r} or {UNSUBSCRIBE!r}"
        id_ = table["id"][table["op"].index(op).as_py()].as_py()
        raise InvalidInput("op", rule, op, subject=f"subscription {id_!r}")
    ids_from_table(table)
    comes = table if ops == {SUBSCRIBE} else table.filter(pc.equal(table["op"], SUBSCRIBE))
    job.admission.cohorts(comes.select([name for name in comes.column_names if name not in ("row", "broken")]))


def _refuse_broken(row: dict[str, Any], subject: str) -> None:
    for field in row["broken"]:
        raise InvalidInput(field, "must be UTF-8", row[field], subject=subject)


def _rejected(source: str, rows: list[str], reasons: list[str]) -> pa.RecordBatch:
    columns = [pa.repeat(source, len(rows)), pa.array(rows, pa.string()), pa.array(reasons, pa.string())]
    return pa.RecordBatch.from_arrays(columns, schema=_REJECTED_COLUMNS)
