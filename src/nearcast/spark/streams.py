"""Sources and sinks of a job file as DataFrames and queries.

    json, csv ───────── rows of the schema ──┬── rows ────── `select` ──── match
    a `value` ── JSON ── rows of the schema ─┤
    anything else ───────────────────────────┘── malformed ─────────────── rejected
    arrow ──── a file, a block of messages ─────────────────────────────── match

Files are read with the columns that Nearcast knows, unless a schema is given. Sources with a `value` of text or bytes
(a socket, a broker) are read as JSON with those columns; their other columns are available to `select`. A line that
does not match the schema is malformed: it never reaches `match` and is rejected as it is.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from nearcast.errors import require
from nearcast.jobs.frame import EDGE, MESSAGE, SUBSCRIPTION
from nearcast.jobs.job_file import AVAILABLE_NOW, BLOCKS, FILES, JobFile, SinkTable, SourceTable
from nearcast.jobs.progress import MALFORMED
from nearcast.spark.error_summary import blaming
from nearcast.spark.schema import edges_ddl, messages_ddl, quoted, subscriptions_ddl

WHOLE_FILES = "path string, modificationTime timestamp, length long, content binary"
"""The columns of Spark's source `binaryFile`."""
_LINES = ("json", "csv")
"""Formats for which Spark returns the malformed line."""
_BROKEN = "_malformed"
_ASKING = {"columnNameOfCorruptRecord": _BROKEN}
_USUAL = {"csv": {"enforceSchema": "false"}}
"""Default options: the header of a CSV file must agree with the schema."""


class ReadSource(NamedTuple):
    """The rows of a source, and its malformed lines."""

    rows: DataFrame
    malformed: DataFrame | None
    """As columns of `rejected`; None if the format has no malformed lines."""


def read_messages(spark: SparkSession, job_file: JobFile) -> ReadSource:
    """Return the messages of a job as a stream."""
    if job_file.messages.format == BLOCKS:
        return ReadSource(_read_whole(spark, job_file, job_file.messages), None)
    return _read(spark, job_file, job_file.messages, MESSAGE)


def read_subscriptions(spark: SparkSession, job_file: JobFile) -> ReadSource:
    """Return the subscriptions of a job as a stream, or as a static frame."""
    if job_file.subscriptions.static:
        return ReadSource(read_static(spark, job_file), None)
    return _read(spark, job_file, job_file.subscriptions, SUBSCRIPTION)


def read_static(spark: SparkSession, job_file: JobFile) -> DataFrame:
    """Return the table of subscriptions of a job as it is now; a malformed line is a row of nulls."""
    table, subject = job_file.subscriptions, "[subscriptions]"
    with blaming("schema", "must be columns in Spark's words", table.schema, subject=subject):
        schema = _schema(job_file, table, SUBSCRIPTION)
    reader = spark.read.format(table.format).options(**_options(table))
    if table.format in FILES:
        reader = reader.schema(schema)
    with blaming(*_place(table), subject=subject):
        frame = reader.load(None if table.path is None else job_file.resolve(table.path))
    with blaming("select", "must be SQL expressions over the columns that are there", table.select, subject=subject):
        return _selected(frame, table)


def read_edges(spark: SparkSession, job_file: JobFile) -> ReadSource | None:
    """Return the changes of edges of a job as a stream, if it has any."""
    return None if job_file.edges is None else _read(spark, job_file, job_file.edges, EDGE)


def read_sample(spark: SparkSession, job_file: JobFile, path: str) -> DataFrame:
    """Return the messages at a path, in the format of the source, or as JSON lines if that is not a file format."""
    return _read_now(spark, job_file, job_file.messages, MESSAGE, path)


def read_samples(spark: SparkSession, job_file: JobFile) -> tuple[DataFrame, DataFrame] | None:
    """Return the current messages and subscriptions of the sources; None unless both are files."""
    messages, subscriptions = job_file.messages, job_file.subscriptions
    if messages.path is None or messages.format not in (*FILES, BLOCKS):
        return None
    if subscriptions.path is None or subscriptions.format not in FILES:
        return None
    if messages.format == BLOCKS:
        rows = spark.read.format("binaryFile").options(**_options(messages)).load(job_file.resolve(messages.path))
    else:
        rows = _read_now(spark, job_file, messages, MESSAGE, messages.path)
    return rows, _read_now(spark, job_file, subscriptions, SUBSCRIPTION, subscriptions.path)


def _read_now(spark: SparkSession, job_file: JobFile, table: SourceTable, what: str, path: str) -> DataFrame:
    format_, options = (table.format, _options(table)) if table.format in FILES else ("json", {})
    reader = spark.read.format(format_).options(**options)
    return _selected(reader.schema(_schema(job_file, table, what)).load(job_file.resolve(path)), table)


def start(frame: DataFrame, job_file: JobFile, sink: SinkTable, name: str) -> StreamingQuery:
    """Start a query that writes a stream to a sink."""
    with blaming("select", "must be SQL expressions over the columns of the query", sink.select, subject=f"[{name}]"):
        frame = columns_of(frame, sink)
    with blaming("trigger", "must be an interval of Spark", job_file.run.trigger, subject="[run]"):
        trigger = job_file.run.trigger
        writer = frame.writeStream.trigger(
            **({"availableNow": True} if trigger == AVAILABLE_NOW else {"processingTime": trigger})
        )
    writer = writer.queryName(f"nearcast {name}").outputMode("append").format(sink.format)
    writer = writer.options(**_options(sink)).option("checkpointLocation", checkpoint(job_file, name))
    with blaming(*_place(sink), subject=f"[{name}]"):
        return writer.start(None if sink.path is None else job_file.resolve(sink.path))


def columns_of(frame: DataFrame, sink: SinkTable) -> DataFrame:
    """Return the columns that a sink gets."""
    select = sink.select
    if not select and sink.format == "kafka":
        select = ["to_json(struct(*)) AS value"]
        if "subscription" in frame.columns:
            select = ["subscription AS key", *select]
    return frame.selectExpr(*select) if select else frame


def checkpoint(job_file: JobFile, name: str) -> str:
    """Return the checkpoint folder of a part of a job."""
    return f"{job_file.resolve(job_file.run.checkpoint)}/{name}"


def _read(spark: SparkSession, job_file: JobFile, table: SourceTable, what: str) -> ReadSource:
    subject = f"[{what}s]"
    with blaming("schema", "must be columns in Spark's words", table.schema, subject=subject):
        schema = _schema(job_file, table, what)
    reader = spark.readStream.format(table.format).options(**_options(table))
    if table.format in FILES:
        reader = reader.schema(_watched(schema) if table.format in _LINES else schema).options(**_ASKING)
    with blaming(*_place(table), subject=subject):
        frame = reader.load(None if table.path is None else job_file.resolve(table.path))
    if table.format not in FILES:
        frame = _opened(frame, schema, is_given=table.schema is not None, subject=subject)
    malformed = None
    if _BROKEN in frame.columns:
        malformed = _rejected(frame, what, _rule(job_file, table, what))
        # All columns are checked: Spark does not read, and so does not validate, an unused column.
        is_empty = reduce(and_, (F.col(quoted(name)).isNull() for name in frame.columns))
        counts = F.count(_BROKEN).alias("rejected"), F.count_if(is_empty).alias("empty")
        frame = frame.observe(MALFORMED[what], *counts).where(F.col(_BROKEN).isNull()).drop(_BROKEN)
    with blaming("select", "must be SQL expressions over the columns that are there", table.select, subject=subject):
        return ReadSource(_selected(frame, table), malformed)


def _read_whole(spark: SparkSession, job_file: JobFile, table: SourceTable) -> DataFrame:
    """Return whole files, one per row."""
    reader = spark.readStream.format("binaryFile").schema(WHOLE_FILES).options(**_options(table))
    with blaming(*_place(table), subject="[messages]"):
        return reader.load(None if table.path is None else job_file.resolve(table.path))


def _opened(frame: DataFrame, schema: StructType, *, is_given: bool, subject: str) -> DataFrame:
    """Return the rows that a `value` holds as JSON, with the other columns of the source."""
    found = {field.name: field.dataType for field in frame.schema}
    if not isinstance(found.get("value"), (StringType, BinaryType)):
        rule = "must be left out where a source brings its own columns"
        require(not is_given, "schema", rule, schema.simpleString(), subject=subject)
        return frame
    row = F.from_json(F.col("value").cast("string"), _watched(schema), _ASKING)
    others = [name for name in found if name != "value" and name not in schema.names]
    return frame.select(row.alias("value"), *others).select("value.*", *others)


def _rejected(frame: DataFrame, what: str, reason: str) -> DataFrame:
    """Return malformed lines as columns of `rejected`: the readable fields, and the line."""
    row = F.to_json(F.struct(*map(quoted, frame.columns)))
    broken = frame.where(F.col(_BROKEN).isNotNull())
    return broken.select(F.lit(what).alias("source"), row.alias("row"), F.lit(reason).alias("reason"))


def _selected(frame: DataFrame, table: SourceTable) -> DataFrame:
    return frame.selectExpr(*table.select) if table.select else frame


def _schema(job_file: JobFile, table: SourceTable, what: str) -> StructType:
    schema: Any = StructType.fromDDL(_ddl(job_file, table, what))
    return StructType(schema.fields)


def _ddl(job_file: JobFile, table: SourceTable, what: str) -> str:
    """Return the columns of a source in Spark's words."""
    if table.schema:
        return table.schema
    known = {MESSAGE: messages_ddl(job_file.attributes), SUBSCRIPTION: subscriptions_ddl(), EDGE: edges_ddl()}
    return known[what]


def _watched(schema: StructType) -> StructType:
    """Return a schema with a column for malformed lines."""
    return StructType([*schema.fields, StructField(_BROKEN, StringType())])


def _rule(job_file: JobFile, table: SourceTable, what: str) -> str:
    """Return the rule that a malformed line breaks."""
    return f"row must be {'CSV' if table.format == 'csv' else 'JSON'} of {_ddl(job_file, table, what)}"


def _place(table: SourceTable | SinkTable) -> tuple[str, str, str | None]:
    """Return the key to blame if a source cannot be opened: the path, if there is one."""
    if table.path is None:
        return "format", "must be one that Spark can open with these options", table.format
    return "path", f"must be one that Spark can open as {table.format}", table.path


def _options(table: SourceTable | SinkTable) -> dict[str, str]:
    """Return options as strings, with booleans as Spark writes them."""
    given = {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in table.options.items()
    }
    return {**_USUAL.get(table.format, {}), **given}
