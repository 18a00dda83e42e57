"""Question: what does it cost to move subscriptions between shards?

moves   two shards without Spark: some subscriptions move from one to the other between two batches of messages
spark   a job on Spark that goes from two shards to four and back while it runs
tasks   a job on Spark whose two shards are divided among more and more tasks
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from experiments.partition_runs import stream_of
from experiments.question import Question, Row, report_progress, scaled
from nearcast.cli.bench_spark import pipeline
from nearcast.engine import EngineConfig
from nearcast.engine.shard_engine import ShardEngine
from nearcast.engine.stream_slice import StreamSlice
from nearcast.engine.transfer import Placement, Rerouting, pack_transfer, unpack_transfer
from nearcast.model import IdColumn
from nearcast.partition import Masks, has_shard, mask_of

MOVED, HELD = 100_000, 5_000_000
MESSAGES = 100_000
"""Messages per batch."""
_BATCHES = 12
ON_SPARK = 1_000_000
TASKS = (2, 8, 32)


def measure_moves(scale: float) -> list[Row]:
    """Move some of many `boolean` subscriptions between two engines, and time every batch of each."""
    n, n_moved, n_batch = scaled(HELD, scale), scaled(MOVED, scale), scaled(MESSAGES, scale)
    stream = stream_of("tweets", "boolean", n, _BATCHES * n_batch)
    config, hash_key = EngineConfig(**stream.engine_options), stream.engine_options["vocabulary"].hash_key
    engines = [ShardEngine.create(config) for _ in range(2)]

    def placement(limit: int) -> Placement:
        """Place ids below a limit in the first shard."""

        def place_ids(ids: IdColumn) -> Masks:
            return mask_of((ids.keys(hash_key) >= np.uint64(limit)).astype(np.int64), 2)

        return Placement(2, True, lambda batch, _: place_ids(batch.ids), lambda batch: None, place_ids)  # type: ignore[arg-type, return-value]

    half = 1 << 63
    before, after = placement(half), placement(half - round(2**64 * n_moved / n))
    for start in range(0, n, 250_000):
        report_progress(f"subscribing {start:,} of {n:,}")
        part = stream.subscriptions.slice(start, 250_000)
        masks = before.place_ids(IdColumn(part["id"].combine_chunks()))  # type: ignore[misc]
        for shard, engine in enumerate(engines):
            engine.subscribe(part.filter(pa.array(has_shard(masks, shard))))
    seconds: list[float] = []
    moved = moved_bytes = 0
    for number in range(_BATCHES):
        batch = stream.messages.slice(number * n_batch, n_batch)
        spent = [0.0, 0.0]
        arriving: dict[int, list[bytes]] = {0: [], 1: []}
        for shard, engine in enumerate(engines):
            started = time.perf_counter()
            ats = np.zeros(len(batch), np.int64)
            for start in range(0, len(batch), 8_192):
                some = batch.slice(start, 8_192)
                rows = np.arange(len(some), dtype=np.int64)
                engine.publish_slice(some, StreamSlice(rows, ats[: len(some)]), grouped=True)
            if number == _BATCHES // 2 - 1:  # the last batch of the epoch
                for to, state in engine.transfers(Rerouting(shard, before, after)):
                    moved += sum(len(saved.sinces) for saved in state.subscriptions)
                    arriving[to].append(pack_transfer(state, has_graph=False))
            spent[shard] += time.perf_counter() - started
        seconds.append(max(spent))
        if number == _BATCHES // 2 - 1:  # charged to the first batch of the next one
            begins = []
            for shard, engine in enumerate(engines):
                started = time.perf_counter()
                engine.reroute(shard, after, [unpack_transfer(data, engine.config) for data in arriving[shard]])
                begins.append(time.perf_counter() - started)
            moved_bytes = sum(len(data) for some in arriving.values() for data in some)
            begin_s = max(begins)
    seconds[_BATCHES // 2] += begin_s
    return [
        {
            "subscriptions": n,
            "moved": moved,
            "moved_bytes": moved_bytes,
            "messages": n_batch,
            "begin_s": begin_s,
            "batch_s": seconds,
            "median_s": float(np.median(seconds)),
            "ratio": max(seconds) / float(np.median(seconds)),
        }
    ]


def _seconds(report: Mapping[str, Any]) -> float:
    return float(report["durationMs"]["triggerExecution"]) / 1e3


def _epoch(report: Mapping[str, Any]) -> int:
    shards = (report["observedMetrics"].get("nearcast_shards") or {}).get("reports") or ()
    return max((json.loads(one)["epoch"] for one in shards), default=-1)


def measure_spark(scale: float) -> list[Row]:
    """Go from two shards to four and back, with a batch of messages after the other."""
    n, n_batch, n_batches = scaled(ON_SPARK, scale), scaled(50_000, scale), 18
    stream = stream_of("tweets", "boolean", n, n_batches * n_batch)
    with pipeline(shards=2, tasks=4, is_packed=True, **stream.engine_options) as job:
        job.add("subscriptions", [stream.subscriptions])
        job.add("messages", [stream.messages.slice(0, 100)])
        first = job.run()
        for number in range(n_batches):
            job.add("messages", [stream.messages.slice(number * n_batch, n_batch)])
        reports = job.run({5: 4, 11: 2})
    timed = [(_seconds(report), _epoch(report)) for report in reports if report["batchId"] > 0]
    seconds = [one for one, _ in timed]
    return [
        {
            "subscriptions": n,
            "messages": n_batch,
            "first_s": _seconds(first[0]),
            "batch_s": seconds,
            "epochs": [epoch for _, epoch in timed],
            "median_s": float(np.median(seconds)),
            "longest_s": max(seconds[1:]),
        }
    ]


def measure_tasks(scale: float) -> list[Row]:
    """Run small batches with two shards divided among a number of tasks."""
    n, n_batch, n_batches = scaled(100_000, scale), 1_000, 14
    stream = stream_of("tweets", "boolean", n, n_batches * n_batch)
    rows = []
    for tasks in TASKS:
        with pipeline(shards=2, tasks=tasks, is_packed=True, **stream.engine_options) as job:
            job.add("subscriptions", [stream.subscriptions])
            for number in range(n_batches):
                job.add("messages", [stream.messages.slice(number * n_batch, n_batch)])
            seconds = [_seconds(report) for report in job.run()]
        rows.append({"tasks": tasks, "subscriptions": n, "median_s": float(np.median(seconds[4:]))})
    return rows


QUESTION = Question(
    "rescaling",
    "What does it cost to move subscriptions between shards?",
    {"moves": measure_moves, "spark": measure_spark, "tasks": measure_tasks},
    minutes=8,
)
