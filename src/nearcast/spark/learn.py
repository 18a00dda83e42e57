"""Learning before a pipeline runs: a routing, and a vocabulary, each from a sample, once; both are stored.

    sample ── decode ── some good rows ── footprints, messages ── fit ── the next epoch, see `nearcast.jobs.epochs`

Static frames are their own sample. A stream is unknown before it runs, so it takes a sample of earlier frames, or a
fitted routing. A stream that continues after a stop keeps its routing, unless it is started with another one or with
another number of shards.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from nearcast.errors import InvalidInput, StateError, require
from nearcast.jobs.balancer import check_balance
from nearcast.jobs.block import open_block
from nearcast.jobs.epochs import Epoch, EpochLog, origin_of
from nearcast.jobs.job import GIVEN, Job
from nearcast.jobs.job_file import JobFile
from nearcast.jobs.message_rows import RETRACT, are
from nearcast.jobs.validate import SUBSCRIBE, good_messages
from nearcast.model import Footprints, MessageBatch
from nearcast.model.columns import MESSAGES, subscriptions_schema
from nearcast.partition import Routing, Sample
from nearcast.partition.fitting import check_partitioner, fit
from nearcast.partition.hash import HashPartitioner
from nearcast.partition.serialization import pack
from nearcast.spark.decode import PAYLOAD, decode_messages, decode_subscriptions
from nearcast.spark.error_summary import blaming
from nearcast.spark.job_handle import send_job
from nearcast.spark.streams import read_sample
from nearcast.text import Vocabulary

ROWS = 100_000
"""Messages, and subscriptions, that a partitioner is fitted to."""

Frames = tuple[DataFrame, DataFrame]
"""Messages and subscriptions."""


def fit_job(job: Job, partitioner: str | Routing, frames: Frames, sample: Frames | None) -> Job:
    """Return a job with its routing; that of a stream is its newest epoch, or one that is added."""
    check_partitioner(partitioner, n_shards=job.shards, subject="job")
    given = None if isinstance(partitioner, str) else pack(partitioner.fixed())
    if given is not None:
        job = replace(job, partitioner=GIVEN, fitted=given)
    if job.state is None:
        if given is not None or partitioner == HashPartitioner.name:
            return job
        return replace(job, fitted=_fit(job, frames if sample is None else sample))
    log = EpochLog(job.state)
    newest = log.newest()
    is_same = newest is not None and (
        newest.requested == job.shards if given is None else newest.origin == origin_of(given)
    )
    if newest is not None:
        _check_continues(newest, job)
    if newest is None or not is_same:
        newest = _add_epoch(log, job, given, sample)
    return job.at(newest)


def _check_continues(epoch: Epoch, job: Job) -> None:
    """Raise `StateError` unless a job divides the work as in an epoch: the plan of its queries depends on it."""
    if job.partitioner != epoch.partitioner:
        rule = f"partitioner must be {epoch.partitioner!r}, as when the query was first started"
        raise StateError(f"{rule}; got {job.partitioner!r} (state in {job.state})")
    if job.fitted is None:
        return
    for name in ("sends_all", "by_key"):
        was, is_now = (getattr(one.routing, name) for one in (job.at(epoch), job))
        if was != is_now:
            rule = f"partitioner must be one whose {name} is {was}, as when the query was first started"
            raise StateError(f"{rule}; got {is_now} (state in {job.state})")


def rescale_job(job: Job, shards: int, sample: Frames | None) -> Epoch:
    """Add an epoch with another number of shards to a stream that runs; a restart of the same job keeps it."""
    log = EpochLog(str(job.state))
    newest = log.newest()
    assert newest is not None
    if newest.shards == shards:
        return newest
    rule = "must be a name if the number of shards changes while a job runs: a fitted routing has one number"
    require(job.partitioner != GIVEN, "partitioner", rule, job.partitioner, subject="job")
    return _add_epoch(log, replace(job, shards=shards, fitted=None), None, sample, requested=newest.requested)


def _add_epoch(
    log: EpochLog, job: Job, given: bytes | None, sample: Frames | None, *, requested: int | None = None
) -> Epoch:
    """Add an epoch with the shards of a job, and with a routing that is given, or fitted to a sample if it learns."""
    if given is None and job.partitioner != HashPartitioner.name:
        if sample is None:
            name = job.partitioner
            rule = f"must be frames of messages and subscriptions, from which partitioner {name!r} can learn"
            hint = "Or give a routing that was fitted before as the partitioner; nearcast advise --save makes one."
            raise InvalidInput("sample", f"{rule} before a stream runs", None, subject="job", hint=hint)
        given = _fit(job, sample)
    check_balance(replace(job, fitted=given))
    return log.add(
        shards=job.shards, tasks=job.n_tasks, requested=requested, partitioner=job.partitioner, routing=given
    )


def learn_vocabulary(spark: SparkSession, job_file: JobFile) -> Vocabulary:
    """Count the texts of the sample that a job file names."""
    assert job_file.vocabulary is not None
    path, subject = str(job_file.vocabulary.learn), "[vocabulary]"
    with blaming("learn", "must lead to messages as [messages] has them", path, subject=subject):
        texts = read_sample(spark, job_file, path).select("text").where("text is not null")
        rows = texts.limit(job_file.vocabulary.rows).toLocalIterator()
        learned = Vocabulary.from_texts((row.text for row in rows), analyzer=job_file.match.analyzer)
    require(len(learned) > 0, "learn", "must lead to at least one message with a text", path, subject=subject)
    return learned


def _fit(job: Job, frames: Frames) -> bytes:
    routing = fit(job.partitioner, _sample(job, frames), n_shards=job.shards, in_threads=False)
    return pack(routing.fixed())


def _sample(job: Job, frames: Frames) -> Sample:
    messages, subscriptions = frames
    handle = send_job(messages.sparkSession, replace(job, partitioner="hash"))
    subscription_rows = (
        decode_subscriptions(subscriptions, handle).good.where(f"op = '{SUBSCRIBE}'").limit(ROWS).toArrow()
    )
    batches = job.admit(subscription_rows.select(subscriptions_schema().names))
    footprints = Footprints.joined([batch.routing_footprints for batch in batches])
    return Sample(footprints, _messages(decode_messages(messages, handle).good, job).for_routing)


def _messages(good: DataFrame, job: Job) -> MessageBatch:
    if good.columns == [PAYLOAD]:
        table = _opened(good, job)
    else:
        table = good.limit(ROWS).toArrow()
    table = table.filter(pa.array(~are(RETRACT, table)))
    return job.read_messages(table)


def _opened(good: DataFrame, job: Job) -> pa.Table:
    """Return the good messages of some blocks."""
    tables, n = [MESSAGES.empty_table()], 0
    for row in good.toLocalIterator():
        try:
            block = open_block(bytes(row[PAYLOAD]), job.config.attributes)
        except InvalidInput:
            continue
        tables.append(good_messages(block.slice(0, ROWS - n), job))
        n += len(tables[-1])
        if n >= ROWS:
            break
    return pa.concat_tables(tables, promote_options="permissive")
