"""How do answers of shards become rows? Each frame of updates is opened into the columns of updates.

A subscription lives in one shard, so what shards found never has to be joined. Rows come in no order; `seq` has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from nearcast.spark.frame import unpack

UPDATES = "seq long, at timestamp, subscription string, message string, change string, score double"


def merge(told: DataFrame) -> DataFrame:
    """Open frames of updates."""
    return told.select("payload").where("payload is not null").mapInArrow(_open, UPDATES)


def _open(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for payload in batch.column(0).to_pylist():
            yield from unpack(payload).to_batches()
