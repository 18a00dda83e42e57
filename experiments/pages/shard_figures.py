"""Figures of runs of shards: rates, unevenness, and what papers report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from experiments.question import Row


def rate_alone(row: Row) -> float:
    """Return messages per second if only the slowest shard limits it."""
    return float(1e6 / max(row["us"]))


def rate_routed(row: Row) -> float:
    """Return messages per second if one dispatcher routes each message first."""
    return float(1e6 / (max(row["us"]) + row["route_us"]))


def unevenness(values: Sequence[float]) -> float:
    """Return the greatest value over the mean.

    >>> unevenness([1, 2, 3]), unevenness([0, 0])
    (1.5, 1.0)
    """
    mean = fmean(values)
    return max(values) / mean if mean else 1.0


def spread(values: Sequence[float]) -> float:
    """Return the difference of the greatest and the least value."""
    return max(values) - min(values)


def index_name(row: Row) -> str:
    """Return the index of the shards as tables show it."""
    return "ours" if row["index"] == "auto" else str(row["index"])


def in_paper(figures: Mapping[str, Mapping[str, float]], row: Row) -> str:
    """Return the figure of a paper for the stream and the partitioner of a row, or a dash."""
    found = figures.get(row["stream"], {}).get(row["partitioner"])
    return "-" if found is None else f"{found:,g}"


def sizes(rows: list[Row]) -> str:
    """Return the number of subscriptions and the window of each stream."""
    texts = {
        row["stream"]: f"{row['subscriptions']:,} subscriptions"
        + (f" and a window of {row['window']:,}" if "window" in row else "")
        for row in rows
    }
    return "; ".join(f"{stream}: {text}" for stream, text in texts.items())
