"""The pipeline on Spark: DataFrames in, exact updates out.

    pipeline        `match`: the four stages below, joined
    decode          separate good rows from rejected ones
    dispatch        route rows to shards and pack them as frames
    shard_operator  the stateful operator, as Spark sends it
    worker          what it does: runs a shard's engine
    merge           updates of shards as rows

    job_handle      the job on every worker                  settings        sessions with the required settings
    plugins         registered kinds on every worker         java            the Java runtime
    learn           routings and vocabularies from samples   shard_keys      shards divided among tasks
    batch_epoch     the routing of a task's batch
    run, streams    a whole job from a file                  query_progress  the progress of a query
    clock_source    the time as a stream                     static_subscriptions  a table as a stream
    schema          columns of Spark frames                  error_summary   Spark's errors in one line
    freeze_gc       workers without long collections         daemon          workers with the pipeline imported

Only this package imports PySpark, and only when it is used. Everything that a program without Spark needs of a job is
in `nearcast.jobs`.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Matched", "check_session", "match", "pack_messages", "session", "unpack_updates"]

_MODULE_OF = {
    "Matched": "spark.pipeline",
    "check_session": "spark.settings",
    "match": "spark.pipeline",
    "pack_messages": "jobs.block",
    "session": "spark.settings",
    "unpack_updates": "jobs.block",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULE_OF:
        return getattr(import_module(f"nearcast.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module 'nearcast.spark' has no attribute {name!r}")
