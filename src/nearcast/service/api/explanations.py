"""Explanations as JSON."""

from __future__ import annotations

from typing import Any

from nearcast.model import Explanation, ScorePart
from nearcast.service.subscription_key import SubscriptionKey


def explanation_body(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as JSON, with the id of the subscription as its subscriber knows it."""
    return {
        "kind": explanation.kind,
        "subscription": SubscriptionKey.parse(explanation.subscription).id,
        "message": str(explanation.message),
        "parts": [part_body(part) for part in explanation.parts],
        "score": explanation.score,
        "threshold": explanation.threshold,
        "passes": explanation.passes,
        "reason": explanation.reason,
        "hints": list(explanation.hints),
        "highlights": None
        if explanation.highlights is None
        else [found._asdict() for found in explanation.highlights],
    }


def part_body(part: ScorePart) -> dict[str, Any]:
    """Return a part of a score as JSON."""
    return {
        "name": part.name,
        "value": part.value,
        "weight": part.weight,
        "passes": part.passes,
        "distance": part.distance,
        "shared_terms": part.shared_terms,
        "missing_terms": part.missing_terms,
        "excluded_terms": part.excluded_terms,
        "condition": part.condition,
        "user": None if part.link is None else str(part.link.user),
        "note": part.note,
    }
