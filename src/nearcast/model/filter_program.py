"""Filter programs: what a message must fulfil beside its score, as a list of tests with jumps.

    where price <= 300 AND category = 'bike'          require NOT kids

    0  price <= 300          true -> 1     false -> FAIL
    1  category IN {bike}    true -> 2     false -> FAIL
    2  holds kids            true -> FAIL  false -> PASS

A test looks at one attribute, one term, one phrase or the region. Each jump goes forward, so a program ends after as
many steps as it has tests, and evaluates only what still matters. `where`, `require`, the expressions of kind
`boolean` that plain terms cannot decide, and regions are all compiled to such programs.

`holds` is the reference, which evaluates the tree of tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from nearcast.model._kernels.program_layout import (
    AMONG,
    FAIL,
    GREATER,
    GREATER_OR_EQUAL,
    HOLDS,
    IN_REGION,
    IS_KNOWN,
    IS_NULL,
    LESS,
    LESS_OR_EQUAL,
    NOT_AMONG,
    OPERANDS,
    PASS,
    SIDE_BY_SIDE,
)
from nearcast.model.attributes import NULL, Attributes, decode_number, encode_value
from nearcast.model.document import Document
from nearcast.model.expression import Expression
from nearcast.model.where import Condition
from nearcast.text import HashKey

_ORDERS = {"<": LESS, "<=": LESS_OR_EQUAL, ">": GREATER, ">=": GREATER_OR_EQUAL}


class Predicate(NamedTuple):
    """A test of a message, or AND, OR or NOT over parts."""

    operator: str
    """AND, OR, NOT or TEST."""
    parts: tuple[Predicate, ...] = ()
    code: int = 0
    """What is tested: see `_kernels.program_layout`."""
    attribute: int = 0
    """The position of the attribute."""
    operands: tuple[int, ...] = ()
    """Term ids, or codes of values."""


def test_of_expression(expression: Expression, term_id: Callable[[str], int]) -> Predicate:
    """Return an expression as tests of terms and phrases."""
    if expression.parts:
        return Predicate(expression.operator, tuple(test_of_expression(part, term_id) for part in expression.parts))
    ids = tuple(map(term_id, expression.phrase))
    return Predicate("TEST", code=HOLDS if len(ids) == 1 else SIDE_BY_SIDE, operands=ids)


def test_of_where(condition: Condition, attributes: Attributes, key: HashKey) -> Predicate:
    """Return a condition without NOT as tests of attributes; unknown counts as false."""
    if condition.parts:
        return Predicate(condition.operator, tuple(test_of_where(part, attributes, key) for part in condition.parts))
    position = attributes.positions[condition.name]
    codes = tuple(sorted({encode_value(value, key) for value in condition.values}))
    named = {
        "=": AMONG,
        "IN": AMONG,
        "<>": NOT_AMONG,
        "NOT IN": NOT_AMONG,
        "IS NULL": IS_NULL,
        "IS NOT NULL": IS_KNOWN,
    }
    return Predicate("TEST", code=(named | _ORDERS)[condition.operator], attribute=position, operands=codes)


IN_ITS_REGION = Predicate("TEST", code=IN_REGION)


def all_of_tests(tests: Iterable[Predicate]) -> Predicate | None:
    """Return the AND of tests, or None if there is none."""
    listed = tuple(tests)
    return None if not listed else listed[0] if len(listed) == 1 else Predicate("AND", listed)


def holds(test: Predicate, document: Document, in_region: Callable[[Document], bool] = lambda document: True) -> bool:
    """Return whether a message passes: the reference."""
    if test.operator == "AND":
        return all(holds(part, document, in_region) for part in test.parts)
    if test.operator == "OR":
        return any(holds(part, document, in_region) for part in test.parts)
    if test.operator == "NOT":
        return not holds(test.parts[0], document, in_region)
    if test.code == HOLDS:
        return test.operands[0] in document.units
    if test.code == SIDE_BY_SIDE:
        return _stand_side_by_side(test.operands, document.order)
    if test.code == IN_REGION:
        return in_region(document)
    return _holds_value(test, document.codes[test.attribute])


def borders(terms: Sequence[int]) -> list[int]:
    """Return, for each beginning of a phrase, the length of the longest shorter beginning that also ends it.

    Where a comparison fails, it goes on from there, so a search takes linear time (Knuth, Morris and Pratt, 1977).

    >>> borders([7, 8, 7, 8, 9])
    [0, 0, 1, 2, 0]
    """
    found, matched = [0], 0
    for term in terms[1:]:
        while matched > 0 and terms[matched] != term:
            matched = found[matched - 1]
        matched += terms[matched] == term
        found.append(matched)
    return found


def _stand_side_by_side(phrase: Sequence[int], terms: Sequence[int]) -> bool:
    """Return whether terms hold a phrase."""
    found, matched = borders(phrase), 0
    for term in terms:
        while matched > 0 and phrase[matched] != term:
            matched = found[matched - 1]
        matched += phrase[matched] == term
        if matched == len(phrase):
            return True
    return False


def _holds_value(test: Predicate, code: int) -> bool:
    if test.code == IS_NULL or code == NULL:
        return test.code == IS_NULL and code == NULL
    if test.code == IS_KNOWN:
        return True
    if test.code in (AMONG, NOT_AMONG):
        return (code in test.operands) == (test.code == AMONG)
    value, bound = decode_number(code), decode_number(test.operands[0])
    return {
        LESS: value < bound,
        LESS_OR_EQUAL: value <= bound,
        GREATER: value > bound,
        GREATER_OR_EQUAL: value >= bound,
    }[test.code]


def compile_test(test: Predicate) -> list[int]:
    """Return a tree of tests as the words of a program; see `_kernels.program_layout` for their form."""
    if test == IN_ITS_REGION:
        return []
    listed: list[tuple[Predicate, int, int]] = []  # last test first; jumps are positions in it
    entry = _emit(test, PASS, FAIL, listed)
    assert entry == len(listed) - 1
    operands = [[*one.operands, *(borders(one.operands) if one.code == SIDE_BY_SIDE else ())] for one, _, _ in listed]
    starts, at = [0] * len(listed), 0
    for i in range(len(listed) - 1, -1, -1):
        starts[i] = at
        at += OPERANDS + len(operands[i])
    words: list[int] = []
    for (found, if_true, if_false), own in zip(reversed(listed), reversed(operands), strict=True):
        jumps = [starts[to] if to >= 0 else to for to in (if_true, if_false)]
        words += [found.code | (found.attribute << 8) | (len(own) << 32), *jumps, *own]
    return words


def _emit(test: Predicate, if_true: int, if_false: int, listed: list[tuple[Predicate, int, int]]) -> int:
    """Append the tests of a tree, the last one first; return the position of the first."""
    if test.operator == "NOT":
        return _emit(test.parts[0], if_false, if_true, listed)
    if test.operator == "TEST":
        listed.append((test, if_true, if_false))
        return len(listed) - 1
    for part in reversed(test.parts):
        if test.operator == "AND":
            if_true = _emit(part, if_true, if_false, listed)
        else:
            if_false = _emit(part, if_true, if_false, listed)
    return if_true if test.operator == "AND" else if_false


def has_phrase(test: Predicate) -> bool:
    """Return whether the order of the terms matters."""
    return test.code == SIDE_BY_SIDE or any(map(has_phrase, test.parts))
