"""Prefixes and spatial bounds of kind `similarity`: messages that cannot reach tau (STAMP, sections III to V).

A subscription's terms are ordered by falling weight; `weights` is that list. A prefix is given by its length.

    t1 t2 t3 | t4 | t5          SIG = t1..t3: a match shares one of these
      SIG    SIG+1 SIG+2        SIG+k: a match that shares only k terms before them shares one of these

Text is weighted containment. Departures from the paper: conditions are products instead of quotients, so delta may
be 0 or 1; "no prefix suffices" (the virtual term) is a length of None; all sums start from the same end.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate


def upper_bound_text(weights: Sequence[float], first: int, *, others: int = 0) -> float:
    """Return the greatest text score if `first` is the first term shared, apart from `others` of the heaviest.

    Never underestimates (equations 3 and 16).
    """
    total = sum(weights)
    if total <= 0.0:
        return 0.0
    return min(1.0, (sum(weights[:others]) + sum(weights[first:])) / total)


def least_near(weights: Sequence[float], first: int, *, delta: float, tau: float, others: int = 0) -> float:
    """Return the least nearness of a match whose first shared term is `first` (equations 4 and 15).

    Never overestimates; above 1 nothing matches, at or below 0 distance does not matter.
    """
    return _needed(tau - delta * upper_bound_text(weights, first, others=others), 1.0 - delta)


def least_near_without_text(*, delta: float, tau: float) -> float:
    """Return the least nearness of a match that shares no term: that of the virtual term."""
    return _needed(tau, 1.0 - delta)


def prefix_length(weights: Sequence[float], *, delta: float, tau: float, most_near: float = 1.0) -> int | None:
    """Return how many of the heaviest terms hold one that a match shares, if nearness is `most_near` at most.

    With `most_near` 1 this is the spatial-oriented prefix (equation 2), with the nearness of a region's border the
    region-aware one (equation 10). None if a message that shares no term may match.
    """
    needed = tau - (1.0 - delta) * most_near
    if needed <= 0.0:
        return None
    total = sum(weights)
    tails = _tails(weights)
    for length in range(len(weights) + 1):
        if delta * tails[length] < needed * total:
            return length
    return len(weights)


def further_prefixes(weights: Sequence[float], *, delta: float, tau: float, most_near: float = 1.0) -> list[int]:
    """Return the ends of SIG+1, SIG+2, ..., the spatio-textual prefixes (equations 11 and 14).

    Item k of the list is the end of SIG+(k+1); each begins at the end of the one before, the first at that of SIG.
    """
    start = prefix_length(weights, delta=delta, tau=tau, most_near=most_near)
    if start is None:
        return []
    needed = (tau - (1.0 - delta) * most_near) * sum(weights)
    tails, heads = _tails(weights), [0.0, *accumulate(weights)]
    ends: list[int] = []
    for k in range(1, len(weights) + 1):
        if start >= len(weights):
            break
        end = next((q for q in range(start, len(weights)) if delta * (heads[k] + tails[q]) < needed), len(weights))
        ends.append(end)
        start = end
    return ends


def cost_of_verifying(remaining: Sequence[int]) -> int:
    """Return how many terms verifying all candidates reads, given how many each has left (section V-C)."""
    return sum(remaining)


def cost_of_filtering(remaining: Sequence[int], *, listed: int, listed_in_region: int) -> float:
    """Return the estimated cost of one more prefix: reading its lists, then verifying what remains (section V-C).

    `listed` entries are on the lists of the message's terms, of `listed_in_region` on all lists of the region.
    """
    share = listed / listed_in_region if listed_in_region else 0.0
    return listed + (cost_of_verifying(remaining) - len(remaining)) * share


def _tails(weights: Sequence[float]) -> list[float]:
    """Return the sum of the weights from each position on, and 0 at the end."""
    return [*[*accumulate(reversed(weights))][::-1], 0.0]


def _needed(missing: float, share: float) -> float:
    if share > 0.0:
        return missing / share
    return 0.0 if missing <= 0.0 else float("inf")
