"""The five text functions of kind `similarity`.

Each is a plain scalar function of six numbers, so that the reference and the kernels share it:

    shared, shared_weight        number of shared terms, and the sum of their idf
    n, weight                    the subscription's terms
    n_message, message_weight    the message's terms

All return a number in [0, 1], and 0 where there is nothing to compare.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

TextSimilarity = Callable[[int, float, int, float, int, float], float]


def containment(
    shared: int, shared_weight: float, n: int, weight: float, n_message: int, message_weight: float
) -> float:
    """Return the idf weight of the shared terms over that of the subscription's (STAMP, definition 2)."""
    return shared_weight / weight if weight > 0.0 else 0.0


def overlap(shared: int, shared_weight: float, n: int, weight: float, n_message: int, message_weight: float) -> float:
    """Return containment with every weight 1."""
    return shared / n if n > 0 else 0.0


def jaccard(shared: int, shared_weight: float, n: int, weight: float, n_message: int, message_weight: float) -> float:
    """Return the idf weight of the shared terms over that of all terms of both."""
    union = weight + message_weight - shared_weight
    return shared_weight / union if union > 0.0 else 0.0


def dice(shared: int, shared_weight: float, n: int, weight: float, n_message: int, message_weight: float) -> float:
    """Return twice the number of shared terms over the sum of both numbers.

    >>> dice(1, 0.0, 2, 0.0, 3, 0.0)
    0.4
    """
    total = n + n_message
    return 2.0 * shared / total if total > 0 else 0.0


def cosine(shared: int, shared_weight: float, n: int, weight: float, n_message: int, message_weight: float) -> float:
    """Return the number of shared terms over the geometric mean of both numbers."""
    product = n * n_message
    return shared / sqrt(product) if product > 0 else 0.0


TEXT_SIMILARITIES: dict[str, TextSimilarity] = {
    function.__name__: function for function in (containment, overlap, jaccard, dice, cosine)
}
