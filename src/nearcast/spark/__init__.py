"""The pipeline on Spark: DataFrames in, exact updates out.

    settings    a SparkSession as the pipeline needs it        job        what one run is about
    pipeline    `match`, which reads as the diagram            frame      what travels through the shuffle
    decode      good rows, and rejected ones with the reason   spread     which task a shard gets
    dispatch    who needs a row                                shard      what a shard does with its frames
    worker      the stateful operator that hosts shards        java       which Java Spark runs on
    merge       answers of shards as rows

Importing this package does not import PySpark; using it does.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Matched", "check_session", "match", "session"]

_HOME = {"Matched": "pipeline", "match": "pipeline", "check_session": "settings", "session": "settings"}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _HOME:
        return getattr(import_module(f"nearcast.spark.{_HOME[name]}"), name)
    raise AttributeError(f"module 'nearcast.spark' has no attribute {name!r}")
