"""Question: what does load adjustment cost and gain?

selections  what the four selections of cells cost and how long they take, on ten thousand cells of a grid
drift       eight shards, one after the other, on a stream that drifts, with and without adjustments
global      eight shards while subscriptions of one mix make way for those of another: the routing stays, or a fresh
            one takes over
churn       twenty shards of `dkm` while subscriptions come and go: later ones by key, or to the least loaded shard
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
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
from nearcast.partition import PARTITIONERS, Masks, Partitioner, Routing, Sample, before_it, has_shard
from nearcast.partition.balance.adjust import adjust
from nearcast.partition.balance.cells import Period, has_cells, sizes_of
from nearcast.partition.balance.changed_area import changed_area
from nearcast.partition.balance.policy import Balance
from nearcast.partition.balance.refit import decide, shard_loads
from nearcast.partition.balance.selection import SELECTIONS
from nearcast.partition.dkm import DkmPartitioner, DkmRouting
from nearcast.partition.load import CHECK, HANDLE
from nearcast.partition.serialization import pack, unpack
from nearcast.partition.term_frequencies import TermFrequencies
from nearcast.partition.transition import TransitionRouting, are_old, may_move, place_added
from nearcast.social import SocialGraph
from nearcast.space import Box
from nearcast.workload import Workload, make

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
WIDE = "wide to q1"
CHANGES = {"q1 to q3": ("q1", "q3"), WIDE: ("q2", "q1")}
"""What changes: the mix of queries before and after. Wide ones cover a large part of space, so that `hybrid` divides
terms; those of q1 are small, so that it would divide space."""
WIDE_SHARE = 0.4
"""The width and height of the box of a wide query, as shares of those of space."""
CHANGE_HELD, CHANGE_BATCH, CHANGE_BATCHES = 30_000, 15_000, 44
"""Subscriptions, messages of a batch, and batches."""
CHANGE_STEADY, CHANGE_STEPS, CHANGE_LAST = 3, 15, 8
"""Batches before the change, batches in which all subscriptions are replaced once, and those compared at the end."""
CHANGE_RETIRE = 0.02
"""An old routing retires when this share of the subscriptions is left of it."""
CHANGE_MOVED = 0.01
"""The share of the subscriptions that moves in one adjustment, at most."""
ROUTINGS = ("stays", "local", "global", "fresh")
"""What happens to the routing: nothing, moves of cells, or fresh ones too; and one fitted to the last batch."""
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

    def __init__(self, stream: Stream, routing: Routing, stored: Longs | None = None) -> None:
        """Create shards with some of the subscriptions of a stream, or with all."""
        self.config, self.routing = EngineConfig(**stream.engine_options), routing
        self.engines = [ShardEngine.create(self.config) for _ in range(routing.n_shards)]
        everything = np.arange(len(stream.sample.footprints))
        self.exchange(stream, everything[:0], everything if stored is None else stored)

    def exchange(self, stream: Stream, going: Longs, coming: Longs) -> list[float]:
        """Remove some subscriptions of a stream and add others; return the processor time of each shard."""
        placed, seconds = self.routing.place(stream.sample.footprints.take(coming)), []
        ids = stream.subscriptions.select(["id"]).take(going)
        for shard, engine in enumerate(self.engines):
            rows = np.flatnonzero(has_shard(placed, shard))
            own, before = stream.subscriptions.take(coming[rows]), before_it(placed[rows], shard)
            started = time.process_time()
            engine.release(ids)
            engine.subscribe_replicas(own, before)
            seconds.append(time.process_time() - started)
        return seconds

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

    def reroute(self, routing: Routing) -> list[float]:
        """Continue with another routing, and return the processor time of each shard.

        What moves goes from shard to shard as transfers.
        """
        before, after = _placement(self.routing), _placement(routing, before=self.routing)
        arriving: list[list[bytes]] = [[] for _ in self.engines]
        seconds = [0.0] * len(self.engines)
        for shard, engine in enumerate(self.engines):
            started = time.process_time()
            for to, state in engine.transfers(Rerouting(shard, before, after)):
                arriving[to].append(pack_transfer(state, has_graph=False))
            seconds[shard] += time.process_time() - started
        for shard, (engine, packed) in enumerate(zip(self.engines, arriving, strict=True)):
            started = time.process_time()
            engine.reroute(shard, after, [unpack_transfer(data, self.config) for data in packed])
            seconds[shard] += time.process_time() - started
        self.routing = routing
        return seconds

    @property
    def seq(self) -> int:
        """The number of messages so far."""
        return self.engines[0].seq

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


def _placement(routing: Routing, *, before: Routing | None = None) -> Placement:
    """Return where a routing places subscriptions, given the one before it if a transition begins or ends."""
    moves = None
    if isinstance(routing, TransitionRouting):
        moves = may_move(begins=True, since=routing.since)
    elif isinstance(before, TransitionRouting):
        moves = may_move(begins=False, since=before.since)
    return Placement(
        routing.n_shards,
        routing.sends_all,
        lambda batch, sinces: place_added(routing, batch.footprints, sinces),
        routing.route,
        may_move=moves,
        changed=None if before is None else changed_area(before, routing),
    )


def _stream(n_subscriptions: int, parts: list[range]) -> Stream:
    """Return subscriptions and some parts of the messages of the workload that drifts."""
    workload = make("drift")
    return _boolean_stream(
        workload,
        pa.concat_tables(workload.subscriptions("boolean", n_subscriptions, queries="q3")),
        pa.concat_tables([table for part in parts for table in workload.messages(len(part), start=part.start)]),
    )


def _boolean_stream(workload: Workload, subscriptions: pa.Table, messages: pa.Table) -> Stream:
    return Stream(
        workload.name,
        workload.space(),
        workload.vocabulary(),
        SocialGraph(),
        None,
        subscriptions.combine_chunks(),
        messages.combine_chunks(),
    )


# -- another stream ------------------------------------------------------------------------------------------------


class _Change:
    """A stream whose subscriptions come and go; from some batch on those that come are of another mix."""

    def __init__(self, what: str, n: int, n_batch: int) -> None:
        self.what, self.n, self._n_batch = what, n, n_batch
        self._step, n_before = -(-n // CHANGE_STEPS), n + CHANGE_STEADY * -(-n // CHANGE_STEPS)
        workload = make("tweets")
        tables = [
            pa.concat_tables(workload.subscriptions("boolean", count, queries=name)).combine_chunks()
            for count, name in zip((n_before, CHANGE_BATCHES * self._step), CHANGES[what], strict=True)
        ]
        if what == WIDE:
            tables[0] = _widened(tables[0], workload.space().bounds)
        tables[1] = _with(tables[1], id=pa.array([f"later {row}" for row in range(len(tables[1]))]))
        messages = pa.concat_tables(workload.messages(CHANGE_BATCHES * n_batch)).combine_chunks()
        self.stream = _boolean_stream(workload, pa.concat_tables(tables), messages)

    def share(self, number: int) -> float:
        """Return the share of the subscriptions of a batch that came after the change."""
        return min(1.0, max(0, number - CHANGE_STEADY) / CHANGE_STEPS)

    def stored(self, number: int) -> Longs:
        """Return the rows of the subscriptions that are stored in a batch."""
        return np.arange(number * self._step, number * self._step + self.n)

    def sample(self, number: int) -> Sample:
        """Return the subscriptions that are stored in a batch, and its messages."""
        return Sample(self.stream.sample.footprints.take(self.stored(number)), self.batch(number))

    def batch(self, number: int) -> MessageBatch:
        """Return the messages of a batch."""
        return self.stream.sample.messages.slice(number * self._n_batch, (number + 1) * self._n_batch)


def measure_global(scale: float) -> list[Row]:
    """Let all subscriptions make way for others: the routing stays, cells move, or a fresh one takes over."""
    (partitioner,) = (one for one in PARTITIONERS if one.name == "hybrid")
    rows: list[Row] = []
    for what in CHANGES:
        change = _Change(what, scaled(CHANGE_HELD, scale), scaled(CHANGE_BATCH, scale))
        first, last = (
            partitioner.fit(change.sample(number), n_shards=SHARDS).fixed() for number in (0, CHANGE_BATCHES - 1)
        )
        for how in ROUTINGS:
            rows += _run_change(change, last if how == "fresh" else first, partitioner, how=how)
    return rows


def _compile(change: _Change, routing: Routing, number: int) -> None:
    """Publish to a few subscriptions, of which some come, go and move."""
    few = change.stored(number)[:1_000]
    shards = _Shards(change.stream, routing, few)
    shards.exchange(change.stream, few[:1], few[:1])
    shards.publish(change.batch(number).slice(0, 1_000))
    if has_cells(routing):
        shards.reroute(routing.reassigned((routing.cell_shards + 1) % routing.n_shards))
    shards.close()


def _run_change(change: _Change, routing: Routing, partitioner: Partitioner, *, how: str) -> Iterator[Row]:
    """Yield a row per batch; with `fresh` the last ones only, under a routing that is fitted to the last."""
    start, stream = CHANGE_BATCHES - CHANGE_LAST if how == "fresh" else 0, change.stream
    _compile(change, routing, start)
    shards = _Shards(stream, routing, change.stored(start))
    shards.publish(change.batch(start))  # warms caches
    moving, weight = [0.0] * SHARDS, -(-change.n // _KNOWN)
    policy = Balance(refit_every=int(how == "global"), retire_below=CHANGE_RETIRE, most_moved=CHANGE_MOVED)
    fit = partial(partitioner.fit, n_shards=SHARDS)
    sinces = np.zeros(len(stream.subscriptions), np.int64)
    for number in range(start, CHANGE_BATCHES):
        report_progress(f"{change.what}, {how}, batch {number + 1} of {CHANGE_BATCHES}")
        stored, before = change.stored(number), change.stored(max(number - 1, start))
        coming, batch, updates = np.setdiff1d(stored, before), change.batch(number), shards.updates
        sinces[coming] = shards.seq
        exchanging = shards.exchange(stream, np.setdiff1d(before, stored), coming)
        publishing = shards.publish(batch)
        seconds = [sum(parts) for parts in zip(exchanging, publishing, moving, strict=True)]
        row: dict[str, Any] = {
            "change": change.what,
            "routing": how,
            "batch": number,
            "share": change.share(number),
            "wide_share": WIDE_SHARE,
            "most_moved": policy.most_moved,
            "messages": len(batch),
            "subscriptions": len(stored),
            "came": len(coming),
            "shards": SHARDS,
            "seconds": [round(one, 5) for one in seconds],
            "moving_s": round(max(moving), 5),
            "busiest_per_second": len(batch) / max(publishing),
            "updates": shards.updates - updates,
            "old": float(are_old(shards.routing, sinces[stored]).mean()),
            "action": None,
            "moved": 0,
            "decide_s": 0.0,
        }
        moving = [0.0] * SHARDS
        is_adjusted, is_last = how in ("local", "global"), number >= CHANGE_BATCHES - CHANGE_LAST
        if is_adjusted or is_last:
            known, started = stored[::weight], time.process_time()
            period = Period.of(
                batch,
                stream.sample.footprints.take(known),
                are_new=np.isin(known, coming),
                are_old=are_old(shards.routing, sinces[known]),
                weight=weight,
                counts_pairs=True,
            )
            if is_last:
                row["busiest_load"] = float(shard_loads(shards.routing, period).max())
        if is_adjusted:
            tries = policy.tries_fresh(number + 1)
            made = decide(shards.routing, period, policy, fit=fit if tries else None, since=shards.seq)
            row["decide_s"] = time.process_time() - started
            if made is not None:
                moving = shards.reroute(made.routing)
                row |= {"action": made.adjustment.action, "moved": made.adjustment.moved_subscriptions}
        yield row
    shards.close()


def _widened(table: pa.Table, bounds: Box) -> pa.Table:
    """Return boolean subscriptions with boxes around the same centres that cover a large part of space."""
    sides: dict[str, Floats] = {}
    for low, high, first, last in (
        ("xmin", "xmax", bounds.xmin, bounds.xmax),
        ("ymin", "ymax", bounds.ymin, bounds.ymax),
    ):
        centres, reach = (table[low].to_numpy() + table[high].to_numpy()) / 2, (last - first) * WIDE_SHARE / 2
        sides |= {low: np.maximum(centres - reach, first), high: np.minimum(centres + reach, last)}
    return _with(table, **sides)


def _with(table: pa.Table, **columns: Any) -> pa.Table:
    """Return a table with other values in some columns."""
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), pa.array(values))
    return table


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
    "What does load adjustment cost and gain?",
    {"selections": measure_selections, "drift": measure_drift, "global": measure_global, "churn": measure_churn},
    minutes=5,
)
