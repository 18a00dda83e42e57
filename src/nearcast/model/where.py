"""Conditions on attributes: the part of CQL2 text that `where` takes.

    price <= 300 AND category IN ('bike', 'e-bike')        delivered_at IS NULL OR NOT (stars BETWEEN 1 AND 2)

    comparisons, IN, BETWEEN, IS NULL, AND, OR, NOT and parentheses; `NOT IN`, `NOT BETWEEN`, `IS NOT NULL` too

Three-valued as in SQL: a comparison with null is unknown, and only a message for which the whole condition is true
passes. Since NOT of unknown is unknown, NOT is moved to the comparisons first; then unknown may count as false.

Lark parses, in time linear in the length and without recursion. Conditions that differ in their values only are
parsed once. The grammar is ours, because the parsers of CQL2 that exist take exponential time for some short texts,
or give AND and OR the same precedence (see decision 041).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

from nearcast.errors import InvalidInput, is_finite, require
from nearcast.model.attributes import LARGEST_INT, Attributes

_RULE = "must be a condition on attributes"
DEEPEST = 100
"""How deep conditions may nest."""
_SHORT = 1024

Value = float | int | str | bool

_NAME = r"[^\W\d][\w.:]*"
_QUOTED = '"[^"]+"'
_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_STRING = "'(?:[^']|'')*'"
_GRAMMAR = rf"""
?start: either
?either: all ("OR"i all)+ -> either | all
?all: factor ("AND"i factor)+ -> all | factor
?factor: "NOT"i factor -> negation | predicate | "(" either ")"
?predicate: operand COMPARISON operand -> comparison
    | operand "BETWEEN"i operand "AND"i operand -> between
    | operand "NOT"i "BETWEEN"i operand "AND"i operand -> not_between
    | operand "IN"i "(" operand ("," operand)* ")" -> among
    | operand "NOT"i "IN"i "(" operand ("," operand)* ")" -> not_among
    | operand "IS"i "NULL"i -> null
    | operand "IS"i "NOT"i "NULL"i -> not_null
?operand: NAME -> name | QUOTED -> quoted_name | NUMBER -> number | STRING -> string
    | "TRUE"i -> true | "FALSE"i -> false
COMPARISON: "<=" | ">=" | "<>" | "=" | "<" | ">"
NAME: /{_NAME}/
QUOTED: /{_QUOTED}/
NUMBER: /{_NUMBER}/
STRING: /{_STRING}/
%ignore /\s+/
"""
_NEGATED = {
    "=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">", "IN": "NOT IN", "NOT IN": "IN",
    "IS NULL": "IS NOT NULL", "IS NOT NULL": "IS NULL",
}  # fmt: skip
MIRRORED = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
"""The comparison that means the same with its operands exchanged."""


class Condition(NamedTuple):
    """A condition: a test of one attribute, or AND or OR over parts."""

    operator: str
    """AND, OR, a comparison, IN, NOT IN, IS NULL or IS NOT NULL."""
    parts: tuple[Condition, ...] = ()
    name: str = ""
    """The attribute."""
    values: tuple[Value, ...] = ()
    depth: int = 1
    is_negated: bool = False
    """True only while a condition is made."""

    def without_not(self, *, negate: bool = False) -> Condition:
        """Return the condition with NOT moved to its tests."""
        negate ^= self.is_negated
        if self.parts:
            operator = {"AND": "OR", "OR": "AND"}[self.operator] if negate else self.operator
            parts = tuple(part.without_not(negate=negate) for part in self.parts)
            return self._replace(operator=operator, parts=parts, is_negated=False)
        return self._replace(operator=_NEGATED[self.operator] if negate else self.operator, is_negated=False)

    def with_values(self, values: Sequence[Value]) -> Condition:
        """Return the condition with the values whose positions now stand in their places."""
        if self.parts:
            return self._replace(parts=tuple(part.with_values(values) for part in self.parts))
        return self._replace(values=tuple(one if isinstance(one, bool) else values[int(one)] for one in self.values))

    def tests(self) -> list[Condition]:
        """Return the tests of single attributes."""
        return [test for part in self.parts for test in part.tests()] if self.parts else [self]

    def check(self, attributes: Attributes, *, subject: str) -> None:
        """Raise `InvalidInput` for a test of an unknown attribute, or of a value that it cannot have."""
        for test in self.tests():
            known = f"must name attributes of the engine: {list(attributes.names)}"
            require(test.name in attributes.positions, "where", known, test.name, subject=subject)
            type_ = attributes.type_of(test.name)
            for value in test.values:
                _check_value(value, test.name, type_, subject)
            if type_ in (str, bool):
                has_order = test.operator in ("<", "<=", ">", ">=")
                rule = f"must compare {test.name}, which is a {type_.__name__}, with =, <>, IN or IS NULL"
                require(not has_order, "where", rule, f"{test.name} {test.operator}", subject=subject)


def _check_value(value: Value, name: str, type_: type, subject: str) -> None:
    wanted = {float: "a number", int: "a number", str: "a string in single quotes", bool: "TRUE or FALSE"}[type_]
    if type_ not in (float, int):
        require(isinstance(value, type_), "where", f"must compare {name} with {wanted}", value, subject=subject)
        return
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    require(is_number, "where", f"must compare {name} with {wanted}", value, subject=subject)
    require(is_finite(value), "where", f"must compare {name} with a finite number", value, subject=subject)
    if type_ is int and isinstance(value, int):
        rule = f"must compare {name} with integers between -2**53 and 2**53"
        require(abs(value) <= LARGEST_INT, "where", rule, value, subject=subject)


def parse_where(text: str) -> Condition:
    """Parse a condition, in which NOT is moved to the tests; raise `InvalidInput` with the position of an error.

    >>> parse_where("NOT (price > 300 OR category = 'car')").operator
    'AND'
    >>> parse_where("price <=")
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: where must be a condition on attributes; got 'price <='. Something is missing at the end.
    """  # noqa: E501
    return _parse_short(text) if len(text) <= _SHORT else _parse_long(text)


def _parse(text: str) -> Condition:
    literals: list[Value] = []
    try:
        form = _parse_form(_LITERAL.sub(lambda found: _numbered(found, literals), text))
    except InvalidInput:
        return _parse_whole(text)  # for the position of the error
    return form.with_values(literals)


# A condition takes up to 20 times the bytes of its text, so few long ones are remembered.
_parse_short, _parse_long = lru_cache(maxsize=4096)(_parse), lru_cache(maxsize=16)(_parse)


_LITERAL = re.compile(rf"{_QUOTED}|{_NAME}|({_STRING})|({_NUMBER})")


def _numbered(found: re.Match[str], literals: list[Value]) -> str:
    """Add a literal to the list, and return its position there as a literal of the same type."""
    string, number = found.groups()
    if string is None and number is None:
        return found[0]
    literals.append(_to_number(number) if string is None else _to_string(string))
    position = len(literals) - 1
    return f" {position} " if string is None else f" '{position}' "


def _parse_form(text: str) -> Condition:
    return _parse_short_form(text) if len(text) <= _SHORT else _parse_long_form(text)


def _parse_whole(text: str) -> Condition:
    from lark.exceptions import UnexpectedInput, VisitError

    try:
        made: Condition = _parser().parse(text)
    except VisitError as error:
        raise error.orig_exc from None
    except UnexpectedInput as error:
        raise InvalidInput("where", _RULE, text, hint=_problem(error, text)) from None
    return _condition(made).without_not()


_parse_short_form, _parse_long_form = lru_cache(maxsize=1024)(_parse_whole), lru_cache(maxsize=16)(_parse_whole)


def _problem(error: Any, text: str) -> str:
    position = error.pos_in_stream
    if position is None or position < 0 or position >= len(text) or getattr(error, "token", None) == "":
        return "Something is missing at the end."
    token = getattr(error, "token", None) or text[position]
    return f"{str(token)!r} is not expected at character {position + 1}."


class _Name(str):
    """The name of an attribute."""

    __slots__ = ()


@cache
def _parser() -> Any:
    from lark import Lark, Transformer, v_args

    @v_args(inline=True)
    class ToCondition(Transformer):  # type: ignore[type-arg]
        """Makes conditions while the text is parsed."""

        def name(self, token: str) -> _Name:
            return _Name(token)

        def quoted_name(self, token: str) -> _Name:
            return _Name(token[1:-1])

        def number(self, token: str) -> float | int:
            return _to_number(token)

        def string(self, token: str) -> str:
            return _to_string(token)

        def true(self) -> bool:
            return True

        def false(self) -> bool:
            return False

        def either(self, *parts: Any) -> Condition:
            return join("OR", map(_condition, parts))

        def all(self, *parts: Any) -> Condition:
            return join("AND", map(_condition, parts))

        def negation(self, part: Any) -> Condition:
            return negated(_condition(part))

        def comparison(self, left: Any, operator: str, right: Any) -> Condition:
            if isinstance(right, _Name) and not isinstance(left, _Name):
                return _test(MIRRORED[operator], right, left)
            return _test(str(operator), left, right)

        def between(self, name: Any, low: Any, high: Any) -> Condition:
            return join("AND", (_test(">=", name, low), _test("<=", name, high)))

        def not_between(self, name: Any, low: Any, high: Any) -> Condition:
            return self.between(name, low, high)._replace(is_negated=True)

        def among(self, name: Any, *values: Any) -> Condition:
            return _test("IN", name, *values)

        def not_among(self, name: Any, *values: Any) -> Condition:
            return _test("NOT IN", name, *values)

        def null(self, name: Any) -> Condition:
            return _test("IS NULL", name)

        def not_null(self, name: Any) -> Condition:
            return _test("IS NOT NULL", name)

    return Lark(
        _GRAMMAR, parser="lalr", transformer=ToCondition(), propagate_positions=False, maybe_placeholders=False
    )


def _to_number(token: str) -> float | int:
    return int(token) if token.lstrip("+-").isdecimal() and len(token) < 400 else float(token)


def _to_string(token: str) -> str:
    return str(token[1:-1]).replace("''", "'")


def _condition(part: Any) -> Condition:
    if not isinstance(part, Condition):
        raise InvalidInput("where", _RULE, part, hint="A value alone is no condition.")
    return part


def negated(condition: Condition) -> Condition:
    """Return NOT of a condition, which `without_not` moves to the tests."""
    return condition._replace(is_negated=not condition.is_negated)


def join(operator: str, parts: Iterable[Condition]) -> Condition:
    """Return AND or OR of conditions; raise `InvalidInput` if they nest too deep."""
    flat: list[Condition] = []
    for part in parts:
        flat += part.parts if part.operator == operator and not part.is_negated else [part]
    depth = 1 + max(part.depth for part in flat)
    require(depth <= DEEPEST, "where", f"must nest at most {DEEPEST} deep", depth)
    return Condition(operator, tuple(flat), depth=depth)


def _test(operator: str, name: Any, *values: Any) -> Condition:
    rule = "must compare an attribute with a value"
    require(isinstance(name, _Name), "where", rule, name)
    for value in values:
        require(not isinstance(value, _Name), "where", rule, value, hint="Strings stand in single quotes.")
    return Condition(operator, name=str(name), values=values)
