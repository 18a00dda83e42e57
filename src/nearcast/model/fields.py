"""Field types: what a field of a subscription may hold, and every form that it takes.

A kind declares its fields as annotated types (`k: Annotated[int, CountField(...)]`). From that line come the check of
a value, the check of a whole column, the columns of Arrow tables and Spark frames, the JSON of the REST API, the
documentation, and the control of the map's form.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import WHOLE, InvalidInput, is_finite, is_whole, require
from nearcast.model.identity import check_id, plain_id
from nearcast.model.limits import Limits
from nearcast.model.message import check_point, check_text
from nearcast.model.split_columns import PAIRS
from nearcast.model.subscription_columns import are_plain
from nearcast.model.table_regions import SIDES, is_given, read_regions, rows_of_text
from nearcast.model.timestamps import FARTHEST_US, to_seconds, to_us
from nearcast.model.where import parse_where
from nearcast.model.where_json import where_of_json
from nearcast.space import Box, Circle
from nearcast.space.region_formats import MAX_POINTS, as_region, to_geojson

if TYPE_CHECKING:
    from nearcast.model.scoring import ScoringContext


@dataclass(frozen=True, kw_only=True)
class FieldType(ABC):
    """What a field may hold. `name` is the field's name, `subject` names the subscription in errors."""

    label: str = ""
    """A few words above the control of a form."""
    help: str = ""
    """One sentence that says what the field does."""
    example: str = ""
    """One sentence that shows its effect."""

    is_optional: bool = False
    """True if a subscription may be without a value, which then is None."""

    form: ClassVar[str]
    """The form that the value has in JSON: point, region, text, condition, integer, number, id or time."""
    order: ClassVar[int]
    """Where the columns of this type stand in a table of subscriptions."""

    def columns(self, name: str) -> tuple[pa.Field, ...]:
        """Return the columns of the field in a table of subscriptions."""
        return (pa.field(name, self._arrow),)

    _arrow: ClassVar[pa.DataType]

    def stored(self, name: str) -> tuple[pa.Field, ...]:
        """Return the columns in which the field is stored; these can hold every valid value."""
        return self.columns(name)

    def required_columns(self, name: str, row: dict[str, Any]) -> tuple[str, ...]:
        """Return the columns of a row that must hold a value, if the field is not optional."""
        return tuple(column.name for column in self.columns(name))

    def is_given(self, row: dict[str, Any], name: str) -> bool:
        """Return whether a row has a value for the field."""
        return row.get(name) is not None

    @abstractmethod
    def validate(self, value: Any, name: str, subject: str) -> Any:
        """Return the value in its canonical type, or raise `InvalidInput`."""

    def check(self, value: Any, name: str, scoring: ScoringContext, limits: Limits, subject: str) -> None:  # noqa: B027
        """Raise `InvalidInput` if an engine with this context and these limits cannot take a valid value."""

    @abstractmethod
    def all_valid(self, table: pa.Table, name: str, scoring: ScoringContext, limits: Limits) -> bool:
        """Return whether a whole column certainly passes `validate` and `check`; false means to look at each row."""

    def rows_alone(self, table: pa.Table, name: str) -> npt.NDArray[np.bool_]:
        """Return the rows of a table that can only be read one by one; `all_valid` is asked about the others."""
        return np.zeros(len(table), np.bool_)

    def to_row(self, value: Any, name: str) -> dict[str, Any]:
        """Return a value as columns of one row."""
        return {name: value}

    def from_row(self, row: dict[str, Any], name: str, subject: str) -> Any:
        """Return the value that the columns of a row hold."""
        return row[name]

    def to_json(self, value: Any) -> Any:
        """Return a value as plain JSON."""
        return value

    def from_json(self, value: Any, name: str, subject: str) -> Any:
        """Return the value that plain JSON stands for."""
        return value

    def describe(self) -> dict[str, Any]:
        """Return what a form has to know of the field, as plain JSON."""
        texts = {"label": self.label, "help": self.help, "example": self.example}
        return {"form": self.form, **texts, "is_optional": self.is_optional}


@dataclass(frozen=True, kw_only=True)
class LocationField(FieldType):
    """A point in the bounds of the space; columns `x` and `y`."""

    form: ClassVar[str] = "point"
    order: ClassVar[int] = 0

    def columns(self, name: str) -> tuple[pa.Field, ...]:
        """Return `x` and `y`."""
        return pa.field("x", pa.float64()), pa.field("y", pa.float64())

    def validate(self, value: Any, name: str, subject: str) -> Any:
        """Return a pair of floats."""
        return check_point(value, field=name, subject=subject)

    def check(self, value: Any, name: str, scoring: ScoringContext, limits: Limits, subject: str) -> None:
        """Refuse a point outside the bounds."""
        bounds = scoring.space.bounds
        require(bounds.contains(*value), name, f"must lie in {bounds}", value, subject=subject)

    def all_valid(self, table: pa.Table, name: str, scoring: ScoringContext, limits: Limits) -> bool:
        """Return whether all points lie in the bounds."""
        bounds = scoring.space.bounds
        return within(table, "x", bounds.xmin, bounds.xmax) and within(table, "y", bounds.ymin, bounds.ymax)

    def to_row(self, value: Any, name: str) -> dict[str, Any]:
        """Return both coordinates."""
        return {"x": value[0], "y": value[1]}

    def from_row(self, row: dict[str, Any], name: str, subject: str) -> Any:
        """Return the point."""
        return row["x"], row["y"]

    def to_json(self, value: Any) -> Any:
        """Return `[x, y]`."""
        return list(value)

    def from_json(self, value: Any, name: str, subject: str) -> Any:
        """Return the point."""
        return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True, kw_only=True)
class RegionField(FieldType):
    """A region: a box `xmin`, `ymin`, `xmax`, `ymax`, a circle of `radius` around `x, y`, or another in `region`."""

    form: ClassVar[str] = "region"
    order: ClassVar[int] = 1

    def columns(self, name: str) -> tuple[pa.Field, ...]:
        """Return the four sides, the region as GeoJSON, WKT or WKB, and the radius."""
        sides = (pa.field(side, pa.float64()) for side in SIDES)
        return (*sides, pa.field(name, pa.string()), pa.field("radius", pa.float64()))

    def stored(self, name: str) -> tuple[pa.Field, ...]:
        """Return the four sides; they are NaN where the region is no box, see `subscription_rows`."""
        return tuple(pa.field(side, pa.float64()) for side in SIDES)

    def _forms(self, row: dict[str, Any], name: str) -> list[str]:
        """Return the ways in which a row gives a region."""
        has_box = any(row.get(side) is not None for side in SIDES)
        return ["box"] * has_box + [column for column in (name, "radius") if row.get(column) is not None]

    def required_columns(self, name: str, row: dict[str, Any]) -> tuple[str, ...]:
        """Return the columns of the one form that is given, by default the four sides."""
        forms = self._forms(row, name)
        if name in forms:
            return (name,)
        return ("x", "y", "radius") if "radius" in forms else SIDES

    def is_given(self, row: dict[str, Any], name: str) -> bool:
        """Return whether a row has a region in any form."""
        return bool(self._forms(row, name))

    def validate(self, value: Any, name: str, subject: str) -> Any:
        """Return the region in one of our classes."""
        return as_region(value, field=name, subject=subject)

    def check(self, value: Any, name: str, scoring: ScoringContext, limits: Limits, subject: str) -> None:
        """Refuse a region that the space cannot have."""
        limits.check_region(value, name, subject=subject)
        scoring.space.check_region(value, field=name, subject=subject)

    def all_valid(self, table: pa.Table, name: str, scoring: ScoringContext, limits: Limits) -> bool:
        """Return whether the region of each row can be read with the others, and is valid."""
        regions = read_regions(table, name, most_points=min(limits.region_points, MAX_POINTS))
        if regions is None or not (self.is_optional or regions.codes.all()):
            return False
        return bool(regions.is_allowed(scoring.space).all())

    def rows_alone(self, table: pa.Table, name: str) -> npt.NDArray[np.bool_]:
        """Return the rows with GeoJSON or WKT."""
        return rows_of_text(table, name)

    def to_row(self, value: Any, name: str) -> dict[str, Any]:
        """Return the four sides, or the region as GeoJSON."""
        if isinstance(value, Box):
            return dict(zip(SIDES, value.as_tuple(), strict=True))
        return {name: None if value is None else json.dumps(to_geojson(value))}

    def from_row(self, row: dict[str, Any], name: str, subject: str) -> Any:
        """Return the region, which must be given in one way."""
        forms = self._forms(row, name)
        rule = "must be given in one way: as a box, as a region, or as a radius around x and y"
        require(len(forms) == 1, name, rule, forms, subject=subject)
        if forms == ["radius"]:
            require(
                None not in (row.get("x"), row.get("y")), "radius", "needs x and y", row["radius"], subject=subject
            )
            return _about(subject, lambda: Circle((row["x"], row["y"]), row["radius"]))
        if forms == [name]:
            return self.from_json(row[name], name, subject)
        return self.from_json([row.get(side) for side in SIDES], name, subject)

    def to_json(self, value: Any) -> Any:
        """Return `[xmin, ymin, xmax, ymax]`, or GeoJSON."""
        return list(value.as_tuple()) if isinstance(value, Box) else to_geojson(value)

    def from_json(self, value: Any, name: str, subject: str) -> Any:
        """Return the region that a list of four sides, GeoJSON, WKT, or an object with a geometry stands for."""
        if isinstance(value, (list, tuple)):
            rule = f"must be a region, or a list of {', '.join(SIDES)}"
            require(len(value) == len(SIDES), name, rule, value, subject=subject)
            return _about(subject, lambda: Box(*value))
        if isinstance(value, str) and value.lstrip()[:1] == "{":
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                raise InvalidInput(name, "must be valid GeoJSON", value, subject=subject) from None
        return as_region(value, field=name, subject=subject)


def _about(subject: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except InvalidInput as error:
        raise error.about(subject) from None


def _has_values(table: pa.Table, name: str) -> bool:
    return name in table.column_names and table[name].null_count < len(table)


@dataclass(frozen=True, kw_only=True)
class KeywordsField(FieldType):
    """A bag of keywords: a string that the analyzer divides, or a list of terms taken verbatim."""

    form: ClassVar[str] = "text"
    order: ClassVar[int] = 2
    _arrow: ClassVar[pa.DataType] = pa.string()

    def stored(self, name: str) -> tuple[pa.Field, ...]:
        """Return a column for strings and one for lists of terms."""
        return PAIRS[name]

    def validate(self, value: Any, name: str, subject: str) -> Any:
        """Return the text as it is."""
        check_text(value, name, subject=subject)
        return value

    def check(self, value: Any, name: str, scoring: ScoringContext, limits: Limits, subject: str) -> None:
        """Refuse keywords that are too long."""
        limits.check_keywords(value, name, subject=subject)

    def all_valid(self, table: pa.Table, name: str, scoring: ScoringContext, limits: Limits) -> bool:
        """Return whether every row holds at least one term and not too many."""
        if not (has_strings(table, name) and are_at_most(table, name, limits.keywords_bytes)):
            return False
        n_terms = np.diff(scoring.vocabulary.encode(table[name].combine_chunks()).indptr)
        return len(n_terms) == 0 or (int(n_terms.min()) >= 1 and int(n_terms.max()) <= limits.terms)


@dataclass(frozen=True, kw_only=True)
class ExpressionField(KeywordsField):
    """Words and phrases that form an expression with AND, OR, NOT and parentheses."""

    def all_valid(self, table: pa.Table, name: str, scoring: ScoringContext, limits: Limits) -> bool:
        """Return whether every expression uses one operator only and is short."""
        if self.is_optional:
            return not _has_values(table, name)
        if not (has_strings(table, name) and are_at_most(table, name, limits.keywords_bytes)):
            return False
        keywords = table[name].combine_chunks()
        n_spaces = pc.max(pc.count_substring(keywords, " ")).as_py() or 0
        return bool(are_plain(keywords).all()) and n_spaces < min(limits.terms, limits.branches)

    def rows_alone(self, table: pa.Table, name: str) -> npt.NDArray[np.bool_]:
        """Return the rows whose expression has to be parsed: any with parentheses, NOT, phrases or two operators."""
        if self.is_optional:
            return is_given(table, name)
        if not has_strings(table, name):
            return super().rows_alone(table, name)
        return ~are_plain(table[name].combine_chunks())

    def describe(self) -> dict[str, Any]:
        """Add the operators of the expression."""
        return super().describe() | {"operators": ["AND", "OR", "NOT"]}


@dataclass(frozen=True, kw_only=True)
class ConditionField(FieldType):
    """A condition on attributes in CQL2 text, or None."""

    is_optional: bool = True

    form: ClassVar[str] = "condition"
    order: ClassVar[int] = 6
    _arrow: ClassVar[pa.DataType] = pa.string()

    def validate(self, value: Any, name: str, subject: str) -> Any:
        """Return the text, which must be a condition."""
        require(isinstance(value, str), name, "must be a string", value, subject=subject)
        require(is_whole(value), name, WHOLE, value, subject=subject)
        rule = f"must be at most {_LONGEST_CONDITION} characters"
        require(len(value) <= _LONGEST_CONDITION, name, rule, len(value), subject=subject)
        _about(subject, lambda: parse_where(value))
        return value

    def check(self, value: Any, name: str, scoring: ScoringContext, limits: Limits, subject: str) -> None:
        """Refuse a long condition, unknown attributes, and values of other types than those of the attributes."""
        limits.check_keywords(value, name, subject=subject)
        parse_where(value).check(scoring.attributes, subject=subject)

    def from_json(self, value: Any, name: str, subject: str) -> Any:
        """Return the text of a condition that is given as CQL2 text or CQL2 JSON."""
        return _about(subject, lambda: where_of_json(value)) if isinstance(value, dict) else value

    def all_valid(self, table: pa.Table, name: str, scoring: ScoringContext, limits: Limits) -> bool:
        """Return whether every condition is right; each is parsed."""
        if not _has_values(table, name):
            return True
        given = table.select([name]).drop_null()
        if not (has_strings(given, name) and are_at_most(given, name, limits.keywords_bytes)):
            return False
        try:
            for text in given[name].to_pylist():
                parse_where(text).check(scoring.attributes, subject="")
        except InvalidInput:
            return False
        return True


_LONGEST_CONDITION = 1 << 20
"""A longer condition is refused without an engine; engines have smaller limits."""


@dataclass(frozen=True, kw_only=True)
class NumberField(FieldType):
    """A finite number between two bounds."""

    minimum: float = float("-inf")
    maximum: float = float("inf")
    step: float = 0.05
    start: float = 0.5
    ends: tuple[str, str] = ("", "")
    """What the two ends of a slider mean."""

    form: ClassVar[str] = "number"
    order: ClassVar[int] = 4
    _arrow: ClassVar[pa.DataType] = pa.float64()

    def validate(self, value: Any, name: str, subject: str) -> Any:
        """Return a float."""
        ok = is_finite(value) and self.minimum <= value <= self.maximum
        require(ok, name, f"must be in [{self.minimum:g}, {self.maximum:g}]", value, subject=subject)
        return float(value)

    def all_valid(self, table: pa.Table, name: str, scoring: ScoringContext, limits: Limits) -> bool:
        """Return whether all numbers are finite and within the bounds."""
        largest = np.finfo(np.float64).max
        return within(table, name, max(self.minimum, -largest), min(self.maximum, largest))

    def describe(self) -> dict[str, Any]:
        """Add the range of the slider; a bound that is infinite is left out."""
        bounds = {"minimum": self.minimum, "maximum": self.maximum}
        finite = {name: bound for name, bound in bounds.items() if np.isfinite(bound)}
        return super().describe() | finite | {"step": self.step, "start": self.start, "ends": list(self.ends)}


@dataclass(frozen=True, kw_only=True)
class ShareField(NumberField):
    """A number from 0 to 1."""

    minimum: float = 0.0
    maximum: float = 1.0


@dataclass(frozen=True, kw_only=True)
class CountField(NumberField):
    """An integer of 1 or more, at most `limits.k`: the number of results."""

    minimum: float = 1
    maximum: float = 20
    """The end of the slider; greater values are valid."""
    step: float = 1
    start: float = 5

    form: ClassVar[str] = "integer"
    order: ClassVar[int] = 3
    _arrow: ClassVar[pa.DataType] = pa.int32()

    def validate(self, value: Any, name: str, subject: str) -> Any:
        """Return an int; a float without a fraction, as pandas makes of integers, is one too."""
        ok = is_finite(value) and value == int(value) and value >= 1
        require(ok, name, "must be an integer of 1 or more", value, subject=subject)
        return int(value)

    def check(self, value: Any, name: str, scoring: ScoringContext, limits: Limits, subject: str) -> None:
        """Refuse more than the limit."""
        require(value <= limits.k, name, f"must be at most {limits.k}", value, subject=subject)

    def all_valid(self, table: pa.Table, name: str, scoring: ScoringContext, limits: Limits) -> bool:
        """Return whether all are integers from 1 to the limit."""
        return bool(pa.types.is_integer(column_type(table, name))) and within(table, name, 1, limits.k)


@dataclass(frozen=True, kw_only=True)
class UserField(FieldType):
    """A user of the social graph."""

    form: ClassVar[str] = "id"
    order: ClassVar[int] = 5
    _arrow: ClassVar[pa.DataType] = pa.string()

    def stored(self, name: str) -> tuple[pa.Field, ...]:
        """Return a column for strings and one for integers."""
        return PAIRS[name]

    def validate(self, value: Any, name: str, subject: str) -> Any:
        """Return the id."""
        value = plain_id(value)
        check_id(value, name, subject=subject)
        return value

    def check(self, value: Any, name: str, scoring: ScoringContext, limits: Limits, subject: str) -> None:
        """Refuse a user that the graph does not know."""
        limits.check_id(value, name, subject=subject)
        known = value in scoring.social.users
        require(known, name, "must be known to the social graph", value, subject=subject)

    def all_valid(self, table: pa.Table, name: str, scoring: ScoringContext, limits: Limits) -> bool:
        """Return whether the graph knows all users."""
        if not (has_strings(table, name) and are_at_most(table, name, limits.id_bytes)):
            return False
        return scoring.social.users.keys() >= set(table[name].to_pylist())


@dataclass(frozen=True, kw_only=True)
class TimeField(FieldType):
    """A time, or None; in seconds since the epoch, or given as an aware datetime."""

    is_optional: bool = True

    form: ClassVar[str] = "time"
    order: ClassVar[int] = 7
    _arrow: ClassVar[pa.DataType] = pa.timestamp("us", tz="UTC")

    def validate(self, value: Any, name: str, subject: str) -> Any:
        """Return seconds since the epoch, or None."""
        return None if value is None else to_seconds(to_us(value, subject=subject, field=name))

    def all_valid(self, table: pa.Table, name: str, scoring: ScoringContext, limits: Limits) -> bool:
        """Return whether a column is missing, or holds nulls or microseconds with a time zone only."""
        type_ = column_type(table, name)
        if name not in table.column_names or table[name].null_count == len(table):
            return True
        if not (pa.types.is_timestamp(type_) and type_.tz is not None and type_.unit == "us"):
            return False
        most = pc.max(pc.abs(table[name].cast(pa.int64()))).as_py()
        return bool(0 <= most < FARTHEST_US)


def column_type(table: pa.Table, name: str) -> pa.DataType:
    """Return the type of a column; null if the table does not have it."""
    return table.schema.field(name).type if name in table.column_names else pa.null()


def has_strings(table: pa.Table, name: str) -> bool:
    """Return whether a column holds strings and no null."""
    type_ = column_type(table, name)
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_)) and not table[name].null_count


def are_at_most(table: pa.Table, name: str, n_bytes: int) -> bool:
    """Return whether the strings of a column have at most so many bytes."""
    longest = pc.max(pc.binary_length(table[name])).as_py()
    return longest is None or longest <= n_bytes


def within(table: pa.Table, name: str, low: float, high: float) -> bool:
    """Return whether a column holds numbers from low to high, no null and no NaN."""
    type_ = column_type(table, name)
    if not (pa.types.is_floating(type_) or pa.types.is_integer(type_)) or table[name].null_count:
        return False
    numbers = table[name].cast(pa.float64(), safe=False)  # Arrow compares no large integers with floats
    inside = pc.all(pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high)))
    return bool(inside.as_py() is not False)
