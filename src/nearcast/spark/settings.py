"""Spark sessions: the settings that the pipeline needs, and a check of existing sessions."""

from __future__ import annotations

import os
import sys
from typing import Any

from pyspark.sql import SparkSession

from nearcast.errors import StateError
from nearcast.jobs.folder import Folder
from nearcast.spark.java import find_java

_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_STATE = "spark.sql.streaming.stateStore"

_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_LOCAL_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

SETTINGS = {
    f"{_STATE}.providerClass": _STORE,
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",  # a batch uploads changes, not whole tables
    # Format 2 cannot continue after a batch that the sink has committed and Spark has not, which a driver that dies
    # in between leaves: the file sink skips the replayed batch, so no state is reported ("CheckpointInfo length: 0"),
    # and the query fails every time.
    f"{_STATE}.checkpointFormatVersion": "1",
    "spark.sql.adaptive.enabled": "false",  # shards keep one task each, and small batches are planned faster
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",  # rows per block
    "spark.sql.execution.arrow.maxBytesPerBatch": "64m",  # fewer for long texts
    "spark.python.worker.reuse": "true",  # engines stay in memory between batches
    "spark.python.unix.domain.socket.enabled": "true",  # over TCP each stage of a small batch waits 40 ms for itself
    "spark.python.daemon.module": "nearcast.spark.daemon",  # workers start with the pipeline imported
}
"""The settings of `session`, besides one task per shard."""


BATCHES_PER_SNAPSHOT = "spark.nearcast.batchesPerSnapshot"
"""Setting: the most batches between two snapshots of a shard."""


LOCAL = "spark.nearcast.local"
"""Setting: a folder on each host where engines stay between batches and across restarts."""


def session(
    *,
    shards: int = 2,
    max_shards: int | None = None,
    master: str | None = None,
    app_name: str = "nearcast",
    settings: dict[str, Any] | None = None,
) -> SparkSession:
    """Return a SparkSession with the settings that the pipeline needs, and any others.

    `max_shards` is the number of tasks that shards are divided among, by default one per shard. Spark fixes it for
    the life of a checkpoint: more shards than that can follow later, but not run in parallel. `master` is a Spark
    master; None leaves it to spark-submit, or else takes all cores of this machine. Workers run the Python that
    PYSPARK_PYTHON names, by default that of this process; Java is that of JAVA_HOME if it is new enough.
    """
    os.environ["JAVA_HOME"] = str(find_java())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    own = {
        "spark.sql.shuffle.partitions": max_shards or shards,
        "spark.driver.memory": driver_memory(),
        **_inherited(),
    }
    chosen = {**SETTINGS, **own, **(settings or {})}
    for name, value in chosen.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def check_session(spark: SparkSession, *, shards: int | None = None) -> None:
    """Raise `StateError` for a setting that exact results require.

    `shards` is how many can run in parallel; None for a query that continues, whose number Spark knows.
    """
    needed = {f"{_STATE}.providerClass": _STORE}
    needed |= {} if shards is None else {"spark.sql.shuffle.partitions": str(shards)}
    for name, rule in needed.items():
        found = spark.conf.get(name, None)
        if found != rule:
            hint = f"Try nearcast.spark.session(shards={shards or 2})"
            raise StateError(f"{name} must be {rule}; got {found} (session). {hint}")


def choose_file_manager(spark: SparkSession, folder: str) -> None:
    """Set how Spark writes the checkpoint of a query, given its state folder, unless the session says so already.

    Spark's default starts a process, `readlink`, at every step of a local file: some 30 per batch, a third of the
    time of a small one. The other manager goes through `java.io.File`. It must not be used elsewhere: a batch that is
    replayed replaces files, which HDFS only does through the default.
    """
    chosen = spark.conf.get(_FILE_MANAGER, None)
    if Folder(folder).is_local:
        if chosen is None:
            spark.conf.set(_FILE_MANAGER, _LOCAL_FILES)
    elif chosen == _LOCAL_FILES:
        spark.conf.unset(_FILE_MANAGER)


def driver_memory() -> str:
    """Return the heap of the driver: a quarter of the memory of this machine, from 1 to 4 GiB.

    Spark's default is 1 GiB, in local mode for all tasks together: too little to collect millions of updates.
    """
    mebibytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return os.environ.get("SPARK_DRIVER_MEMORY", f"{min(max(mebibytes // 4, 1024), 4096)}m")


def _inherited() -> dict[str, str]:
    """Return settings that pass the folder of compiled kernels on to executors."""
    cache = os.environ.get("NEARCAST_CACHE")
    return {} if cache is None else {"spark.executorEnv.NEARCAST_CACHE": cache}
