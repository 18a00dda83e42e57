"""Kind `nearest` against its paper: Figures 9 and 10 and Table 3 of DkM-SKS, in small.

Time is that of the paper's step: a thousand messages, a hundred insertions and a hundred deletions. The lines
compare, so the words follow the numbers.
"""

from __future__ import annotations

from pathlib import Path

from experiments.kind_report import PLANS, Row, baselines_part, bench, growth_part, measure_baselines, measure_growth
from experiments.plots import axes_of
from experiments.spark_report import spark_part
from experiments.topk_sentences import held_against, listed, verdict

KS = (5, 10, 20)
SPARK = ("--batch", "1000", "--messages", "60000", "--workers", "2", "--spark", "--spark-batch", "20000", "--packed")


def write(out: Path, scale: float) -> str:
    """Measure, draw the plots into a folder, and return the text that goes with them."""
    plan, growth, versus = PLANS["nearest"], measure_growth("nearest", scale), measure_baselines("nearest", scale)
    n = int(plan.versus * scale)
    by_k = [bench("nearest", n, *plan.words, "--k", str(k)) for k in KS]
    on_spark = {"nearest, packed": bench("nearest", n, *plan.words, *SPARK)}
    return "\n".join(
        [
            f"After {growth[0]['window']:,} messages; k is random, {growth[0]['k']} at most unless varied.\n",
            growth_part("nearest", growth, out, messages=_of_growth(growth)),
            baselines_part("nearest", versus, out, messages=_of_baselines(versus)),
            _of_k(by_k, out),
            spark_part(on_spark, out, "nearest-spark"),
        ]
    )


def _of_growth(rows: list[Row]) -> str:
    first, last = rows[0], rows[-1]
    grown, more = last["step_ms"] / first["step_ms"], last["subscriptions"] / first["subscriptions"]
    return (
        f"**Subscriptions (Figure 9).** In the paper the update time is linear in their number; here a step takes"
        f" {grown:.1f} times as long with {more:.0f} times as many, {'less' if grown < more else 'no less'} than in"
        f" proportion: {verdict(grown <= 1.2 * more)}. The paper's step takes about 510 ms at 10 M on 20 workers;"
        f" here it is {last['step_ms']} ms at {last['subscriptions']:,} on one."
    )


def _of_baselines(rows: list[Row]) -> str:
    ratios = {row["baseline"]["name"]: row["baseline"]["step_ms"] / row["step_ms"] for row in rows}
    ratio = ratios["inverted"] / ratios["grid"]  # by ours: runs differ
    return (
        "**Rivals (Table 3).** In the paper keywords and space together (DkM-SKS, the grid) are more than 10 times as"
        f" fast as keywords alone (KOP, the inverted file), on 20 workers that share the subscriptions; here, the"
        f" indexes alone on one worker, {ratio:.1f} times: {held_against(ratio, 10)}. Our step is"
        f" {ratios['inverted']:.1f} times as fast as with the inverted file and {ratios['grid']:.1f} times as fast as"
        " with the grid."
    )


def _of_k(rows: list[Row], out: Path) -> str:
    """Figure 10: the greatest k varies."""
    steps = [row["step_ms"] for row in rows]
    axes, figure = axes_of("nearest: a step")
    axes.plot(KS, steps, marker="o")
    axes.set(xlabel="the greatest k", ylabel="milliseconds a step", ylim=(0, None), xticks=KS)
    figure.savefig(out / "nearest-k.svg")
    grown, more = steps[-1] / steps[0], KS[-1] / KS[0]
    return (
        f"![a step against k](nearest-k.svg)\n\n**k (Figure 10).** In the paper the update time increases slightly"
        f" with the greatest k; here it is {listed(steps)} ms at {', '.join(map(str, KS))}, {grown:.1f} times as long"
        f" for {more:.0f} times the k: {verdict(1.0 <= grown < more)}.\n"
    )
