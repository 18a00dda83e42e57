"""Conditions on attributes in CQL2 JSON: the same conditions that `where` takes as text.

    {"op": "and", "args": [
        {"op": "<=", "args": [{"property": "price"}, 300]},
        {"op": "in", "args": [{"property": "category"}, ["bike", "e-bike"]]}]}

    and, or, not; =, <>, <, <=, >, >=; in, between, isNull, as in OGC 21-065

Recursion is bounded, and so is the number of parts, before anything is translated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nearcast.errors import WHOLE, InvalidInput, is_finite, is_whole, require
from nearcast.model.where import DEEPEST, MIRRORED, Condition, Value, join, negated

_JOINED = {"and": "AND", "or": "OR"}
_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
_OPS = (*_JOINED, "not", *_COMPARISONS, "in", "between", "isNull")
MOST_PARTS = 20_000
"""The most values, conditions and members in the JSON of a condition; the limits of its text apply as well."""
_PLAIN_NAME = re.compile(r"[^\W\d][\w.:]*")
_WORDS = frozenset(("and", "or", "not", "in", "between", "is", "null", "true", "false"))


def parse_where_json(value: Any) -> Condition:
    """Return the condition that CQL2 JSON stands for, or raise `InvalidInput` with the path to the error.

    >>> parse_where_json({"op": "not", "args": [{"op": "<", "args": [{"property": "price"}, 9]}]}).operator
    '>='
    >>> parse_where_json({"op": "like", "args": [{"property": "name"}, "a%"]})
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: where must have an op among and, or, not, =, <>, <, <=, >, >=, in, between, isNull; got 'like'
    """  # noqa: E501
    _check_size(value)
    return _condition(value, "where", 1).without_not()


def where_of_json(value: Any) -> str:
    """Return the CQL2 text that means the same as CQL2 JSON.

    >>> where_of_json({"op": "in", "args": [{"property": "category"}, ["bike", "kid's bike"]]})
    "category IN ('bike', 'kid''s bike')"
    """
    return text_of(parse_where_json(value))


def text_of(condition: Condition) -> str:
    """Return a condition as CQL2 text, which `parse_where` reads.

    >>> from nearcast.model.where import parse_where
    >>> text_of(parse_where("NOT (price > 300 AND category = 'car') AND sold IS NULL"))
    "(price <= 300 OR category <> 'car') AND sold IS NULL"
    """
    if condition.parts:
        texts = (f"({text_of(part)})" if part.parts else text_of(part) for part in condition.parts)
        return f" {condition.operator} ".join(texts)
    name, operator = _name_text(condition.name), condition.operator
    if operator in ("IS NULL", "IS NOT NULL"):
        return f"{name} {operator}"
    values = list(map(_value_text, condition.values))
    return f"{name} {operator} ({', '.join(values)})" if operator.endswith("IN") else f"{name} {operator} {values[0]}"


def _name_text(name: str) -> str:
    is_plain = _PLAIN_NAME.fullmatch(name) is not None and name.lower() not in _WORDS
    return name if is_plain else f'"{name}"'


def _value_text(value: Value) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value).upper() if isinstance(value, bool) else repr(value)


def _check_size(value: Any) -> None:
    """Raise `InvalidInput` for more objects, lists and values than a condition may have."""
    waiting, n = [value], 0
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, (list, Mapping)):
            n += len(inner)
            require(n <= MOST_PARTS, "where", f"must have at most {MOST_PARTS} parts", f"more than {MOST_PARTS}")
            waiting += inner.values() if isinstance(inner, Mapping) else inner


def _condition(value: Any, path: str, depth: int) -> Condition:
    require(depth <= DEEPEST, "where", f"must nest at most {DEEPEST} deep", depth)
    require(isinstance(value, Mapping), path, "must be a condition: an object with op and args", value)
    op, args = value.get("op"), value.get("args")
    require(isinstance(op, str) and op in _OPS, path, f"must have an op among {', '.join(_OPS)}", op)
    require(isinstance(args, list), path, f"must have a list as args of {op}", args)
    at = f"{path}.args."
    if op in _JOINED:
        require(len(args) >= 2, path, f"must have at least 2 conditions as args of {op}", len(args))
        parts = tuple(_condition(arg, f"{at}{i}", depth + 1) for i, arg in enumerate(args))
        return join(_JOINED[op], parts)
    n_args = {"not": 1, "isNull": 1, "between": 3}.get(op, 2)
    require(len(args) == n_args, path, f"must have {n_args} args of {op}", len(args))
    if op == "not":
        return negated(_condition(args[0], f"{at}0", depth + 1))
    if op in _COMPARISONS and not _is_property(args[0]) and _is_property(args[1]):
        return _test(MIRRORED[op], _name(args[1], f"{at}1"), _value(args[0], f"{at}0"))
    name = _name(args[0], f"{at}0")
    if op == "isNull":
        return _test("IS NULL", name)
    if op == "in":
        require(isinstance(args[1], list) and len(args[1]) > 0, f"{at}1", "must have a list of values", args[1])
        return _test("IN", name, *(_value(one, f"{at}1.{i}") for i, one in enumerate(args[1])))
    values = [_value(arg, f"{at}{i}") for i, arg in enumerate(args[1:], start=1)]
    if op == "between":
        return join("AND", (_test(">=", name, values[0]), _test("<=", name, values[1])))
    return _test(op, name, values[0])


def _test(operator: str, name: str, *values: Value) -> Condition:
    return Condition(operator, name=name, values=values)


def _is_property(value: Any) -> bool:
    return isinstance(value, Mapping)


def _name(value: Any, path: str) -> str:
    name = value.get("property") if isinstance(value, Mapping) else None
    is_name = isinstance(name, str) and len(name) > 0 and is_whole(name) and '"' not in name
    require(is_name, path, 'must name an attribute as {"property": name}', value)
    assert isinstance(name, str)
    return name


def _value(value: Any, path: str) -> Value:
    if isinstance(value, str):
        require(is_whole(value), path, WHOLE, value)
        return value
    if isinstance(value, bool):
        return value
    if not isinstance(value, (int, float)) or not is_finite(value):
        raise InvalidInput(path, "must compare with a finite number, a string or a boolean", value)
    return value
