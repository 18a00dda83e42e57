"""The pipeline: four stages from DataFrame to DataFrame.

    messages ─┐                     ┌ shard 0 ┐
              ├ decode ─ dispatch ──┤   ...   ├─ merge ─ updates
    subs ─────┤     └─ rejected     └ shard n ┘
    edges ────┘

Streaming frames give streaming frames, whose queries are exactly-once with any sink that is. Static frames give
static ones: a backtest of history with the same code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Unpack

from pyspark.sql import DataFrame

from nearcast.engine.clock import ClockName
from nearcast.engine.config import EngineConfig, SharedOptions
from nearcast.errors import StateError
from nearcast.jobs.balancer import Balancer, Decision, check_balance
from nearcast.jobs.epochs import EpochLog
from nearcast.jobs.job import Job
from nearcast.jobs.rejections import rejections_folder
from nearcast.partition import Routing
from nearcast.partition.balance.policy import Balance
from nearcast.spark.clock_source import read_clock
from nearcast.spark.decode import REJECTED, decode_edges, decode_messages, decode_subscriptions, payload_of
from nearcast.spark.dispatch import dispatch_clock, dispatch_edges, dispatch_messages, dispatch_subscriptions
from nearcast.spark.job_handle import send_job
from nearcast.spark.learn import fit_job, rescale_job
from nearcast.spark.merge import join, merge
from nearcast.spark.plugins import pack_plugins
from nearcast.spark.settings import BATCHES_PER_SNAPSHOT, LOCAL, check_session, choose_file_manager
from nearcast.spark.static_subscriptions import StaticSubscriptions
from nearcast.spark.worker import merge_replicas, reject_operations, work

CHECKPOINTS = "spark.sql.streaming.checkpointLocation"


class Matched(NamedTuple):
    """The frames that `match` returns."""

    updates: DataFrame
    """Changes of results; rows are ordered by `seq` only."""
    rejected: DataFrame
    """Rows that break a rule, with the reason."""
    packed: DataFrame
    """The updates in compact form: rows of `seq, updates, payload`, each a block for `unpack_updates`."""
    static: StaticSubscriptions | None = None
    """Subscriptions that are a static frame beside a stream of messages."""

    job: Job | None = None
    """The job as it was started."""

    balancer: Balancer | None = None
    """What adjusts the routing, if the job has a balance."""

    def rescale(self, shards: int, *, sample: tuple[DataFrame, DataFrame] | None = None) -> None:
        """Continue with another number of shards while the queries run; no update depends on it.

        It takes effect within a few batches: at the end of one, subscriptions that move are written, and with the
        next one they are where they belong. A partitioner that learns is fitted to `sample`, static frames of
        messages and subscriptions.
        """
        if self.job is None or self.job.state is None:
            raise StateError("only streams can be rescaled while they run; these frames are static")
        rescale_job(self.job, shards, sample)

    def adjust(self) -> Decision | None:
        """Adjust the routing to the newest batch that shards have measured; None if nothing is to be changed.

        Call it now and then while the queries of a job with `balance` run, as `nearcast run` does. An adjustment
        takes effect as another number of shards does, and no update depends on it.
        """
        if self.balancer is None:
            raise StateError("only streams with balance can be adjusted; start them with balance=True or a Balance")
        return self.balancer.look()

    def refresh(self, subscriptions: DataFrame) -> int:
        """Read static subscriptions again while the queries run; return the number of rows that changed.

        New and changed rows subscribe, and ids that are missing are unsubscribed. Spark lists the files of a frame
        when it is created, so give a new frame.
        """
        if self.static is None:
            raise StateError("subscriptions must be a static frame beside a stream of messages to be read again")
        return self.static.refresh(subscriptions)


def match(
    messages: DataFrame,
    subscriptions: DataFrame,
    *,
    partitioner: str | Routing = "hash",
    shards: int | None = None,
    threads: int = 1,
    max_shards: int | None = None,
    state: str | None = None,
    sample: tuple[DataFrame, DataFrame] | None = None,
    edges: DataFrame | None = None,
    clock: ClockName = "event",
    max_ahead: float | None = None,
    balance: Balance | bool | None = None,
    **options: Unpack[SharedOptions],
) -> Matched:
    """Keep the result of every subscription exact while messages stream past, on Spark.

    The options are those of `nearcast.Engine`, without `workers`. Messages may come packed, with one column of bytes,
    `payload`, each a block from `pack_messages`. `shards` is the number of parallel parts; by default the session's
    number of shuffle partitions, which is the number of tasks that shards are divided among. A stream may continue
    with another number of shards, also while it runs (`Matched.rescale`); its number of tasks, `max_shards`, by
    default that of its first shards, stays as it is. The `threads` of a shard share its window and its indexes: with
    one shard per host and as many threads as cores, each host has one window. `state` is a folder that all executors
    can write, for the state of streaming queries; by default it lies in the session's checkpoint folder. A
    partitioner that needs a sample is fitted to `sample`, static frames of messages and subscriptions; static frames
    are their own sample.

    Static subscriptions beside a stream of messages are read when this is called, and again by `Matched.refresh`.
    `edges` adds edges of the social graph and removes them, with the columns `op, user, place` and optionally `at`.
    With `bodies=True`, updates have the column `body`, that of a message that enters a result. Messages have a column
    for each of `attributes`, null where it is missing; a column of a type that cannot hold the attribute is refused
    here, and a bad value rejects its row. Subscriptions may have the columns of filters: `where`, `require`, and
    `region` (GeoJSON, WKT, WKB or a geometry) or `radius`.

    With `clock="wall"`, for streams, only the clock of the query moves `now`: messages expire without traffic, and
    those more than `max_ahead` seconds ahead of it, by default 300, are rejected. With `"event"`, messages move it.

    With `balance`, shards of a stream measure their load now and then, and `Matched.adjust` moves cells of the
    routing from the busiest to the idlest one; the partitioner must divide space into cells.
    """
    return match_config(
        messages,
        subscriptions,
        EngineConfig.of(options),
        partitioner=partitioner,
        shards=shards,
        threads=threads,
        max_shards=max_shards,
        state=state,
        sample=sample,
        edges=edges,
        clock=clock,
        max_ahead=max_ahead,
        balance=balance,
    )


def match_config(
    messages: DataFrame,
    subscriptions: DataFrame,
    config: EngineConfig,
    *,
    partitioner: str | Routing = "hash",
    shards: int | None = None,
    threads: int = 1,
    max_shards: int | None = None,
    state: str | None = None,
    sample: tuple[DataFrame, DataFrame] | None = None,
    edges: DataFrame | None = None,
    clock: ClockName = "event",
    max_ahead: float | None = None,
    balance: Balance | bool | None = None,
) -> Matched:
    """Do what `match` does, with the options of the engine as one object."""
    spark = messages.sparkSession
    static = None
    if messages.isStreaming and not subscriptions.isStreaming:
        static = StaticSubscriptions(subscriptions, _state_folder(messages, state))
        subscriptions = static.stream()
    frames_given = {"messages": messages, "subscriptions": subscriptions, "edges": edges}
    folder = _state_folder(messages, state) if _are_streams(frames_given) else None
    if folder is not None:
        choose_file_manager(spark, folder)
    begun = None if folder is None else EpochLog(folder).newest()
    if shards is None:
        in_session = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
        shards = in_session if begun is None else begun.requested
    tasks = (max_shards or shards) if begun is None else begun.tasks
    if max_shards is not None and max_shards != tasks:
        rule = f"max_shards must be {tasks}, as when the query was first started"
        raise StateError(f"{rule}; got {max_shards} (state in {folder})")
    check_session(spark, shards=tasks if begun is None else None)
    job = Job(
        config,
        partitioner if isinstance(partitioner, str) else "hash",
        shards,
        threads=threads,
        tasks=tasks,
        state=folder,
        local=spark.conf.get(LOCAL, None),
        batches_per_snapshot=int(spark.conf.get(BATCHES_PER_SNAPSHOT, None) or Job.batches_per_snapshot),
        plugins=pack_plugins(),
        clock=clock,
        max_ahead_s=max_ahead,
        has_edges=edges is not None,
        may_withdraw=payload_of(messages) is not None or bool({"op", "expires_at"} & set(messages.columns)),
        balance=Balance.of(balance),
    )
    if job.is_clocked and folder is None:
        raise StateError("clock must be 'event' for static frames: only a stream has a present time; got 'wall'")
    job = fit_job(job, partitioner, (messages, subscriptions), sample)
    check_balance(job)
    handle = send_job(spark, job)

    decoded_subscriptions = decode_subscriptions(subscriptions, handle)
    decoded_messages = decode_messages(messages, handle)
    frames = dispatch_subscriptions(decoded_subscriptions.good, handle)
    rejected = decoded_subscriptions.rejected.union(decoded_messages.rejected)
    if edges is not None:
        decoded_edges = decode_edges(edges, handle)
        frames = frames.union(dispatch_edges(decoded_edges.good, handle))
        rejected = rejected.union(decoded_edges.rejected)
    operations = frames
    frames = frames.union(dispatch_messages(decoded_messages.good, handle))
    have_ends = "expires_at" in subscriptions.columns
    if folder is None and (edges is not None or have_ends):  # only ends depend on the times of messages
        rejected = rejected.union(reject_operations(frames if have_ends else operations, handle))
    if handle.job.is_clocked:
        frames = frames.union(dispatch_clock(read_clock(spark), handle))
    if folder is not None and (handle.job.is_clocked or handle.job.has_edges or have_ends):
        rejected = rejected.union(spark.readStream.schema(REJECTED).json(rejections_folder(folder)))
    updates, packed = (work(frames, handle, is_packed=is_packed) for is_packed in (False, True))
    if handle.job.merges:
        updates, packed = (
            merge_replicas(reported, handle, is_packed=is_packed)
            for reported, is_packed in ((updates, False), (packed, True))
        )
    elif handle.job.moves:
        updates, packed = join(updates, tasks=tasks), join(packed, tasks=tasks, is_packed=True)
    balancer = None if job.balance is None or folder is None else Balancer(job, job.balance)
    return Matched(merge(updates), rejected, packed, static, job, balancer)


def _are_streams(frames: Mapping[str, DataFrame | None]) -> bool:
    """Return whether all sources are streams; raise `StateError` if only some are."""
    streams = {name: frame.isStreaming for name, frame in frames.items() if frame is not None}
    if len(set(streams.values())) > 1:
        raise StateError(f"{' and '.join(streams)} must all be streams or all be static; isStreaming is {streams}")
    return streams["messages"]


def _state_folder(messages: DataFrame, state: str | None) -> str:
    checkpoints = messages.sparkSession.conf.get(CHECKPOINTS, None)
    if state is None and checkpoints is None:
        raise StateError(
            f"state must be a folder for streaming frames, unless the session has {CHECKPOINTS}; got neither"
        )
    return state if state is not None else f"{checkpoints}/nearcast-state"
