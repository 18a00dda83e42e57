"""A question, and the parts that are measured one by one to answer it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
"""The figures of one run: names to JSON values."""
Measure = Callable[[float], list[Row]]
"""Measures at a scale; at 1.0 with the sizes that the pages show."""


@dataclass(frozen=True, eq=False)
class Question:
    """What an experiment asks."""

    name: str
    """Also the name of its data file."""
    asks: str
    parts: Mapping[str, Measure]
    """Each part is measured and recorded by itself."""
    minutes: float
    """About how long all parts take at full scale."""
    is_long: bool = False
    """Whether it is measured only when its name is given, and not with `all`."""


def scaled(n: int, scale: float, *, least: int = 1_000) -> int:
    """Return a number of subscriptions or messages at a scale, but at least a few.

    >>> scaled(50_000, 0.1), scaled(50_000, 0.001), scaled(300, 0.1)
    (5000, 1000, 300)
    """
    return max(round(n * scale), min(n, least))


def report_progress(text: str) -> None:
    """Print a line to standard error."""
    print(text, file=sys.stderr, flush=True)
