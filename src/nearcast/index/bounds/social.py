"""Bound of kind `social` on the score of a message for all subscriptions of a node (geo-social, section 3.5).

A node holds the subscriptions in a box; `node_terms` are all their terms.
"""

from __future__ import annotations

from collections.abc import Set


def upper_bound_text(node_terms: Set[str] | Set[int], message_terms: Set[str] | Set[int]) -> float:
    """Return the greatest Dice of a message and any subscription of a node (equation 7); never underestimates.

    The best subscription holds exactly the terms that the node and the message share.
    """
    shared = len(set(node_terms) & set(message_terms))
    return 2.0 * shared / (shared + len(message_terms)) if shared else 0.0


def upper_bound_score(*, most_near: float, most_text: float, most_social: float) -> float:
    """Return the greatest score of a message for any subscription of a node (equation 6); never underestimates."""
    return most_near + most_text + most_social
