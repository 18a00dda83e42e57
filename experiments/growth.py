"""Question: how does the cost of a message grow with the number of subscriptions?"""

from __future__ import annotations

from functools import partial
from typing import Any

from experiments.bench_process import bench
from experiments.question import Question, Row

OPTIONS: dict[str, dict[str, Any]] = {
    "boolean": {"batch": 1_000, "messages": 20_000},
    "similarity": {"batch": 100, "messages": 500, "max_distance": 500_000},
    "topk": {"batch": 500, "messages": 5_000, "window": 50_000},
    "nearest": {"workload": "places", "batch": 1_000, "messages": 5_000, "window": 100_000, "k": 10},
    "social": {"batch": 100, "messages": 1_000, "window": 250_000, "k": 10},
}
"""Kind to the options of `nearcast bench` in all of its experiments."""
SUBSCRIPTIONS = dict.fromkeys(OPTIONS, (50_000, 200_000, 800_000)) | {"social": (50_000, 150_000, 350_000)}


def measure(kind: str, scale: float) -> list[Row]:
    """Run a kind alone, with more subscriptions in each run."""
    return [bench(kind, scale=scale, subscriptions=n, **OPTIONS[kind]) for n in SUBSCRIPTIONS[kind]]


QUESTION = Question(
    "growth",
    "How does the cost of a message grow with the number of subscriptions?",
    {kind: partial(measure, kind) for kind in OPTIONS},
    minutes=8,
)
