"""A job from a file: sources, match and sinks, started, watched and stopped as one.

    job_file ── sources ── match ──┬── updates ──── a query
                  └── malformed ── rejected ─── another query, if it has a sink

The checkpoint folder holds all state of a job: Spark's own, that of the shards, the settings it was started with, and
a learned vocabulary. Started again with the same file, the job continues where it stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from nearcast.errors import StateError
from nearcast.jobs.folder import Folder
from nearcast.jobs.inputs import routing_of, social_of, vocabulary_of
from nearcast.jobs.job_file import JobFile, naming
from nearcast.partition.hash import HashPartitioner
from nearcast.spark.error_summary import SPARK_ERRORS, in_one_line
from nearcast.spark.learn import learn_vocabulary
from nearcast.spark.pipeline import match_config
from nearcast.spark.query_progress import batches_of
from nearcast.spark.streams import checkpoint, read_messages, read_samples, read_subscriptions, start


@dataclass(frozen=True)
class Run:
    """A running job."""

    updates: StreamingQuery
    rejected: StreamingQuery | None
    state: str
    """The folder of the shards' state."""

    @property
    def queries(self) -> Iterator[StreamingQuery]:
        """The queries of the job."""
        yield self.updates
        if self.rejected is not None:
            yield self.rejected

    @property
    def is_active(self) -> bool:
        """True while a query runs."""
        return any(query.isActive for query in self.queries)

    def wait(self, seconds: float) -> None:
        """Wait, or until a query ends; raise the error of a failed query."""
        active = next((query for query in self.queries if query.isActive), self.updates)
        with suppress(*SPARK_ERRORS):  # checked below, for all queries
            active.awaitTermination(seconds)  # type: ignore[arg-type] # it takes fractions
        for query in self.queries:
            error = query.exception()
            if error is not None:
                self.stop()
                raise StateError(f"query {query.name!r} failed: {in_one_line(error)}")

    def batches(self, *, after: int = -1) -> list[dict[str, Any]]:
        """Return the reports of batches after the given one, see `progress`."""
        return batches_of(self.updates, self.state, after=after)

    def stop(self) -> None:
        """Stop; uncommitted work is done again when the job continues."""
        for query in self.queries:
            query.stop()


def start_run(spark: SparkSession, job_file: JobFile) -> Run:
    """Start a job; raise an error that names key and file if it cannot start."""
    with naming(job_file.file):
        messages, subscriptions = read_messages(spark, job_file), read_subscriptions(spark, job_file)
        vocabulary = vocabulary_of(job_file, partial(learn_vocabulary, spark))
        job = job_file.job(vocabulary=vocabulary, social=social_of(job_file))
        routing, state = routing_of(job_file), checkpoint(job_file, "state")
        learns = routing is None and job.partitioner != HashPartitioner.name
        matched = match_config(
            messages.rows,
            subscriptions.rows,
            job.config,
            partitioner=job.partitioner if routing is None else routing,
            shards=job.shards,
            state=state,
            sample=read_samples(spark, job_file) if learns else None,
        )
        rejected = matched.rejected
        for malformed in (messages.malformed, subscriptions.malformed):
            rejected = rejected if malformed is None else rejected.union(malformed)
        Folder(job_file.resolve(job_file.run.checkpoint)).claim(job.fixed_settings)
        run = Run(start(matched.updates, job_file, job_file.updates, "updates"), None, state)
        if job_file.rejected is None:
            return run
        try:
            return Run(run.updates, start(rejected, job_file, job_file.rejected, "rejected"), state)
        except Exception:
            run.stop()
            raise
