"""Kind `boolean`: every message inside a region that satisfies an expression (PS2Stream, section III-A)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import InvalidInput, require
from nearcast.model.document import Document
from nearcast.model.explanation import Explanation, ScorePart
from nearcast.model.expression import Branch, Expression, all_of, hints_of, parse
from nearcast.model.fields import ExpressionField, RegionField
from nearcast.model.filter_program import IN_ITS_REGION, Predicate, holds, test_of_expression
from nearcast.model.footprint import Footprints
from nearcast.model.limits import Limits
from nearcast.model.result_policy import MATCHES, ResultPolicy
from nearcast.model.scoring import ScoringContext
from nearcast.model.subscription import Scorer, Subscription, about
from nearcast.model.subscription_columns import BooleanColumns, SubscriptionColumns
from nearcast.model.table_regions import SIDES
from nearcast.space import Box, Region
from nearcast.space.region_columns import BOX, RegionColumns
from nearcast.text import SIMPLE, Analyzer, Text, find_analyzer

_NO_LIMIT = 1 << 62  # what was checked against the limits of an engine


@dataclass(frozen=True)
class BooleanSubscription(Subscription):
    """Every message in a region that satisfies an expression of words and phrases with AND, OR, NOT and parentheses.

    >>> BooleanSubscription("b1", region=Box(0, 0, 1, 1), keywords="coffee AND (sale OR discount)").branches()
    (frozenset({...'coffee'...}), frozenset({...'coffee'...}))
    """

    kind: ClassVar[str] = "boolean"
    result_policy: ClassVar[ResultPolicy] = MATCHES
    label: ClassVar[str] = "Alert in a region"
    help: ClassVar[str] = "Every message inside a region whose words satisfy an expression."
    icon: ClassVar[str] = "M2.5 3.5h11v9h-11z"
    box_fields: ClassVar[tuple[str, ...] | None] = SIDES

    region: Annotated[Region, RegionField(label="Where", help="The region in which a message must lie.")] = field()
    keywords: Annotated[
        Text,
        ExpressionField(
            label="Words",
            help="Words and phrases with AND, OR, NOT and parentheses; words side by side mean AND.",
            example='coffee AND (sale OR "happy hour") NOT kids',
        ),
    ] = field()
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
        """Return an OR of ANDs: a message must hold all terms of one branch; see `Expression.branches`."""
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
        in_region, term_id = self._in_region(scoring), scoring.vocabulary.term_id
        expression = self._analyzed(scoring.vocabulary.analyzer)
        if not expression.is_plain:
            test = test_of_expression(expression, term_id)
            return lambda document: 1.0 if in_region(document) and holds(test, document) else None
        branches = [frozenset(map(term_id, branch)) for branch in self._all_branches(scoring)]

        def score(document: Document) -> float | None:
            if not in_region(document):
                return None
            terms = document.units.keys()
            return 1.0 if any(branch <= terms for branch in branches) else None

        return score

    def filter_tests(self, scoring: ScoringContext) -> dict[str, Predicate]:
        """Return also what the index cannot decide: a region that is no plain box, NOT and phrases.

        A message that the index found holds the terms of a branch, so these are not tested again.
        """
        tests = super().filter_tests(scoring)
        expression = self._analyzed(scoring.vocabulary.analyzer)
        if not expression.is_plain:
            tests["keywords"] = test_of_expression(expression.beyond_terms(), scoring.vocabulary.term_id)
        if not isinstance(self.region, Box) or self.region.wraps:
            tests["region"] = IN_ITS_REGION
        return tests

    def explain(self, document: Document, scoring: ScoringContext) -> Explanation:
        """Return whether region and expression hold, which terms are missing, and which must not be there."""
        inside = self._in_region(scoring)(document)
        branches = self._all_branches(scoring)
        numbers = {term: scoring.vocabulary.term_id(term) for branch in branches for term in branch}
        missing = [
            tuple(sorted(term for term in branch if numbers[term] not in document.units)) for branch in branches
        ]
        fewest = min(missing, key=len)
        closest = {branch for branch, terms in zip(branches, missing, strict=True) if len(terms) == len(fewest)}
        shared = tuple(sorted(frozenset().union(*closest).difference(*missing)))
        excluded = () if fewest else self._excluded(document, scoring)
        satisfied = not fewest and not excluded
        passes = inside and satisfied
        parts = (
            ScorePart("region", float(inside), passes=inside, location=document.location, region=self.region),
            ScorePart(
                "keywords", float(satisfied), passes=satisfied, shared_terms=shared, missing_terms=fewest,
                excluded_terms=excluded or None,
            ),
        )  # fmt: skip
        failed = [part.name for part in parts if not part.passes]
        reason = "matches" if passes else f"no match, {' and '.join(failed)} failed"
        score = 1.0 if passes else None
        return Explanation(
            self.kind, self.id, document.id, parts, score, passes=passes, reason=reason, hints=self.hints()
        )

    def _excluded(self, document: Document, scoring: ScoringContext) -> tuple[str, ...]:
        """Return the literals on which the closest branch fails, of a message that holds the terms of one."""
        expression, term_id = self._analyzed(scoring.vocabulary.analyzer), scoring.vocabulary.term_id
        if expression.is_plain:
            return ()
        failed = [
            tuple(
                sorted(str(one) for one in branch if not holds(test_of_expression(one.expression, term_id), document))
            )
            for branch in expression.literal_branches(limit=_NO_LIMIT)
        ]
        return min(failed, key=len)

    def explanation(self, document: Document, scoring: ScoringContext) -> Explanation:
        """Return the parts of the match; the filter `where` is one of them."""
        explained = self.explain(document, scoring)
        if self.where is None:
            return explained
        passes = holds(super().filter_tests(scoring)["where"], document)
        parts = (*explained.parts, ScorePart("where", float(passes), passes=passes, condition=self.where))
        failed = [part.name for part in parts if not part.passes]
        reason = "matches" if not failed else f"no match, {' and '.join(failed)} failed"
        score = explained.score if passes else None
        return replace(explained, parts=parts, score=score, passes=not failed, reason=reason)

    @classmethod
    def subscription_columns(cls, stored: pa.Table, scoring: ScoringContext) -> SubscriptionColumns:
        """Return boxes and branches as columns."""
        return BooleanColumns.of_stored(stored, scoring)

    @classmethod
    def rows_with_tests(cls, stored: pa.Table, scoring: ScoringContext) -> npt.NDArray[np.bool_]:
        """Return the rows whose words may need more than terms."""
        pattern = '"|NOT' if scoring.vocabulary.analyzer == SIMPLE else '"|NOT|[^ -~]'
        special = pc.fill_null(pc.match_substring_regex(stored["keywords"], pattern), False)
        return np.array(special.to_numpy(), np.bool_)

    @classmethod
    def rows_testing_region(cls, regions: RegionColumns) -> npt.NDArray[np.bool_]:
        """Return the rows whose region is no plain box."""
        return np.asarray((regions.codes != BOX) | (regions.boxes[:, 0] > regions.boxes[:, 2]))

    @classmethod
    def footprints(
        cls, columns: SubscriptionColumns, keys: npt.NDArray[np.uint64], scoring: ScoringContext
    ) -> Footprints:
        """Return boxes and branches; without NOT, phrases, filters and round regions they are exact."""
        assert isinstance(columns, BooleanColumns)
        sides = (columns.xmins, columns.ymins, columns.xmaxs, columns.ymaxs)
        boxes = scoring.space.clipped(np.column_stack(sides))
        return Footprints(
            keys,
            boxes[:, 0] + (boxes[:, 2] - boxes[:, 0]) / 2,
            boxes[:, 1] + (boxes[:, 3] - boxes[:, 1]) / 2,
            boxes,
            np.zeros(len(columns), np.int32),
            columns.branch_indptr,
            columns.term_indptr,
            columns.term_ids,
        )

    def _all_branches(self, scoring: ScoringContext) -> tuple[Branch, ...]:
        # `check` compares the size with the engine's limits; no second limit may apply after it.
        return self._analyzed(scoring.vocabulary.analyzer).branches(limit=_NO_LIMIT)
