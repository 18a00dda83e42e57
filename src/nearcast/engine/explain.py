"""Explanations that compare a score with the current result."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from nearcast.model import Document, Explanation, ScoringContext

if TYPE_CHECKING:
    from nearcast.engine.registry import SubscriptionRegistry


class CurrentResults(Protocol):
    """The results to compare with: those of a result store, or of a merger."""

    def would_enter(self, slot: int, document: Document, score: float) -> bool:
        """Return whether a message is in a result or would enter it if published now."""

    def threshold(self, slot: int) -> float | None:
        """Return the score of the worst of k results; None if the result is not full."""


def explain(
    registry: SubscriptionRegistry, slot: int, document: Document, scoring: ScoringContext, current: CurrentResults
) -> Explanation:
    """Explain the score of a message for a subscription, given the other messages of its result."""
    subscription = registry.subscription(slot)
    explained = subscription.explanation(document, scoring)
    if subscription.result_policy.since_subscription and document.seq <= registry.since(slot):
        return replace(explained, passes=False, reason="no match, it was published before the subscription")
    if not subscription.result_policy.is_stateful or explained.score is None:
        return explained
    return with_rank(explained, current.would_enter(slot, document, explained.score), current.threshold(slot))


def with_rank(explained: Explanation, passes: bool, threshold: float | None) -> Explanation:
    """Return an explanation that includes the rank among the k best, the worst of which is the threshold."""
    if threshold is None:
        reason = "in the result, which is not full"
    else:
        reason = "in the result" if passes else "not among the k best"
    return replace(explained, passes=passes, threshold=threshold, reason=reason)
