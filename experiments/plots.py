"""The common style of plots."""

from __future__ import annotations

from typing import Any


def axes_of(title: str) -> tuple[Any, Any]:
    """Return axes under a title, and the figure they are in."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "nearcast"  # the same picture for the same numbers
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    return axes, figure
