"""Where does top-k over a window behave as the paper says, and where not? Figures 13 to 20 of Skype, in small.

Every plot comes with a line that holds what was measured against what section 8.1 of the paper says; the code that
writes it compares, so the words follow the numbers. Figures 10 to 12 (how rivals and groups were tuned, and pruning
switched off) are left out: our index has no such switches.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from benchmarks.plots import axes_of
from benchmarks.topk_course import BURST, TIMED, Row, Setting, measure, measure_by_time, register_rivals

SUBSCRIPTIONS = 30_000
WINDOW = 30_000

PARTS = {"arrivals_us": "arrivals", "expiries_us": "expiries", "both_us": "both, window by count"}
_ENOUGH = 1.1  # what counts as a change


class Sweep(NamedTuple):
    """A figure of the paper that varies one thing."""

    figure: int
    field: str
    """What varies, as a setting has it."""
    label: str
    values: tuple[float, ...]
    """For subscriptions and window, as multiples of the default."""
    paper: dict[str, str]
    """Part -> its shape in the paper."""
    growth: str | None
    """What the paper says of both together, where it says that they do not grow fast."""


SWEEPS = (
    Sweep(15, "keywords", "the number of keywords", (1, 2, 3, 4, 5),
          {"arrivals_us": "grows", "expiries_us": "falls, then grows"}, "increases decently"),
    Sweep(16, "k", "k", (10, 20, 30, 40, 50), {"arrivals_us": "grows", "expiries_us": "grows"},
          "increases slowly"),
    Sweep(17, "subscriptions", "the number of subscriptions", (0.5, 1, 2, 4), {}, "scales very well"),
    Sweep(18, "window", "the number of messages in the window", (0.5, 1, 2, 4),
          {"arrivals_us": "falls", "expiries_us": "hardly changes"}, None),
)  # fmt: skip


def write(folder: Path, *, scale: float = 1.0) -> str:
    """Measure, draw the plots into a folder, and return the text that goes with them."""
    register_rivals()
    base = Setting(int(SUBSCRIPTIONS * scale), WINDOW)
    lines = [
        "## The paper's figures, in small\n",
        f"{base.subscriptions:,} subscriptions, a window of {base.window:,} messages, k = {base.k} unless varied;"
        f" microseconds of the processor a message, of the median of {TIMED} batches of {BURST} messages,"
        " after the window has passed once. *Arrivals* and *expiries* (the paper's AMP and EMP) are timed apart"
        f" in a window by time, whose messages come in bursts of {BURST}: the first message of a burst, alone, pushes"
        " a whole burst out. In a window by count only both together can be timed.\n",
        f"At the defaults: {_together(base)}\n",
        _finding(base, folder),
        _keeping(base, folder),
        *(_swept(sweep, base, folder) for sweep in SWEEPS),
        _zipf(base),
        _by_time(base, folder),
        "Figures 10 to 12 (tuning of the rivals, number of groups, pruning switched off) have no counterpart here.\n",
    ]
    return "\n".join(lines)


def shape(values: Sequence[float]) -> str:
    """Say in words how values go.

    >>> shape([5, 3, 6]), shape([1, 1.05, 1.02]), shape([3, 2, 1])
    ('falls, then grows', 'hardly changes', 'falls')
    """
    first, last = values[0], values[-1]
    if min(first, last) >= _ENOUGH * min(values):
        return "falls, then grows"
    if max(first, last) * _ENOUGH <= max(values):
        return "grows, then falls"
    if last >= _ENOUGH * first:
        return "grows"
    return "falls" if last * _ENOUGH <= first else "hardly changes"


@cache
def _measured(setting: Setting) -> Row:
    print(f"topk: {setting}", file=sys.stderr)
    return measure(setting)


def _together(base: Setting) -> str:
    row = _measured(base)
    apart = row["arrivals_us"] + row["expiries_us"]
    return (
        f"arrivals {row['arrivals_us']:.1f} and expiries {row['expiries_us']:.1f}, together {apart:.1f};"
        f" by count {row['both_us']:.1f}, with {row['updates']:.1f} updates and {row['searches']:.2f}"
        " re-evaluations a message."
    )


def _finding(base: Setting, folder: Path) -> str:
    """Figure 13: indexes, all with the same buffers."""
    names = {"topk": "nearcast", "igpt-cskyband": "IGPT", "ciq-cskyband": "CIQ"}
    times = {shown: _measured(replace(base, index=name))["arrivals_us"] for name, shown in names.items()}
    _bars("arrivals, all with cSkyband", {"arrivals": times}, folder / "topk-finding.svg")
    ratio = times["CIQ"] / times["IGPT"]
    by_less = "faster as well, but by less" if ratio > 1 else "we do not agree"
    verdict = "we agree" if ratio >= 8 else by_less
    return (
        f"**Indexes (Figure 13).** In the paper IGPT takes arrivals about 10 times as fast as CIQ, at 1 M"
        f" subscriptions; here, at {base.subscriptions:,}, {ratio:.1f} times: {verdict}."
        f" Ours is {times['IGPT'] / times['nearcast']:.1f} times as fast as IGPT and"
        f" {times['CIQ'] / times['nearcast']:.1f} times as fast as CIQ.\n\n"
        "![arrivals by index](topk-finding.svg)\n"
    )


def _keeping(base: Setting, folder: Path) -> str:
    """Figure 14 and table 4: buffers, all with our index."""
    names = {"topk": "cSkyband", "topk-skyband": "Skyband", "topk-kmax": "kmax"}
    papers = {"cSkyband": 35, "Skyband": 52, "kmax": 58}
    rows = {shown: _measured(replace(base, index=name)) for name, shown in names.items()}
    _bars(
        "buffers, all with our index",
        {part: {shown: row[f"{part}_us"] for shown, row in rows.items()} for part in ("arrivals", "expiries")},
        folder / "topk-buffers.svg",
    )
    table = ["| buffer | average size | paper's, TWEETS | re-evaluations | arrivals | expiries | by count |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    table += [
        f"| {shown} | {row['buffer']:.1f} | {papers[shown]} | {row['searches']:.3f} | {row['arrivals_us']:.1f} |"
        f" {row['expiries_us']:.1f} | {row['both_us']:.1f} |"
        for shown, row in rows.items()
    ]
    smallest, quickest, best = (
        min(rows, key=lambda shown: rows[shown][figure]) for figure in ("buffer", "expiries_us", "both_us")
    )
    costs = rows["cSkyband"]["expiries_us"]
    ratio = min(row["expiries_us"] for shown, row in rows.items() if shown != "cSkyband") / costs
    return (
        "**Buffers (Figure 14, Table 4).** In the paper cSkyband has the smallest buffers and takes expiries 4 to 20"
        f" times as fast as the second best. Smallest here: {smallest}, {_verdict(smallest == 'cSkyband')}. Expiries:"
        f" cSkyband is {ratio:.2f} times as fast as the better of the others, {_verdict(ratio >= 4)}; the fastest is"
        f" {quickest}. Fastest at both together: {best}.\n\n"
        + "\n".join(table)
        + "\n\n![buffers](topk-buffers.svg)\n"
    )


def _swept(sweep: Sweep, base: Setting, folder: Path) -> str:
    """Figures 15 to 18: one thing varies."""
    is_multiple = sweep.field in ("subscriptions", "window")
    xs = [int(value * getattr(base, sweep.field)) if is_multiple else int(value) for value in sweep.values]
    rows = [_measured(replace(base, **{sweep.field: x})) for x in xs]
    curves = {shown: [row[part] for row in rows] for part, shown in PARTS.items()}
    _lines("cost of a message", sweep.label, xs, curves, folder / f"topk-{sweep.field}.svg")
    said = []
    for part, claim in sweep.paper.items():
        values = curves[PARTS[part]]
        ours = shape(values)
        said.append(
            f"{PARTS[part].capitalize()}: in the paper the time {claim}, here it {ours}"
            f" ({_listed(values)}), {_verdict(ours == claim)}."
        )
    both = curves[PARTS["both_us"]]
    grown = both[-1] / both[0]
    of = f"Both together take {grown:.1f} times as long at {xs[-1]:,} as at {xs[0]:,}"
    if sweep.growth is not None:
        is_less = grown < xs[-1] / xs[0]
        of += f', {"less" if is_less else "no less"} than in proportion; in the paper it "{sweep.growth}",'
        of += f" {_verdict(is_less)}"
    said.append(
        f"{of}; {rows[0]['updates']:.1f} to {rows[-1]['updates']:.1f} updates and {rows[0]['searches']:.2f} to"
        f" {rows[-1]['searches']:.2f} re-evaluations a message."
    )
    return (
        f"**Effect of {sweep.label} (Figure {sweep.figure}).** {' '.join(said)}\n\n"
        f"![cost against {sweep.label}](topk-{sweep.field}.svg)\n"
    )


def _zipf(base: Setting) -> str:
    """Figure 19: keywords from the law of all terms."""
    usual, zipf = (_measured(replace(base, is_zipf=is_zipf))["both_us"] for is_zipf in (False, True))
    verdict = _verdict(max(usual, zipf) < 1.25 * min(usual, zipf))
    return (
        "**Zipf keywords (Figure 19).** In the paper keywords drawn from a Zipf law cost about the same as those of"
        f" random messages; here {zipf:.1f} against {usual:.1f}: {verdict}.\n"
    )


def _by_time(base: Setting, folder: Path) -> str:
    """Figure 20: a window by time, against CIQ with kmax."""
    ks = (10, 30, 50)
    ours = [_measured(replace(base, k=k)) for k in ks]
    theirs = [measure_by_time(replace(base, k=k, index="ciq-kmax")) for k in ks]
    curves = {
        name: [row["arrivals_us"] + row["expiries_us"] for row in rows]
        for name, rows in (("nearcast", ours), ("CIQ-kmax", theirs))
    }
    _lines("window by time: arrivals and expiries", "k", ks, curves, folder / "topk-by-time.svg")
    ratios = [b / a for a, b in zip(curves["nearcast"], curves["CIQ-kmax"], strict=True)]
    by_less = "faster as well, but by less" if min(ratios) > 1 else "we do not agree"
    verdict = "we agree" if min(ratios) >= 8 else by_less
    return (
        "**Window by time (Figure 20).** In the paper Skype is an order of magnitude faster than CIQ-kmax; ours is,"
        f" at k = {', '.join(map(str, ks))}, {_listed(ratios)} times as fast: {verdict}, at {base.subscriptions:,}"
        " subscriptions to the paper's 1 M.\n\n![window by time](topk-by-time.svg)\n"
    )


def _verdict(agrees: bool) -> str:
    return "we agree" if agrees else "we do not agree"


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)


def _lines(title: str, label: str, xs: Sequence[int], curves: dict[str, list[float]], path: Path) -> None:
    """Draw a line a curve, from zero."""
    axes, figure = axes_of(f"topk: {title}")
    for name, ys in curves.items():
        axes.plot(xs, ys, marker="o", label=name)
    axes.set(xlabel=label, ylabel="microseconds a message", ylim=(0, None), xticks=xs)
    axes.legend()
    figure.savefig(path)


def _bars(title: str, parts: dict[str, dict[str, float]], path: Path) -> None:
    """Draw a bar each, its parts on top of each other."""
    axes, figure = axes_of(f"topk: {title}")
    below = dict.fromkeys(next(iter(parts.values())), 0.0)
    for part, heights in parts.items():
        axes.bar(list(heights), list(heights.values()), width=0.5, bottom=list(below.values()), label=part)
        below = {name: below[name] + height for name, height in heights.items()}
    axes.set(ylabel="microseconds a message")
    axes.legend()
    figure.savefig(path)
