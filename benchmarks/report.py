"""Runs a small table of benchmarks and writes it, with plots, to docs/benchmarks.

    python -m benchmarks.report [PAGE ...] [--scale 1.0] [--out docs/benchmarks]

Every row of the tables by kind is one run of `nearcast bench` in a process of its own, so that peaks of memory do not
mix. Ratios are within one run. `--scale` multiplies the numbers of subscriptions. The figures of the paper on top-k
are in `topk_report`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import topk_report
from benchmarks.plots import axes_of

Row = dict[str, Any]

GROWTH = (50_000, 200_000, 800_000)
VERSUS = {"boolean": 400_000, "similarity": 400_000, "topk": 100_000}
WORDS = {
    "boolean": ["--batch", "1000", "--messages", "20000"],
    "similarity": ["--batch", "100", "--messages", "500", "--max-distance", "500000"],
    "topk": ["--batch", "500", "--messages", "5000", "--window", "50000"],
}
RIVALS = {
    "boolean": [("gi2", q) for q in ("q1", "q2", "q3")],
    "similarity": [(name, "q1") for name in ("sp", "sp-hi", "sp-rp-hi")],
    "topk": [(name, "q1") for name in ("igpt-cskyband", "igpt-skyband", "igpt-kmax", "ciq-kmax")],
}
"""Kind -> its rivals, each with the queries it runs."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"some of {', '.join(PAGES)}; all without")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks"))
    options = parser.parse_args()
    if unknown := [page for page in options.pages if page not in PAGES]:
        parser.error(f"PAGE must be one of {', '.join(PAGES)}; got {unknown[0]!r}")
    options.out.mkdir(parents=True, exist_ok=True)
    for page in options.pages or PAGES:
        (options.out / f"{page}.md").write_text(PAGES[page](options.out, options.scale))
    return 0


def readme(out: Path, scale: float) -> str:
    """Measure the kinds that keep nothing, and Spark."""
    parts = [
        f"# Benchmarks\n\n{machine()}\n\nTop-k over a sliding window has [a page of its own](topk.md).\n",
        kind_part("boolean", out, scale),
        kind_part("similarity", out, scale),
    ]
    on_spark = {
        name: bench(kind, int(SPARK * scale), *words, "--workers", "2", "--spark", *how)
        for name, kind, words, how in (
            ("boolean", "boolean", ["--batch", "4000", "--messages", "600000"], ["--spark-batch", "100000"]),
            ("boolean, packed", "boolean", ["--batch", "4000", "--messages", "600000"],
             ["--spark-batch", "200000", "--packed"]),
            ("similarity, packed", "similarity",
             ["--batch", "100", "--messages", "8000", "--max-distance", "500000"],
             ["--spark-batch", "2000", "--packed"]),
        )
    }  # fmt: skip
    plot_batches(on_spark, out / "spark-batches.svg")
    return "\n".join([*parts, spark_section(on_spark)])


def topk(out: Path, scale: float) -> str:
    """Measure the k best of a window, and hold them against the paper's figures."""
    parts = [f"# Top-k over a sliding window\n\n{machine()}\n", kind_part("topk", out, scale)]
    return "\n".join([*parts, topk_report.write(out, scale=scale)])


def kind_part(kind: str, out: Path, scale: float) -> str:
    """Measure growth and rivals of a kind, draw both, and return their tables."""
    words, rivals = WORDS[kind], RIVALS[kind]
    growth = [bench(kind, int(n * scale), *words) for n in GROWTH]
    versus = [
        bench(kind, int(VERSUS[kind] * scale), *words, "--baseline", name, "--queries", queries)
        for name, queries in rivals
    ]
    plot_growth(kind, growth, out / f"{kind}-growth.svg")
    plot_rivals(kind, versus, rivals, out / f"{kind}-rivals.svg")
    return section(kind, growth, versus, rivals)


PAGES = {"README": readme, "topk": topk}
SPARK = 200_000
PARTS = {
    "planning_s": "planning",
    "log_s": "Spark's log",
    "reading_shuffle_rows_s": "reading, dispatch, shuffle, rows",
    "state_s": "frames, seal, snapshot",
    "matching_s": "matching (kernels and Arrow)",
}
"""What a batch on Spark spends its time on."""


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


def section(kind: str, growth: list[Row], versus: list[Row], rivals: list[tuple[str, str]]) -> str:
    """Write the tables of one kind."""
    lines = [f"## {kind}\n", "| subscriptions | messages/s | p50 ms | p99 ms | updates | visited | candidates"
             " | verified | build s | peak MB |", "|---|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for row in growth:
        n = row["messages"]
        per = [f"{row[name] / n:,.1f}" for name in ("updates", "visited", "candidates", "verified")]
        lines.append(
            f"| {row['subscriptions']:,} | {row['messages_per_second']:,.0f} | {row['p50_ms']} | {row['p99_ms']} | "
            f"{' | '.join(per)} | {row['build_seconds']} | {row['peak_rss_mb']:,.0f} |"
        )
    lines += ["", f"A batch is {growth[0]['batch']:,} messages; latencies are of a batch. Work is a message.", "",
              f"![cost against subscriptions]({kind}-growth.svg)", "",
              "| rival | queries | messages/s | rival's | ratio |", "|---|---|---|---|---|"]  # fmt: skip
    for row, (name, queries) in zip(versus, rivals, strict=True):
        theirs = row["baseline"]["messages_per_second"]
        shown = queries if kind == "boolean" else ""
        lines.append(f"| {name} | {shown} | {row['messages_per_second']:,.0f} | {theirs:,.0f} | {row['ratio']:.1f} |")
    lines += ["", f"At {versus[0]['subscriptions']:,} subscriptions.", "", f"![rivals]({kind}-rivals.svg)", ""]
    return "\n".join(lines)


def spark_section(rows: dict[str, Row]) -> str:
    """Write the tables of the pipeline on Spark."""
    lines = [f"## On Spark `local[2]`, {SPARK:,} subscriptions unless scaled\n",
             "| run | embedded, 2 workers | on Spark | ratio | batch s | batch of 100 messages s | first batch s |"
             " restart, engines lost s |", "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for name, row in rows.items():
        on = row["spark"]
        lines.append(
            f"| {name} | {row['messages_per_second']:,.0f} | {on['messages_per_second']:,.0f} | {on['ratio']:.2f} | "
            f"{on['batch_s']} | {on['batch_of_100_p50_s']} | {on['first_batch_s']} | {on['restart_engines_lost_s']} |"
        )
    lines += ["", "The first batch takes in all subscriptions. Where a batch spends its seconds:", "",
              f"| run | {' | '.join(PARTS.values())} |", f"|---|{'---|' * len(PARTS)}"]  # fmt: skip
    lines += [f"| {name} | {' | '.join(str(row['spark'][part]) for part in PARTS)} |" for name, row in rows.items()]
    return "\n".join([*lines, "", "![where a batch spends its time](spark-batches.svg)", ""])


def plot_batches(rows: dict[str, Row], path: Path) -> None:
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


def plot_growth(kind: str, rows: list[Row], path: Path) -> None:
    """Draw the cost of a message against the number of subscriptions."""
    axes, figure = axes_of(f"{kind}: cost of a message")
    xs = [row["subscriptions"] for row in rows]
    ys = [1e6 / row["messages_per_second"] for row in rows]
    axes.plot(xs, ys, marker="o", label="measured")
    axes.plot(xs, [ys[0] * x / xs[0] for x in xs], linestyle=":", label="in proportion")
    axes.set(xscale="log", yscale="log", xlabel="subscriptions", ylabel="microseconds a message")
    axes.legend()
    figure.savefig(path)


def plot_rivals(kind: str, rows: list[Row], rivals: list[tuple[str, str]], path: Path) -> None:
    """Draw a bar for each rival."""
    axes, figure = axes_of(f"{kind}: messages a second against the papers' indexes")
    names = [f"{name} {queries}" if kind == "boolean" else name for name, queries in rivals]
    places = range(len(names))
    axes.bar([p - 0.2 for p in places], [r["messages_per_second"] for r in rows], width=0.4, label="nearcast")
    axes.bar(
        [p + 0.2 for p in places], [r["baseline"]["messages_per_second"] for r in rows], width=0.4, label="rival"
    )
    axes.set_xticks(list(places), names)
    axes.set(ylabel="messages a second")
    axes.legend()
    figure.savefig(path)


if __name__ == "__main__":
    sys.exit(main())
