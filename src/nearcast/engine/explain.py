"""Why is a message in a result, or why not? The parts of its score, and what it competes with."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from nearcast.model import Document, Explanation, ScoringContext

if TYPE_CHECKING:
    from nearcast.engine.registry import SubscriptionRegistry


class Rivals(Protocol):
    """Who knows what else is in results: a keeper, or a union."""

    def would_enter(self, slot: int, document: Document, score: float) -> bool:
        """Tell whether a message is in a result or, published now, would come in."""

    def threshold(self, slot: int) -> float | None:
        """Return the score of the worst of k results; None if there is room."""


def explain(
    registry: SubscriptionRegistry, slot: int, document: Document, scoring: ScoringContext, rivals: Rivals
) -> Explanation:
    """Say how a message fares for a subscription, given what else is in its result."""
    subscription = registry.subscription(slot)
    explained = subscription.explain(document, scoring)
    if subscription.result_policy.since_subscription and document.seq <= registry.since(slot):
        return replace(explained, passes=False, reason="no match, it was published before the subscription")
    if not subscription.result_policy.is_stateful or explained.score is None:
        return explained
    return ranked(explained, rivals.would_enter(slot, document, explained.score), rivals.threshold(slot))


def ranked(explained: Explanation, passes: bool, threshold: float | None) -> Explanation:
    """Return an explanation that also says how a message stands among the k best, the worst of which is the bar."""
    if threshold is None:
        reason = "in the result, which is not full"
    else:
        reason = "in the result" if passes else "not among the k best"
    return replace(explained, passes=passes, threshold=threshold, reason=reason)
