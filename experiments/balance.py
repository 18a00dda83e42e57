"""Question: what does local load adjustment cost and gain?

selections  what the four selections of cells cost and how long they take, on ten thousand cells of a grid
drift       eight shards, one after the other, on a stream that drifts, with and without adjustments
churn       twenty shards of `dkm` while subscriptions come and go: later ones by key, or to the least loaded shard
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from experiments.question import Question, Row, report_progress, scaled
from nearcast.advice import Stream
from nearcast.engine import EngineConfig
from nearcast.engine.shard_engine import ShardEngine
from nearcast.engine.stream_slice import StreamSlice
from nearcast.engine.transfer import Placement, Rerouting, pack_transfer, unpack_transfer
from nearcast.model import Footprints, MessageBatch
from nearcast.partition import PARTITIONERS, Masks, Routing, Sample, before_it, has_shard
from nearcast.partition.balance.adjust import adjust
from nearcast.partition.balance.cells import Period, sizes_of
from nearcast.partition.balance.selection import SELECTIONS
from nearcast.partition.dkm import DkmPartitioner, DkmRouting
from nearcast.partition.load import CHECK, HANDLE
from nearcast.partition.serialization import pack, unpack
from nearcast.partition.term_frequencies import TermFrequencies
from nearcast.partition.transition import place_added
from nearcast.social import SocialGraph
from nearcast.space import Box
from nearcast.workload import make

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]

CELLS = 100
"""Cells of the grid along each axis."""
MESSAGES, SUBSCRIPTIONS = 500_000, 500_000
TAUS = (0.05, 0.1, 0.25)
"""The loads to move, as shares of the load of all cells."""
_REPEATS = 5

SHARDS = 8
HELD, BATCH, BATCHES = 1_000_000, 50_000, 14
"""Subscriptions, messages of a batch, and batches."""
STRIDE = BATCH
"""From the first message of a batch to that of the next, at any scale: the more, the farther hot spots have gone."""
LOADS = (None, "products", "pairs")
"""No adjustments, adjustments by messages times subscriptions, and by the pairs that an index compares."""
CHURN_SUBSCRIPTIONS, CHURN_MESSAGES = (20_000, 200_000), 100_000
CHURN_SHARDS, CHURN, CHURN_ROUNDS = 20, 0.3, 10
"""Shards, the share of subscriptions that is replaced in all, and in how many rounds."""
PLACEMENTS = ("by key", "loads only grow", "least loaded")
"""Where later subscriptions go: by key, or to the least loaded shard, whose load falls or not when others leave."""
LEAVING = ("any", "the westernmost")
_KNOWN = 100_000  # subscriptions that the decisions are based on, at most


# -- selections ---------------------------------------------------------------------------------------------------


def measure_selections(scale: float) -> list[Row]:
    """Select cells of a worker that holds all of a grid."""
    stream = _stream(scaled(SUBSCRIPTIONS, scale), [range(scaled(MESSAGES, scale))])
    loads, sizes = _grid(stream)
    rows = []
    for share in TAUS:
        tau = share * float(loads.sum())
        for name, select in SELECTIONS.items():
            report_progress(f"selecting {share:.0%} by {name}")
            chosen = select(loads, sizes=sizes, tau=tau)  # compiles
            seconds = []
            for _ in range(1 if name == "dp" else _REPEATS):
                started = time.process_time()
                chosen = select(loads, sizes=sizes, tau=tau)
                seconds.append(time.process_time() - started)
            rows.append(
                {
                    "selection": name,
                    "cells": len(loads),
                    "share": share,
                    "bytes": int(sizes[chosen].sum()),
                    "chosen": len(chosen),
                    "moved_share": float(loads[chosen].sum() / loads.sum()),
                    "seconds": float(np.median(seconds)),
                }
            )
    return rows


def _grid(stream: Stream) -> tuple[Floats, Longs]:
    """Return the load and the bytes of each cell of a grid over the space of a stream."""
    bounds, (footprints, messages) = stream.space.bounds, stream.sample
    xs, ys = _cells(messages.xs, messages.ys, bounds)
    seen = np.bincount(ys * CELLS + xs, minlength=CELLS * CELLS)
    corners = [_cells(footprints.boxes[:, i], footprints.boxes[:, i + 1], bounds) for i in (0, 2)]
    sizes = _covered(corners[0], corners[1], sizes_of(footprints))
    loads = (seen * (CHECK * len(footprints) + HANDLE)).astype(np.float64)
    return loads, sizes


def _cells(xs: Floats, ys: Floats, bounds: Box) -> tuple[Longs, Longs]:
    """Return the column and row of points."""
    columns = (xs - bounds.xmin) / (bounds.xmax - bounds.xmin) * CELLS
    rows = (ys - bounds.ymin) / (bounds.ymax - bounds.ymin) * CELLS
    return tuple(np.clip(at, 0, CELLS - 1).astype(np.int64) for at in (columns, rows))  # type: ignore[return-value]


def _covered(lows: tuple[Longs, Longs], highs: tuple[Longs, Longs], by: Longs) -> Longs:
    """Return, for each cell, the sum of the weights of the rectangles of cells that cover it."""
    steps = np.zeros((CELLS + 1, CELLS + 1), np.int64)
    for ys, xs, sign in (
        (lows[1], lows[0], 1),
        (lows[1], highs[0] + 1, -1),
        (highs[1] + 1, lows[0], -1),
        (highs[1] + 1, highs[0] + 1, 1),
    ):
        np.add.at(steps, (ys, xs), sign * by)
    covered: Longs = np.cumsum(np.cumsum(steps, axis=0), axis=1)[:CELLS, :CELLS].ravel()
    return covered


# -- drift --------------------------------------------------------------------------------------------------------


class _Shards:
    """The shards of a job, which run one after the other in this process."""

    def __init__(self, stream: Stream, routing: Routing) -> None:
        self.config, self.routing = EngineConfig(**stream.engine_options), routing
        self.engines = [ShardEngine.create(self.config) for _ in range(routing.n_shards)]
        placed = routing.place(stream.sample.footprints)
        for shard, engine in enumerate(self.engines):
            rows = np.flatnonzero(has_shard(placed, shard))
            engine.subscribe_replicas(stream.subscriptions.take(rows), before_it(placed[rows], shard))

    def publish(self, batch: MessageBatch) -> list[float]:
        """Publish a batch, and return the processor time of each shard."""
        to, seconds = self.routing.route(batch), []
        for shard, engine in enumerate(self.engines):
            mine = np.flatnonzero(has_shard(to, shard))
            own, stream_slice = batch.take(mine), StreamSlice(mine, batch.ats_us, to[mine])
            started = time.process_time()
            engine.publish_slice(own, stream_slice, grouped=True)
            seconds.append(time.process_time() - started)
        return seconds

    def reroute(self, routing: Routing) -> None:
        """Continue with another routing: what moves goes from shard to shard as transfers."""
        before, after = _placement(self.routing), _placement(routing)
        arriving: list[list[bytes]] = [[] for _ in self.engines]
        for shard, engine in enumerate(self.engines):
            for to, state in engine.transfers(Rerouting(shard, before, after)):
                arriving[to].append(pack_transfer(state, has_graph=False))
        for shard, (engine, packed) in enumerate(zip(self.engines, arriving, strict=True)):
            engine.reroute(shard, after, [unpack_transfer(data, self.config) for data in packed])
        self.routing = routing

    @property
    def updates(self) -> int:
        """The number of updates so far."""
        return sum(engine.stats().updates for engine in self.engines)

    def close(self) -> None:
        """Close all engines."""
        for engine in self.engines:
            engine.close()


def measure_drift(scale: float) -> list[Row]:
    """Publish the same batches to shards whose routing stays, or is adjusted by one of two measures of load."""
    n_batch = scaled(BATCH, scale)
    starts = [range(number * STRIDE, number * STRIDE + n_batch) for number in range(BATCHES)]
    stream = _stream(scaled(HELD, scale), starts)
    (partitioner,) = (one for one in PARTITIONERS if one.name == "hybrid")
    footprints, messages = stream.sample
    first = partitioner.fit(Sample(footprints, messages.slice(0, n_batch)), n_shards=SHARDS).fixed()
    return [row for load in LOADS for row in _run(stream, first, n_batch=n_batch, load=load)]


def _run(stream: Stream, routing: Routing, *, n_batch: int, load: str | None) -> Iterator[Row]:
    footprints, messages = stream.sample
    weight = -(-len(footprints) // _KNOWN)
    known = footprints.take(np.arange(0, len(footprints), weight))
    shards = _Shards(stream, routing)
    shards.publish(messages.slice(0, n_batch))  # compiles, and warms caches
    for number in range(BATCHES):
        report_progress(f"batch {number + 1} of {BATCHES}, adjusted by: {load}")
        batch, before = messages.slice(number * n_batch, (number + 1) * n_batch), shards.updates
        seconds = shards.publish(batch)
        row: dict[str, Any] = {
            "load": load,
            "batch": number,
            "messages": n_batch,
            "subscriptions": len(footprints),
            "shards": SHARDS,
            "seconds": [round(one, 5) for one in seconds],
            "busiest_per_second": n_batch / max(seconds),
            "updates": shards.updates - before,
            "decide_s": 0.0,
            "move_s": 0.0,
            "moved": 0,
            "moved_bytes": 0,
        }
        if load is not None:
            started = time.process_time()
            made = adjust(shards.routing, Period.of(batch, known, weight=weight, counts_pairs=load == "pairs"))
            row["decide_s"] = time.process_time() - started
            if made is not None:
                started = time.process_time()
                shards.reroute(made.routing)
                row["move_s"] = time.process_time() - started
                loads = made.adjustment.loads_before, made.adjustment.loads_after
                row |= {
                    "moved": made.adjustment.moved_subscriptions,
                    "moved_bytes": made.adjustment.moved_bytes,
                    "steps": len(made.adjustment.steps),
                    "loads": [[round(one) for one in some] for some in loads],
                }
        yield row
    shards.close()


def _placement(routing: Routing) -> Placement:
    return Placement(
        routing.n_shards, False, lambda batch, sinces: place_added(routing, batch.footprints, sinces), routing.route
    )


def _stream(n_subscriptions: int, parts: list[range]) -> Stream:
    """Return subscriptions and some parts of the messages of the workload that drifts."""
    workload = make("drift")
    return Stream(
        workload.name,
        workload.space(),
        workload.vocabulary(),
        SocialGraph(),
        None,
        pa.concat_tables(workload.subscriptions("boolean", n_subscriptions, queries="q3")).combine_chunks(),
        pa.concat_tables(
            [table for part in parts for table in workload.messages(len(part), start=part.start)]
        ).combine_chunks(),
    )


# -- subscriptions that come and go ----------------------------------------------------------------------------------


def measure_churn(scale: float) -> list[Row]:
    """Replace a part of the subscriptions, round by round, and look at the loads of shards."""
    return [row for n in CHURN_SUBSCRIPTIONS for row in _churn_of(scaled(n, scale), scaled(CHURN_MESSAGES, scale))]


def _churn_of(n: int, n_messages: int) -> Iterator[Row]:
    workload = make("tweets")
    stream = Stream(
        workload.name,
        workload.space(),
        workload.vocabulary(),
        SocialGraph(),
        None,
        pa.concat_tables(workload.subscriptions("nearest", n + round(n * CHURN))).combine_chunks(),
        pa.concat_tables(workload.messages(n_messages)).combine_chunks(),
    )
    footprints, messages = stream.sample
    fitted_to, seen = messages.slice(0, len(messages) // 2), messages.slice(len(messages) // 2, len(messages))
    first = DkmPartitioner().fit(Sample(footprints.take(np.arange(n)), fitted_to), n_shards=CHURN_SHARDS)
    packed, pairs = pack(first), TermFrequencies.of(seen).costs(footprints)
    for leaving in LEAVING:
        for placement in PLACEMENTS:
            report_progress(f"churn, {leaving} leave: {placement}")
            routing = cast(DkmRouting, unpack(packed))
            yield from _churn(routing, footprints, pairs, n=n, leaving=leaving, placement=placement)


def _churn(
    routing: DkmRouting, footprints: Footprints, pairs: Floats, *, n: int, leaving: str, placement: str
) -> Iterator[Row]:
    """Yield the loads of shards before and after each round, in which as many subscriptions leave as come."""
    rng = np.random.default_rng(7)
    routing = routing.fixed() if placement == "by key" else routing
    shards, costs = np.full(len(footprints), -1), np.zeros(len(footprints))
    order = np.arange(n)
    at = routing.assignment.costs[np.searchsorted(routing.assignment.keys, footprints.keys[:n])]
    costs[:n], costs[n:] = at, routing.costs(footprints.take(np.arange(n, len(footprints))))
    shards[:n] = _shards_of(routing.place(footprints.take(order)))
    order = np.argsort(footprints.xs[:n], kind="stable") if leaving == "the westernmost" else rng.permutation(n)
    step = round(n * CHURN / CHURN_ROUNDS)
    for number in range(CHURN_ROUNDS + 1):
        if number:
            going = order[(number - 1) * step : number * step]
            coming = np.arange(n + (number - 1) * step, min(n + number * step, len(footprints)))
            for shard in range(CHURN_SHARDS if placement == "least loaded" else 0):
                routing.release(footprints.take(going[shards[going] == shard]), shard)
            shards[going] = -1
            shards[coming] = _shards_of(routing.place(footprints.take(coming)))
        here = np.flatnonzero(shards >= 0)
        by_cost, by_pairs = (
            np.bincount(shards[here], weights=each[here], minlength=CHURN_SHARDS) for each in (costs, pairs)
        )
        yield {
            "placement": placement,
            "leaving": leaving,
            "replaced": number * step / n,
            "subscriptions": len(here),
            "shards": CHURN_SHARDS,
            "over_mean": float(by_cost.max() / by_cost.mean()),
            "pairs_over_mean": float(by_pairs.max() / by_pairs.mean()),
        }


def _shards_of(masks: Masks) -> Longs:
    """Return the shard of each subscription, which has one."""
    shards: Longs = np.argmax([has_shard(masks, shard) for shard in range(CHURN_SHARDS)], axis=0)
    return shards


QUESTION = Question(
    "balance",
    "What does local load adjustment cost and gain?",
    {"selections": measure_selections, "drift": measure_drift, "churn": measure_churn},
    minutes=5,
)
