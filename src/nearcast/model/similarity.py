"""Kind `similarity`: every message whose mix of text and nearness reaches a threshold (STAMP, section II)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from nearcast.model.document import Document
from nearcast.model.explanation import Explanation, Part
from nearcast.model.footprint import Footprints, anywhere
from nearcast.model.scoring import ScoringContext
from nearcast.model.subscription import KeywordSubscription, ResultPolicy, Scorer
from nearcast.model.subscription_columns import KeywordColumns, SubscriptionColumns


@dataclass(frozen=True)
class SimilaritySubscription(KeywordSubscription):
    """Every message with `delta * text + (1 - delta) * near >= tau`.

    >>> SimilaritySubscription("s1", location=(.2, .3), keywords="nike shoes", delta=.5, tau=1.7)
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: tau must be in [0, 1]; got 1.7 (subscription 's1')
    """

    kind: ClassVar[str] = "similarity"
    keeps: ClassVar[ResultPolicy] = ResultPolicy.MATCHES

    delta: float
    tau: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_share("delta")
        self._check_share("tau")

    def bind(self, scoring: ScoringContext) -> Scorer:
        """Return the mix of text and nearness where it reaches tau."""
        location, delta, tau = self.location, self.delta, self.tau
        near = scoring.space.near
        text = self._text(scoring)

        def score(document: Document) -> float | None:
            mixed = delta * text(document) + (1.0 - delta) * near(location, document.location)
            return mixed if mixed >= tau else None

        return score

    def _text(self, scoring: ScoringContext) -> Callable[[Document], float]:
        idfs = scoring.vocabulary.idfs_of(np.fromiter(self.terms, dtype=np.int64, count=len(self.terms)))
        weights = dict(zip(self.terms, idfs.tolist(), strict=True))
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
        """Say how much text and nearness bring, and what would have been needed of each."""
        text = self._text(scoring)(document)
        near = scoring.space.near(self.location, document.location)
        score = self.bind(scoring)(document)
        mixed = self.delta * text + (1.0 - self.delta) * near
        distance = scoring.space.distance(self.location, document.location)
        parts = (
            Part("text", text, self.delta, f"shares {' '.join(self.shared(document)) or 'nothing'}"),
            Part("near", near, 1.0 - self.delta, f"distance {distance:.6g}"),
        )
        return Explanation(
            self.kind,
            self.id,
            document.id,
            parts,
            mixed,
            self.tau,
            score is not None,
            self._reason(text, near, mixed),
        )

    def _reason(self, text: float, near: float, mixed: float) -> str:
        if mixed >= self.tau:
            return "matches"
        best_text = self.delta + (1.0 - self.delta) * near
        best_near = self.delta * text + (1.0 - self.delta)
        if best_text < self.tau and best_near < self.tau:
            return "no match, text and near failed: neither could make up for the other"
        if best_text < self.tau:
            return "no match, near failed: too far for any text"
        if best_near < self.tau:
            return "no match, text failed: too different at any distance"
        return "no match, the mix of text and near is below tau"

    @classmethod
    def footprints(
        cls, subscription_columns: SubscriptionColumns, keys: npt.NDArray[np.uint64], scoring: ScoringContext
    ) -> Footprints:
        """Return the boxes that nearness cannot do without, and the terms where text is needed at all.

        The margins keep what rounding in the score could still let pass.
        """
        assert isinstance(subscription_columns, KeywordColumns)
        deltas, taus, boxes = (
            subscription_columns.deltas,
            subscription_columns.taus - 1e-9,
            anywhere(len(subscription_columns)),
        )
        near = np.flatnonzero((taus > deltas) & (deltas < 1.0))
        farthest = 1.0 - (taus[near] - deltas[near]) / (1.0 - deltas[near])
        boxes[near] = scoring.space.reaches(
            subscription_columns.xs[near], subscription_columns.ys[near], farthest * scoring.space.max_distance
        )
        return Footprints.of_any_term(
            keys, subscription_columns.xs, subscription_columns.ys, subscription_columns.ks, subscription_columns.term_indptr, subscription_columns.term_ids, needs=taus > 1.0 - deltas,
            boxes=boxes,
        )  # fmt: skip
