"""A static frame of subscriptions as a stream of operations: a table of saved searches beside a stream of messages.

    table, when a query starts ──┐                            ┌ 00000001.parquet   all rows
    table, when it is read again ┴─ what differs from before ─┴ 00000002.parquet   new and changed rows, missing ids

The files lie in the folder of the state, and queries read them as any other stream: each once, also after a restart,
and one per batch. Rows that are new or have changed subscribe; an id that is missing is unsubscribed. The files are
also the record of what was read before: of each id, the rows of the last file that has it.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from nearcast.errors import require
from nearcast.jobs.folder import Folder
from nearcast.jobs.validate import UNSUBSCRIBE
from nearcast.model.columns import subscriptions_schema
from nearcast.spark.decode import plain_region

_FOLDER = "subscriptions"
_FILE = re.compile(r"(\d{8})\.parquet")
_VERSION, _IS_MISSING = "_version", "_is_missing"


class StaticSubscriptions:
    """The subscriptions of a static frame, and the operations that lead to them."""

    def __init__(self, frame: DataFrame, state: str) -> None:
        """Read the frame for the first time, or again if the queries continue."""
        self._spark, self._folder, self._uri = frame.sparkSession, Folder(state), f"{state}/{_FOLDER}"
        self._folder.files.create_dir(f"{self._folder.path}/{_FOLDER}", recursive=True)
        self._schema = _known(frame).schema
        self.refresh(frame)

    def refresh(self, frame: DataFrame) -> int:
        """Read a frame of the same columns, write the operations that lead to its rows, and return their number."""
        current = _known(frame)
        expected, found = (schema.simpleString() for schema in (self._schema, current.schema))
        require(found == expected, "columns", f"must be {expected}, as when the query started", found)
        version = self._last_version() + 1
        current = current.withColumn("row", _content(self._schema)).persist()  # it is read twice
        try:
            before = self._before(version)
            same = [current["id"].eqNullSafe(before["id"]), current["row"] == before["row"]]
            changed = current.join(before, same, "left_anti").drop("row").withColumn(_IS_MISSING, F.lit(False))
            ids = before.select("id").where("id is not null").distinct()
            missing = ids.join(current, "id", "left_anti").select(
                *(_of_missing(field) for field in self._schema), F.lit(True).alias(_IS_MISSING)
            )
            operations = changed.unionByName(missing).withColumn(_VERSION, F.lit(version).cast("long")).toArrow()
        finally:
            current.unpersist()
        if len(operations):
            sink = pa.BufferOutputStream()
            pq.write_table(operations, sink)
            self._folder.write(f"{_FOLDER}/{version:08d}.parquet", sink.getvalue())
        return len(operations)

    def stream(self) -> DataFrame:
        """Return the operations as a stream."""
        reader = self._spark.readStream.schema(self._schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(self._uri)

    def _before(self, version: int) -> DataFrame:
        """Return the rows that were read before: id, and all columns as one."""
        record = StructType(
            [*self._schema, StructField(_IS_MISSING, BooleanType()), StructField(_VERSION, LongType())]
        )
        if version == 1:
            rows = self._spark.createDataFrame([], record)
        else:
            rows = self._spark.read.schema(record).parquet(self._uri)
        last = F.max(_VERSION).over(Window.partitionBy("id"))
        rows = rows.withColumn("last", last).where(f"{_VERSION} = last AND NOT {_IS_MISSING}")
        return rows.select("id", _content(self._schema).alias("row"))

    def _last_version(self) -> int:
        names = map(_FILE.fullmatch, self._folder.names(_FOLDER))
        return max((int(name[1]) for name in names if name is not None), default=0)


def _known(frame: DataFrame) -> DataFrame:
    """Return the known columns of a frame, with an `op`."""
    known = [name for name in subscriptions_schema().names if name in frame.columns and name != "op"]
    require("id" in known, "columns", "must include ['id']", frame.columns, subject="subscriptions")
    op = F.col("op") if "op" in frame.columns else F.lit(None).cast("string")
    return plain_region(frame.select(op.alias("op"), *known))


def _content(schema: StructType) -> Column:
    """Return all columns of a row as one, for comparison."""
    return F.to_json(F.struct(*sorted(schema.names)))


def _of_missing(field: StructField) -> Column:
    """Return a column of the operation that unsubscribes a missing id."""
    if field.name == "id":
        return F.col("id")
    value = UNSUBSCRIBE if field.name == "op" and isinstance(field.dataType, StringType) else None
    return F.lit(value).cast(field.dataType).alias(field.name)
