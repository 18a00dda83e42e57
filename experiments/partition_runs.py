"""Runs of partitioners on a stream: the shards of one engine, or each shard alone as on a machine of its own.

    run_together   fill the window ── subscribe ── let the window pass once: replicas, reach and work of each shard
    run_apart      fit ── place, route ── for each shard: its subscriptions, its messages (timed)

`run_together` is for stateful kinds, whose replicas one engine merges. `run_apart` runs the shards one after the
other and times them by the processor, so that other work on the machine counts less and the number of shards does not
depend on the number of cores. Messages come in a few large batches, of which the median counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from experiments.question import Row
from nearcast import CountWindow, Engine
from nearcast.advice import Stream
from nearcast.engine import EngineConfig
from nearcast.engine.shard_engine import ShardEngine
from nearcast.engine.stream_slice import StreamSlice
from nearcast.partition import (
    PARTITIONERS,
    Masks,
    Routing,
    Sample,
    are_empty,
    before_it,
    count_rows,
    count_shards,
    has_shard,
)
from nearcast.partition.load import load_of
from nearcast.social import SocialGraph
from nearcast.workload import Recording, Workload, make

Floats = npt.NDArray[np.float64]

NAMED = {partitioner.name: partitioner for partitioner in PARTITIONERS}
_BLOCK = 5_000  # messages per call while a window fills or passes
_NEW = 100  # subscriptions per call after the fit
_WORK = ("visited", "verified")


def stream_of(
    source: str | Workload | Recording,
    kind: str,
    n_subscriptions: int,
    n_messages: int,
    *,
    window: int | None = None,
    max_distance: float | None = None,
    **options: Any,
) -> Stream:
    """Return subscriptions of a kind and messages of a workload or a recording."""
    workload = make(source) if isinstance(source, str) else source
    community = workload.social(n_subscriptions) if kind == "social" and isinstance(workload, Workload) else None
    of_social: dict[str, Any] = {} if community is None else {"community": community}
    return Stream(
        workload.name,
        workload.space(max_distance=max_distance),
        workload.vocabulary(),
        SocialGraph() if community is None else community.graph,
        None if window is None else CountWindow(window),
        pa.concat_tables(workload.subscriptions(kind, n_subscriptions, **of_social, **options)).combine_chunks(),
        pa.concat_tables(workload.messages(n_messages, **of_social)).combine_chunks(),
    )


# -- run_together -------------------------------------------------------------------------------------------------


def run_together(stream: Stream, partitioner: str, *, n_shards: int) -> Row:
    """Run one engine; the first half of the messages fills its window, the second lets it pass."""
    half = stream.messages.num_rows // 2
    n = stream.subscriptions.num_rows
    with Engine(**stream.engine_options, workers=n_shards, partitioner=partitioner) as engine:
        publish(engine, stream.messages.slice(0, half), _BLOCK)
        engine.subscribe(stream.subscriptions)
        first, before = sum(engine.stats().shards) / n, _work_of(engine)
        publish(engine, stream.messages.slice(half), _BLOCK)
        fresh = stream.sample.messages.slice(half, 2 * half)
        destinations, _ = engine._shards.router.route(fresh)
        return {
            "partitioner": partitioner,
            "shards": n_shards,
            "replicas_first": first,
            "replicas_after": sum(engine.stats().shards) / n,
            "reach": float(n_shards if destinations is None else count_shards(destinations).mean()),
            "own": engine._shards.router._routing.loads.round(4).tolist(),  # type: ignore[union-attr]
            **{
                name: (after - was).tolist() for name, was, after in zip(_WORK, before, _work_of(engine), strict=True)
            },
        }


def publish(engine: Engine, messages: pa.Table, block: int) -> None:
    """Publish messages in blocks."""
    for start in range(0, messages.num_rows, block):
        engine.publish(messages.slice(start, block))


def _work_of(engine: Engine) -> npt.NDArray[np.int64]:
    """Return the work of each worker so far, int64 (len(_WORK), n_workers); those of one shard share it evenly."""
    shards = engine._shards.shards
    done = np.array([[getattr(m.work, name) for name in _WORK] for s in shards for m in s.matchers.values()]).T
    n_threads = engine.workers // len(shards)
    return np.repeat(done // n_threads, n_threads, axis=1)


def prefix_replicas(
    source: Workload | Recording, *, window: int, k: int, n_shards: int, n_subscriptions: int, n_fit: int
) -> Row:
    """Return the average number of replicas of a subscription that is added to a full window, by two partitioners.

    The k-th scores, which decide the length of a prefix, are those of an engine with one shard.
    """
    n = n_subscriptions
    stream = stream_of(source, "topk", n, n_fit, window=window, k=k)
    footprints = stream.sample.footprints
    with Engine(**stream.engine_options) as engine:
        for block in source.messages(window, block=_BLOCK):
            engine.publish(block)
        started = engine.subscribe(stream.subscriptions)
    row_of = dict(zip(stream.subscriptions["id"].to_pylist(), range(n), strict=True))
    rows = np.array([row_of[id_] for id_ in started["subscription"].to_pylist()], np.int64)
    worst = np.full(n, np.inf)
    np.minimum.at(worst, rows, started["score"].to_numpy())
    thresholds = np.where(np.bincount(rows, minlength=n) == k, worst, -np.inf)
    needed, _ = footprints.narrowed(footprints.needed(thresholds))
    routing = NAMED["prefix"].fit(stream.sample, n_shards=n_shards)
    return {
        "stream": source.name,
        "is_recorded": isinstance(source, Recording),
        "window": window,
        "k": k,
        "shards": n_shards,
        "keyword": float(count_shards(routing.place(footprints)).mean()),
        "prefix": float(count_shards(routing.place(needed)).mean()),
    }


# -- run_apart ----------------------------------------------------------------------------------------------------


class _Distribution(NamedTuple):
    """The shards of each subscription and of each message, and the batches."""

    assignment: Masks
    destinations: Masks
    starts: range
    """First message of each timed batch; the messages before the first are not timed."""
    batch: int


class _ShardRun(NamedTuple):
    """The work of one shard."""

    work: npt.NDArray[np.int64]
    us: float
    """Processor time per message of the stream, including messages that went to other shards."""


def run_apart(
    stream: Stream,
    partitioner: str,
    *,
    n_shards: int,
    n_fit: int,
    batch: int,
    later: float = 0.0,
    index: str = "auto",
) -> Row:
    """Fit to the first messages, publish them, and time the others in batches.

    `later` is the share of the subscriptions that arrive after the fit, a few at a time.
    """
    footprints, messages = stream.sample
    known, new = np.split(np.arange(len(footprints)), [round((1.0 - later) * len(footprints))])
    sample = Sample(footprints.take(known), messages.slice(0, n_fit))
    started = time.process_time()
    routing = NAMED[partitioner].fit(sample, n_shards=n_shards)
    fit_s = time.process_time() - started
    own, placed = routing.loads.copy(), [routing.place(sample.footprints)]
    placed += [routing.place(footprints.take(new[i : i + _NEW])) for i in range(0, len(new), _NEW)]
    assignment = np.concatenate(placed)
    starts = range(n_fit, len(messages), batch)
    destinations, route_us = _route(routing, stream, starts, batch)
    fresh = destinations[n_fit:]
    distribution = _Distribution(assignment, destinations, starts, batch)
    runs = [_run_shard(stream, distribution, shard, index) for shard in range(n_shards)]
    loads = load_of(count_rows(fresh, n_shards), count_rows(assignment, n_shards))
    return {
        "partitioner": partitioner,
        "shards": n_shards,
        "later": later,
        "index": index,
        "fitted_to": n_fit,
        "fresh": len(fresh),
        "batch": batch,
        "fit_s": fit_s,
        "replicas": float(count_shards(assignment).mean()),
        "reach": float(count_shards(fresh).mean()),
        "dropped": float(are_empty(fresh).mean()),
        "load_s": float(loads.sum()) / 1e6,
        "busiest_load_s": float(loads.max()) / 1e6,
        "own": own.round(4).tolist(),
        "route_us": route_us,
        "us": [round(run.us, 4) for run in runs],
        **{name: [int(run.work[number]) for run in runs] for number, name in enumerate(_WORK)},
    }


def _route(routing: Routing, stream: Stream, starts: range, batch: int) -> tuple[Masks, float]:
    """Return the shards of all messages, and the processor time per timed message that routing takes."""
    messages = stream.sample.messages
    seconds: list[float] = []
    parts = [routing.route(messages.slice(0, starts.start))]
    for start in starts:
        part = messages.slice(start, min(start + batch, len(messages)))
        parts.append(_timed(partial(routing.route, part), seconds))
    return np.concatenate(parts), float(np.median(seconds)) / batch * 1e6


def _run_shard(stream: Stream, distribution: _Distribution, shard: int, index: str) -> _ShardRun:
    """Run one shard."""
    assignment, destinations, starts, batch = distribution
    messages = stream.sample.messages
    seconds: list[float] = []
    rows = np.flatnonzero(has_shard(assignment, shard))
    config = EngineConfig(**stream.engine_options, index=index)
    with ShardEngine.create(config) as engine:
        engine.subscribe_replicas(stream.subscriptions.take(rows), before_it(assignment[rows], shard))

        def send(start: int, stop: int, seconds: list[float]) -> None:
            part, to = messages.slice(start, stop), destinations[start:stop]
            mine = np.flatnonzero(has_shard(to, shard))
            own, stream_slice = part.take(mine), StreamSlice(mine, part.ats_us, to[mine])
            _timed(lambda: engine.publish_slice(own, stream_slice), seconds)

        for start in range(0, starts.start, _BLOCK):
            send(start, min(start + _BLOCK, starts.start), [])
        before = _work_of(engine)
        for start in starts:
            send(start, min(start + batch, len(messages)), seconds)
        return _ShardRun((_work_of(engine) - before).sum(axis=1), float(np.median(seconds)) / batch * 1e6)


def _timed(call: Callable[[], Any], seconds: list[float]) -> Any:
    started = time.process_time()
    made = call()
    seconds.append(time.process_time() - started)
    return made


# -- threads ------------------------------------------------------------------------------------------------------


def run_workers(stream: Stream, partitioner: str, *, n_before: int, batch: int) -> Row:
    """Run one worker and two on the same messages, batch by batch in turns, so that other work slows both alike."""
    footprints, messages = stream.sample
    routing = NAMED[partitioner].fit(Sample(footprints, messages.slice(0, n_before)), n_shards=2)
    engines = {
        1: Engine(**stream.engine_options),
        2: Engine(**stream.engine_options, workers=2, partitioner=routing),
    }
    seconds: dict[int, list[float]] = {workers: [] for workers in engines}
    before, timed = stream.messages.slice(0, n_before), stream.messages.slice(n_before)
    for engine in engines.values():
        if stream.window is not None:
            publish(engine, before, _BLOCK)
        engine.subscribe(stream.subscriptions)
        if stream.window is None:
            publish(engine, before, _BLOCK)
    for number, start in enumerate(range(0, timed.num_rows, batch)):
        for workers in (1, 2) if number % 2 else (2, 1):
            started = time.perf_counter()
            engines[workers].publish(timed.slice(start, batch))
            seconds[workers].append(time.perf_counter() - started)
    for engine in engines.values():
        engine.close()
    one, two = (batch / float(np.median(seconds[workers])) for workers in (1, 2))
    return {"partitioner": partitioner, "one": one, "two": two, "ratio": two / one}


# -- fits ---------------------------------------------------------------------------------------------------------


def time_fits(stream: Stream, partitioners: Sequence[str], *, n_shards: int) -> list[Row]:
    """Return the wall-clock time that each partitioner takes to fit."""
    rows, sample = [], stream.sample
    for name in partitioners:
        started = time.perf_counter()
        NAMED[name].fit(sample, n_shards=n_shards)
        rows.append({"partitioner": name, "shards": n_shards, "fit_s": time.perf_counter() - started})
    return rows
