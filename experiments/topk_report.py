"""Top-k over a window against its paper: Figures 10 to 20 of Skype, in small.

Every plot comes with a line that holds what was measured against what section 8.1 of the paper says; the code that
writes it compares, so the words follow the numbers. How the rivals were tuned, Figures 10 to 12, is in `topk_tuning`;
the window at the paper's own size in `topk_window`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from experiments import topk_tuning
from experiments.topk_plots import lines, thresholds
from experiments.topk_runs import BURST, TIMED, Setting, by_time, measure, register_baselines
from experiments.topk_sentences import held_against, listed, shape, verdict

SUBSCRIPTIONS = 30_000
WINDOW = 30_000

PARTS = {"arrivals_us": "arrivals", "expiries_us": "expiries", "both_us": "both, window by count"}


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
    at_full_size: str | None = None
    """The page that has it at the paper's own size."""


SWEEPS = (
    Sweep(15, "keywords", "the number of keywords", (1, 2, 3, 4, 5),
          {"arrivals_us": "grows", "expiries_us": "falls, then grows"}, "increases decently"),
    Sweep(16, "k", "k", (10, 20, 30, 40, 50), {"arrivals_us": "grows", "expiries_us": "grows"},
          "increases slowly"),
    Sweep(17, "subscriptions", "the number of subscriptions", (0.5, 1, 2, 4), {}, "scales very well"),
    Sweep(18, "window", "the number of messages in the window", (0.5, 1, 2, 4),
          {"arrivals_us": "falls", "expiries_us": "hardly changes"}, None, "topk-windows.md"),
)  # fmt: skip


def write(folder: Path, *, scale: float = 1.0) -> str:
    """Measure, draw the plots into a folder, and return the text that goes with them."""
    register_baselines()
    base = Setting(int(SUBSCRIPTIONS * scale), WINDOW)
    parts = [
        "## The paper's figures, in small\n",
        f"{base.subscriptions:,} subscriptions, a window of {base.window:,} messages, k = {base.k} unless varied;"
        f" microseconds of the processor a message, of the median of {TIMED} batches of {BURST} messages,"
        " after the window has passed once. *Arrivals* and *expiries* (the paper's AMP and EMP) are timed apart"
        f" in a window by time, whose messages come in bursts of {BURST}: the first message of a burst, alone, pushes"
        " a whole burst out. In a window by count only both together can be timed.\n",
        f"At the defaults: {_together(base)}\n",
        *topk_tuning.write(base, folder),
        _finding(base, folder),
        _retention(base, folder),
        *(_swept(sweep, base, folder) for sweep in SWEEPS),
        _zipf(base),
        _time_window(base, folder),
    ]
    return "\n".join(parts)


def _together(base: Setting) -> str:
    row = measure(base)
    apart = row["arrivals_us"] + row["expiries_us"]
    return (
        f"arrivals {row['arrivals_us']:.1f} and expiries {row['expiries_us']:.1f}, together {apart:.1f};"
        f" by count {row['both_us']:.1f}, with {row['updates']:.1f} updates and {row['searches']:.2f}"
        " re-evaluations a message."
    )


def _finding(base: Setting, folder: Path) -> str:
    """Figure 13: indexes, all with the same buffers."""
    names = {"topk": "nearcast", "igpt-cskyband": "IGPT", "ciq-cskyband": "CIQ"}
    times = {shown: measure(replace(base, index=name))["arrivals_us"] for name, shown in names.items()}
    thresholds("arrivals, all with cSkyband", {"arrivals": times}, folder / "topk-finding.svg")
    ratio = times["CIQ"] / times["IGPT"]
    return (
        f"**Indexes (Figure 13).** In the paper IGPT takes arrivals about 10 times as fast as CIQ, at 1 M"
        f" subscriptions; here, at {base.subscriptions:,}, {ratio:.1f} times: {held_against(ratio, 10)}."
        f" Ours is {times['IGPT'] / times['nearcast']:.1f} times as fast as IGPT and"
        f" {times['CIQ'] / times['nearcast']:.1f} times as fast as CIQ.\n\n"
        "![arrivals by index](topk-finding.svg)\n"
    )


def _retention(base: Setting, folder: Path) -> str:
    """Figure 14 and table 4: buffers, all with our index."""
    names = {"topk": "cSkyband", "topk-skyband": "Skyband", "topk-kmax": "kmax"}
    papers = {"cSkyband": 35, "Skyband": 52, "kmax": 58}
    rows = {shown: measure(replace(base, index=name)) for name, shown in names.items()}
    thresholds(
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
        f" times as fast as the second best. Smallest here: {smallest}, {verdict(smallest == 'cSkyband')}. Expiries:"
        f" cSkyband is {ratio:.2f} times as fast as the better of the others, {verdict(ratio >= 4)}; the fastest is"
        f" {quickest}. Fastest at both together: {best}.\n\n"
        + "\n".join(table)
        + "\n\n![buffers](topk-buffers.svg)\n"
    )


def _swept(sweep: Sweep, base: Setting, folder: Path) -> str:
    """Figures 15 to 18: one thing varies."""
    is_multiple = sweep.field in ("subscriptions", "window")
    xs = [int(value * getattr(base, sweep.field)) if is_multiple else int(value) for value in sweep.values]
    settings: list[dict[str, Any]] = [{sweep.field: x} for x in xs]
    rows = [measure(replace(base, **setting)) for setting in settings]
    curves = {shown: [row[part] for row in rows] for part, shown in PARTS.items()}
    lines("cost of a message", sweep.label, xs, curves, folder / f"topk-{sweep.field}.svg")
    messages = []
    for part, claim in sweep.paper.items():
        values = curves[PARTS[part]]
        ours = shape(values)
        messages.append(
            f"{PARTS[part].capitalize()}: in the paper the time {claim}, here it {ours}"
            f" ({listed(values)}), {verdict(ours == claim)}."
        )
    both = curves[PARTS["both_us"]]
    grown = both[-1] / both[0]
    of = f"Both together take {grown:.1f} times as long at {xs[-1]:,} as at {xs[0]:,}"
    if sweep.growth is not None:
        is_less = grown < xs[-1] / xs[0]
        of += f', {"less" if is_less else "no less"} than in proportion; in the paper it "{sweep.growth}",'
        of += f" {verdict(is_less)}"
    messages.append(
        f"{of}; {rows[0]['updates']:.1f} to {rows[-1]['updates']:.1f} updates and {rows[0]['searches']:.2f} to"
        f" {rows[-1]['searches']:.2f} re-evaluations a message."
    )
    if sweep.at_full_size is not None:
        messages.append(f"[A page of its own]({sweep.at_full_size}) has this at the paper's size.")
    return (
        f"**Effect of {sweep.label} (Figure {sweep.figure}).** {' '.join(messages)}\n\n"
        f"![cost against {sweep.label}](topk-{sweep.field}.svg)\n"
    )


def _zipf(base: Setting) -> str:
    """Figure 19: keywords from the law of all terms."""
    usual, zipf = (measure(replace(base, is_zipf=is_zipf))["both_us"] for is_zipf in (False, True))
    alike = verdict(max(usual, zipf) < 1.25 * min(usual, zipf))
    return (
        "**Zipf keywords (Figure 19).** In the paper keywords drawn from a Zipf law cost about the same as those of"
        f" random messages; here {zipf:.1f} against {usual:.1f}: {alike}.\n"
    )


def _time_window(base: Setting, folder: Path) -> str:
    """Figure 20: a window by time, against CIQ with kmax."""
    ks = (10, 30, 50)
    ours = [measure(replace(base, k=k)) for k in ks]
    theirs = [by_time(replace(base, k=k, index="ciq-kmax"))[0] for k in ks]
    curves = {
        name: [row["arrivals_us"] + row["expiries_us"] for row in rows]
        for name, rows in (("nearcast", ours), ("CIQ-kmax", theirs))
    }
    lines("window by time: arrivals and expiries", "k", ks, curves, folder / "topk-by-time.svg")
    ratios = [b / a for a, b in zip(curves["nearcast"], curves["CIQ-kmax"], strict=True)]
    return (
        "**Window by time (Figure 20).** In the paper Skype is an order of magnitude faster than CIQ-kmax; ours is,"
        f" at k = {', '.join(map(str, ks))}, {listed(ratios)} times as fast:"
        f" {held_against(min(ratios), 10)}, at {base.subscriptions:,}"
        " subscriptions to the paper's 1 M.\n\n![window by time](topk-by-time.svg)\n"
    )
