"""Kind `social` against its paper: Figures 7 and 8 of geo-social, in small.

The paper's own method is the rival `quadtree`. The lines compare, so the words follow the numbers.
"""

from __future__ import annotations

from pathlib import Path

from experiments.kind_report import PLANS, Row, baselines_part, bench, growth_part, measure_baselines, measure_growth
from experiments.plots import axes_of
from experiments.topk_sentences import held_against, listed, shape, verdict

BASELINES = ("baseline1", "baseline2", "baseline3")
WINDOWS = (5_000, 10_000, 20_000)
PAPER = {"quadtree": "falls", "baseline1": "hardly changes", "baseline3": "grows"}
"""What the time does as the window grows, in the paper (Figure 8)."""


def write(out: Path, scale: float) -> str:
    """Measure, draw the plots into a folder, and return the text that goes with them."""
    growth, versus = measure_growth("social", scale), measure_baselines("social", scale)
    return "\n".join(
        [
            f"A window of {growth[0]['window']:,} messages; k is random, {growth[0]['k']} at most.\n",
            growth_part("social", growth, out, messages=_of_growth(growth)),
            baselines_part("social", versus, out, messages=_of_baselines(versus)),
            _of_window(versus, out),
        ]
    )


def _of_growth(rows: list[Row]) -> str:
    times = [1e6 / row["messages_per_second"] for row in rows]
    grown, more = times[-1] / times[0], rows[-1]["subscriptions"] / rows[0]["subscriptions"]
    return (
        f"**Subscriptions (Figure 7).** In the paper every algorithm takes longer the more there are; here a message"
        f" takes {grown:.1f} times as long with {more:.0f} times as many, {'less' if grown < more else 'no less'}"
        f" than in proportion: {verdict(shape(times) == 'grows')}."
    )


def _of_baselines(rows: list[Row]) -> str:
    ratios = {row["baseline"]["name"]: row["ratio"] for row in rows}  # rivals are compared by them: runs differ
    papers = [ratios[name] / ratios["quadtree"] for name in BASELINES]
    best = min(BASELINES, key=lambda name: ratios[name])
    gap = ratios["baseline2"] / ratios["baseline3"]
    return (
        f"A window of {rows[0]['window']:,}. **Rivals (Figure 7).** In the paper its own method is at least 4 times"
        f" as fast as each baseline; here the quadtree is {listed(papers)} times as fast as baselines 1, 2 and 3:"
        f" {held_against(min(papers), 4)}. In the paper baseline 3 beats baseline 2; here it is {gap:.1f} times as"
        f" fast: {verdict(gap > 1)}. Ours is {ratios[best]:.1f} times as fast as the best baseline ({best}) and"
        f" {ratios['quadtree']:.1f} times as fast as the quadtree."
    )


def _of_window(versus: list[Row], out: Path) -> str:
    """Figure 8: the window varies."""
    plan, at = PLANS["social"], {(row["baseline"]["name"], row["window"]): row for row in versus}
    words = {name: more for name, *more in plan.baselines}
    curves: dict[str, list[float]] = {"nearcast": []}
    for name in PAPER:
        rows = [
            at.get((name, window))
            or bench("social", versus[0]["subscriptions"], *plan.words, "--baseline", name, *words[name],
                     "--window", str(window))
            for window in WINDOWS
        ]  # fmt: skip
        curves[name] = [1e6 / row["baseline"]["messages_per_second"] for row in rows]
        curves["nearcast"] = [1e6 / row["messages_per_second"] for row in rows]
    axes, figure = axes_of("social: cost of a message")
    for name, times in curves.items():
        axes.plot(WINDOWS, times, marker="o", label=name)
    axes.set(xlabel="messages in the window", ylabel="microseconds a message", yscale="log", xticks=WINDOWS)
    axes.legend()
    figure.savefig(out / "social-window.svg")
    messages = [
        f"{name}: in the paper the time {claim}, here it {shape(curves[name])} ({listed(curves[name])} microseconds),"
        f" {verdict(shape(curves[name]) == claim)}."
        for name, claim in PAPER.items()
    ]
    return (
        f"![cost against the window](social-window.svg)\n\n**Window (Figure 8).** Windows of"
        f" {', '.join(f'{window:,}' for window in WINDOWS)}. {' '.join(messages)} Ours {shape(curves['nearcast'])}"
        f" ({listed(curves['nearcast'])}).\n"
    )
