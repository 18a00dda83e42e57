"""Kind `topk`: the k best messages of the window by nearness and tf-idf cosine (Skype, section 3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt

from nearcast.model.document import Document
from nearcast.model.explanation import Explanation, ScorePart
from nearcast.model.fields import CountField, ShareField
from nearcast.model.footprint import Footprints
from nearcast.model.result_policy import BEST_IN_WINDOW, ResultPolicy
from nearcast.model.scoring import ScoringContext
from nearcast.model.subscription import KeywordSubscription, Scorer
from nearcast.model.subscription_columns import KeywordColumns, SubscriptionColumns

_ROUNDING = 1e-9  # rounding may lift a score above its bound by less than this


@dataclass(frozen=True)
class TopKSubscription(KeywordSubscription):
    """The k messages of the window with the greatest `alpha * near + (1 - alpha) * cosine` that share a term.

    >>> TopKSubscription("t1", location=(.2, .3), keywords="jazz tonight", k=0, alpha=.5)
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: k must be an integer of 1 or more; got 0 (subscription 't1')
    """

    kind: ClassVar[str] = "topk"
    result_policy: ClassVar[ResultPolicy] = BEST_IN_WINDOW
    label: ClassVar[str] = "Best matches"
    help: ClassVar[str] = "The best recent messages by distance and words. Older messages leave with the window."
    icon: ClassVar[str] = "M3 13V8M8 13V3M13 13v-3"

    k: Annotated[
        int,
        CountField(
            label="Number of results",
            help="The result holds this many messages; a better one replaces the worst.",
            example="With 1 you see only the best message.",
            ends=("1", "20"),
        ),
    ]
    alpha: Annotated[
        float,
        ShareField(
            label="Words or distance",
            help="The weight of nearness: 0 counts words alone, 1 counts nearness alone.",
            example="At 0.8 a fair match next door beats a perfect one across town.",
            ends=("words", "distance"),
        ),
    ]

    def bind(self, scoring: ScoringContext) -> Scorer:
        """Return the weighted sum of nearness and cosine, None for a message that shares no term."""
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
        terms = self.terms(scoring)
        ids = np.fromiter(terms, dtype=np.int64, count=len(terms))
        counted = self.counts(scoring.vocabulary)
        counts = np.fromiter((counted[term] for term in terms.values()), dtype=np.int32, count=len(ids))
        _, units = scoring.vocabulary.weigh(ids, counts, np.array([0, len(ids)]))
        return dict(zip(terms, units.tolist(), strict=True))

    @classmethod
    def footprints(
        cls, columns: SubscriptionColumns, keys: npt.NDArray[np.uint64], scoring: ScoringContext
    ) -> Footprints:
        """Return one branch per term by falling weight, each with the most it can score (Skype, definition 12)."""
        assert isinstance(columns, KeywordColumns)
        rows = np.repeat(np.arange(len(columns)), np.diff(columns.term_indptr))
        order = np.lexsort((-columns.units, rows))
        most_text = np.minimum(_norms_from(columns.units[order], columns.term_indptr), 1.0)
        alphas = columns.alphas[rows]
        any_term = cls._any_term(replace(columns, term_ids=columns.term_ids[order]), keys, needs_term=True)
        return replace(any_term, mosts=alphas + (1.0 - alphas) * most_text + _ROUNDING)

    def explain(self, document: Document, scoring: ScoringContext) -> Explanation:
        """Return what nearness and text contribute."""
        space, shared = scoring.space, self.shared(document, scoring)
        parts = (
            ScorePart(
                "near", space.near(self.location, document.location), self.alpha,
                distance=space.distance(self.location, document.location),
            ),
            ScorePart(
                "text", _cosine(self._units(scoring), document), 1.0 - self.alpha,
                passes=bool(shared), shared_terms=shared,
            ),
        )  # fmt: skip
        reason = "" if shared else "no match, text failed: no term is shared"
        return Explanation(self.kind, self.id, document.id, parts, self.bind(scoring)(document), reason=reason)


def _norms_from(units: npt.NDArray[np.float64], indptr: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return, for each term of each row, the length of the vector from that term on.

    No unit vector has a larger inner product with the rest of the row.

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
