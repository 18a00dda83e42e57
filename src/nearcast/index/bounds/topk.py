"""Prefixes and bounds of kind `topk`: messages that cannot be among the k best (Skype, sections 5.1 and 7.3.4).

Terms are ordered by rising frequency, in the subscription as in the message. `weights` are a subscription's
weights in that order, `others` the message's. A prefix is given by its length.

`needed_text` is the part of the threshold, the score of the worst of k results, that nearness cannot reach. It is
compared after multiplying by 1 - alpha, so alpha may be 1.
"""

from __future__ import annotations

from collections.abc import Sequence


def needed_text(*, threshold: float, alpha: float, most_near: float = 1.0) -> float:
    """Return the least cosine, times 1 - alpha, with which a message at `most_near` reaches the threshold (eq. 2)."""
    return threshold - alpha * most_near


def least_cosine(*, threshold: float, alpha: float, most_near: float = 1.0) -> float:
    """Return the least cosine with which a message reaches the threshold: lambda of equations 2 and 18."""
    needed = needed_text(threshold=threshold, alpha=alpha, most_near=most_near)
    if alpha < 1.0:
        return needed / (1.0 - alpha)
    return float("-inf") if needed <= 0.0 else float("inf")


def most_near(inner_distance: float, outer_distance: float, *, max_distance: float) -> float:
    """Return the greatest nearness between a subscription in a cell and a message outside (definitions 6 to 8).

    `inner_distance` is that from the subscription to the border of its cell, `outer_distance` that from the message
    to the cell. Never underestimates.
    """
    return max(0.0, 1.0 - (inner_distance + outer_distance) / max_distance)


def rest(weights: Sequence[float], position: int) -> float:
    """Return the sum of the weights from a position on (equation 3)."""
    return sum(weights[position:])


def greatest(weights: Sequence[float], position: int) -> float:
    """Return the greatest weight from a position on (equation 4); 0 past the end."""
    return max(weights[position:], default=0.0)


def prefix_length(weights: Sequence[float], *, needed: float) -> int:
    """Return how many leading terms hold one that a message with a cosine of `needed` shares (definitions 4 and 12).

    No weight of a message exceeds 1, so the terms past the prefix contribute less than `needed`.
    """
    return next((p for p in range(len(weights) + 1) if rest(weights, p) < needed), len(weights))


def refined_prefix_length(
    weights: Sequence[float], positions: Sequence[int], others: Sequence[float], *, needed: float
) -> int:
    """Return the prefix length for one message, from its greatest weights (definition 5).

    `positions[i]` is the position in `others` of the first term that is not before the subscription's i-th term.
    """
    for p in range(len(weights)):
        if greatest(others, positions[p]) * rest(weights, p) < needed:
            return p
    return len(weights)


def upper_bound_unseen(weights: Sequence[float], others: Sequence[float]) -> float:
    """Return the greatest cosine of terms not yet visited (equation 5); never underestimates."""
    return min(rest(weights, 0) * greatest(others, 0), rest(others, 0) * greatest(weights, 0))
