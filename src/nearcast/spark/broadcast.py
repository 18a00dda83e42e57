"""How does a job reach the workers? As a broadcast, that is once a host, opened by whoever asks first.

Spark also unpacks a stateful operator in a process that never gets broadcasts, only to ask what state it names. There
a plain `Broadcast` cannot be unpacked at all; `BroadcastJob` can, and only fails where someone wants the value.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from pyspark.core.broadcast import Broadcast
from pyspark.sql import SparkSession

from nearcast.jobs.job import Job


class BroadcastJob:
    """A job, wherever this is unpacked."""

    def __init__(self, find: Callable[..., Broadcast[Job]], *arguments: Any) -> None:
        self._find, self._arguments = find, arguments

    @cached_property
    def job(self) -> Job:
        """The job itself."""
        job: Job = self._find(*self._arguments).value
        return job

    def __reduce__(self) -> tuple[Any, ...]:
        found = self._find(*self._arguments)
        find, arguments = found.__reduce__()  # tells Spark that who unpacks this needs the broadcast
        return (BroadcastJob, (find, *arguments))


def broadcast_job(spark: SparkSession, job: Job) -> BroadcastJob:
    """Send a job to all workers."""
    broadcast = spark.sparkContext.broadcast(job)
    return BroadcastJob(lambda: broadcast)
