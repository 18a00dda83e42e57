"""The page nearest: Figures 9 and 10 and Table 3 of DkM-SKS at a smaller scale.

Times are those of the paper's step: a thousand messages, a hundred insertions and a hundred deletions.
"""

from __future__ import annotations

from experiments.pages import kinds, spark
from experiments.pages.markdown import join, paragraph, provenance
from experiments.pages.page import Data, Page
from experiments.pages.plots import Plots
from experiments.pages.sentences import gain_verdict, integers, numbers, proportion, verdict
from experiments.question import Row


def render(data: Data, plots: Plots) -> str:
    """Return the sections."""
    growth, versus, by_k = data["growth/nearest"], data["baselines/nearest"], data["nearest-k/steps"]
    first = growth.rows[0]
    return join(
        paragraph(
            f"Timed after {first['window']:,} messages. k is random, at most {first['k']} unless varied. A step is"
            " that of the paper: 1,000 messages, 100 insertions and 100 deletions."
        ),
        "## Subscriptions and baselines",
        kinds.growth("nearest", growth, plots, remark=_on_growth(growth.rows)),
        kinds.baselines("nearest", versus, plots, remark=_on_baselines(versus.rows)),
        "## k",
        _on_k(by_k.rows),
        _plot_k(by_k.rows, plots),
        provenance(by_k),
        spark.batches(
            {"nearest-packed": data["spark-batches/nearest-packed"]},
            plots,
            name="nearest-spark",
        ),
    )


def _on_growth(rows: list[Row]) -> str:
    first, last = rows[0], rows[-1]
    grown, more = last["step_ms"] / first["step_ms"], last["subscriptions"] / first["subscriptions"]
    return paragraph(
        "**Subscriptions (Figure 9).** In the paper the time of a step is linear in the number of subscriptions. Here"
        f" a step takes {grown:.1f} times as long with {more:.0f} times as many, {proportion(grown, more)},"
        f" {verdict(grown <= 1.2 * more)}. The paper's step takes about 510 ms with 10 M subscriptions on 20 workers;"
        f" here it takes {last['step_ms']:.1f} ms with {last['subscriptions']:,} on one."
    )


def _on_baselines(rows: list[Row]) -> str:
    ratios = {row["baseline"]["name"]: row["baseline"]["step_ms"] / row["step_ms"] for row in rows}
    ratio = ratios["inverted"] / ratios["grid"]  # relative to our step, as the two runs differ
    return paragraph(
        "**Baselines (Table 3).** In the paper an index of keywords and space (DkM-SKS, the grid) is more than 10"
        " times as fast as one of keywords alone (KOP, the inverted file), on 20 workers that share the"
        f" subscriptions. Here, the indexes alone on one worker, it is {ratio:.1f} times as fast,"
        f" {gain_verdict(ratio, 10)}. Our step is {ratios['inverted']:.1f} times as fast as with the inverted file"
        f" and {ratios['grid']:.1f} times as fast as with the grid."
    )


def _on_k(rows: list[Row]) -> str:
    ks, steps = [row["k"] for row in rows], [row["step_ms"] for row in rows]
    grown, more = steps[-1] / steps[0], ks[-1] / ks[0]
    return paragraph(
        "**k (Figure 10).** In the paper the time of a step increases slightly with the greatest k. Here it is"
        f" {numbers(steps)} ms with k up to {integers(ks)}: {grown:.1f} times as long for {more:.0f} times the k,"
        f" {verdict(1.0 <= grown < more)}."
    )


def _plot_k(rows: list[Row], plots: Plots) -> str:
    return plots.lines(
        "nearest-k",
        "nearest: time of a step",
        xs=[row["k"] for row in rows],
        curves={"nearcast": [row["step_ms"] for row in rows]},
        xlabel="the greatest k",
        ylabel="milliseconds per step",
    )


PAGE = Page(
    "nearest",
    ("growth/nearest", "baselines/nearest", "nearest-k/steps", "spark-batches/nearest-packed"),
    "The k nearest",
    render,
)
