"""Plots: each method draws one into the folder and returns the Markdown that shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COST = "microseconds per message"


@dataclass(frozen=True)
class Plots:
    """Draws plots into a folder."""

    folder: Path

    def lines(
        self,
        name: str,
        title: str,
        *,
        xs: Sequence[float],
        curves: Mapping[str, Sequence[float]],
        xlabel: str,
        ylabel: str = COST,
        is_log: bool = False,
    ) -> str:
        """Draw a line per curve, from zero unless the axis is logarithmic."""
        with self._axes(name, title) as axes:
            for label, ys in curves.items():
                axes.plot(xs, ys, marker="o", label=label)
            axes.set(xlabel=xlabel, ylabel=ylabel, xticks=xs)
            axes.set(**{"yscale": "log"} if is_log else {"ylim": (0, _top(curves.values()))})
            if len(curves) > 1:
                axes.legend()
        return _image(name, title)

    def growth(self, name: str, title: str, *, xs: Sequence[float], ys: Sequence[float], xlabel: str) -> str:
        """Draw a cost beside one that grows in proportion, both axes logarithmic."""
        with self._axes(name, title) as axes:
            axes.plot(xs, ys, marker="o", label="measured")
            axes.plot(xs, [ys[0] * x / xs[0] for x in xs], linestyle=":", label="in proportion")
            axes.set(xscale="log", yscale="log", xlabel=xlabel, ylabel=COST)
            axes.legend()
        return _image(name, title)

    def lines_over_sizes(
        self,
        name: str,
        title: str,
        *,
        xs: Sequence[float],
        curves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
        xlabel: str,
    ) -> str:
        """Draw the times of each curve, and its sizes of buffers dotted against the right axis."""
        with self._axes(name, title) as axes:
            right = axes.twinx()
            for number, (label, (times, sizes)) in enumerate(curves.items()):
                axes.plot(xs, times, marker="o", color=f"C{number}", label=label)
                right.plot(xs, sizes, linestyle=":", color=f"C{number}")
            margin = (xs[-1] - xs[0]) / 20
            axes.set(xlabel=xlabel, ylabel=COST, xticks=xs, xlim=(xs[0] - margin, xs[-1] + margin))
            axes.set(ylim=(0, _top(times for times, _ in curves.values())))
            right.set(ylabel="messages per buffer (dotted)", ylim=(0, _top(sizes for _, sizes in curves.values())))
            axes.legend(loc="lower left")
        return _image(name, title)

    def stacked_columns(self, name: str, title: str, parts: Mapping[str, Mapping[str, float]]) -> str:
        """Draw a column per name, its parts on top of each other."""
        with self._axes(name, title) as axes:
            below = dict.fromkeys(next(iter(parts.values())), 0.0)
            for label, heights in parts.items():
                axes.bar(list(heights), list(heights.values()), width=0.5, bottom=list(below.values()), label=label)
                below = {one: below[one] + height for one, height in heights.items()}
            axes.set(ylabel=COST)
            if len(parts) > 1:
                axes.legend()
        return _image(name, title)

    def paired_columns(
        self, name: str, title: str, *, names: Sequence[str], pairs: Mapping[str, Sequence[float]], ylabel: str
    ) -> str:
        """Draw two columns beside each other per name."""
        with self._axes(name, title) as axes:
            for offset, (label, heights) in zip((-0.2, 0.2), pairs.items(), strict=True):
                axes.bar([at + offset for at in range(len(names))], heights, width=0.4, label=label)
            axes.set_xticks(range(len(names)), names)
            axes.set(ylabel=ylabel)
            axes.legend()
        return _image(name, title)

    def stages(self, name: str, title: str, parts: Mapping[str, Mapping[str, float]]) -> str:
        """Draw a horizontal bar per run, its stages one after the other."""
        with self._axes(name, title) as axes:
            left = dict.fromkeys(next(iter(parts.values())), 0.0)
            for label, seconds in parts.items():
                axes.barh(list(seconds), list(seconds.values()), left=list(left.values()), label=label)
                left = {run: left[run] + seconds[run] for run in left}
            axes.set(xlabel="seconds per batch")
            axes.legend(fontsize="small")
        return _image(name, title)

    @contextmanager
    def _axes(self, name: str, title: str) -> Iterator[Any]:
        """Yield axes and save them; the same numbers give the same file."""
        import matplotlib as mpl
        from matplotlib.figure import Figure

        with mpl.rc_context({"svg.hashsalt": "nearcast"}):
            figure = Figure(figsize=(6, 3.6), layout="constrained")
            axes = figure.add_subplot()
            axes.set_title(title)
            axes.grid(alpha=0.3)
            yield axes
            figure.savefig(self.folder / f"{name}.svg", metadata={"Date": None})


def _image(name: str, title: str) -> str:
    return f"![{title}]({name}.svg)"


def _top(curves: Iterable[Sequence[float]]) -> float:
    """Return the end of an axis, above all values."""
    return 1.1 * max(max(values) for values in curves)
