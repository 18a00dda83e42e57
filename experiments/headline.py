"""The throughput of each kind on one core, for the README.

    python -m experiments.headline                     measure and write experiments/data/headline.json
    python -m experiments.headline --against CHECKOUT  measure in turns with another checkout, and print the ratios

Every run is a process of `nearcast bench`, so that neither memory nor compiled code of one run helps the next.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from experiments.environment import describe_machine, repository_commit

DATA = Path(__file__).parent / "data" / "headline.json"
ROOT = Path(__file__).parents[1]
RUNS = {
    "boolean": "boolean --subscriptions 1M --messages 100k --batch 1000",
    "similarity": "similarity --subscriptions 1M --messages 2000 --batch 100 --max-distance 500000",
    "topk": "topk --subscriptions 300k --window 200k --messages 50k --batch 1000",
    "nearest": "nearest --workload places --subscriptions 1M --window 200k --k 10 --messages 50k --batch 1000",
    "social": "social --subscriptions 100k --window 100k --k 10 --messages 5000 --batch 500",
}
"""Kind to the arguments of `nearcast bench`."""


def bench(arguments: str, checkout: Path = ROOT) -> dict[str, Any]:
    """Run `nearcast bench` of a checkout and return its figures."""
    command = [sys.executable, "-m", "nearcast.cli", "bench", *arguments.split(), "--json"]
    environment = os.environ | {"PYTHONPATH": str(checkout / "src"), "NEARCAST_QUIET": "1"}
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def measure(kinds: list[str]) -> None:
    """Measure kinds and update the data file."""
    recorded = json.loads(DATA.read_text()) if DATA.exists() else {}
    for kind in kinds:
        figures = bench(RUNS[kind])
        recorded[kind] = {
            "command": f"nearcast bench {RUNS[kind]}",
            "commit": repository_commit(),
            "machine": describe_machine(),
            "figures": figures,
        }
        print(f"{kind}: {figures['messages_per_second']:,.0f} messages/s", file=sys.stderr)
    DATA.parent.mkdir(exist_ok=True)
    DATA.write_text(json.dumps({kind: recorded[kind] for kind in RUNS if kind in recorded}, indent=1) + "\n")


def compare(kinds: list[str], other: Path, rounds: int) -> None:
    """Measure kinds in turns here and in another checkout, and print medians and their ratio."""
    for kind in kinds:
        rates: dict[Path, list[float]] = {other: [], ROOT: []}
        for _ in range(rounds):
            for checkout, measured in rates.items():
                measured.append(bench(RUNS[kind], checkout)["messages_per_second"])
        before, after = (median(measured) for measured in rates.values())
        print(f"{kind}: {before:,.0f} before, {after:,.0f} after, ratio {after / before:.3f}", flush=True)


def main() -> int:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"some of {', '.join(RUNS)}; by default all")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="compare with another checkout instead")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each, for --against")
    options = parser.parse_args()
    kinds = options.kinds or list(RUNS)
    if options.against is not None:
        compare(kinds, options.against, options.rounds)
    else:
        measure(kinds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
