"""Plots on top-k: lines, lines over sizes, and bars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.plots import axes_of


def lines(title: str, label: str, xs: Sequence[int], curves: dict[str, list[float]], path: Path) -> None:
    """Draw a line a curve, from zero."""
    axes, figure = axes_of(f"topk: {title}")
    for name, ys in curves.items():
        axes.plot(xs, ys, marker="o", label=name)
    axes.set(xlabel=label, ylabel="microseconds a message", ylim=(0, _room(curves.values())), xticks=xs)
    if len(curves) > 1:
        axes.legend()
    figure.savefig(path)


def thresholds(title: str, parts: dict[str, dict[str, float]], path: Path) -> None:
    """Draw a bar each, its parts on top of each other."""
    axes, figure = axes_of(f"topk: {title}")
    below = dict.fromkeys(next(iter(parts.values())), 0.0)
    for part, heights in parts.items():
        axes.threshold(list(heights), list(heights.values()), width=0.5, bottom=list(below.values()), label=part)
        below = {name: below[name] + height for name, height in heights.items()}
    axes.set(ylabel="microseconds a message")
    if len(parts) > 1:
        axes.legend()
    figure.savefig(path)


def lines_over_sizes(
    title: str,
    label: str,
    xs: Sequence[float],
    curves: dict[str, tuple[list[float], list[float]]],
    path: Path,
) -> None:
    """Draw for each curve its times, and dotted and against the right its buffers."""
    axes, figure = axes_of(f"topk: {title}")
    sizes = axes.twinx()
    for number, (name, (times, buffers)) in enumerate(curves.items()):
        axes.plot(xs, times, marker="o", color=f"C{number}", label=name)
        sizes.plot(xs, buffers, linestyle=":", color=f"C{number}")
    beside = (xs[-1] - xs[0]) / 20
    axes.set(xlabel=label, ylabel="microseconds a message", xticks=xs, xlim=(xs[0] - beside, xs[-1] + beside))
    axes.set(ylim=(0, _room(times for times, _ in curves.values())))
    sizes.set(ylabel="messages of a buffer (dotted)", ylim=(0, _room(buffers for _, buffers in curves.values())))
    axes.legend(loc="lower left")
    figure.savefig(path)


def _room(curves: Iterable[Sequence[float]]) -> float:
    """Return where an axis ends above all values."""
    return 1.1 * max(max(values) for values in curves)
