"""Question: how does the cost of `social` and of its baselines depend on the window? Figure 8 of geo-social."""

from __future__ import annotations

from experiments.baselines import OF_SOCIAL, SUBSCRIPTIONS
from experiments.bench_process import bench
from experiments.growth import OPTIONS
from experiments.question import Question, Row

WINDOWS = (5_000, 10_000, 20_000)
BASELINES = ("quadtree", "baseline1", "baseline3")


def measure(scale: float) -> list[Row]:
    """Run `social` against some baselines with each window."""
    options = OPTIONS["social"] | OF_SOCIAL
    return [
        bench("social", scale=scale, subscriptions=SUBSCRIPTIONS["social"],
              **options | {"baseline": baseline, "window": window})
        for baseline in BASELINES
        for window in WINDOWS
    ]  # fmt: skip


QUESTION = Question(
    "social-windows",
    "How does the cost of `social` and of its baselines depend on the window?",
    {"costs": measure},
    minutes=3,
)
