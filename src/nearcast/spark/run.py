"""A job from a file: sources, match and sinks, started, watched and stopped as one.

    job_file ── sources ── match ──┬── updates ──── a query
                  └── malformed ── rejected ─── another query, if it has a sink

The checkpoint folder holds all state of a job: Spark's own, that of the shards, the settings it was started with, and
a learned vocabulary. Started again with the same file, the job continues where it stopped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from nearcast.errors import NearcastError, StateError
from nearcast.jobs.folder import Folder
from nearcast.jobs.inputs import hash_key_of, routing_of, social_of, vocabulary_of
from nearcast.jobs.job_file import JobFile, naming
from nearcast.jobs.requests import take_refresh, take_rescale
from nearcast.partition.hash import HashPartitioner
from nearcast.spark.error_summary import SPARK_ERRORS, in_one_line
from nearcast.spark.learn import learn_vocabulary
from nearcast.spark.pipeline import Matched, match_config
from nearcast.spark.query_progress import batches_of
from nearcast.spark.streams import (
    read_edges,
    read_messages,
    read_samples,
    read_static,
    read_subscriptions,
    start,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """A running job."""

    updates: StreamingQuery
    rejected: StreamingQuery | None
    state: str
    """The folder of the shards' state."""
    take_requests: Callable[[], None] = lambda: None
    """Does what was requested of the job, see `nearcast.jobs.requests`."""

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
        with suppress(*SPARK_ERRORS, ConnectionError):  # checked below, for all queries
            active.awaitTermination(seconds)  # type: ignore[arg-type] # it takes fractions
        for query in self.queries:
            try:
                error = query.exception()
            except (*SPARK_ERRORS, ConnectionError) as gone:
                raise StateError(f"Spark has ended: {in_one_line(gone)}") from None
            if error is not None:
                self.stop()
                raise StateError(f"query {query.name!r} failed: {in_one_line(error)}")
        self.take_requests()

    def batches(self, *, after: int = -1) -> list[dict[str, Any]]:
        """Return the reports of batches after the given one, see `progress`."""
        return batches_of(self.updates, self.state, after=after)

    def stop(self) -> None:
        """Stop; uncommitted work is done again when the job continues."""
        for query in self.queries:
            with suppress(*SPARK_ERRORS, ConnectionError):  # Spark may have ended
                query.stop()


def start_run(spark: SparkSession, job_file: JobFile) -> Run:
    """Start a job; raise an error that names key and file if it cannot start."""
    with naming(job_file.file):
        messages, subscriptions = read_messages(spark, job_file), read_subscriptions(spark, job_file)
        edges = read_edges(spark, job_file)
        vocabulary = vocabulary_of(job_file, partial(learn_vocabulary, spark))
        hash_key = hash_key_of(job_file, draw=True)
        job = job_file.job(vocabulary=vocabulary, social=social_of(job_file), hash_key=hash_key)
        routing, state = routing_of(job_file), job_file.state_folder
        learns = routing is None and job.partitioner != HashPartitioner.name
        matched = match_config(
            messages.rows,
            subscriptions.rows,
            job.config,
            partitioner=job.partitioner if routing is None else routing,
            shards=job.shards,
            threads=job.threads,
            max_shards=job_file.match.max_shards,
            state=state,
            sample=read_samples(spark, job_file) if learns else None,
            edges=None if edges is None else edges.rows,
            clock=job.clock,
            max_ahead=job.max_ahead_s,
            balance=job.balance,
        )
        rejected = matched.rejected
        for source in (messages, subscriptions, edges):
            if source is not None and source.malformed is not None:
                rejected = rejected.union(source.malformed)
        Folder(job_file.resolve(job_file.run.checkpoint)).claim(job.fixed_settings)
        take_requests = partial(_take_requests, spark, job_file, matched)
        run = Run(start(matched.updates, job_file, job_file.updates, "updates"), None, state, take_requests)
        if job_file.rejected is None:
            return run
        try:
            return replace(run, rejected=start(rejected, job_file, job_file.rejected, "rejected"))
        except Exception:
            run.stop()
            raise


def _take_requests(spark: SparkSession, job_file: JobFile, matched: Matched) -> None:
    """Do what was requested of the job, and adjust its routing; what cannot be done does not stop it."""
    if matched.balancer is not None:
        with _logging_errors("the load was not adjusted"):
            if (decision := matched.adjust()) is not None:
                _log.info("%s", decision)
    if matched.static is not None and take_refresh(job_file):
        with _logging_errors("the subscriptions were not read again"):
            _log.info("the subscriptions were read again: %d changes", matched.refresh(read_static(spark, job_file)))
    if (shards := take_rescale(job_file)) is not None:
        with _logging_errors(f"the job does not continue with {shards} shards"):
            learns = job_file.match.partitioner != HashPartitioner.name
            matched.rescale(shards, sample=read_samples(spark, job_file) if learns else None)
            _log.info("the job will continue with %d shards", shards)


@contextmanager
def _logging_errors(what: str) -> Iterator[None]:
    try:
        yield
    except (NearcastError, *SPARK_ERRORS) as error:
        _log.error("%s: %s", what, in_one_line(error))
