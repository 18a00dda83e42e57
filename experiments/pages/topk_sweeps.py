"""Sections of the page topk: Figures 15 to 19, each of which varies one thing."""

from __future__ import annotations

from typing import NamedTuple

from experiments.pages.markdown import join, paragraph
from experiments.pages.plots import Plots
from experiments.pages.sentences import numbers, proportion, shape, verdict
from experiments.question import Row

_CURVES = {"arrivals_us": "arrivals", "expiries_us": "expiries", "both_us": "both, window by count"}


class Sweep(NamedTuple):
    """A figure of the paper that varies one thing."""

    figure: int
    field: str
    """The varied column, which is also the name of the part."""
    label: str
    paper: dict[str, str]
    """Column to its course in the paper."""
    growth: str | None
    """The paper's words on both together, where it says that they do not grow fast."""
    at_full_size: str | None = None
    """The page that has the figure at the paper's size."""


SWEEPS = (
    Sweep(15, "keywords", "the number of keywords", {"arrivals_us": "grows", "expiries_us": "falls, then grows"},
          "increases decently"),
    Sweep(16, "k", "k", {"arrivals_us": "grows", "expiries_us": "grows"}, "increases slowly"),
    Sweep(17, "subscriptions", "the number of subscriptions", {}, "scales very well"),
    Sweep(18, "window", "the number of messages in the window",
          {"arrivals_us": "falls", "expiries_us": "hardly changes"}, None, "topk-windows.md"),
)  # fmt: skip


def sweep(one: Sweep, rows: list[Row], plots: Plots) -> str:
    """Return text and plot of a sweep."""
    xs = [row[one.field] for row in rows]
    curves = {label: [row[column] for row in rows] for column, label in _CURVES.items()}
    compared = [
        f"{_CURVES[column].capitalize()}: in the paper the time {claim}; here it {shape(curves[_CURVES[column]])}"
        f" ({numbers(curves[_CURVES[column]])}), {verdict(shape(curves[_CURVES[column]]) == claim)}."
        for column, claim in one.paper.items()
    ]
    link = f"[Large windows]({one.at_full_size}) has this at the paper's size." if one.at_full_size else ""
    text = paragraph(
        f"**Effect of {one.label} (Figure {one.figure}).**",
        *compared,
        _on_both(one, xs, curves[_CURVES["both_us"]]),
        f"Updates per message go from {rows[0]['updates']:.1f} to {rows[-1]['updates']:.1f}, re-evaluations from"
        f" {rows[0]['searches']:.2f} to {rows[-1]['searches']:.2f}.",
        link,
    )
    plot = plots.lines(
        f"topk-{one.field}", "topk: cost per message", xs=xs, curves=curves, xlabel=one.label.removeprefix("the ")
    )
    return join(text, plot)


def _on_both(one: Sweep, xs: list[int], times: list[float]) -> str:
    grown, more = times[-1] / times[0], xs[-1] / xs[0]
    text = f"Both together take {grown:.1f} times as long at {xs[-1]:,} as at {xs[0]:,}"
    if one.growth is None:
        return f"{text}."
    return f'{text}, {proportion(grown, more)}; the paper says "{one.growth}", {_claim_verdict(grown < more)}.'


def _claim_verdict(agrees: bool) -> str:
    return "which this supports" if agrees else "which this does not support"


def zipf(rows: list[Row], plots: Plots) -> str:
    """Figure 19: keywords from the distribution of all terms."""
    usual, drawn = (next(row["both_us"] for row in rows if row["is_zipf"] == is_zipf) for is_zipf in (False, True))
    return paragraph(
        "**Zipf keywords (Figure 19).** In the paper keywords drawn from a Zipf distribution cost about the same as"
        f" those of random messages. Here they take {drawn:.1f}, those of messages {usual:.1f},"
        f" {verdict(max(usual, drawn) < 1.25 * min(usual, drawn))}."
    )
