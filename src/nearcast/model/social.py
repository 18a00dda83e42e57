"""Kind `social`: the k best messages of the window by nearness, words and friends (geo-social paper, section 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from nearcast.errors import require
from nearcast.model.document import Document
from nearcast.model.explanation import Explanation, Part
from nearcast.model.footprint import Footprints
from nearcast.model.identity import Id, check_id
from nearcast.model.limits import Limits
from nearcast.model.scoring import ScoringContext
from nearcast.model.subscription import KeywordSubscription, ResultPolicy, Scorer
from nearcast.model.subscription_columns import KeywordColumns, SubscriptionColumns
from nearcast.text import dice


@dataclass(frozen=True)
class SocialSubscription(KeywordSubscription):
    """The k messages of the window with the greatest `near + dice + social`; no term has to be shared.

    >>> SocialSubscription("g1", location=(.2, .3), keywords="brunch", k=10, user="ann").user
    'ann'
    """

    kind: ClassVar[str] = "social"
    keeps: ClassVar[ResultPolicy] = ResultPolicy.BEST_IN_WINDOW

    k: int
    user: Id

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_k()
        check_id(self.user, "user", subject=self.subject)

    def check(self, scoring: ScoringContext, limits: Limits) -> None:
        """Raise `InvalidInput` also for a user the social graph does not know."""
        super().check(scoring, limits)
        known = self.user in scoring.social.users
        require(known, "user", "must be known to the social graph", self.user, subject=self.subject)

    def bind(self, scoring: ScoringContext) -> Scorer:
        """Return the sum of nearness, Dice and social score."""
        location, user = self.location, self.user
        near, social = scoring.space.near, scoring.social.score
        text = self._dice

        def score(document: Document) -> float | None:
            return near(location, document.location) + text(document) + social(user, document.place)

        return score

    def _dice(self, document: Document) -> float:
        units = document.units
        shared = 0
        for number in self.terms:
            if number in units:
                shared += 1
        return dice(shared, 0.0, len(self.terms), 0.0, len(units), 0.0)

    def explain(self, document: Document, scoring: ScoringContext) -> Explanation:
        """Say what nearness, words and friends bring."""
        distance = scoring.space.distance(self.location, document.location)
        friends = scoring.social.score(self.user, document.place)
        parts = (
            Part("near", scoring.space.near(self.location, document.location), 1.0, f"distance {distance:.6g}"),
            Part("text", self._dice(document), 1.0, f"shares {' '.join(self.shared(document)) or 'nothing'}"),
            Part("social", friends, 1.0, f"user {self.user!r}, place {document.place!r}"),
        )
        return Explanation(self.kind, self.id, document.id, parts, self.bind(scoring)(document))

    @classmethod
    def footprints(
        cls, subscription_columns: SubscriptionColumns, keys: npt.NDArray[np.uint64], scoring: ScoringContext
    ) -> Footprints:
        """Return everything: any message may be among the best."""
        assert isinstance(subscription_columns, KeywordColumns)
        needs = np.zeros(len(subscription_columns), np.bool_)
        return Footprints.of_any_term(
            keys,
            subscription_columns.xs,
            subscription_columns.ys,
            subscription_columns.ks,
            subscription_columns.term_indptr,
            subscription_columns.term_ids,
            needs=needs,
        )
