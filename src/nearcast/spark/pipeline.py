"""The pipeline: four stages from DataFrame to DataFrame.

    messages ─┐                     ┌ shard 0 ┐
              ├ decode ─ dispatch ──┤   ...   ├─ merge ─ updates
    subs ─────┘     └─ rejected     └ shard n ┘

Streaming frames give streaming frames, whose queries are exactly-once with any sink that is. Static frames give
static ones: a backtest of history with the same code.
"""

from __future__ import annotations

from typing import NamedTuple, Unpack

from pyspark.sql import DataFrame

from nearcast.engine.config import EngineConfig, SharedOptions
from nearcast.errors import StateError
from nearcast.jobs.job import Job
from nearcast.partition import Routing
from nearcast.spark.broadcast import broadcast_job
from nearcast.spark.decode import decode_messages, decode_subscriptions
from nearcast.spark.dispatch import dispatch_messages, dispatch_subscriptions
from nearcast.spark.learn import fit_job
from nearcast.spark.merge import join, merge
from nearcast.spark.plugins import pack_plugins
from nearcast.spark.settings import BATCHES_PER_SNAPSHOT, LOCAL, check_session
from nearcast.spark.worker import work

CHECKPOINTS = "spark.sql.streaming.checkpointLocation"


class Matched(NamedTuple):
    """The frames that `match` returns."""

    updates: DataFrame
    """Changes of results; rows are ordered by `seq` only."""
    rejected: DataFrame
    """Rows that break a rule, with the reason."""
    packed: DataFrame
    """The updates in compact form: rows of `seq, updates, payload`, each a block for `unpack_updates`."""


def match(
    messages: DataFrame,
    subscriptions: DataFrame,
    *,
    partitioner: str | Routing = "hash",
    shards: int | None = None,
    state: str | None = None,
    sample: tuple[DataFrame, DataFrame] | None = None,
    **options: Unpack[SharedOptions],
) -> Matched:
    """Keep the result of every subscription exact while messages stream past, on Spark.

    The options are those of `nearcast.Engine`, without `workers`. Messages may come packed, with one column of bytes,
    `payload`, each a block from `pack_messages`. `shards` is the number of parallel parts, one task each; by default
    the session's number of shuffle partitions. `state` is a folder that all executors can write, for the state of
    streaming queries; by default it lies in the session's checkpoint folder. A partitioner that needs a sample is
    fitted to `sample`, static frames of messages and subscriptions; static frames are their own sample.
    """
    return match_config(
        messages,
        subscriptions,
        EngineConfig.of(options),
        partitioner=partitioner,
        shards=shards,
        state=state,
        sample=sample,
    )


def match_config(
    messages: DataFrame,
    subscriptions: DataFrame,
    config: EngineConfig,
    *,
    partitioner: str | Routing = "hash",
    shards: int | None = None,
    state: str | None = None,
    sample: tuple[DataFrame, DataFrame] | None = None,
) -> Matched:
    """Do what `match` does, with the options of the engine as one object."""
    spark = messages.sparkSession
    if shards is None:
        shards = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    check_session(spark, shards=shards)
    job = Job(
        config,
        partitioner if isinstance(partitioner, str) else "hash",
        shards,
        local=spark.conf.get(LOCAL, None),
        batches_per_snapshot=int(spark.conf.get(BATCHES_PER_SNAPSHOT, None) or Job.batches_per_snapshot),
        plugins=pack_plugins(),
    )
    folder = _state_folder(messages, state) if _are_streams(messages, subscriptions) else None
    broadcast = broadcast_job(spark, fit_job(job, partitioner, (messages, subscriptions), sample, folder))

    decoded_subscriptions = decode_subscriptions(subscriptions, broadcast)
    decoded_messages = decode_messages(messages, broadcast)
    frames = dispatch_subscriptions(decoded_subscriptions.good, broadcast).union(
        dispatch_messages(decoded_messages.good, broadcast)
    )
    updates, packed = (work(frames, broadcast, state=folder, is_packed=is_packed) for is_packed in (False, True))
    if broadcast.job.moves:
        updates, packed = join(updates, shards=shards), join(packed, shards=shards, is_packed=True)
    rejected = decoded_subscriptions.rejected.union(decoded_messages.rejected)
    return Matched(updates=merge(updates), rejected=rejected, packed=packed)


def _are_streams(messages: DataFrame, subscriptions: DataFrame) -> bool:
    """Return whether both sources are streams; raise `StateError` if only one is."""
    streams = {"messages": messages.isStreaming, "subscriptions": subscriptions.isStreaming}
    if len(set(streams.values())) > 1:
        raise StateError(
            f"messages and subscriptions must both be streams or both be static; isStreaming is {streams}"
        )
    return messages.isStreaming


def _state_folder(messages: DataFrame, state: str | None) -> str:
    checkpoints = messages.sparkSession.conf.get(CHECKPOINTS, None)
    if state is None and checkpoints is None:
        raise StateError(
            f"state must be a folder for streaming frames, unless the session has {CHECKPOINTS}; got neither"
        )
    return state if state is not None else f"{checkpoints}/nearcast-state"
