"""Sentences about figures, computed from the numbers."""

from __future__ import annotations

from collections.abc import Sequence

ENOUGH = 1.1
"""The ratio from which two values count as different."""


def shape(values: Sequence[float]) -> str:
    """Describe the course of values.

    >>> shape([5, 3, 6]), shape([1, 1.05, 1.02]), shape([3, 2, 1])
    ('falls, then grows', 'hardly changes', 'falls')
    """
    first, last = values[0], values[-1]
    if min(first, last) >= ENOUGH * min(values):
        return "falls, then grows"
    if max(first, last) * ENOUGH <= max(values):
        return "grows, then falls"
    if last >= ENOUGH * first:
        return "grows"
    return "falls" if last * ENOUGH <= first else "hardly changes"


def verdict(agrees: bool) -> str:
    """Return whether a measurement agrees with the paper, as the end of a sentence."""
    return "which agrees with the paper" if agrees else "which differs from the paper"


def gain_verdict(ratio: float, claim: float) -> str:
    """Compare a ratio of speeds with the one that the paper gives, with a tolerance of a fifth.

    >>> gain_verdict(9.0, 10), gain_verdict(1.5, 10), gain_verdict(1.05, 10)
    ('which agrees with the paper', 'a smaller gain than in the paper', 'which differs from the paper')
    """
    if ENOUGH <= ratio < 0.8 * claim:
        return "a smaller gain than in the paper"
    return verdict(ratio >= 0.8 * claim)


def proportion(grown: float, more: float) -> str:
    """Compare the growth of a cost with that of its cause.

    >>> proportion(3.0, 16.0), proportion(20.0, 16.0)
    ('less than in proportion', 'more than in proportion')
    """
    if grown < more:
        return "less than in proportion"
    return "more than in proportion" if grown > more else "in proportion"


def numbers(values: Sequence[float]) -> str:
    """Return values with one decimal, one after the other."""
    return ", ".join(f"{value:,.1f}" for value in values)


def integers(values: Sequence[int]) -> str:
    """Return integers one after the other."""
    return ", ".join(f"{value:,}" for value in values)
