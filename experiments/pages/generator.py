"""Writes pages, plots and the figures of the README."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from experiments.pages import (
    balance,
    cliffs,
    filters,
    index,
    many_shards,
    merge_stage,
    nearest,
    partitioners,
    readme_figures,
    rescaling,
    social,
    topk,
    topk_windows,
    workers,
)
from experiments.pages.page import Data
from experiments.pages.plots import Plots

PAGES = {
    module.PAGE.name: module.PAGE
    for module in (
        index, topk, topk_windows, nearest, social, partitioners, many_shards, rescaling, balance, merge_stage,
        filters, workers, cliffs,
    )
}  # fmt: skip
FIGURES = "figures"
"""The name of the block in the README of the project."""
NAMES = (*PAGES, FIGURES)


def generate(
    names: Iterable[str], *, data: Data, out: Path, readme: Path, report: Callable[[str], None]
) -> list[str]:
    """Generate pages, and return the names of those that were skipped because data is missing."""
    out.mkdir(parents=True, exist_ok=True)
    skipped = []
    for name in names:
        needs = readme_figures.NEEDS if name == FIGURES else PAGES[name].needs
        target = readme if name == FIGURES else out / f"{name}.md"
        if missing := [need for need in needs if not data.has(need)]:
            report(f"{name}: skipped, {target} stays as it is; not measured yet: {' '.join(missing)}")
            skipped.append(name)
            continue
        if name == FIGURES:
            text = readme_figures.render(readme.read_text(), data.question("headline"))
        else:
            text = PAGES[name].text(data, Plots(out))
        target.write_text(text)
        report(f"{name}: {target}")
    return skipped
