"""A kind on Spark, and the time of a batch by stage: tables and a plot."""

from __future__ import annotations

from pathlib import Path

from experiments.kind_report import Row
from experiments.plots import axes_of

PARTS = {
    "planning_s": "planning",
    "log_s": "Spark's log",
    "reading_shuffle_rows_s": "reading, dispatch, shuffle, rows",
    "state_s": "frames, seal, snapshot",
    "matching_s": "matching (kernels and Arrow)",
}
"""What a batch on Spark spends its time on."""


def spark_part(rows: dict[str, Row], out: Path, name: str) -> str:
    """Draw what batches spend their time on, under a name; return tables and plot."""
    _plot_batches(rows, out / f"{name}.svg")
    subscriptions = next(iter(rows.values()))["subscriptions"]
    lines = [f"## On Spark `local[2]`, {subscriptions:,} subscriptions\n",
             "| run | embedded, 2 workers | on Spark | ratio | batch s | batch of 100 messages s | first batch s |"
             " restart, engines lost s |", "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for run, row in rows.items():
        on = row["spark"]
        lines.append(
            f"| {run} | {row['messages_per_second']:,.0f} | {on['messages_per_second']:,.0f} | {on['ratio']:.2f} | "
            f"{on['batch_s']} | {on['batch_of_100_p50_s']:.3f} | {on['first_batch_s']} |"
            f" {on['restart_engines_lost_s']} |"
        )
    lines += ["", "The first batch takes in all subscriptions. Where a batch spends its seconds:", "",
              f"| run | {' | '.join(PARTS.values())} |", f"|---|{'---|' * len(PARTS)}"]  # fmt: skip
    lines += [f"| {run} | {' | '.join(str(row['spark'][part]) for part in PARTS)} |" for run, row in rows.items()]
    return "\n".join([*lines, "", f"![where a batch spends its time]({name}.svg)", ""])


def _plot_batches(rows: dict[str, Row], path: Path) -> None:
    """Draw what a batch spends its time on, a bar a run."""
    axes, figure = axes_of("a batch on Spark: where its seconds go")
    left = [0.0] * len(rows)
    for part, name in PARTS.items():
        seconds = [row["spark"][part] for row in rows.values()]
        axes.barh(list(rows), seconds, left=left, label=name)
        left = [a + b for a, b in zip(left, seconds, strict=True)]
    axes.set(xlabel="seconds a batch")
    axes.legend(fontsize="small")
    figure.savefig(path)
