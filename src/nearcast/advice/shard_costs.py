"""What shards cost beside matching: moving subscriptions between them, and merging the results of replicas.

    move      a subscription leaves one engine, travels as bytes, and enters another one
    merge     a change of a result is reported by a shard, travels as bytes, and is merged

Both are measured on a part of the stream, in processor time of this machine, and enter the estimates. Moving makes
sense where it evens out shards: `adjusting_of` says how much an adjustment would save, and how many subscriptions it
moves. Not measured: the look at subscriptions that stay, and windows that shards build again.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.advice.stream import Stream
from nearcast.engine import EngineConfig
from nearcast.engine.replica_log import ReplicaLog
from nearcast.engine.shard_engine import ShardEngine
from nearcast.engine.transfer import Placement, Rerouting, pack_transfer, unpack_transfer
from nearcast.jobs.frame import Frame
from nearcast.jobs.merge_partition import MergePartition
from nearcast.jobs.replica_frames import CHANGES, REPLICAS, ReplicaChanges
from nearcast.model import SubscriptionBatch, find_kind
from nearcast.partition import Masks, Partitioner, Sample
from nearcast.partition.balance.adjust import adjust
from nearcast.partition.balance.cells import Period, has_cells
from nearcast.partition.balance.policy import Balance
from nearcast.partition.balance.refit import shard_loads
from nearcast.partition.estimate import MergeCost
from nearcast.partition.masks import all_shards, mask_of

Longs = npt.NDArray[np.int64]

_SUBSCRIPTIONS, _BATCH, _BATCHES = 5_000, 500, 6
_LEAST_US = 1e-3


class ShardCosts(NamedTuple):
    """Measured costs."""

    move_us: float
    """Microseconds for a subscription that moves, in both shards together."""
    merging: MergeCost | None
    """None if no kind has results that are stored."""


class Adjusting(NamedTuple):
    """What a load adjustment does to a routing."""

    busiest: float
    """The load of the busiest shard afterwards, as a part of what it was; at most 1."""
    moved: float
    """Subscriptions that move, per message between two adjustments."""

    def cost_us(self, busiest_us: float, *, merging_us: float = 0.0, move_us: float) -> float:
        """Return microseconds per message of the busiest shard with adjustments, given those without.

        What it does to merge results stays as it is.

        >>> Adjusting(busiest=0.5, moved=0.1).cost_us(8.0, merging_us=2.0, move_us=20.0)
        7.0
        """
        return (busiest_us - merging_us) * self.busiest + merging_us + self.moved * move_us


def adjusting_of(
    partitioner: Partitioner, sample: Sample, *, n_shards: int, in_threads: bool, balance: Balance
) -> Adjusting | None:
    """Fit to the earlier half of the messages, and adjust to the later one; None where there is nothing to adjust.

    Threads share the subscriptions of a routing that sends every message to all of them.
    """
    footprints, messages = sample
    half = len(messages) // 2
    if not half or not len(footprints) or n_shards == 1:
        return None
    routing = partitioner.fit(Sample(footprints, messages.slice(0, half)), n_shards=n_shards).fixed()
    if not has_cells(routing) or (in_threads and routing.sends_all):
        return None
    later = messages.slice(half, len(messages))
    period = Period.of(later, footprints, counts_pairs=balance.load == "pairs")
    made = adjust(routing, period, sigma=balance.sigma, selection=balance.selection, most_moved=balance.most_moved)
    if made is None:
        return None
    before, after = (float(shard_loads(one, period).max()) for one in (routing, made.routing))
    return Adjusting(min(1.0, after / max(before, 1e-300)), made.adjustment.moved_subscriptions / len(later))


def measure_shard_costs(stream: Stream) -> ShardCosts:
    """Move and merge a part of a stream."""
    some = stream.thinned(_SUBSCRIPTIONS, stream.messages.num_rows)
    is_stored = any(find_kind(name).result_policy.is_stateful for name in some.kinds)
    share = some.subscriptions.num_rows / stream.subscriptions.num_rows
    return ShardCosts(_measure_moving(some), _measure_merging(some, share) if is_stored else None)


def _measure_moving(stream: Stream) -> float:
    """Return microseconds per subscription that moves."""
    config = EngineConfig(**stream.engine_options)
    engines = [ShardEngine.create(config) for _ in range(2)]
    n = stream.subscriptions.num_rows
    engines[0].subscribe(stream.subscriptions)
    started = time.process_time()
    placements = [_all_in(shard) for shard in (0, 1)]
    packed = [
        pack_transfer(state, has_graph=False)
        for _, state in engines[0].transfers(Rerouting(0, placements[0], placements[1]))
    ]
    for shard, engine in enumerate(engines):
        arriving = [unpack_transfer(data, config) for data in packed] if shard else []
        engine.reroute(shard, placements[1], arriving)
    seconds = time.process_time() - started
    for engine in engines:
        engine.close()
    return float(max(_LEAST_US, 1e6 * seconds / max(1, n)))


def _all_in(shard: int) -> Placement:
    """Return a placement of all subscriptions in one of two shards."""

    def place(batch: SubscriptionBatch, _: Longs) -> Masks:
        return mask_of(np.full(len(batch), shard), 2)

    return Placement(2, True, place, lambda messages: all_shards(len(messages), 2))


def _measure_merging(stream: Stream, share: float) -> MergeCost:
    """Return what a change of a replica costs, and how many changes a message makes, given a share of a stream."""
    config = EngineConfig(**stream.engine_options)
    engine, partition, log = ShardEngine.create(config), MergePartition.create(config), ReplicaLog()
    n = stream.messages.num_rows
    n_filling = max(0, n - _BATCHES * _BATCH)
    seconds, n_changes, n_messages = 0.0, 0, 0
    engine.publish(stream.messages.slice(0, n_filling))
    engine.subscribe(stream.subscriptions)
    engine.replica_log = log
    engine.log_replicas()
    _merge(log, partition, REPLICAS)
    for start in range(n_filling, n, _BATCH):
        batch = stream.messages.slice(start, _BATCH)
        engine.publish(batch)
        started = time.process_time()
        n_merged = _merge(log, partition, CHANGES)
        if start > n_filling or n - n_filling <= _BATCH:  # the first one often compiles
            seconds += time.process_time() - started
            n_changes, n_messages = n_changes + n_merged, n_messages + batch.num_rows
    engine.close()
    return MergeCost(
        max(_LEAST_US, 1e6 * seconds / max(1, n_changes)), n_changes / max(1, n_messages) / max(share, 1e-9)
    )


def _merge(log: ReplicaLog, partition: MergePartition, source: str) -> int:
    """Pass what a log has taken to a partition, and return the number of changes."""
    rows, messages = log.take()
    if not rows:
        return 0
    changes = ReplicaChanges.of(rows, messages)
    for _ in partition.apply([Frame(source, 0, 0, len(changes.rows), None, changes.packed())]):
        pass
    return len(changes.rows)
