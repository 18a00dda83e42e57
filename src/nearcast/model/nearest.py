"""Kind `nearest`: the k nearest messages that share a term, since the subscription (DkM-SKS, section 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from nearcast.model.document import Document
from nearcast.model.explanation import Explanation, ScorePart
from nearcast.model.fields import CountField
from nearcast.model.result_policy import BEST_EVER, ResultPolicy
from nearcast.model.scoring import ScoringContext
from nearcast.model.subscription import KeywordSubscription, Scorer


@dataclass(frozen=True)
class NearestSubscription(KeywordSubscription):
    """The k nearest messages that share a term, of all messages published after the subscription.

    >>> NearestSubscription("n1", location=(.2, .3), keywords="ramen sushi", k=5).k
    5
    """

    kind: ClassVar[str] = "nearest"
    result_policy: ClassVar[ResultPolicy] = BEST_EVER
    label: ClassVar[str] = "Nearest"
    help: ClassVar[str] = (
        "The nearest messages that share a word, from now on. A message outside the circle cannot enter."
    )
    icon: ClassVar[str] = (
        "M8 14.5s-4.5-4.6-4.5-8a4.5 4.5 0 1 1 9 0c0 3.4-4.5 8-4.5 8M8 5.2a1.3 1.3 0 1 0 0 2.6a1.3 1.3 0 1 0 0-2.6"
    )

    k: Annotated[
        int,
        CountField(
            label="Number of results",
            help="The result holds this many messages; a nearer one replaces the farthest.",
            example="With 1 you see only the nearest message.",
            ends=("1", "20"),
        ),
    ]

    def bind(self, scoring: ScoringContext) -> Scorer:
        """Return the distance, None for a message that shares no term."""
        location, distance = self.location, scoring.space.distance
        numbers = frozenset(self.terms(scoring))

        def score(document: Document) -> float | None:
            return None if numbers.isdisjoint(document.units) else distance(location, document.location)

        return score

    def explain(self, document: Document, scoring: ScoringContext) -> Explanation:
        """Return the distance and the shared terms."""
        shared = self.shared(document, scoring)
        distance = scoring.space.distance(self.location, document.location)
        parts = (
            ScorePart("distance", distance, 1.0, distance=distance),
            ScorePart("text", float(len(shared)), passes=bool(shared), shared_terms=shared),
        )
        reason = "" if shared else "no match, text failed: no term is shared"
        return Explanation(self.kind, self.id, document.id, parts, self.bind(scoring)(document), reason=reason)
