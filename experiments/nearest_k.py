"""Question: how does the step of `nearest` depend on the greatest k? Figure 10 of DkM-SKS."""

from __future__ import annotations

from experiments.baselines import SUBSCRIPTIONS
from experiments.bench_process import bench
from experiments.growth import OPTIONS
from experiments.question import Question, Row

KS = (5, 10, 20)


def measure(scale: float) -> list[Row]:
    """Run `nearest` with each k."""
    options = OPTIONS["nearest"]
    return [bench("nearest", scale=scale, subscriptions=SUBSCRIPTIONS["nearest"], **options | {"k": k}) for k in KS]


QUESTION = Question(
    "nearest-k", "How does the step of `nearest` depend on the greatest k?", {"steps": measure}, minutes=1
)
