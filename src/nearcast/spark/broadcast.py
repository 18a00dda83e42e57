"""The job as a broadcast variable, sent once per host.

Spark also unpickles a stateful operator in a process that never receives broadcasts, only to read the names of its
state. There a plain `Broadcast` cannot be unpickled; `BroadcastJob` can, and fails only if the value is used.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from pyspark.core.broadcast import Broadcast
from pyspark.sql import SparkSession

from nearcast.jobs.job import Job


class BroadcastJob:
    """A job that can be unpickled anywhere."""

    def __init__(self, find: Callable[..., Broadcast[Job]], *arguments: Any) -> None:
        self._find, self._arguments = find, arguments

    @cached_property
    def job(self) -> Job:
        """The job."""
        job: Job = self._find(*self._arguments).value
        return job

    def __reduce__(self) -> tuple[Any, ...]:
        found = self._find(*self._arguments)
        find, arguments = found.__reduce__()  # registers the broadcast with Spark for the process that unpickles this
        return (BroadcastJob, (find, *arguments))


def broadcast_job(spark: SparkSession, job: Job) -> BroadcastJob:
    """Broadcast a job to all workers."""
    broadcast = spark.sparkContext.broadcast(job)
    return BroadcastJob(lambda: broadcast)
