"""Figures of a run of shards, as numbers and lines of tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from experiments.partition_runs import Row


def rate_alone(row: Row) -> float:
    """Return messages a second, if the slowest shard is all that counts."""
    return float(1e6 / max(row["us"]))


def rate_routed(row: Row) -> float:
    """Return messages a second, if they are routed first."""
    return float(1e6 / (max(row["us"]) + row["route_us"]))


def uneven(values: Sequence[float]) -> float:
    """Return the greatest over the mean.

    >>> uneven([1, 2, 3]), uneven([0, 0])
    (1.5, 1.0)
    """
    mean = float(np.mean(values))
    return max(values) / mean if mean else 1.0


def index_of(row: Row) -> str:
    """Return what shards find with."""
    return "ours" if row["index"] == "auto" else str(row["index"])


def spread(values: Sequence[float]) -> float:
    """Return how far the greatest is from the least."""
    return max(values) - min(values)


def in_paper(figures: dict[str, dict[str, float]], row: Row) -> str:
    """Return what a paper has in the place of a row, if anything."""
    found = figures.get(row["stream"], {}).get(row["partitioner"])
    return "-" if found is None else f"{found:,g}"


def sizes(rows: list[Row]) -> str:
    """Say how many subscriptions and what windows each stream had."""
    messages = {
        row["stream"]: f"{row['subscriptions']:,} subscriptions"
        + (f" and a window of {row['window']:,}" if "window" in row else "")
        for row in rows
    }
    return "; ".join(f"{stream}: {size}" for stream, size in messages.items())


def table_of(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Return the lines of a table, and an empty one after it."""
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    return [*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows), ""]
