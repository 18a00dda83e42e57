"""Kind `topk`: the k best messages of the window by nearness and tf-idf cosine (Skype, section 3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from nearcast.model.document import Document
from nearcast.model.explanation import Explanation, Part
from nearcast.model.footprint import Footprints
from nearcast.model.scoring import ScoringContext
from nearcast.model.subscription import KeywordSubscription, ResultPolicy, Scorer
from nearcast.model.subscription_columns import KeywordColumns, SubscriptionColumns

_ROUNDING = 1e-9  # a score may come out above its bound by less


@dataclass(frozen=True)
class TopKSubscription(KeywordSubscription):
    """The k messages of the window with the greatest `alpha * near + (1 - alpha) * cosine` that share a term.

    >>> TopKSubscription("t1", location=(.2, .3), keywords="jazz tonight", k=0, alpha=.5)
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: k must be an integer of 1 or more; got 0 (subscription 't1')
    """

    kind: ClassVar[str] = "topk"
    keeps: ClassVar[ResultPolicy] = ResultPolicy.BEST_IN_WINDOW

    k: int
    alpha: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_k()
        self._check_share("alpha")

    def bind(self, scoring: ScoringContext) -> Scorer:
        """Return the mix of nearness and cosine for messages that share a term."""
        location, alpha = self.location, self.alpha
        near = scoring.space.near
        units = self._units(scoring)
        numbers = frozenset(units)

        def score(document: Document) -> float | None:
            if numbers.isdisjoint(document.units):
                return None
            return alpha * near(location, document.location) + (1.0 - alpha) * _cosine(units, document)

        return score

    def _units(self, scoring: ScoringContext) -> dict[int, float]:
        ids = np.fromiter(self.terms, dtype=np.int64, count=len(self.terms))
        counts = np.fromiter(self.counts.values(), dtype=np.int32, count=len(ids))
        _, units = scoring.vocabulary.weigh(ids, counts, np.array([0, len(ids)]))
        return dict(zip(self.terms, units.tolist(), strict=True))

    @classmethod
    def footprints(
        cls, subscription_columns: SubscriptionColumns, keys: npt.NDArray[np.uint64], scoring: ScoringContext
    ) -> Footprints:
        """Return a branch a term, the weightiest first: what the others can add is bounded (Skype, definition 12)."""
        assert isinstance(subscription_columns, KeywordColumns)
        rows = np.repeat(np.arange(len(subscription_columns)), np.diff(subscription_columns.term_indptr))
        order = np.lexsort((-subscription_columns.units, rows))
        most_of_text = np.minimum(
            _norms_from(subscription_columns.units[order], subscription_columns.term_indptr), 1.0
        )
        alphas = subscription_columns.alphas[rows]
        any_term = super().footprints(
            replace(subscription_columns, term_ids=subscription_columns.term_ids[order]), keys, scoring
        )
        return replace(any_term, mosts=alphas + (1.0 - alphas) * most_of_text + _ROUNDING)

    def explain(self, document: Document, scoring: ScoringContext) -> Explanation:
        """Say what nearness and text bring."""
        shared = self.shared(document)
        distance = scoring.space.distance(self.location, document.location)
        parts = (
            Part(
                "near",
                scoring.space.near(self.location, document.location),
                self.alpha,
                f"distance {distance:.6g}",
            ),
            Part(
                "text",
                _cosine(self._units(scoring), document),
                1.0 - self.alpha,
                f"shares {' '.join(shared) or 'nothing'}",
                passes=bool(shared),
            ),
        )
        reason = "" if shared else "no match, text failed: no term is shared"
        return Explanation(self.kind, self.id, document.id, parts, self.bind(scoring)(document), reason=reason)


def _norms_from(units: npt.NDArray[np.float64], indptr: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the length of what is left of each row from each term on: no unit vector has a larger product with it.

    >>> _norms_from(np.array([0.8, 0.6, 1.0]), np.array([0, 2, 3])).tolist()
    [1.0, 0.6, 1.0]
    """
    squares, lengths = np.zeros(len(units)), np.diff(indptr)
    for back in range(1, int(lengths.max(initial=0)) + 1):
        at = indptr[1:][lengths >= back] - back
        squares[at] = units[at] ** 2 + (squares[at + 1] if back > 1 else 0.0)
    return np.sqrt(squares)


def _cosine(units: dict[int, float], document: Document) -> float:
    total = 0.0
    for number, unit in units.items():
        other = document.units.get(number)
        if other is not None:
            total += unit * other
    return total
