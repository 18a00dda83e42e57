"""Sentences about figures, which follow from the numbers."""

from __future__ import annotations

from collections.abc import Sequence

ENOUGH = 1.1
"""What counts as a change."""


def shape(values: Sequence[float]) -> str:
    """Say in words how values go.

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
    """Say whether we agree with the paper."""
    return "we agree" if agrees else "we do not agree"


def listed(values: Sequence[float]) -> str:
    """Write values one after the other."""
    return ", ".join(f"{value:.1f}" for value in values)


def held_against(ratio: float, claim: float) -> str:
    """Say how a ratio compares with one that the paper gives, give or take a fifth.

    >>> held_against(9.0, 10), held_against(1.5, 10), held_against(1.05, 10)
    ('we agree', 'faster as well, but by less', 'we do not agree')
    """
    return "faster as well, but by less" if ENOUGH <= ratio < 0.8 * claim else verdict(ratio >= 0.8 * claim)
