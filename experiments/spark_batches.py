"""Question: what does Spark cost, and where does a batch spend its time?"""

from __future__ import annotations

from functools import partial
from typing import Any

from experiments.bench_process import bench
from experiments.growth import OPTIONS
from experiments.question import Question, Row

SUBSCRIPTIONS = 200_000
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "boolean": ("boolean", {"batch": 4_000, "messages": 600_000, "spark_batch": 100_000}),
    "boolean-packed": ("boolean", {"batch": 4_000, "messages": 600_000, "spark_batch": 200_000, "packed": True}),
    "similarity-packed": ("similarity", {"messages": 8_000, "spark_batch": 2_000, "packed": True}),
    "nearest-packed": ("nearest", {"messages": 60_000, "spark_batch": 20_000, "packed": True}),
}
"""Part to its kind and the options of `nearcast bench`."""


def measure(part: str, scale: float) -> list[Row]:
    """Run a kind in an engine with two workers, and in a job with two shards."""
    kind, options = RUNS[part]
    options = OPTIONS[kind] | options
    return [bench(kind, scale=scale, subscriptions=SUBSCRIPTIONS, workers=2, spark=True, **options)]


QUESTION = Question(
    "spark-batches",
    "What does Spark cost, and where does a batch spend its time?",
    {part: partial(measure, part) for part in RUNS},
    minutes=6,
)
