"""Kind `boolean`: every message inside a box whose terms satisfy an AND/OR expression (PS2Stream, section III-A)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.errors import InvalidInput, require
from nearcast.model.document import Document
from nearcast.model.explanation import Explanation, ScorePart
from nearcast.model.expression import Branch, Expression, all_of, hints_of, parse
from nearcast.model.fields import ExpressionField, RegionField
from nearcast.model.footprint import Footprints
from nearcast.model.limits import Limits
from nearcast.model.result_policy import MATCHES, ResultPolicy
from nearcast.model.scoring import ScoringContext
from nearcast.model.subscription import Scorer, Subscription, about
from nearcast.model.subscription_columns import BooleanColumns, SubscriptionColumns
from nearcast.space import Box
from nearcast.text import SIMPLE, Analyzer, Text, Vocabulary, find_analyzer


@dataclass(frozen=True)
class BooleanSubscription(Subscription):
    """Every message in a closed box that satisfies an expression with AND, OR and parentheses.

    >>> BooleanSubscription("b1", region=Box(0, 0, 1, 1), keywords="coffee AND (sale OR discount)").branches()
    (frozenset({...'coffee'...}), frozenset({...'coffee'...}))
    """

    kind: ClassVar[str] = "boolean"
    result_policy: ClassVar[ResultPolicy] = MATCHES
    label: ClassVar[str] = "Alert in a box"
    help: ClassVar[str] = "Every message inside a box whose words satisfy an expression."
    icon: ClassVar[str] = "M2.5 3.5h11v9h-11z"

    region: Annotated[Box, RegionField(label="Where", help="The box in which a message must lie.")]
    keywords: Annotated[
        Text,
        ExpressionField(
            label="Words",
            help="Words with AND, OR and parentheses; words side by side mean AND.",
            example="coffee AND (sale OR free)",
        ),
    ]
    expression: Expression = field(init=False, repr=False, compare=False)
    """The parsed keywords, their words with the analyzer `simple`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "expression", self._parsed(SIMPLE))

    def _parsed(self, analyzer: Analyzer) -> Expression:
        try:
            if isinstance(self.keywords, str):
                return parse(self.keywords, analyzer=analyzer)
            require(len(self.keywords) > 0, "keywords", "must hold at least one term", self.keywords)
            return all_of(self.keywords)
        except InvalidInput as error:
            raise about(error, self) from None

    def _analyzed(self, analyzer: Analyzer) -> Expression:
        """Return the expression with the words of an analyzer."""
        return self.expression if analyzer == SIMPLE else self._parsed(analyzer)

    def branches(self, *, limit: int = Limits.branches, analyzer: str = SIMPLE.name) -> tuple[Branch, ...]:
        """Return the canonical OR of ANDs: a message must hold all terms of one branch."""
        return self._branches(self._analyzed(find_analyzer(analyzer)), limit)

    def _branches(self, expression: Expression, limit: int) -> tuple[Branch, ...]:
        try:
            return expression.branches(limit=limit)
        except InvalidInput as error:
            raise about(error, self) from None

    def hints(self) -> tuple[str, ...]:
        """Return a hint for each operator in small letters."""
        return hints_of(self.keywords) if isinstance(self.keywords, str) else ()

    def check(self, scoring: ScoringContext, limits: Limits) -> None:
        """Raise `InvalidInput` also for an expression with too many branches or terms."""
        super().check(scoring, limits)
        expression = self._analyzed(scoring.vocabulary.analyzer)
        n = len(expression.terms())
        require(n <= limits.terms, "keywords", f"must hold at most {limits.terms} terms", n, subject=self.subject)
        self._branches(expression, limits.branches)

    def bind(self, scoring: ScoringContext) -> Scorer:
        """Return 1 for a match, else None."""
        region = self.region
        branches = [frozenset(map(scoring.vocabulary.term_id, branch)) for branch in self._all_branches(scoring)]

        def score(document: Document) -> float | None:
            if not region.contains(*document.location):
                return None
            terms = document.units.keys()
            return 1.0 if any(branch <= terms for branch in branches) else None

        return score

    def explain(self, document: Document, scoring: ScoringContext) -> Explanation:
        """Return whether box and expression hold, and which terms are missing."""
        inside = self.region.contains(*document.location)
        branches = self._all_branches(scoring)
        numbers = {term: scoring.vocabulary.term_id(term) for branch in branches for term in branch}
        missing = [
            tuple(sorted(term for term in branch if numbers[term] not in document.units)) for branch in branches
        ]
        fewest = min(missing, key=len)
        closest = {branch for branch, terms in zip(branches, missing, strict=True) if len(terms) == len(fewest)}
        shared = tuple(sorted(frozenset().union(*closest).difference(*missing)))
        passes = inside and not fewest
        parts = (
            ScorePart("region", float(inside), passes=inside, location=document.location, region=self.region),
            ScorePart("keywords", float(not fewest), passes=not fewest, shared_terms=shared, missing_terms=fewest),
        )
        failed = [part.name for part in parts if not part.passes]
        reason = "matches" if passes else f"no match, {' and '.join(failed)} failed"
        score = 1.0 if passes else None
        return Explanation(
            self.kind, self.id, document.id, parts, score, passes=passes, reason=reason, hints=self.hints()
        )

    @classmethod
    def subscription_columns(cls, stored: pa.Table, vocabulary: Vocabulary) -> SubscriptionColumns:
        """Return boxes and branches as columns."""
        return BooleanColumns.of_stored(stored, vocabulary)

    @classmethod
    def footprints(
        cls, columns: SubscriptionColumns, keys: npt.NDArray[np.uint64], scoring: ScoringContext
    ) -> Footprints:
        """Return boxes and branches; for this kind they are exact."""
        assert isinstance(columns, BooleanColumns)
        return Footprints(
            keys,
            columns.xmins + (columns.xmaxs - columns.xmins) / 2,
            columns.ymins + (columns.ymaxs - columns.ymins) / 2,
            np.column_stack([columns.xmins, columns.ymins, columns.xmaxs, columns.ymaxs]),
            np.zeros(len(columns), np.int32),
            columns.branch_indptr,
            columns.term_indptr,
            columns.term_ids,
        )

    def _all_branches(self, scoring: ScoringContext) -> tuple[Branch, ...]:
        # `check` compares the size with the engine's limits; no second limit may apply after it.
        return self._analyzed(scoring.vocabulary.analyzer).branches(limit=1 << 62)
