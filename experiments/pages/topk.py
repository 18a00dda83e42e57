"""The page topk: Figures 10 to 20 of Skype at a smaller scale, each with what section 8.1 of the paper says of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from experiments.pages import kinds, topk_tuning
from experiments.pages.markdown import join, paragraph, provenance
from experiments.pages.page import Data, Page
from experiments.pages.plots import Plots
from experiments.pages.topk_alternatives import buffers, indexes, time_windows
from experiments.pages.topk_sweeps import SWEEPS, sweep, zipf
from experiments.question import Row

Section = Callable[[list[Row], Plots], str]
_SECTIONS: dict[str, tuple[str, dict[str, Section]]] = {
    "Tuning of the baselines": (
        "topk-tuning",
        {"buffers": topk_tuning.buffers, "groups": topk_tuning.groups, "prunings": topk_tuning.prunings},
    ),
    "Alternatives to our index and buffers": (
        "topk-alternatives",
        {"indexes": indexes, "buffers": buffers, "time-windows": time_windows},
    ),
    "Effect of each parameter": (
        "topk-sweeps",
        {**{one.field: partial(sweep, one) for one in SWEEPS}, "zipf": zipf},
    ),
}
"""Title to its question, and part to its paragraphs."""


def render(data: Data, plots: Plots) -> str:
    """Return the sections."""
    default = data["topk-sweeps/default"]
    return join(
        "## Subscriptions and baselines",
        kinds.growth("topk", data["growth/topk"], plots),
        kinds.baselines("topk", data["baselines/topk"], plots),
        "## The paper's figures at a smaller scale",
        _explain(default.rows[0]),
        _describe_default(default.rows[0]),
        provenance(default),
        *(_section(title, question, parts, data, plots) for title, (question, parts) in _SECTIONS.items()),
    )


def _section(title: str, question: str, parts: dict[str, Section], data: Data, plots: Plots) -> str:
    records = {part: data[f"{question}/{part}"] for part in parts}
    figures = [describe(records[part].rows, plots) for part, describe in parts.items()]
    return join(f"### {title}", *figures, provenance(*records.values()))


def _explain(row: Row) -> str:
    return paragraph(
        f"{row['subscriptions']:,} subscriptions, a window of {row['window']:,} messages and k = {row['k']}, unless"
        " varied. Times are microseconds of processor time per message, in the median of"
        f" {row['batches']} batches of {row['batch']} messages, after the window has passed once. *Arrivals* and"
        " *expiries* (AMP and EMP in the paper) are timed apart in a window by time, whose messages come in bursts"
        f" of {row['batch']}: the first message of a burst, published alone, lets a whole burst expire. In a window"
        " by count only both together can be timed."
    )


def _describe_default(row: Row) -> str:
    apart = row["arrivals_us"] + row["expiries_us"]
    return paragraph(
        f"With these defaults arrivals take {row['arrivals_us']:.1f} and expiries {row['expiries_us']:.1f}, together"
        f" {apart:.1f}; in a window by count both take {row['both_us']:.1f}, with {row['updates']:.1f} updates and"
        f" {row['searches']:.2f} re-evaluations per message."
    )


PAGE = Page(
    "topk",
    (
        "growth/topk",
        "baselines/topk",
        "topk-sweeps/default",
        *(f"{question}/{part}" for question, parts in _SECTIONS.values() for part in parts),
    ),
    "Top-k over a sliding window",
    render,
)
