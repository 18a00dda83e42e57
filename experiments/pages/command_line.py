"""Generates pages, plots and the figures of the README from the data files; measures nothing.

    python -m experiments.pages                      everything that has data
    python -m experiments.pages topk topk-windows    some pages

A page with missing data is skipped and stays as it is.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments.data_file import FOLDER
from experiments.environment import ROOT
from experiments.pages.generator import NAMES, generate
from experiments.pages.page import Data
from experiments.question import report_progress


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and generate; return 1 if a page that was named has no data."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.pages",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="PAGE", help=f"some of {', '.join(NAMES)}; by default all")
    parser.add_argument("--data", type=Path, default=FOLDER, metavar="FOLDER", help="the folder of data files")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks", metavar="FOLDER")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md", metavar="FILE")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in NAMES]:
        parser.error(f"PAGE must be one of {', '.join(NAMES)}; got {unknown[0]!r}")
    names, data = options.names or NAMES, Data(options.data)
    skipped = generate(names, data=data, out=options.out, readme=options.readme, report=report_progress)
    return 1 if options.names and skipped else 0
