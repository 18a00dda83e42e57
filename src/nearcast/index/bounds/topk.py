"""When can a message not be among the k best? Prefixes and bounds of kind `topk` (Skype, sections 5.1 and 7.3.4).

Terms are ordered by rising frequency, the same in subscription and message; `weights` is a subscription's list of
weights in that order, `others` the message's. A prefix is given by its length.

The text a message must bring, `needed_text`, is what the worst of k results leaves after the best nearness can do;
it is compared after multiplying by 1 - alpha, so alpha may be 1.
"""

from __future__ import annotations

from collections.abc import Sequence


def needed_text(*, threshold: float, alpha: float, most_near: float = 1.0) -> float:
    """Return the least cosine, times 1 - alpha, with which a message at `most_near` reaches the bar (equation 2)."""
    return threshold - alpha * most_near


def threshold(*, threshold: float, alpha: float, most_near: float = 1.0) -> float:
    """Return the least cosine with which a message reaches the bar: lambda of equations 2 and 18."""
    needed = needed_text(threshold=threshold, alpha=alpha, most_near=most_near)
    if alpha < 1.0:
        return needed / (1.0 - alpha)
    return float("-inf") if needed <= 0.0 else float("inf")


def most_near(inner_distance: float, outer_distance: float, *, max_distance: float) -> float:
    """Return the most nearness between a subscription in a cell and a message outside (definitions 6 to 8).

    `inner_distance` leads from the subscription to the border of its cell, `outer_distance` from the message to the
    cell. Never underestimates.
    """
    return max(0.0, 1.0 - (inner_distance + outer_distance) / max_distance)


def rest(weights: Sequence[float], position: int) -> float:
    """Return the sum of the weights from a position on (equation 3)."""
    return sum(weights[position:])


def greatest(weights: Sequence[float], position: int) -> float:
    """Return the greatest weight from a position on (equation 4); 0 past the end."""
    return max(weights[position:], default=0.0)


def prefix_length(weights: Sequence[float], *, needed: float) -> int:
    """Return how many leading terms a message must touch to bring `needed` (definitions 4 and 12).

    No weight of a message exceeds 1, so what it shares past the prefix is less than that.
    """
    return next((p for p in range(len(weights) + 1) if rest(weights, p) < needed), len(weights))


def refined_prefix_length(
    weights: Sequence[float], positions: Sequence[int], others: Sequence[float], *, needed: float
) -> int:
    """Return the prefix for one message, knowing its greatest weights (definition 5).

    `positions[i]` is where the message's terms from the subscription's i-th on begin in `others`.
    """
    for p in range(len(weights)):
        if greatest(others, positions[p]) * rest(weights, p) < needed:
            return p
    return len(weights)


def upper_bound_unseen(weights: Sequence[float], others: Sequence[float]) -> float:
    """Return the most that terms not yet looked at can bring (equation 5); never underestimates."""
    return min(rest(weights, 0) * greatest(others, 0), rest(others, 0) * greatest(weights, 0))
