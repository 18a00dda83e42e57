"""The growth of a kind with its subscriptions, and its comparison with baselines: tables and plots.

Every row is one run of `nearcast bench` in a process of its own, so that peaks of memory do not mix. Ratios are
within one run.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from experiments.plots import axes_of

Row = dict[str, Any]

_WORK = ("updates", "visited", "candidates", "verified")


class Plan(NamedTuple):
    """What is run of a kind."""

    words: tuple[str, ...]
    """What every run is told."""
    growth: tuple[int, ...]
    """Numbers of subscriptions."""
    versus: int
    """The one at which rivals run."""
    baselines: tuple[tuple[str, ...], ...]
    """A name each, and what else the run is told."""


PLANS = {
    "boolean": Plan(
        ("--batch", "1000", "--messages", "20000"),
        (50_000, 200_000, 800_000),
        400_000,
        tuple(("gi2", "--queries", queries) for queries in ("q1", "q2", "q3")),
    ),
    "similarity": Plan(
        ("--batch", "100", "--messages", "500", "--max-distance", "500000"),
        (50_000, 200_000, 800_000),
        400_000,
        (("sp",), ("sp-hi",), ("sp-rp-hi",)),
    ),
    "topk": Plan(
        ("--batch", "500", "--messages", "5000", "--window", "50000"),
        (50_000, 200_000, 800_000),
        100_000,
        (("igpt-cskyband",), ("igpt-skyband",), ("igpt-kmax",), ("ciq-kmax",)),
    ),
    "nearest": Plan(
        ("--workload", "places", "--batch", "1000", "--messages", "5000", "--window", "100000", "--k", "10"),
        (50_000, 200_000, 800_000),
        200_000,
        (("inverted",), ("grid",)),
    ),
    "social": Plan(
        ("--batch", "100", "--messages", "1000", "--window", "250000", "--k", "10"),
        (50_000, 150_000, 350_000),
        10_000,
        tuple(
            (name, "--window", "10000", "--messages", "300")
            for name in ("baseline1", "baseline2", "baseline3", "quadtree")
        ),
    ),
}


def bench(kind: str, subscriptions: int, *words: str) -> Row:
    """Run one benchmark and return what it printed."""
    command = [sys.executable, "-m", "nearcast.cli", "bench", kind, "--subscriptions", str(subscriptions), *words]
    print(" ".join(command[3:]), file=sys.stderr)
    ran = subprocess.run([*command, "--json"], capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(f"{' '.join(command)}\n{ran.stderr}")
    row: Row = json.loads(ran.stdout)
    return row


def machine() -> str:
    """Say on what, and of what, this was measured."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    python, cores = platform.python_version(), os.cpu_count()
    return f"Commit {commit or 'unknown'}, Python {python}, {cores} cores. Made by `make bench`."


def measure_growth(kind: str, scale: float) -> list[Row]:
    """Run a kind alone, with ever more subscriptions."""
    plan = PLANS[kind]
    return [bench(kind, int(n * scale), *plan.words) for n in plan.growth]


def measure_baselines(kind: str, scale: float) -> list[Row]:
    """Run a kind against each of its rivals."""
    plan = PLANS[kind]
    n = int(plan.versus * scale)
    return [bench(kind, n, *plan.words, "--baseline", name, *words) for name, *words in plan.baselines]


def kind_part(kind: str, out: Path, scale: float) -> str:
    """Measure growth and rivals of a kind, draw both, and return their tables."""
    growth, versus = measure_growth(kind, scale), measure_baselines(kind, scale)
    return "\n".join([f"## {kind}\n", growth_part(kind, growth, out), baselines_part(kind, versus, out)])


def growth_part(kind: str, rows: list[Row], out: Path, *, messages: str = "") -> str:
    """Draw how a kind grows; return the table, the plot and what is to be said of it."""
    _plot_growth(kind, rows, out / f"{kind}-growth.svg")
    steps = ["step_ms"] if "step_ms" in rows[0] else []
    names = ["subscriptions", "messages/s", "p50 ms", "p99 ms", *(["step ms"] if steps else []), *_WORK]
    names += ["build s", "peak MB"]
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    for row in rows:
        cells = [f"{row['subscriptions']:,}", f"{row['messages_per_second']:,.0f}", row["p50_ms"], row["p99_ms"]]
        cells += [row[name] for name in steps]
        cells += [f"{row[name] / row['messages']:,.1f}" for name in _WORK]
        cells += [row["build_seconds"], f"{row['peak_rss_mb']:,.0f}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += ["", f"A batch is {rows[0]['batch']:,} messages; latencies are of a batch. Work is a message.", "",
              f"![cost against subscriptions]({kind}-growth.svg)", ""]  # fmt: skip
    return "\n".join([*lines, messages, ""] if messages else lines)


def baselines_part(kind: str, rows: list[Row], out: Path, *, messages: str = "") -> str:
    """Draw how a kind stands against its rivals; return the table, the plot and what is to be said of it."""
    _plot_baselines(kind, rows, out / f"{kind}-rivals.svg")
    lines = ["| rival | queries | messages/s | rival's | ratio |", "|---|---|---|---|---|"]
    for row, queries in zip(rows, _queries(kind), strict=True):
        theirs = row["baseline"]["messages_per_second"]
        lines.append(
            f"| {row['baseline']['name']} | {queries} | {row['messages_per_second']:,.0f} | {theirs:,.0f} |"
            f" {row['ratio']:.1f} |"
        )
    lines += ["", f"At {rows[0]['subscriptions']:,} subscriptions.", "", f"![rivals]({kind}-rivals.svg)", ""]
    return "\n".join([*lines, messages, ""] if messages else lines)


def _queries(kind: str) -> list[str]:
    """Return which queries each run against a rival had, where there are several."""
    updates = (words[1:] for words in PLANS[kind].baselines)
    return [dict(zip(words[::2], words[1::2], strict=True)).get("--queries", "") for words in updates]


def _plot_growth(kind: str, rows: list[Row], path: Path) -> None:
    """Draw the cost of a message against the number of subscriptions."""
    axes, figure = axes_of(f"{kind}: cost of a message")
    xs = [row["subscriptions"] for row in rows]
    ys = [1e6 / row["messages_per_second"] for row in rows]
    axes.plot(xs, ys, marker="o", label="measured")
    axes.plot(xs, [ys[0] * x / xs[0] for x in xs], linestyle=":", label="in proportion")
    axes.set(xscale="log", yscale="log", xlabel="subscriptions", ylabel="microseconds a message")
    axes.legend()
    figure.savefig(path)


def _plot_baselines(kind: str, rows: list[Row], path: Path) -> None:
    """Draw a bar for each rival."""
    axes, figure = axes_of(f"{kind}: messages a second against the papers' indexes")
    names = [f"{row['baseline']['name']} {queries}" for row, queries in zip(rows, _queries(kind), strict=True)]
    places = range(len(names))
    axes.bar([p - 0.2 for p in places], [r["messages_per_second"] for r in rows], width=0.4, label="nearcast")
    axes.bar(
        [p + 0.2 for p in places], [r["baseline"]["messages_per_second"] for r in rows], width=0.4, label="rival"
    )
    axes.set_xticks(list(places), names)
    axes.set(ylabel="messages a second")
    axes.legend()
    figure.savefig(path)
