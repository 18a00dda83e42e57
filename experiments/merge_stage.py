"""Question: what does it cost on Spark to merge the results of replicas?

pairs        messages that shards see, and replicas, with partitioners that replicate a subscription and with hash;
             also on recorded places where NEARCAST_DATA names a folder that has them
throughput   a job whose results are merged, against one with hash
"""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from experiments.partition_runs import NAMED, stream_of
from experiments.question import Question, Row, report_progress, scaled
from nearcast.advice import Stream
from nearcast.cli.bench_spark import pipeline
from nearcast.partition import Sample, count_shards
from nearcast.workload.recording import ENVIRONMENT, Recording, load

SHARDS = 8
PAIRED = ("hash", "keyword", "prefix", "spatial_first", "keyword_first")
SUBSCRIPTIONS, MESSAGES, WINDOW, K = 300_000, 20_000, 100_000, 10
COMPARED = ("hash", "keyword")
_BATCHES, _WARM = 12, 4


def measure_pairs(scale: float) -> list[Row]:
    """Fit partitioners to half of a stream; place and route the other half among eight shards."""
    n = scaled(SUBSCRIPTIONS // 10, scale)
    sources: list[str | Recording] = ["tweets"]
    if os.environ.get(ENVIRONMENT):
        sources.append(load("places"))
    return [row for source in sources for row in _pairs_of(stream_of(source, "topk", n, 2 * n, window=n, k=K), n)]


def _pairs_of(stream: Stream, n: int) -> list[Row]:
    sample = stream.sample
    half = Sample(sample.footprints.take(np.arange(n // 2)), sample.messages.slice(0, n))
    fresh = sample.footprints.take(np.arange(n // 2, n))
    rows = []
    for name in PAIRED:
        report_progress(f"{stream.name}, {name}, {SHARDS} shards")
        routing = NAMED[name].fit(half, n_shards=SHARDS).fixed()
        placed = count_shards(routing.place(fresh))
        seen = count_shards(routing.route(sample.messages.slice(n, 2 * n)))
        rows.append(
            {
                "source": stream.name,
                "partitioner": name,
                "shards": SHARDS,
                "subscriptions": n,
                "replicas": float(placed.mean()),
                "pairs_per_message": float(SHARDS if routing.sends_all else seen.mean()),
            }
        )
    return rows


def measure_throughput(scale: float) -> list[Row]:
    """Run a job with two shards, whose results are merged or not."""
    n, n_batch, window = (scaled(size, scale) for size in (SUBSCRIPTIONS, MESSAGES, WINDOW))
    stream = stream_of("tweets", "topk", n, window + _BATCHES * n_batch, window=window, k=K)
    return [_run(stream, name, n_batch=n_batch, window=window) for name in COMPARED]


def _run(stream: Stream, name: str, *, n_batch: int, window: int) -> Row:
    report_progress(f"{name}, {len(stream.subscriptions)} subscriptions")
    routing: Any = NAMED[name].fit(stream.sample, n_shards=2).fixed()
    partitioner = name if name == "hash" else routing
    with pipeline(shards=2, is_packed=True, partitioner=partitioner, **stream.engine_options) as job:
        job.add("messages", [stream.messages.slice(0, window)])
        job.run()
        job.add("subscriptions", [stream.subscriptions])
        job.add("messages", [stream.messages.slice(0, 100)])
        job.run()
        for number in range(_BATCHES):
            job.add("messages", [stream.messages.slice(window + number * n_batch, n_batch)])
        reports = job.run()[_WARM:]
    seconds = [report["durationMs"]["triggerExecution"] / 1e3 for report in reports]
    return {
        "partitioner": name,
        "subscriptions": len(stream.subscriptions),
        "messages": n_batch,
        "window": window,
        "k": K,
        "batch_s": seconds,
        "messages_per_second": n_batch / float(np.median(seconds)),
        **_parts(reports),
    }


def _parts(batches: list[dict[str, Any]]) -> dict[str, float]:
    """Return medians over batches: seconds of the busiest shard and merge partition, updates, and changes merged."""
    shards, merges, updates, changes = [], [], [], []
    for batch in batches:
        reports = [json.loads(one) for one in batch["observedMetrics"]["nearcast_shards"]["reports"]]
        shards.append(max(one["seconds"] for one in reports if "shard" in one))
        merges.append(max((one["seconds"] for one in reports if "merge" in one), default=0.0))
        updates.append(sum(one["updates"] for one in reports))
        changes.append(sum(one.get("changes", 0) for one in reports))
    figures = {"shard_s": shards, "merge_s": merges, "updates": updates, "changes": changes}
    return {what: float(np.median(values)) for what, values in figures.items()}


QUESTION = Question(
    "merge-stage",
    "What does it cost on Spark to merge the results of replicas?",
    {"pairs": measure_pairs, "throughput": measure_throughput},
    minutes=6,
)
