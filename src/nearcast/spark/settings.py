"""Which Spark does the pipeline need? A session with the right settings, or a clear word on the one that is wrong."""

from __future__ import annotations

import os
import sys
from typing import Any

from pyspark.sql import SparkSession

from nearcast.errors import StateError
from nearcast.spark.java import find_java

_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_STATE = "spark.sql.streaming.stateStore"

SETTINGS = {
    f"{_STATE}.providerClass": _STORE,
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",  # a batch uploads what changed, not a whole table
    # Format 2 cannot go on after a batch that the sink has committed and Spark has not, which is what a driver leaves
    # that dies in between: a file sink skips the batch when it is run again, so no state is reported ("CheckpointInfo
    # length: 0"), and the query fails each time.
    f"{_STATE}.checkpointFormatVersion": "1",
    "spark.sql.adaptive.enabled": "false",  # shards keep a task each, and small batches plan faster
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",  # rows a block
    "spark.sql.execution.arrow.maxBytesPerBatch": "64m",  # of long texts, fewer
    "spark.python.worker.reuse": "true",  # engines stay in memory between batches
}
"""What a session of ours is set to, besides one task a shard."""


FRAMES_PER_SNAPSHOT = "spark.nearcast.framesPerSnapshot"
"""A setting of ours: after how many batches a shard writes down its engine, at the latest."""


LOCAL = "spark.nearcast.local"
"""A setting of ours: a folder of each host where engines stay between batches, and over a restart."""


def session(
    *,
    shards: int = 2,
    master: str | None = None,
    app_name: str = "nearcast",
    settings: dict[str, Any] | None = None,
) -> SparkSession:
    """Return a SparkSession with the settings that the pipeline needs, and any others.

    `master` is as Spark users know it; None leaves it to spark-submit, or else takes all cores of this machine.
    """
    os.environ["JAVA_HOME"] = str(find_java())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    chosen = {**SETTINGS, "spark.sql.shuffle.partitions": shards, **_inherited(), **(settings or {})}
    for name, value in chosen.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def check_session(spark: SparkSession, *, shards: int) -> None:
    """Raise `StateError` for a setting without which there are no exact answers."""
    needed = {f"{_STATE}.providerClass": _STORE, "spark.sql.shuffle.partitions": str(shards)}
    for name, rule in needed.items():
        found = spark.conf.get(name, None)
        if found != rule:
            hint = f"Try nearcast.spark.session(shards={shards})"
            raise StateError(f"{name} must be {rule}; got {found} (session). {hint}")


def _inherited() -> dict[str, str]:
    """Return settings that hand on to executors where compiled kernels are kept."""
    cache = os.environ.get("NEARCAST_CACHE")
    return {} if cache is None else {"spark.executorEnv.NEARCAST_CACHE": cache}
