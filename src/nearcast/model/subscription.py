"""The descriptor of a kind: the base class that makes a new kind of subscription one file.

A kind is a frozen dataclass. It declares its fields with their types (`nearcast.model.fields`), a result policy, the
reference score that every index must reproduce, an explanation of that score, and a footprint. Checks, columns, JSON,
documentation and the map's form follow from these; no other package depends on which kind a subscription has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from typing import Annotated, Any, ClassVar, get_type_hints

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.errors import InvalidInput, require
from nearcast.model.document import Document
from nearcast.model.explanation import Explanation, ScorePart
from nearcast.model.expression import Expression, all_of, parse
from nearcast.model.fields import (
    ConditionField,
    ExpressionField,
    FieldType,
    KeywordsField,
    LocationField,
    RegionField,
    TimeField,
    are_at_most,
    has_strings,
)
from nearcast.model.filter_program import (
    IN_ITS_REGION,
    Predicate,
    all_of_tests,
    holds,
    test_of_expression,
    test_of_where,
)
from nearcast.model.footprint import Footprints
from nearcast.model.identity import Id, check_id, plain_id
from nearcast.model.limits import Limits
from nearcast.model.result_policy import ResultPolicy
from nearcast.model.scoring import ScoringContext
from nearcast.model.subscription_columns import KeywordColumns, SubscriptionColumns
from nearcast.model.timestamps import Timestamp
from nearcast.model.where import parse_where
from nearcast.space import Point, Region
from nearcast.space.region_columns import NO_REGION, RegionColumns
from nearcast.text import Text, Vocabulary, tokenize

Scorer = Callable[[Document], float | None]
"""The score of a message for one subscription; None if the message cannot be in the result."""

COMMON_FIELDS: dict[str, FieldType] = {
    "region": RegionField(label="Only in", help="A message must lie in this region.", is_optional=True),
    "where": ConditionField(
        label="Only where",
        help="A condition on attributes that a message must fulfil.",
        example="price <= 300 AND category IN ('bike', 'e-bike')",
    ),
    "expires_at": TimeField(label="Ends", help="The subscription is forgotten once this time has come."),
}
"""The fields that all kinds have, unless they declare one of the same name; all of them are optional."""

FILTERS = ("region", "where", "require")
"""The optional fields that decide which messages may be in a result, whatever their score."""

_PIN = "M8 14.5s-4.5-4.6-4.5-8a4.5 4.5 0 1 1 9 0c0 3.4-4.5 8-4.5 8"


@dataclass(frozen=True)
class Subscription(ABC):
    """Base class of every kind."""

    kind: ClassVar[str]
    """The name of the kind, in tables, JSON and on the command line."""
    result_policy: ClassVar[ResultPolicy]
    label: ClassVar[str] = ""
    """A few words for people; the name of the kind if empty."""
    help: ClassVar[str] = ""
    """One sentence for people; the first line of the docstring if empty."""
    icon: ClassVar[str] = _PIN
    """An SVG path in a square of 16 units."""
    box_fields: ClassVar[tuple[str, ...] | None] = None
    """The stored numbers xmin, ymin, xmax and ymax of a box that footprints lie within, where they are given in this
    order; None if footprints may lie anywhere."""
    _types: ClassVar[dict[str, FieldType]]
    _taken: ClassVar[dict[str, set[str]]]

    id: Id
    _: KW_ONLY
    region: Region | None = field(default=None, repr=False)
    """A message must lie in this region."""
    where: str | None = field(default=None, repr=False)
    """A condition on the attributes of a message, in CQL2 text: `price <= 300 AND category = 'bike'`."""
    expires_at: Timestamp | None = field(default=None, repr=False)
    """The subscription is forgotten, without updates, once `now >= expires_at`; seconds since the epoch."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", plain_id(self.id))
        check_id(self.id, "id", subject=f"{self.kind} subscription")
        for name, type_ in self.all_field_types().items():
            value = getattr(self, name)
            if value is not None or not type_.is_optional:
                object.__setattr__(self, name, type_.validate(value, name, self.subject))

    @classmethod
    def field_types(cls) -> dict[str, FieldType]:
        """Return the fields of the kind with their types, the id apart, in the order of declaration."""
        if "_types" not in cls.__dict__:
            cls._types = _field_types(cls)
        return cls._types

    @classmethod
    def all_field_types(cls) -> dict[str, FieldType]:
        """Return the fields of the kind, and those that all kinds have, with their types."""
        own = cls.field_types()
        return own | {name: type_ for name, type_ in COMMON_FIELDS.items() if name not in own}

    @classmethod
    def taken_columns(cls) -> dict[str, set[str]]:
        """Return for each field the columns that it leaves to a field which the kind declares itself.

        A kind may have a field `radius` of its own; the column is then no circle.
        """
        if "_taken" not in cls.__dict__:
            own = cls.field_types()
            columns = {column.name for name, type_ in own.items() for column in type_.columns(name)}
            cls._taken = {
                name: set() if name in own else columns.intersection(one.name for one in type_.columns(name))
                for name, type_ in cls.all_field_types().items()
            }
        return cls._taken

    @classmethod
    def optional_fields(cls) -> dict[str, FieldType]:
        """Return the fields that a subscription of the kind may leave out."""
        return {name: type_ for name, type_ in cls.all_field_types().items() if type_.is_optional}

    @property
    def subject(self) -> str:
        """The name of this subscription in errors."""
        return f"subscription {self.id!r}"

    @property
    def n_results(self) -> int | None:
        """The most messages that the result holds; None if it only grows."""
        return None

    def reach(self, max_distance: float) -> float | None:
        """Return the distance beyond which no message matches, given where nearness ends; None if there is none."""
        return None

    def hints(self) -> tuple[str, ...]:
        """Return sentences on what is valid but probably not what was meant."""
        return ()

    def check(self, scoring: ScoringContext, limits: Limits) -> None:
        """Raise `InvalidInput` if an engine with this context and these limits cannot take the subscription."""
        limits.check_id(self.id, "id", subject=self.subject)
        for name, type_ in self.all_field_types().items():
            value = getattr(self, name)
            if value is not None or not type_.is_optional:
                type_.check(value, name, scoring, limits, self.subject)

    # -- scores and filters -----------------------------------------------------------------------------------------

    @abstractmethod
    def bind(self, scoring: ScoringContext) -> Scorer:
        """Return the reference score as a function of the message, without regard to filters."""

    def scorer(self, scoring: ScoringContext) -> Scorer:
        """Return the reference score of messages that pass all filters, None for the others."""
        score_of, test = self.bind(scoring), all_of_tests(self.filter_tests(scoring).values())
        if test is None:
            return score_of
        in_region = self._in_region(scoring)
        return lambda document: score_of(document) if holds(test, document, in_region) else None

    def filter_tests(self, scoring: ScoringContext) -> dict[str, Predicate]:
        """Return the filters as tests, by field; a region that the footprint tells exactly is none."""
        tests = {}
        if self.where is not None:
            condition = parse_where(self.where)
            tests["where"] = test_of_where(condition, scoring.attributes, scoring.hash_key)
        if (required := self.required(scoring)) is not None:
            tests["require"] = test_of_expression(required, scoring.vocabulary.term_id)
        if self.region is not None and "region" not in self.field_types():
            tests["region"] = IN_ITS_REGION
        return tests

    def required(self, scoring: ScoringContext) -> Expression | None:
        """Return the expression of the field `require`, if the kind has one and it is given."""
        required = getattr(self, "require", None)
        if required is None or "require" not in self.field_types():
            return None
        if isinstance(required, str):
            return parse(required, analyzer=scoring.vocabulary.analyzer, field="require")
        return all_of(required)

    def _in_region(self, scoring: ScoringContext) -> Callable[[Document], bool]:
        region, covers = self.region, scoring.space.covers
        if region is None:
            return lambda document: True
        return lambda document: covers(region, document.location)

    def explanation(self, document: Document, scoring: ScoringContext) -> Explanation:
        """Return the parts of a message's score, and its filters; the other messages of the result do not matter."""
        explained, in_region = self.explain(document, scoring), self._in_region(scoring)
        parts = []
        for name, test in self.filter_tests(scoring).items():
            passes = holds(test, document, in_region)
            is_region = name == "region"
            parts.append(
                ScorePart(
                    name, float(passes), passes=passes, location=document.location if is_region else None,
                    region=self.region if is_region else None, condition=None if is_region else getattr(self, name),
                )
            )  # fmt: skip
        if not parts:
            return explained
        explained = replace(explained, parts=explained.parts + tuple(parts))
        failed = [part.name for part in parts if not part.passes]
        if not failed:
            return explained
        return replace(explained, score=None, passes=False, reason=f"no match, {' and '.join(failed)} failed")

    @abstractmethod
    def explain(self, document: Document, scoring: ScoringContext) -> Explanation:
        """Return the parts of a message's score, without regard to the other messages of the result."""

    @classmethod
    @abstractmethod
    def subscription_columns(cls, stored: pa.Table, scoring: ScoringContext) -> SubscriptionColumns:
        """Return stored subscriptions of this kind as the columns that an index is built from."""

    @classmethod
    def rows_with_tests(cls, stored: pa.Table, scoring: ScoringContext) -> npt.NDArray[np.bool_]:
        """Return which stored subscriptions may have `filter_tests` by their own fields other than the region."""
        return np.zeros(len(stored), np.bool_)

    @classmethod
    def rows_testing_region(cls, regions: RegionColumns) -> npt.NDArray[np.bool_]:
        """Return which subscriptions have the test `region` among their `filter_tests`."""
        return np.asarray((regions.codes != NO_REGION) & ("region" not in cls.field_types()))

    @classmethod
    @abstractmethod
    def footprints(
        cls, columns: SubscriptionColumns, keys: npt.NDArray[np.uint64], scoring: ScoringContext
    ) -> Footprints:
        """Return the footprints of subscriptions, given as columns and by key; over-approximates."""

    @classmethod
    def all_valid(cls, table: pa.Table, scoring: ScoringContext, limits: Limits) -> bool:
        """Return whether all rows of a table, all of this kind, are certainly valid, apart from what is read alone.

        False sends the rows one by one through the constructor and `check`, which raise the error.
        """
        if not (has_strings(table, "id") and are_at_most(table, "id", limits.id_bytes)):
            return False
        for name, type_, own in cls._fields_of(table):
            alone = type_.rows_alone(own, name)
            others = own.filter(pa.array(~alone)) if alone.any() else own
            if not type_.all_valid(others, name, scoring, limits):
                return False
        return True

    @classmethod
    def rows_alone(cls, table: pa.Table, names: Collection[str] | None = None) -> npt.NDArray[np.bool_]:
        """Return the rows of a table, all of this kind, of which one of these fields can only be read by itself."""
        found = np.zeros(len(table), np.bool_)
        for name, type_, own in cls._fields_of(table):
            if names is None or name in names:
                found |= type_.rows_alone(own, name)
        return found

    @classmethod
    def _fields_of(cls, table: pa.Table) -> Iterator[tuple[str, FieldType, pa.Table]]:
        """Yield each field with the columns of a table that it may read."""
        for (name, type_), taken in zip(cls.all_field_types().items(), cls.taken_columns().values(), strict=True):
            yield name, type_, table.drop_columns(list(taken.intersection(table.column_names)))

    @classmethod
    def depends_on_users(cls) -> bool:
        """Return whether results depend on the edges of a user in the social graph, named by the field `user`."""
        return "user" in cls.field_types()

    # -- rows and JSON --------------------------------------------------------------------------------------------

    @classmethod
    def from_row(cls, row: dict[str, Any], *, subject: str) -> Subscription:
        """Make a subscription from a row of columns; columns that the kind does not use are ignored."""
        values: dict[str, Any] = {"id": _required(row, "id", cls, subject)}
        taken_columns = cls.taken_columns()
        for name, type_ in cls.all_field_types().items():
            taken = taken_columns[name]
            own_row = {column: value for column, value in row.items() if column not in taken} if taken else row
            if not type_.is_optional:
                for column in type_.required_columns(name, row):
                    _required(row, column, cls, subject)
            if not type_.is_optional or type_.is_given(own_row, name):
                values[name] = type_.from_row(own_row, name, subject)
        return cls(**values)

    def to_row(self) -> dict[str, Any]:
        """Return the subscription as a row of columns."""
        row: dict[str, Any] = {"kind": self.kind, "id": self.id}
        for name, type_ in self.all_field_types().items():
            row |= type_.to_row(getattr(self, name), name)
        return row

    @classmethod
    def from_json(cls, body: dict[str, Any], id_: Id) -> Subscription:
        """Make a subscription from JSON that holds all fields of the kind, and maybe common ones, under an id."""
        subject = f"subscription {id_!r}"
        values = {
            name: type_.from_json(_required(body, name, cls, subject), name, f"{name} of {subject}")
            for name, type_ in cls.all_field_types().items()
            if not type_.is_optional or body.get(name) is not None
        }
        return cls(id=id_, **values)

    def to_json(self) -> dict[str, Any]:
        """Return the subscription as plain JSON; optional fields without a value are left out."""
        named = {
            name: type_.to_json(value)
            for name, type_ in self.all_field_types().items()
            if (value := getattr(self, name)) is not None
        }
        return {"kind": self.kind, "id": self.id, **named}

    @classmethod
    def describe(cls) -> dict[str, Any]:
        """Return the kind with its fields as plain JSON: what a form or a page of documentation shows."""
        return {
            "kind": cls.kind,
            "label": cls.label or cls.kind,
            "help": cls.help or (cls.__doc__ or "").partition("\n")[0],
            "icon": cls.icon,
            "is_stateful": cls.result_policy.is_stateful,
            "needs_window": cls.result_policy.needs_window,
            "greater_is_better": cls.result_policy.greater_is_better,
            "fields": {name: type_.describe() for name, type_ in cls.all_field_types().items()},
        }


def _field_types(kind: type[Subscription]) -> dict[str, FieldType]:
    hints = get_type_hints(kind, include_extras=True)
    return {
        declared.name: type_
        for declared in fields(kind)
        if declared.init
        for type_ in getattr(hints[declared.name], "__metadata__", ())
        if isinstance(type_, FieldType)
    }


def _required(row: dict[str, Any], name: str, kind: type[Subscription], subject: str) -> Any:
    if row.get(name) is None:
        raise InvalidInput(name, f"must be given for kind {kind.kind!r}", None, subject=subject)
    return row[name]


@dataclass(frozen=True)
class KeywordSubscription(Subscription):
    """Base class of the kinds with a location and a bag of keywords."""

    location: Annotated[Point, LocationField(label="Where", help="The location of the subscription.")]
    keywords: Annotated[Text, KeywordsField(label="Words", help="A message must hold at least one of these words.")]
    _: KW_ONLY
    require: Annotated[
        Text | None,
        ExpressionField(
            label="Must hold",
            help="Words and phrases that a message must hold, or with NOT must not hold, whatever its score.",
            example='NOT kids "road bike"',
            is_optional=True,
        ),
    ] = field(default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        has_terms = len(tokenize(self.keywords)) > 0  # every analyzer makes a term of each letter and digit
        require(has_terms, "keywords", "must hold at least one term", self.keywords, subject=self.subject)
        if self.require is not None:
            try:
                required = parse(self.require, field="require") if isinstance(self.require, str) else self.require
            except InvalidInput as error:
                raise about(error, self) from None
            require(len(required) > 0, "require", "must hold at least one term", required, subject=self.subject)

    def counts(self, vocabulary: Vocabulary) -> dict[str, int]:
        """Return term to number of occurrences."""
        return dict(Counter(vocabulary.analyzer.terms(self.keywords)))

    def terms(self, scoring: ScoringContext) -> dict[int, str]:
        """Return term id to term, in the order of ids, in which weights are added up."""
        return dict(sorted((scoring.vocabulary.term_id(term), term) for term in self.counts(scoring.vocabulary)))

    @property
    def n_results(self) -> int | None:
        """k, if the kind has one."""
        return getattr(self, "k", None)

    def check(self, scoring: ScoringContext, limits: Limits) -> None:
        """Raise `InvalidInput` also for too many terms."""
        super().check(scoring, limits)
        _check_terms(len(self.counts(scoring.vocabulary)), "keywords", limits, self.subject)
        if (required := self.required(scoring)) is not None:
            _check_terms(len(required.terms()), "require", limits, self.subject)

    @classmethod
    def subscription_columns(cls, stored: pa.Table, scoring: ScoringContext) -> SubscriptionColumns:
        """Return locations, weighted terms and parameters as columns."""
        return KeywordColumns.of_stored(stored, scoring.vocabulary)

    def shared(self, document: Document, scoring: ScoringContext) -> tuple[str, ...]:
        """Return the terms that a message shares with the subscription."""
        return tuple(term for number, term in self.terms(scoring).items() if number in document.units)

    @classmethod
    def footprints(
        cls, columns: SubscriptionColumns, keys: npt.NDArray[np.uint64], scoring: ScoringContext
    ) -> Footprints:
        """Return one branch per term, anywhere: a message that shares no term cannot match."""
        return cls._any_term(columns, keys, needs_term=True)

    @classmethod
    def _any_term(cls, columns: SubscriptionColumns, keys: npt.NDArray[np.uint64], *, needs_term: bool) -> Footprints:
        assert isinstance(columns, KeywordColumns)
        return Footprints.of_any_term(
            keys, columns.xs, columns.ys, columns.ks, columns.term_indptr, columns.term_ids,
            needs=np.full(len(columns), needs_term),
        )  # fmt: skip


def _check_terms(n: int, name: str, limits: Limits, subject: str) -> None:
    require(n <= limits.terms, name, f"must hold at most {limits.terms} terms", n, subject=subject)


def about(error: InvalidInput, subscription: Subscription) -> InvalidInput:
    """Return the error with the subscription's name, unless it names a subject already."""
    return error if error.subject else error.about(subscription.subject)
