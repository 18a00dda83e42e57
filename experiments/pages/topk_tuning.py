"""Sections of the page topk: Figures 10 to 12, the tuning of the baselines and the effect of each pruning."""

from __future__ import annotations

from experiments.pages.markdown import join, paragraph, table
from experiments.pages.plots import Plots
from experiments.pages.sentences import ENOUGH, gain_verdict, numbers, shape, verdict
from experiments.question import Row

_DEFAULT_GROUPS = 10


def buffers(rows: list[Row], plots: Plots) -> str:
    """Figure 10: kmax, and the factor of Skyband."""
    found = {policy: [row for row in rows if row["policy"] == policy] for policy in ("kmax", "skyband", "cskyband")}
    (cskyband,) = found["cskyband"]
    return join(
        paragraph(
            "**Tuning of buffers (Figure 10).** All with IGPT, in a window by count.",
            _on_kmax(found["kmax"]),
            _on_skyband(found["skyband"], cskyband),
        ),
        _plot(found["kmax"], cskyband, plots, "kmax", "kmax", "kmax"),
        _plot(found["skyband"], cskyband, plots, "skyband", "Skyband", "theta as a share of the k-th score"),
    )


def _on_kmax(rows: list[Row]) -> str:
    values, times = [row["value"] for row in rows], [row["both_us"] for row in rows]
    fastest, course = values[times.index(min(times))], shape(times)
    return (
        f"kmax from {values[0]} to {values[-1]}: in the paper a small one causes many searches and a large one much"
        " maintenance, so the time falls, then grows, and 60 is chosen. Here it"
        f" {course} ({numbers(times)}), {verdict(course == 'falls, then grows')}; {fastest} is the fastest, with"
        f" {rows[0]['searches']:.2f} to {rows[-1]['searches']:.2f} re-evaluations per message and"
        f" {rows[0]['buffer']:.0f} to {rows[-1]['buffer']:.0f} messages per buffer."
    )


def _on_skyband(rows: list[Row], cskyband: Row) -> str:
    values, times = [row["value"] for row in rows], [row["both_us"] for row in rows]
    fastest, searches = values[times.index(min(times))], [row["searches"] for row in rows]
    is_poor = times[0] > ENOUGH * min(times) and searches[0] == max(searches)
    return (
        f"Skyband with theta from {values[0]} to {values[-1]} of the k-th score: in the paper 1.0 is poor, as it"
        f" searches often, and 0.95 is the best. Here the times are {numbers(times)} with {searches[0]:.2f} to"
        f" {searches[-1]:.2f} re-evaluations per message: 1.0 is {'poor' if is_poor else 'not poor'},"
        f" {verdict(is_poor)}, and {fastest} is the fastest, {verdict(fastest == 0.95)}. In the paper cSkyband is"
        f" faster than Skyband with any factor; here it takes {cskyband['both_us']:.1f},"
        f" {verdict(cskyband['both_us'] < min(times))}. Buffers of Skyband hold {rows[0]['buffer']:.0f} to"
        f" {rows[-1]['buffer']:.0f} messages, those of cSkyband {cskyband['buffer']:.0f}."
    )


def _plot(rows: list[Row], cskyband: Row, plots: Plots, name: str, shown: str, xlabel: str) -> str:
    n = len(rows)
    curves = {
        shown: ([row["both_us"] for row in rows], [row["buffer"] for row in rows]),
        "cSkyband": ([cskyband["both_us"]] * n, [cskyband["buffer"]] * n),
    }
    xs = [row["value"] for row in rows]
    return plots.lines_over_sizes(f"topk-{name}", f"topk: IGPT with {shown}", xs=xs, curves=curves, xlabel=xlabel)


def groups(rows: list[Row], plots: Plots) -> str:
    """Figure 11: the number of groups."""
    counts, times = [row["groups"] for row in rows], [row["arrivals_us"] for row in rows]
    fastest, at_default = counts[times.index(min(times))], times[counts.index(_DEFAULT_GROUPS)]
    text = paragraph(
        f"**Number of groups (Figure 11).** In the paper {_DEFAULT_GROUPS} groups of alpha are a good trade-off"
        " between what is skipped and what has to be checked. Here, from"
        f" {counts[0]} to {counts[-1]} groups, the time of arrivals {shape(times)} ({numbers(times)}); {fastest} is"
        f" the fastest number, and {_DEFAULT_GROUPS} takes {at_default / min(times):.2f} times as long,"
        f" {verdict(at_default < ENOUGH * min(times))}. Postings visited per message:"
        f" {numbers([row['visited'] for row in rows])}."
    )
    xlabel = "number of groups of alpha"
    return join(
        text, plots.lines("topk-groups", "topk: arrivals with IGPT", xs=counts, curves={"IGPT": times}, xlabel=xlabel)
    )


def prunings(rows: list[Row], plots: Plots) -> str:
    """Figure 12: prunings switched off."""
    found = {row["prunings"]: row for row in rows}
    full, individual = found["IGPT"], found["IPT"]
    slowdowns = {name: row["arrivals_us"] / full["arrivals_us"] for name, row in found.items()}
    ratio = slowdowns.pop("IPT")
    worst = max(slowdowns, key=lambda name: slowdowns[name])
    is_felt = slowdowns[worst] > ENOUGH
    single = f"{worst}, {slowdowns[worst]:.2f} times as long" if is_felt else "none costs more than a tenth"
    text = paragraph(
        "**Prunings (Figure 12).** In the paper arrivals with IGPT are at least three times as fast as with IPT,"
        f" which has no group pruning (here: no cells, no groups, no early ends). Here {ratio:.2f} times,"
        f" {gain_verdict(ratio, 3)}. IPT visits {individual['visited']:,.0f} postings per message and IGPT"
        f" {full['visited']:,.0f}, one of each group that it skips: the lists of a leaf are short. The most expensive"
        f" single pruning to switch off: {single}."
    )
    cells = [
        [name, f"{row['arrivals_us']:.1f}", f"{row['visited']:,.0f}", f"{row['candidates']:,.1f}"]
        for name, row in found.items()
    ]
    times = {name: row["arrivals_us"] for name, row in found.items()}
    return join(
        text,
        table(["prunings", "arrivals, µs", "postings visited", "candidates"], cells),
        plots.stacked_columns(
            "topk-prunings", "topk: arrivals with IGPT, prunings switched off", {"arrivals": times}
        ),
    )
