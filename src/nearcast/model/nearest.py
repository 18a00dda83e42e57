"""Kind `nearest`: the k nearest messages that share a term, since the subscription came (DkM-SKS, section 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nearcast.model.document import Document
from nearcast.model.explanation import Explanation, Part
from nearcast.model.scoring import ScoringContext
from nearcast.model.subscription import KeywordSubscription, ResultPolicy, Scorer


@dataclass(frozen=True)
class NearestSubscription(KeywordSubscription):
    """The k nearest messages that share a term, of all that came after the subscription; no window ends them.

    >>> NearestSubscription("n1", location=(.2, .3), keywords="ramen sushi", k=5).k
    5
    """

    kind: ClassVar[str] = "nearest"
    keeps: ClassVar[ResultPolicy] = ResultPolicy.BEST_EVER

    k: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_k()

    def bind(self, scoring: ScoringContext) -> Scorer:
        """Return the distance of messages that share a term."""
        location, distance = self.location, scoring.space.distance
        numbers = frozenset(self.terms)

        def score(document: Document) -> float | None:
            return None if numbers.isdisjoint(document.units) else distance(location, document.location)

        return score

    def explain(self, document: Document, scoring: ScoringContext) -> Explanation:
        """Say how far the message is and what it shares."""
        shared = self.shared(document)
        parts = (
            Part("distance", scoring.space.distance(self.location, document.location), 1.0),
            Part(
                "text",
                float(len(shared)),
                note=f"shares {' '.join(shared) or 'nothing'}",
                passes=bool(shared),
            ),
        )
        reason = "" if shared else "no match, text failed: no term is shared"
        return Explanation(self.kind, self.id, document.id, parts, self.bind(scoring)(document), reason=reason)
