"""Sections about one kind: its growth with subscriptions, and its comparison with baselines."""

from __future__ import annotations

from experiments.data_file import Record
from experiments.pages.markdown import join, paragraph, provenance, table
from experiments.pages.plots import Plots
from experiments.question import Row

_WORK = ("updates", "visited", "candidates", "verified")


def growth(kind: str, record: Record, plots: Plots, *, remark: str = "") -> str:
    """Return table and plot of the growth of a kind."""
    rows = record.rows
    has_steps = "step_ms" in rows[0]
    names = ["subscriptions", "messages/s", "p50 ms", "p99 ms", *(["step ms"] if has_steps else []), *_WORK]
    cells = [
        [
            f"{row['subscriptions']:,}", f"{row['messages_per_second']:,.0f}", row["p50_ms"], row["p99_ms"],
            *([row["step_ms"]] if has_steps else []), *(f"{row[name] / row['messages']:,.1f}" for name in _WORK),
            row["build_seconds"], f"{row['peak_rss_mb']:,.0f}",
        ]
        for row in rows
    ]  # fmt: skip
    xs, costs = [row["subscriptions"] for row in rows], costs_us(rows)
    plot = plots.growth(f"{kind}-growth", f"{kind}: cost per message", xs=xs, ys=costs, xlabel="subscriptions")
    explained = paragraph(
        f"p50 and p99 are latencies of a batch of {rows[0]['batch']:,} messages. Updates, visited, candidates and"
        " verified are per message. Build is the time to subscribe all; peak is the memory of the process."
    )
    return join(table([*names, "build s", "peak MB"], cells), explained, plot, remark, provenance(record))


def baselines(kind: str, record: Record, plots: Plots, *, remark: str = "") -> str:
    """Return table and plot of a kind against its baselines."""
    rows = record.rows
    names = ["baseline", *(["queries"] if rows[0]["queries"] else []), "messages/s", "baseline's messages/s", "ratio"]
    cells = [
        [
            row["baseline"]["name"], *([row["queries"]] if row["queries"] else []),
            f"{row['messages_per_second']:,.0f}", f"{row['baseline']['messages_per_second']:,.0f}",
            f"{row['ratio']:.1f}",
        ]
        for row in rows
    ]  # fmt: skip
    plot = plots.paired_columns(
        f"{kind}-baselines",
        f"{kind}: messages per second against the papers' indexes",
        names=[f"{row['baseline']['name']} {row['queries']}".strip() for row in rows],
        pairs={
            "nearcast": [row["messages_per_second"] for row in rows],
            "baseline": [row["baseline"]["messages_per_second"] for row in rows],
        },
        ylabel="messages per second",
    )
    explained = paragraph(
        f"With {rows[0]['subscriptions']:,} subscriptions. A row is one run: both indexes match the same messages."
    )
    return join(table(names, cells), explained, plot, remark, provenance(record))


def costs_us(rows: list[Row]) -> list[float]:
    """Return the cost of a message in each row, in microseconds."""
    return [1e6 / row["messages_per_second"] for row in rows]
