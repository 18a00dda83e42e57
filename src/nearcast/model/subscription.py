"""What is a subscription, whatever its kind? The protocol that makes a new kind one file.

A kind says what its fields are and which values are legal, what it keeps, how a message scores for it (the reference
that everything fast is measured against), why, and what can touch it. Nothing outside `model` asks which kind it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, fields
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import InvalidInput, is_finite, require
from nearcast.model.document import Document
from nearcast.model.explanation import Explanation
from nearcast.model.footprint import Footprints
from nearcast.model.identity import Id, check_id
from nearcast.model.limits import Limits
from nearcast.model.message import check_point, check_text
from nearcast.model.scoring import ScoringContext
from nearcast.model.subscription_columns import KeywordColumns, SubscriptionColumns
from nearcast.space import Point
from nearcast.text import Text, Vocabulary, encode_column, term_id, tokenize

Scorer = Callable[[Document], float | None]
"""The score of a message for one subscription, or None if it cannot be in the result whatever else there is."""


class ResultPolicy(Enum):
    """What a kind's result holds."""

    MATCHES = "matches"
    """Every message that matches; the result only grows, and nothing has to be stored."""
    BEST_IN_WINDOW = "best in window"
    """The k greatest scores of the window; the newer message wins a tie."""
    BEST_EVER = "best ever"
    """The k smallest scores since the subscription came; the older message wins a tie."""


@dataclass(frozen=True)
class Subscription(ABC):
    """Base of the five kinds."""

    kind: ClassVar[str]
    keeps: ClassVar[ResultPolicy]

    id: Id
    _: KW_ONLY

    def __post_init__(self) -> None:
        check_id(self.id, "id", subject=f"{self.kind} subscription")

    @property
    def subject(self) -> str:
        """How errors call this subscription."""
        return f"subscription {self.id!r}"

    @abstractmethod
    def check(self, scoring: ScoringContext, limits: Limits) -> None:
        """Raise `InvalidInput` if an engine of this meaning and these limits cannot take it."""

    @abstractmethod
    def bind(self, scoring: ScoringContext) -> Scorer:
        """Return the reference score as a function of the message."""

    @abstractmethod
    def explain(self, document: Document, scoring: ScoringContext) -> Explanation:
        """Say how a message fares; what it competes with is not known here."""

    @classmethod
    @abstractmethod
    def subscription_columns(cls, stored: pa.Table, vocabulary: Vocabulary) -> SubscriptionColumns:
        """Return subscriptions of this kind that were written down as the columns an index is built from."""

    @classmethod
    @abstractmethod
    def all_valid(cls, table: pa.Table, scoring: ScoringContext, limits: Limits) -> bool:
        """Tell whether all rows of a table of subscriptions, all of this kind, are legal beyond doubt.

        False sends them one by one through the constructor and `check`, which know what to say.
        """

    @classmethod
    @abstractmethod
    def footprints(
        cls, subscription_columns: SubscriptionColumns, keys: npt.NDArray[np.uint64], scoring: ScoringContext
    ) -> Footprints:
        """Return what can touch subscriptions of this kind, given as columns and by key; over-approximates."""

    def _check_share(self, name: str) -> None:
        value = getattr(self, name)
        require(is_finite(value) and 0 <= value <= 1, name, "must be in [0, 1]", value, subject=self.subject)
        object.__setattr__(self, name, float(value))

    def _check_k(self) -> None:
        value: Any = self.k  # type: ignore[attr-defined]
        ok = isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(value) >= 1
        require(ok, "k", "must be an integer of 1 or more", value, subject=self.subject)
        object.__setattr__(self, "k", int(value))


@dataclass(frozen=True)
class KeywordSubscription(Subscription):
    """Base of the kinds that have a point and a bag of keywords."""

    location: Point
    keywords: Text
    counts: dict[str, int] = field(init=False, repr=False, compare=False)
    """Term -> how often it is given, in the order of the term numbers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "location", check_point(self.location, subject=self.subject))
        check_text(self.keywords, "keywords", subject=self.subject)
        counted = Counter(tokenize(self.keywords))
        require(len(counted) > 0, "keywords", "must hold at least one term", self.keywords, subject=self.subject)
        object.__setattr__(self, "counts", {term: counted[term] for term in sorted(counted, key=term_id)})

    @cached_property
    def terms(self) -> dict[int, str]:
        """Term number -> term, in the order of the numbers."""
        return {term_id(term): term for term in self.counts}

    def check(self, scoring: ScoringContext, limits: Limits) -> None:
        """Raise `InvalidInput` for a point outside the bounds, too many terms, or too great a k."""
        bounds = scoring.space.bounds
        require(
            bounds.contains(*self.location),
            "location",
            f"must lie in {bounds}",
            self.location,
            subject=self.subject,
        )
        n = len(self.counts)
        require(n <= limits.terms, "keywords", f"must hold {limits.terms} terms at most", n, subject=self.subject)
        k = getattr(self, "k", 1)
        require(k <= limits.k, "k", f"must be {limits.k} at most", k, subject=self.subject)

    @classmethod
    def subscription_columns(cls, stored: pa.Table, vocabulary: Vocabulary) -> SubscriptionColumns:
        """Return points, weighted terms and parameters as columns."""
        return KeywordColumns.of_stored(stored, vocabulary)

    @classmethod
    def all_valid(cls, table: pa.Table, scoring: ScoringContext, limits: Limits) -> bool:
        """Look at whole columns: points in the bounds, terms, and the parameters that the kind has."""
        bounds = scoring.space.bounds
        legal = has_strings(table, "keywords") and within(table, "x", bounds.xmin, bounds.xmax)
        legal = legal and within(table, "y", bounds.ymin, bounds.ymax)
        named = {field.name for field in fields(cls)}
        for share in named & {"alpha", "delta", "tau"}:
            legal = legal and within(table, share, 0.0, 1.0)
        if "k" in named:
            legal = legal and pa.types.is_integer(column_type(table, "k")) and within(table, "k", 1, limits.k)
        if "user" in named:
            legal = legal and has_strings(table, "user")
            legal = legal and scoring.social.users.keys() >= set(table["user"].to_pylist())
        if not legal:
            return False
        n_terms = np.diff(encode_column(table["keywords"].combine_chunks()).indptr)
        return len(n_terms) == 0 or (int(n_terms.min()) >= 1 and int(n_terms.max()) <= limits.terms)

    def shared(self, document: Document) -> list[str]:
        """Return the terms that a message shares with the subscription."""
        return [term for number, term in self.terms.items() if number in document.units]

    @classmethod
    def footprints(
        cls, subscription_columns: SubscriptionColumns, keys: npt.NDArray[np.uint64], scoring: ScoringContext
    ) -> Footprints:
        """Return one branch a term, anywhere: a message that shares none does not matter, unless the kind differs."""
        assert isinstance(subscription_columns, KeywordColumns)
        needs = np.ones(len(subscription_columns), np.bool_)
        return Footprints.of_any_term(
            keys,
            subscription_columns.xs,
            subscription_columns.ys,
            subscription_columns.ks,
            subscription_columns.term_indptr,
            subscription_columns.term_ids,
            needs=needs,
        )


def about(error: InvalidInput, subscription: Subscription) -> InvalidInput:
    """Return the error with the subscription's name on it, if it has none yet."""
    return error if error.subject else error.about(subscription.subject)


def column_type(table: pa.Table, name: str) -> pa.DataType:
    """Return the type of a column; null if there is none."""
    return table.schema.field(name).type if name in table.column_names else pa.null()


def has_strings(table: pa.Table, name: str) -> bool:
    """Tell whether a column holds strings and no null."""
    kind = column_type(table, name)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind)) and not table[name].null_count


def within(table: pa.Table, name: str, low: float, high: float) -> bool:
    """Tell whether a column holds numbers from low to high and no null; NaN is not."""
    kind = column_type(table, name)
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)) or table[name].null_count:
        return False
    inside = pc.all(pc.and_(pc.greater_equal(table[name], low), pc.less_equal(table[name], high)))
    return bool(inside.as_py() is not False)
