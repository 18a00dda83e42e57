"""How do the sources and sinks of a job file become DataFrames and queries? As Spark has them, with our columns.

Files of JSON lines, CSV and Parquet are read with the columns that Nearcast knows unless a schema is given; sources
that bring a `value` (a socket, a broker) are taken as JSON of those columns.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from nearcast.spark.plan import Plan, SinkTable, SourceTable

MESSAGES = "id string, x double, y double, text string, at timestamp, place string"
SUBSCRIPTIONS = (
    "op string, id string, kind string, x double, y double, xmin double, ymin double, xmax double, ymax double, "
    "keywords string, k int, alpha double, delta double, tau double, user string, at timestamp"
)
FILES = ("json", "csv", "parquet", "orc", "text")
_AVAILABLE_NOW = "available now"


def read_stream(spark: SparkSession, plan: Plan, source: SourceTable, columns: str) -> DataFrame:
    """Return a source as a stream of the columns that Nearcast knows."""
    reader = spark.readStream.format(source.format).options(**_options(source))
    if source.format in FILES:
        reader = reader.schema(source.schema or columns)
    frame = reader.load(None if source.path is None else plan.place(source.path))
    return shaped(frame, source, columns)


def read_static(spark: SparkSession, plan: Plan, source: SourceTable, path: str) -> DataFrame:
    """Return what lies at a path now, in the format of a source of messages."""
    reader = spark.read.format(source.format).options(**_options(source))
    if source.format in FILES:
        reader = reader.schema(source.schema or MESSAGES)
    return shaped(reader.load(plan.place(path)), source, MESSAGES)


def shaped(frame: DataFrame, source: SourceTable, columns: str) -> DataFrame:
    """Return the columns that Nearcast knows, out of those that a source has."""
    if "value" in frame.columns and source.format not in FILES:
        parsed = F.from_json(F.col("value").cast("string"), source.schema or columns)
        frame = frame.select(parsed.alias("row")).select("row.*")
    return frame.selectExpr(*source.select) if source.select else frame


def start(frame: DataFrame, plan: Plan, sink: SinkTable, name: str) -> StreamingQuery:
    """Start a query that writes a stream to a sink."""
    writer = frame.writeStream.queryName(f"nearcast {name}").outputMode("append").format(sink.format)
    writer = writer.options(**_options(sink)).option("checkpointLocation", checkpoint(plan, name))
    return _triggered(writer, plan.run.trigger).start(None if sink.path is None else plan.place(sink.path))


def checkpoint(plan: Plan, name: str) -> str:
    """Return where a query keeps its checkpoint."""
    return f"{plan.place(plan.run.checkpoint)}/{name}"


def _triggered(writer: DataStreamWriter, trigger: str) -> DataStreamWriter:
    if trigger == _AVAILABLE_NOW:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=trigger)


def _options(table: SourceTable | SinkTable) -> dict[str, str]:
    """Return options as Spark takes them: all are strings, true and false in its spelling."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in table.options.items()
    }
