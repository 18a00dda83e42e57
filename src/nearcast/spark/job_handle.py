"""The job on its way to the workers: as a broadcast variable, sent once per host, or by value.

A client of Spark Connect cannot broadcast. There the job is part of every function that is sent, and a worker
unpickles it once.

Spark also unpickles a stateful operator in a process that never receives broadcasts, only to read the names of its
state. There a plain `Broadcast` cannot be unpickled; `BroadcastJob` can, and fails only if the value is used. That
process starts with every query, so this module does not import the job.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.core.broadcast import Broadcast
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from nearcast.jobs.job import Job


class JobHandle(Protocol):
    """What workers get a job from."""

    @property
    def job(self) -> Job:
        """The job."""


class SentJob:
    """A job that is sent by value."""

    def __init__(self, pickled: bytes) -> None:
        self._pickled = pickled

    @property
    def job(self) -> Job:
        """The job."""
        return _unpickled(self._pickled)


@lru_cache(maxsize=4)
def _unpickled(pickled: bytes) -> Job:
    job: Job = pickle.loads(pickled)
    return job


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


def send_job(spark: SparkSession, job: Job) -> JobHandle:
    """Return a job that reaches all workers."""
    if is_remote(spark):
        return SentJob(pickle.dumps(job))
    broadcast = spark.sparkContext.broadcast(job)
    return BroadcastJob(lambda: broadcast)


def is_remote(spark: SparkSession) -> bool:
    """Return whether a session is a client of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")
