"""Question: how fast is each kind compared with the indexes of the papers? Both run on the same messages."""

from __future__ import annotations

from functools import partial
from typing import Any

from experiments.bench_process import bench
from experiments.growth import OPTIONS
from experiments.question import Question, Row

SUBSCRIPTIONS = {"boolean": 400_000, "similarity": 400_000, "topk": 100_000, "nearest": 200_000, "social": 10_000}
OF_SOCIAL = {"window": 10_000, "messages": 300}
"""Options of `nearcast bench` for `social`, whose baselines are slow."""
RUNS: dict[str, list[dict[str, Any]]] = {
    "boolean": [{"baseline": "gi2", "queries": queries} for queries in ("q1", "q2", "q3")],
    "similarity": [{"baseline": name} for name in ("sp", "sp-hi", "sp-rp-hi")],
    "topk": [{"baseline": name} for name in ("igpt-cskyband", "igpt-skyband", "igpt-kmax", "ciq-kmax")],
    "nearest": [{"baseline": name} for name in ("inverted", "grid")],
    "social": [{"baseline": name, **OF_SOCIAL} for name in ("baseline1", "baseline2", "baseline3", "quadtree")],
}
"""Kind to what is special about each run."""


def measure(kind: str, scale: float) -> list[Row]:
    """Run a kind against each of its baselines."""
    rows = []
    for run in RUNS[kind]:
        row = bench(kind, scale=scale, subscriptions=SUBSCRIPTIONS[kind], **OPTIONS[kind] | run)
        rows.append({"queries": run.get("queries", ""), **row})
    return rows


QUESTION = Question(
    "baselines",
    "How fast is each kind compared with the indexes of the papers?",
    {kind: partial(measure, kind) for kind in RUNS},
    minutes=6,
)
