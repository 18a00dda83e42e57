"""Sections of the page topk: Figures 13, 14 and 20, our index and buffers against alternatives."""

from __future__ import annotations

from experiments.pages.markdown import join, paragraph, table
from experiments.pages.plots import Plots
from experiments.pages.sentences import gain_verdict, integers, numbers, verdict
from experiments.question import Row

_INDEXES = {"topk": "nearcast", "igpt-cskyband": "IGPT", "ciq-cskyband": "CIQ"}
_BUFFERS = {"topk": "cSkyband", "topk-skyband": "Skyband", "topk-kmax": "kmax"}
_PAPERS_SIZES = {"cSkyband": 35, "Skyband": 52, "kmax": 58}
"""Messages per buffer in Table 4, on TWEETS."""


def indexes(rows: list[Row], plots: Plots) -> str:
    """Figure 13: indexes, all with the same buffers."""
    times = {_INDEXES[row["index"]]: row["arrivals_us"] for row in rows}
    ratio = times["CIQ"] / times["IGPT"]
    text = paragraph(
        "**Indexes (Figure 13).** In the paper arrivals with IGPT are about 10 times as fast as with CIQ, at 1 M"
        f" subscriptions. Here, at {rows[0]['subscriptions']:,}, {ratio:.1f} times, {gain_verdict(ratio, 10)}."
        f" Nearcast is {times['IGPT'] / times['nearcast']:.1f} times as fast as IGPT and"
        f" {times['CIQ'] / times['nearcast']:.1f} times as fast as CIQ."
    )
    return join(text, plots.stacked_columns("topk-indexes", "topk: arrivals, all with cSkyband", {"arrivals": times}))


def buffers(rows: list[Row], plots: Plots) -> str:
    """Figure 14 and Table 4: buffers, all with our index."""
    found = {_BUFFERS[row["index"]]: row for row in rows}
    cells = [
        [
            name, f"{row['buffer']:.1f}", _PAPERS_SIZES[name], f"{row['searches']:.3f}", f"{row['arrivals_us']:.1f}",
            f"{row['expiries_us']:.1f}", f"{row['both_us']:.1f}",
        ]
        for name, row in found.items()
    ]  # fmt: skip
    names = ["buffer", "average size", "in the paper, TWEETS", "re-evaluations", "arrivals, µs", "expiries, µs"]
    parts = {part: {name: row[f"{part}_us"] for name, row in found.items()} for part in ("arrivals", "expiries")}
    return join(
        _on_buffers(found),
        table([*names, "by count, µs"], cells),
        plots.stacked_columns("topk-buffers", "topk: buffers, all with our index", parts),
    )


def _on_buffers(found: dict[str, Row]) -> str:
    smallest, fastest, best = (
        min(found, key=lambda name: found[name][figure]) for figure in ("buffer", "expiries_us", "both_us")
    )
    others = min(row["expiries_us"] for name, row in found.items() if name != "cSkyband")
    ratio = others / found["cSkyband"]["expiries_us"]
    return paragraph(
        "**Buffers (Figure 14, Table 4).** In the paper cSkyband has the smallest buffers, and its expiries are 4 to"
        f" 20 times as fast as those of the second best. Here the smallest are those of {smallest},"
        f" {verdict(smallest == 'cSkyband')}. Expiries with cSkyband are {ratio:.2f} times as fast as with the better"
        f" of the others, {verdict(ratio >= 4)}; the fastest is {fastest}. The fastest at both together is {best}."
    )


def time_windows(rows: list[Row], plots: Plots) -> str:
    """Figure 20: a window by time, against CIQ with kmax."""
    ks = sorted({row["k"] for row in rows})
    cost = {(row["index"], row["k"]): row["arrivals_us"] + row["expiries_us"] for row in rows}
    curves = {"nearcast": [cost["topk", k] for k in ks], "CIQ-kmax": [cost["ciq-kmax", k] for k in ks]}
    ratios = [theirs / ours for ours, theirs in zip(curves["nearcast"], curves["CIQ-kmax"], strict=True)]
    text = paragraph(
        "**Window by time (Figure 20).** In the paper Skype is an order of magnitude faster than CIQ-kmax, at 1 M"
        f" subscriptions. Here, at {rows[0]['subscriptions']:,}, Nearcast is {numbers(ratios)} times as fast at k ="
        f" {integers(ks)}, {gain_verdict(min(ratios), 10)}."
    )
    title = "topk: window by time, arrivals and expiries"
    return join(text, plots.lines("topk-by-time", title, xs=ks, curves=curves, xlabel="k"))
