"""Kind `similarity`: every message whose weighted sum of text and nearness reaches tau (STAMP, section II)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt

from nearcast.model.document import Document
from nearcast.model.explanation import Explanation, ScorePart
from nearcast.model.fields import KeywordsField, ShareField
from nearcast.model.footprint import Footprints, anywhere
from nearcast.model.result_policy import MATCHES, ResultPolicy
from nearcast.model.scoring import ScoringContext
from nearcast.model.subscription import KeywordSubscription, Scorer
from nearcast.model.subscription_columns import KeywordColumns, SubscriptionColumns
from nearcast.text import Text


@dataclass(frozen=True)
class SimilaritySubscription(KeywordSubscription):
    """Every message with `delta * text + (1 - delta) * near >= tau`.

    >>> SimilaritySubscription("s1", location=(.2, .3), keywords="nike shoes", delta=.5, tau=1.7)
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: tau must be in [0, 1]; got 1.7 (subscription 's1')
    """

    kind: ClassVar[str] = "similarity"
    result_policy: ClassVar[ResultPolicy] = MATCHES
    label: ClassVar[str] = "Similar and near"
    help: ClassVar[str] = "Every message that is near and similar enough. The circle is the range of a perfect match."
    icon: ClassVar[str] = "M8 1.5a6.5 6.5 0 1 0 0 13a6.5 6.5 0 1 0 0-13M8 7a1 1 0 1 0 0 2a1 1 0 1 0 0-2"

    keywords: Annotated[
        Text,
        KeywordsField(label="Words", help="The more of these words a message holds, the farther away it may be."),
    ]
    delta: Annotated[
        float,
        ShareField(
            label="Distance or words",
            help="The weight of words against nearness.",
            example="At 0.2 the location matters most, at 0.8 the words do.",
            ends=("distance", "words"),
        ),
    ]
    tau: Annotated[
        float,
        ShareField(
            label="Threshold",
            help="The score that a message must reach.",
            example="At 0.9 only close, fitting messages match; at 0.5 many do.",
            start=0.7,
            ends=("many", "few"),
        ),
    ]

    def reach(self, max_distance: float) -> float | None:
        """Return how far away a message with all words can be; None if its words alone reach tau."""
        if self.tau <= self.delta:
            return None
        return (1.0 - (self.tau - self.delta) / (1.0 - self.delta)) * max_distance

    def bind(self, scoring: ScoringContext) -> Scorer:
        """Return the weighted sum of text and nearness, None below tau."""
        location, delta, tau = self.location, self.delta, self.tau
        near = scoring.space.near
        text = self._text(scoring)

        def score(document: Document) -> float | None:
            mixed = delta * text(document) + (1.0 - delta) * near(location, document.location)
            return mixed if mixed >= tau else None

        return score

    def _text(self, scoring: ScoringContext) -> Callable[[Document], float]:
        terms = self.terms(scoring)
        idfs = scoring.vocabulary.idfs_of(np.fromiter(terms, dtype=np.int64, count=len(terms)))
        weights = dict(zip(terms, idfs.tolist(), strict=True))
        total = 0.0
        for weight in weights.values():
            total += weight
        compare = scoring.text_similarity

        def text(document: Document) -> float:
            shared, shared_weight = 0, 0.0
            for number, weight in weights.items():
                if number in document.units:
                    shared += 1
                    shared_weight += weight
            return compare(shared, shared_weight, len(weights), total, len(document.units), document.weight)

        return text

    def explain(self, document: Document, scoring: ScoringContext) -> Explanation:
        """Return what text and nearness contribute, and which of them is too small."""
        space = scoring.space
        text = self._text(scoring)(document)
        near = space.near(self.location, document.location)
        mixed = self.delta * text + (1.0 - self.delta) * near
        distance = space.distance(self.location, document.location)
        parts = (
            ScorePart("text", text, self.delta, shared_terms=self.shared(document, scoring)),
            ScorePart("near", near, 1.0 - self.delta, distance=distance),
        )
        passes = self.bind(scoring)(document) is not None
        reason = self._reason(text, near, mixed)
        return Explanation(self.kind, self.id, document.id, parts, mixed, self.tau, passes, reason)

    def _reason(self, text: float, near: float, mixed: float) -> str:
        if mixed >= self.tau:
            return "matches"
        best_text = self.delta + (1.0 - self.delta) * near
        best_near = self.delta * text + (1.0 - self.delta)
        if best_text < self.tau and best_near < self.tau:
            return "no match, text and near failed: neither can make up for the other"
        if best_text < self.tau:
            return "no match, near failed: too far away for any text"
        if best_near < self.tau:
            return "no match, text failed: too different at any distance"
        return "no match, the weighted sum of text and near is below tau"

    @classmethod
    def footprints(
        cls, columns: SubscriptionColumns, keys: npt.NDArray[np.uint64], scoring: ScoringContext
    ) -> Footprints:
        """Return a box where nearness is indispensable, and the terms where text is.

        The margins cover what rounding in the score may let pass.
        """
        assert isinstance(columns, KeywordColumns)
        deltas, taus, boxes = columns.deltas, columns.taus - 1e-9, anywhere(len(columns))
        near = np.flatnonzero((taus > deltas) & (deltas < 1.0))
        farthest = 1.0 - (taus[near] - deltas[near]) / (1.0 - deltas[near])
        boxes[near] = scoring.space.reaches(columns.xs[near], columns.ys[near], farthest * scoring.space.max_distance)
        return Footprints.of_any_term(
            keys, columns.xs, columns.ys, columns.ks, columns.term_indptr, columns.term_ids,
            needs=taus > 1.0 - deltas, boxes=boxes,
        )  # fmt: skip
