"""The epoch of the micro-batch that a task belongs to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from pyspark import TaskContext

from nearcast.errors import StateError
from nearcast.jobs.block_files import BlockFiles
from nearcast.jobs.epochs import epochs_of
from nearcast.jobs.folder import Folder
from nearcast.jobs.frame import Frame
from nearcast.jobs.job import Job

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


class BatchEpoch(NamedTuple):
    """The job as it is for one batch."""

    job: Job
    """The job with the shards and the routing of the epoch."""
    number: int = 0
    is_ending: bool = False
    """True if the next epoch waits until all shards have run: each gets a frame, even without rows."""
    share: Callable[[Frame], Frame] = lambda frame: frame
    """Writes the rows of a frame for several shards to a file, and returns one that refers to it."""


def query_and_batch() -> tuple[str, int]:
    """Return the id of the streaming query and the number of the batch that this task belongs to."""
    return _property(_QUERY), int(_property(_BATCH))


def batch_epoch(job: Job) -> BatchEpoch:
    """Return the job in the epoch of this task's batch; static frames have one epoch."""
    if job.state is None:
        return BatchEpoch(job)
    query, batch = query_and_batch()
    epochs = epochs_of(job.state, query)
    found = epochs.in_force(batch)
    blocks = BlockFiles(Folder(f"{job.state}/{query}"))
    share = partial(blocks.write, batch=batch)
    return BatchEpoch(job.at(epochs.log.read(found.number)), found.number, found.is_ending, share)


def _property(name: str) -> str:
    """Return a local property that Spark sets for tasks of a streaming query."""
    context = TaskContext.get()
    value = None if context is None else context.getLocalProperty(name)
    if value is None:
        raise StateError(f"the task of a streaming query must have {name}; it has none")
    return value
