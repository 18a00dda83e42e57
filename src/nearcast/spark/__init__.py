"""The pipeline on Spark: DataFrames in, exact updates out.

    pipeline    `match`, which reads as the diagram            job        what one run is about
    decode      good rows, and rejected ones with the reason   sent       how it reaches the workers
    sieve       which rows of a block are bad                  block      messages and updates in blocks
    dispatch    who needs a row                                frame      what travels through the shuffle
    worker      the stateful operator that hosts shards        spread     which task a shard gets
    merge       answers of shards as rows                      shard      what a shard does with its frames
    settings    a SparkSession as the pipeline needs it        state      what a shard must not forget
    java        which Java Spark runs on                       log, home  where that lies, and the engine meanwhile
    plan, run   a whole job from a file                        reports    how shards fared
    streams     its sources and sinks                          progress   what that adds up to
    background  its vocabulary and social graph                follow     what a file sink has committed
    refusal     Spark's errors in one line                     settle     what keeps a Python worker quick
    link        how a program outside works with a job         learn      what is learned before a pipeline runs

Importing this package does not import PySpark; using it does.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Matched", "check_session", "match", "pack_messages", "session", "unpack_updates"]

_HOME = {
    "Matched": "pipeline",
    "check_session": "settings",
    "match": "pipeline",
    "pack_messages": "block",
    "session": "settings",
    "unpack_updates": "block",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _HOME:
        return getattr(import_module(f"nearcast.spark.{_HOME[name]}"), name)
    raise AttributeError(f"module 'nearcast.spark' has no attribute {name!r}")
