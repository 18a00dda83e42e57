"""Kind `social`: the k best messages of the window by nearness, words and social graph (geo-social, section 2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt

from nearcast.model.document import Document
from nearcast.model.explanation import Explanation, ScorePart
from nearcast.model.fields import CountField, KeywordsField, UserField
from nearcast.model.footprint import Footprints
from nearcast.model.identity import Id
from nearcast.model.result_policy import BEST_IN_WINDOW, ResultPolicy
from nearcast.model.scoring import ScoringContext
from nearcast.model.subscription import KeywordSubscription, Scorer
from nearcast.model.subscription_columns import SubscriptionColumns
from nearcast.text import Text, dice


@dataclass(frozen=True)
class SocialSubscription(KeywordSubscription):
    """The k messages of the window with the greatest `near + dice + social`; no shared term is needed.

    >>> SocialSubscription("g1", location=(.2, .3), keywords="brunch", k=10, user="ann").user
    'ann'
    """

    kind: ClassVar[str] = "social"
    result_policy: ClassVar[ResultPolicy] = BEST_IN_WINDOW
    label: ClassVar[str] = "Social"
    help: ClassVar[str] = (
        "The best recent messages by distance, words, and the places that people with similar tastes visit."
    )
    icon: ClassVar[str] = (
        "M5.5 3a2.2 2.2 0 1 0 0 4.4a2.2 2.2 0 1 0 0-4.4M1.5 13.5c0-2.6 1.8-4 4-4s4 1.4 4 4M11 4a1.9 1.9 0 1 1 0 3.8"
        "M11.5 9.7c1.8 0 3 1.3 3 3.3"
    )

    keywords: Annotated[Text, KeywordsField(label="Words", help="Shared words raise the score; none is required.")]
    k: Annotated[
        int,
        CountField(
            label="Number of results",
            help="The result holds this many messages; a better one replaces the worst.",
            example="With 1 you see only the best message.",
            ends=("1", "20"),
        ),
    ]
    user: Annotated[
        Id, UserField(label="User", help="The user whose places and neighbours in the social graph count.")
    ]

    def bind(self, scoring: ScoringContext) -> Scorer:
        """Return the sum of nearness, Dice coefficient and social score."""
        location, user = self.location, self.user
        near, social = scoring.space.near, scoring.social.score
        text = self._dice(scoring)

        def score(document: Document) -> float | None:
            return near(location, document.location) + text(document) + social(user, document.place)

        return score

    def _dice(self, scoring: ScoringContext) -> Callable[[Document], float]:
        numbers = frozenset(self.terms(scoring))

        def text(document: Document) -> float:
            units = document.units
            shared = len(numbers & units.keys())
            return dice(shared, 0.0, len(numbers), 0.0, len(units), 0.0)

        return text

    def explain(self, document: Document, scoring: ScoringContext) -> Explanation:
        """Return what nearness, words and the social graph contribute."""
        space = scoring.space
        parts = (
            ScorePart(
                "near", space.near(self.location, document.location), 1.0,
                distance=space.distance(self.location, document.location),
            ),
            ScorePart("text", self._dice(scoring)(document), 1.0, shared_terms=self.shared(document, scoring)),
            ScorePart(
                "social", scoring.social.score(self.user, document.place), 1.0,
                user=self.user, place=document.place, link=scoring.social.link(self.user, document.place),
            ),
        )  # fmt: skip
        return Explanation(self.kind, self.id, document.id, parts, self.bind(scoring)(document))

    @classmethod
    def footprints(
        cls, columns: SubscriptionColumns, keys: npt.NDArray[np.uint64], scoring: ScoringContext
    ) -> Footprints:
        """Return footprints that every message touches: any message may be among the best."""
        return cls._any_term(columns, keys, needs_term=False)
