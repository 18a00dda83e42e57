"""What is the pipeline? Four stages, each a verb from DataFrame to DataFrame.

    messages ─┐                     ┌ shard 0 ┐
              ├ decode ─ dispatch ──┤   ...   ├─ merge ─ updates
    subs ─────┘     └─ rejected     └ shard n ┘

Streaming frames give streaming frames, whose queries are exactly-once with any sink that is; static frames give
static ones: a backtest of history by the same code.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame

from nearcast.errors import StateError
from nearcast.model import Limits
from nearcast.partition import Routing
from nearcast.social import SocialGraph
from nearcast.space import Space
from nearcast.spark.broadcast import send
from nearcast.spark.decode import decode_messages, decode_subscriptions
from nearcast.spark.dispatch import dispatch_messages, dispatch_subscriptions
from nearcast.spark.job import Job
from nearcast.spark.learn import routed
from nearcast.spark.merge import join, merge
from nearcast.spark.settings import FRAMES_PER_SNAPSHOT, LOCAL, check_session
from nearcast.spark.worker import work
from nearcast.text import Vocabulary
from nearcast.window import WindowPolicy

CHECKPOINTS = "spark.sql.streaming.checkpointLocation"


class Matched(NamedTuple):
    """What comes of messages and subscriptions."""

    updates: DataFrame
    """What changed in which subscription's result, in no order but that of `seq`."""
    rejected: DataFrame
    """Rows that broke a rule, and which."""
    packed: DataFrame
    """The updates again, for who wants many: rows of `seq, updates, payload`, each a block for `unpack_updates`."""


def match(
    messages: DataFrame,
    subscriptions: DataFrame,
    *,
    space: Space,
    vocabulary: Vocabulary | None = None,
    window: WindowPolicy | None = None,
    social: SocialGraph | None = None,
    text_similarity: str = "containment",
    partitioner: str | Routing = "hash",
    shards: int | None = None,
    limits: Limits | None = None,
    index: str = "auto",
    state: str | None = None,
    sample: tuple[DataFrame, DataFrame] | None = None,
) -> Matched:
    """Keep every subscription's answer exact while messages stream past, on Spark.

    Messages may come packed: with one column of bytes, `payload`, each a block that `pack_messages` made.
    Takes what `nearcast.Engine` takes. `shards` is the number of parts that the work is shared among, one task each;
    by default the session's number of shuffle partitions. `state` is a folder that all executors can write, for what
    the shards of streaming queries must not forget; by default it lies in the session's folder of checkpoints. A
    partitioner that has to learn learns from `sample`, static frames of messages and subscriptions; static frames
    learn from themselves.
    """
    spark = messages.sparkSession
    if shards is None:
        shards = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    check_session(spark, shards=shards)
    job = Job(
        space, vocabulary, window, social, text_similarity,
        partitioner if isinstance(partitioner, str) else "hash", shards, index, limits,
        local=spark.conf.get(LOCAL, None),
        frames_per_snapshot=int(spark.conf.get(FRAMES_PER_SNAPSHOT, None) or Job.frames_per_snapshot),
    )  # fmt: skip
    folder = _state_folder(messages, state) if _are_streams(messages, subscriptions) else None
    job = routed(job, partitioner, (messages, subscriptions), sample, folder)
    sent = send(spark, job)

    asked = decode_subscriptions(subscriptions, sent)
    said = decode_messages(messages, sent)
    frames = dispatch_subscriptions(asked.good, sent).union(dispatch_messages(said.good, sent))
    told, packed = (work(frames, sent, state=folder, is_packed=is_packed) for is_packed in (False, True))
    if job.moves:
        told, packed = join(told, shards=shards), join(packed, shards=shards, is_packed=True)
    return Matched(updates=merge(told), rejected=asked.rejected.union(said.rejected), packed=packed)


def _are_streams(messages: DataFrame, subscriptions: DataFrame) -> bool:
    """Tell whether the sources are streams: both, or neither."""
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
