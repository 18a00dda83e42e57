"""Question: how fast is each kind on one core? The README shows the answer.

python -m experiments headline                                  measure
python -m experiments.headline --against CHECKOUT [--rounds N]  compare with another checkout; records nothing
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from experiments.bench_process import bench
from experiments.environment import ROOT
from experiments.question import Question, Row

RUNS: dict[str, dict[str, Any]] = {
    "boolean": {"subscriptions": 1_000_000, "messages": 100_000, "batch": 1_000},
    "similarity": {"subscriptions": 1_000_000, "messages": 2_000, "batch": 100, "max_distance": 500_000},
    "topk": {"subscriptions": 300_000, "window": 200_000, "messages": 50_000, "batch": 1_000},
    "nearest": {
        "workload": "places", "subscriptions": 1_000_000, "window": 200_000, "k": 10, "messages": 50_000,
        "batch": 1_000,
    },
    "social": {"subscriptions": 100_000, "window": 100_000, "k": 10, "messages": 5_000, "batch": 500},
}  # fmt: skip
"""Kind to the options of `nearcast bench`."""


def measure(kind: str, scale: float) -> list[Row]:
    """Run a kind alone."""
    return [bench(kind, scale=scale, **RUNS[kind])]


QUESTION = Question(
    "headline",
    "How fast is each kind on one core?",
    {kind: partial(measure, kind) for kind in RUNS},
    minutes=3,
)


def compare(kinds: Sequence[str], other: Path, *, rounds: int, scale: float = 1.0, longer: int = 1) -> None:
    """Measure kinds in turns in another checkout and here, and print medians and their ratio.

    Every second round runs in the opposite order, so that an effect of the order cancels. `longer` multiplies the
    number of messages: those of the README take less than a second for some kinds.
    """
    checkouts = (other, ROOT)
    for kind in kinds:
        rates: tuple[list[float], list[float]] = ([], [])
        for number in turns(rounds):
            options = RUNS[kind] | {"messages": longer * RUNS[kind]["messages"]}
            row = bench(kind, scale=scale, checkout=checkouts[number], **options)
            rates[number].append(row["messages_per_second"])
        before, after = map(median, rates)
        print(f"{kind}: {before:,.0f} before, {after:,.0f} after, ratio {after / before:.3f}", flush=True)


def turns(rounds: int) -> list[int]:
    """Return which of two runs next, in some rounds.

    >>> turns(3)
    [0, 1, 1, 0, 0, 1]
    """
    return [turn for number in range(rounds) for turn in ((1, 0) if number % 2 else (0, 1))]


def main() -> int:
    """Compare with another checkout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"some of {', '.join(RUNS)}; by default all")
    parser.add_argument(
        "--against", type=Path, required=True, metavar="CHECKOUT", help="the checkout to compare with"
    )
    parser.add_argument("--rounds", type=int, default=4, help="runs of each; an even number cancels effects of order")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies numbers of subscriptions and messages")
    parser.add_argument("--longer", type=int, default=1, help="multiplies numbers of messages only")
    options = parser.parse_args()
    if unknown := [kind for kind in options.kinds if kind not in RUNS]:
        parser.error(f"KIND must be one of {', '.join(RUNS)}; got {unknown[0]!r}")
    compare(
        options.kinds or list(RUNS),
        options.against.resolve(),
        rounds=options.rounds,
        scale=options.scale,
        longer=options.longer,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
