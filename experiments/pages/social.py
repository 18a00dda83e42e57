"""The page social: Figures 7 and 8 of geo-social at a smaller scale.

The paper's own method is the baseline `quadtree`.
"""

from __future__ import annotations

from experiments.pages import kinds
from experiments.pages.markdown import join, paragraph, provenance
from experiments.pages.page import Data, Page
from experiments.pages.plots import Plots
from experiments.pages.sentences import gain_verdict, integers, numbers, proportion, shape, verdict
from experiments.question import Row

_BASELINES = ("baseline1", "baseline2", "baseline3")
_PAPER = {"quadtree": "falls", "baseline1": "hardly changes", "baseline3": "grows"}
"""Baseline to the course of its time as the window grows, in the paper (Figure 8)."""


def render(data: Data, plots: Plots) -> str:
    """Return the sections."""
    growth, versus, windows = data["growth/social"], data["baselines/social"], data["social-windows/costs"]
    first = growth.rows[0]
    return join(
        "## Subscriptions",
        paragraph(f"A window of {first['window']:,} messages; k is random, at most {first['k']}."),
        kinds.growth("social", growth, plots, remark=_on_growth(growth.rows)),
        "## Baselines",
        paragraph(f"A window of {versus.rows[0]['window']:,} messages."),
        kinds.baselines("social", versus, plots, remark=_on_baselines(versus.rows)),
        "## Windows",
        _on_windows(windows.rows, plots),
        provenance(windows),
    )


def _on_growth(rows: list[Row]) -> str:
    times = kinds.costs_us(rows)
    grown, more = times[-1] / times[0], rows[-1]["subscriptions"] / rows[0]["subscriptions"]
    return paragraph(
        "**Subscriptions (Figure 7).** In the paper every algorithm takes longer with more subscriptions. Here a"
        f" message takes {grown:.1f} times as long with {more:.0f} times as many, {proportion(grown, more)},"
        f" {verdict(shape(times) == 'grows')}."
    )


def _on_baselines(rows: list[Row]) -> str:
    ratios = {row["baseline"]["name"]: row["ratio"] for row in rows}  # baselines ran apart: compared by these
    gains = [ratios[name] / ratios["quadtree"] for name in _BASELINES]
    best = min(_BASELINES, key=lambda name: ratios[name])
    third = ratios["baseline2"] / ratios["baseline3"]
    return paragraph(
        "**Baselines (Figure 7).** In the paper its own method is at least 4 times as fast as each baseline. Here the"
        f" quadtree is {numbers(gains)} times as fast as baselines 1, 2 and 3, {gain_verdict(min(gains), 4)}. In the"
        f" paper baseline 3 is faster than baseline 2; here it is {third:.1f} times as fast, {verdict(third > 1)}."
        f" Nearcast is {ratios[best]:.1f} times as fast as the best of the three ({best}) and"
        f" {ratios['quadtree']:.1f} times as fast as the quadtree."
    )


def _on_windows(rows: list[Row], plots: Plots) -> str:
    """Figure 8: the window varies."""
    windows = sorted({row["window"] for row in rows})
    curves = {}
    for name in _PAPER:
        found = {row["window"]: row for row in rows if row["baseline"]["name"] == name}
        curves[name] = kinds.costs_us([found[window]["baseline"] for window in windows])
        curves["nearcast"] = kinds.costs_us([found[window] for window in windows])
    compared = [
        f"{name.capitalize()}: in the paper the time {claim}; here it {shape(curves[name])}"
        f" ({numbers(curves[name])} microseconds), {verdict(shape(curves[name]) == claim)}."
        for name, claim in _PAPER.items()
    ]
    plot = plots.lines(
        "social-window", "social: cost per message", xs=windows, curves=curves, xlabel="messages in the window",
        is_log=True,
    )  # fmt: skip
    text = paragraph(
        f"**Window (Figure 8).** Windows of {integers(windows)} messages.",
        *compared,
        f"The time of Nearcast {shape(curves['nearcast'])} ({numbers(curves['nearcast'])}).",
    )
    return join(text, plot)


PAGE = Page(
    "social",
    ("growth/social", "baselines/social", "social-windows/costs"),
    "The k best by a social graph",
    render,
)
