"""Types of command-line arguments, with errors that name the rule."""

from __future__ import annotations

import argparse
import re
from math import isfinite

_SECONDS = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}


def count(text: str) -> int:
    """Parse an integer of 0 or more; `2_000`, `10k` and `5M` are valid.

    >>> count("10k"), count("1.5M")
    (10000, 1500000)
    """
    scale = {"k": 1_000, "m": 1_000_000}.get(text[-1:].lower(), 1)
    try:
        number = float(text[:-1] if scale > 1 else text) * scale
        if number != int(number) or number < 0:
            raise ValueError(text)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"must be a whole number of 0 or more; got {text!r}") from None
    return int(number)


def positive(text: str) -> int:
    """Parse an integer of 1 or more."""
    number = count(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of 1 or more; got {text!r}")
    return number


def amount(text: str) -> float:
    """Parse a finite number of 0 or more."""
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not isfinite(number) or number < 0:
        raise argparse.ArgumentTypeError(f"must be a number of 0 or more; got {text!r}")
    return number


def duration(text: str) -> float:
    """Parse a duration in seconds with its unit: s, min, h or d.

    >>> duration("90s"), duration("1.5h"), duration("2min"), duration("7d")
    (90.0, 5400.0, 120.0, 604800.0)
    """
    parts = re.fullmatch(r"([0-9.]+)(s|min|h|d)", text)
    if parts is None:
        raise argparse.ArgumentTypeError(f"must be a duration such as 90s, 5min, 1h or 7d; got {text!r}")
    return amount(parts[1]) * _SECONDS[parts[2]]


def attributes(text: str) -> dict[str, str]:
    """Parse attributes: names and types.

    >>> attributes("price=float, category=str")
    {'price': 'float', 'category': 'str'}
    """
    pairs = [part.rpartition("=")[::2] for part in text.split(",") if part.strip()]
    names = [name.strip() for name, _ in pairs]
    if not all(names) or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"must be NAME=TYPE,... with different names; got {text!r}")
    return {name.strip(): type_.strip() for name, type_ in pairs}
