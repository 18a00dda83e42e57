"""Types of command-line arguments, with errors that name the rule."""

from __future__ import annotations

import argparse
from math import isfinite


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
