"""Kind `boolean`: every message inside a box whose terms satisfy an AND/OR expression (PS2Stream, section III-A)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import InvalidInput, require
from nearcast.model.document import Document
from nearcast.model.explanation import Explanation, Part
from nearcast.model.expression import Branch, Expression, all_of, parse
from nearcast.model.footprint import Footprints
from nearcast.model.limits import Limits
from nearcast.model.message import check_text
from nearcast.model.scoring import ScoringContext
from nearcast.model.subscription import ResultPolicy, Scorer, Subscription, about, has_strings, within
from nearcast.model.subscription_columns import BooleanColumns, SubscriptionColumns, are_plain
from nearcast.space import Box
from nearcast.text import Text, Vocabulary, term_id


@dataclass(frozen=True)
class BooleanSubscription(Subscription):
    """Every message in a closed box that satisfies an expression of AND, OR and parentheses.

    >>> BooleanSubscription("b1", region=Box(0, 0, 1, 1), keywords="coffee AND (sale OR discount)").branches()
    (frozenset({...'coffee'...}), frozenset({...'coffee'...}))
    """

    kind: ClassVar[str] = "boolean"
    keeps: ClassVar[ResultPolicy] = ResultPolicy.MATCHES

    region: Box
    keywords: Text
    expression: Expression = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(isinstance(self.region, Box), "region", "must be a Box", self.region, subject=self.subject)
        check_text(self.keywords, "keywords", subject=self.subject)
        try:
            expression = parse(self.keywords) if isinstance(self.keywords, str) else self._all_keywords()
        except InvalidInput as error:
            raise about(error, self) from None
        object.__setattr__(self, "expression", expression)

    def _all_keywords(self) -> Expression:
        require(len(self.keywords) > 0, "keywords", "must hold at least one term", self.keywords)
        return all_of(self.keywords)

    def branches(self, *, limit: int = Limits.branches) -> tuple[Branch, ...]:
        """Return the canonical OR of ANDs: a message must hold all terms of one branch."""
        try:
            return self.expression.branches(limit=limit)
        except InvalidInput as error:
            raise about(error, self) from None

    def check(self, scoring: ScoringContext, limits: Limits) -> None:
        """Raise `InvalidInput` if the box leaves the bounds or the expression is too large."""
        bounds, region = scoring.space.bounds, self.region
        inside = bounds.contains(region.xmin, region.ymin) and bounds.contains(region.xmax, region.ymax)
        require(inside, "region", f"must lie in {bounds}", region, subject=self.subject)
        n = len(frozenset().union(*self.branches(limit=limits.branches)))
        require(n <= limits.terms, "keywords", f"must hold {limits.terms} terms at most", n, subject=self.subject)

    def bind(self, scoring: ScoringContext) -> Scorer:
        """Return 1 for a match."""
        region = self.region
        branches = [frozenset(map(term_id, branch)) for branch in self._all_branches()]

        def score(document: Document) -> float | None:
            if not region.contains(*document.location):
                return None
            held = document.units.keys()
            return 1.0 if any(branch <= held for branch in branches) else None

        return score

    def explain(self, document: Document, scoring: ScoringContext) -> Explanation:
        """Say whether the box or the expression fails, and which terms are missing."""
        inside = self.region.contains(*document.location)
        missing = [
            sorted(term for term in branch if term_id(term) not in document.units) for branch in self._all_branches()
        ]
        fewest = min(missing, key=len)
        passes = inside and not fewest
        parts = (
            Part("region", float(inside), note=f"{document.location} in {self.region}", passes=inside),
            Part(
                "keywords",
                float(not fewest),
                note=f"missing: {' '.join(fewest)}" if fewest else "satisfied",
                passes=not fewest,
            ),
        )
        failed = [part.name for part in parts if not part.passes]
        reason = "matches" if passes else f"no match, {' and '.join(failed)} failed"
        return Explanation(
            self.kind, self.id, document.id, parts, 1.0 if passes else None, passes=passes, reason=reason
        )

    @classmethod
    def subscription_columns(cls, stored: pa.Table, vocabulary: Vocabulary) -> SubscriptionColumns:
        """Return boxes and branches as columns."""
        return BooleanColumns.of_stored(stored)

    @classmethod
    def all_valid(cls, table: pa.Table, scoring: ScoringContext, limits: Limits) -> bool:
        """Look at whole columns: boxes in the bounds and the right way round, expressions of one operator."""
        b = scoring.space.bounds
        legal = all(within(table, name, b.xmin, b.xmax) for name in ("xmin", "xmax"))
        legal = legal and all(within(table, name, b.ymin, b.ymax) for name in ("ymin", "ymax"))
        legal = legal and has_strings(table, "keywords")
        for low, high in (("xmin", "xmax"), ("ymin", "ymax")):
            legal = legal and pc.all(pc.less_equal(table[low], table[high])).as_py() is not False
        return legal and are_plain(table["keywords"].combine_chunks(), most=min(limits.terms, limits.branches))

    @classmethod
    def footprints(
        cls, subscription_columns: SubscriptionColumns, keys: npt.NDArray[np.uint64], scoring: ScoringContext
    ) -> Footprints:
        """Return the boxes and the branches, which say all there is to say."""
        assert isinstance(subscription_columns, BooleanColumns)
        boxes = np.column_stack(
            [
                subscription_columns.xmins,
                subscription_columns.ymins,
                subscription_columns.xmaxs,
                subscription_columns.ymaxs,
            ]
        )
        return Footprints(
            keys,
            subscription_columns.xmins + (subscription_columns.xmaxs - subscription_columns.xmins) / 2,
            subscription_columns.ymins + (subscription_columns.ymaxs - subscription_columns.ymins) / 2,
            boxes,
            np.zeros(len(subscription_columns), np.int32),
            subscription_columns.branch_indptr,
            subscription_columns.term_indptr,
            subscription_columns.term_ids,
        )

    def _all_branches(self) -> tuple[Branch, ...]:
        # `check` has held the size against the engine's limits; after it, no second limit may interfere.
        return self.expression.branches(limit=1 << 62)
