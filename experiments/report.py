"""Runs a small table of benchmarks and writes it, with plots, to docs/benchmarks.

    python -m experiments.report [PAGE ...] [--scale 1.0] [--out docs/benchmarks]

Tables by kind are in `kind_report`; what the papers' figures say, and whether we agree, in `topk_report`,
`nearest_report`, `social_report` and `partition_report`. `--scale` multiplies the numbers of subscriptions.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from experiments import nearest_report, partition_report, social_report, topk_report
from experiments.kind_report import bench, kind_part, machine
from experiments.spark_report import spark_part

SPARK = 200_000


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
        f"# Benchmarks\n\n{machine()}\n\nPages of their own: [top-k over a sliding window](topk.md),"
        " [the k nearest](nearest.md), [the k best among friends](social.md),"
        " [partitioners](partitioners.md).\n",
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
    return "\n".join([*parts, spark_part(on_spark, out, "spark-batches")])


def topk(out: Path, scale: float) -> str:
    """Measure the k best of a window, and hold them against the paper's figures."""
    parts = [f"# Top-k over a sliding window\n\n{machine()}\n", kind_part("topk", out, scale)]
    return "\n".join([*parts, topk_report.write(out, scale=scale)])


def nearest(out: Path, scale: float) -> str:
    """Measure the k nearest, and hold them against the paper's figures."""
    return "\n".join([f"# The k nearest\n\n{machine()}\n", nearest_report.write(out, scale)])


def social(out: Path, scale: float) -> str:
    """Measure the k best among friends, and hold them against the paper's figures."""
    return "\n".join([f"# The k best among friends\n\n{machine()}\n", social_report.write(out, scale)])


def partitioners(out: Path, scale: float) -> str:
    """Measure how partitioners share the work, and hold them against the papers' figures."""
    return partition_report.write(out, scale, partition_report.PARTS)


PAGES = {"README": readme, "topk": topk, "nearest": nearest, "social": social, "partitioners": partitioners}


if __name__ == "__main__":
    sys.exit(main())
