"""Question: how much faster is a message with more workers?

Every kind runs in turns with one worker, with two, and with four, each time in a process of its own; the median run
of each counts. From the gain with two workers follows the part of the work that is not shared, and from that, by
Amdahl's law, what more cores could give at most.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from experiments.bench_process import bench
from experiments.headline import RUNS
from experiments.question import Question, Row

WORKERS = (1, 2, 4)
ROUNDS = 2
LARGE: dict[str, Any] = {"subscriptions": 1_000_000, "window": 1_000_000, "messages": 50_000, "batch": 1_000}
"""Options of `topk` as DSkype has it."""


def measure(kind: str, options: dict[str, Any], rounds: int, scale: float) -> list[Row]:
    """Run a kind with each number of workers, in turns that change their order, and return the median runs."""
    runs: dict[int, list[Row]] = {n: [] for n in WORKERS}
    for number in range(rounds):
        for n in WORKERS[:: 1 if number % 2 == 0 else -1]:
            runs[n].append(bench(kind, scale=scale, workers=n, **options))
    return [_median(runs[n]) | {"rounds": rounds} for n in WORKERS]


def longer(options: dict[str, Any]) -> dict[str, Any]:
    """Return options of a run that publishes four times as many messages: those of the headline are soon done."""
    return options | {"messages": 4 * options["messages"]}


def _median(rows: list[Row]) -> Row:
    return sorted(rows, key=lambda row: float(row["messages_per_second"]))[len(rows) // 2]


def serial_share(gain: float, n_workers: int = 2) -> float:
    """Return the share of the work that is not divided, given how much faster some workers are than one.

    >>> serial_share(2.0), round(serial_share(1.6), 2), serial_share(0.9)
    (0.0, 0.25, 1.0)
    """
    return min(1.0, max(0.0, (n_workers / gain - 1) / (n_workers - 1)))


def amdahl(share: float, n_workers: int) -> float:
    """Return how much faster some workers are than one, given the share of the work that is not divided.

    >>> amdahl(0.0, 16), amdahl(0.25, 2), amdahl(1.0, 64)
    (16.0, 1.6, 1.0)
    """
    return 1 / (share + (1 - share) / n_workers)


LARGE_BATCHES: dict[str, Any] = RUNS["boolean"] | {"messages": 1_000_000, "batch": 10_000}
"""Options of `boolean` with batches that are worth handing over: one of 1,000 takes two milliseconds."""

QUESTION = Question(
    "workers",
    "How much faster is a message with more workers?",
    {
        **{kind: partial(measure, kind, longer(options), ROUNDS) for kind, options in RUNS.items()},
        "boolean-large-batches": partial(measure, "boolean", LARGE_BATCHES, ROUNDS),
        "topk-large": partial(measure, "topk", LARGE, 1),
    },
    minutes=15,
)
