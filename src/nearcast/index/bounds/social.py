"""When can a message be of no use to anyone in a node? The bound of kind `social` (geo-social, section 3.5).

A node holds subscriptions that lie in a box; `node_terms` are all their terms.
"""

from __future__ import annotations

from collections.abc import Set


def upper_bound_text(node_terms: Set[str] | Set[int], message_terms: Set[str] | Set[int]) -> float:
    """Return the greatest Dice of a message and any subscription of a node (equation 7); never underestimates.

    The best a subscription can do is to hold just the terms that node and message share.
    """
    shared = len(set(node_terms) & set(message_terms))
    return 2.0 * shared / (shared + len(message_terms)) if shared else 0.0


def upper_bound_score(*, most_near: float, most_text: float, most_social: float) -> float:
    """Return the greatest score of a message for any subscription of a node (equation 6); never underestimates."""
    return most_near + most_text + most_social
