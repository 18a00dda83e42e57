"""Boolean expressions: words, AND, OR and parentheses, parsed to an OR of ANDs.

    expression := conjunction (OR conjunction)*
    conjunction := factor (AND? factor)*            words side by side mean AND
    factor := word | "(" expression ")"

AND binds tighter than OR. Operators are written in capitals; any other word is tokenised like a message's text, and a
word that gives several terms ("t-shirt") means all of them. The canonical form is the set of branches that are
not implied by a smaller one, in a fixed order, so that equal meanings look equal:

    coffee AND (sale OR discount) OR coffee AND sale AND today   ->   {coffee, discount}, {coffee, sale}

An OR of ANDs can be exponentially larger than its expression; a limit on the branches stops that early.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from nearcast.errors import InvalidInput
from nearcast.text import tokenize

Branch = frozenset[str]

_SYMBOL = re.compile(r"[()]|[^\s()]+")
_OPERATORS = ("AND", "OR")
_DEEPEST = 100
_SLACK = 64  # a product may exceed the limit this many times before it is reduced
_RULE = "must be words joined by AND, OR and parentheses"


class Expression(NamedTuple):
    """A parsed expression: a term, or an operator over parts."""

    operator: str  # "TERM", "AND" or "OR"
    parts: tuple[Expression, ...] = ()
    term: str = ""

    def branches(self, *, limit: int) -> tuple[Branch, ...]:
        """Return the canonical OR of ANDs; raise `InvalidInput` if it needs more than `limit` branches.

        >>> [sorted(b) for b in parse("a AND (b OR c) OR a AND b AND d").branches(limit=9)]
        [['a', 'b'], ['a', 'c']]
        """
        found = self._expand(limit)
        return tuple(sorted(found, key=lambda branch: sorted(branch)))

    def _expand(self, limit: int) -> set[Branch]:
        if self.operator == "TERM":
            return {frozenset((self.term,))}
        if self.operator == "OR":
            joined: set[Branch] = set()
            for part in self.parts:
                joined |= part._expand(limit)
            return _checked(_minimal(joined), limit)
        product: set[Branch] = {frozenset()}
        for part in self.parts:
            factors = part._expand(limit)
            # Check the size before building: an unreduced product may exceed memory.
            if len(product) * len(factors) > _SLACK * limit:
                raise _too_many(len(product) * len(factors), limit)
            product = _checked(_minimal({a | b for a in product for b in factors}), limit)
        return product


def parse(text: str) -> Expression:
    """Parse an expression; raise `InvalidInput` with the position of a syntax error.

    >>> parse("coffee AND (sale").operator
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: keywords must be words joined by AND, OR and parentheses; got 'coffee AND (sale'. A parenthesis is not closed.
    """  # noqa: E501
    return _Parser(text).parse()


def hints_of(text: str) -> tuple[str, ...]:
    """Return a hint for each operator that is not written in capitals and therefore is a word.

    >>> hints_of("coffee or jazz")
    ("'or' is searched as a word. Write OR in capitals to use it as an operator.",)
    """
    small = dict.fromkeys(symbol for symbol in _SYMBOL.findall(text) if symbol.upper() in _OPERATORS)
    return tuple(
        f"{symbol!r} is searched as a word. Write {symbol.upper()} in capitals to use it as an operator."
        for symbol in small
        if symbol not in _OPERATORS
    )


def all_of(terms: Sequence[str]) -> Expression:
    """Return the AND of terms taken verbatim."""
    return _join("AND", [Expression("TERM", term=term) for term in terms])


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.symbols = _SYMBOL.findall(text)
        self.at = 0

    def parse(self) -> Expression:
        if not self.symbols:
            raise InvalidInput("keywords", "must hold at least one term", self.text)
        made = self._either(0)
        if self._peek() == ")":
            raise self._error("A parenthesis is closed that was not opened.")
        return made

    def _either(self, depth: int) -> Expression:
        parts = [self._all(depth)]
        while self._peek() == "OR":
            self.at += 1
            parts.append(self._all(depth))
        return _join("OR", parts)

    def _all(self, depth: int) -> Expression:
        parts = [self._factor(depth)]
        while self._peek() not in ("", "OR", ")"):
            if self._peek() == "AND":
                self.at += 1
            parts.append(self._factor(depth))
        return _join("AND", parts)

    def _factor(self, depth: int) -> Expression:
        symbol = self._peek()
        if symbol in ("", "AND", "OR", ")"):
            missing = "at the end" if symbol == "" else f"before {symbol!r}"
            raise self._error(f"A word is missing {missing}.")
        self.at += 1
        if symbol == "(":
            if depth >= _DEEPEST:
                raise self._error(f"Parentheses nest deeper than {_DEEPEST}.")
            inner = self._either(depth + 1)
            if self._peek() != ")":
                raise self._error("A parenthesis is not closed.")
            self.at += 1
            return inner
        if symbol == "NOT":
            raise self._error("NOT is not supported; write 'not' for the word.")
        terms = tokenize(symbol)
        if not terms:
            raise self._error(f"{symbol!r} holds no letter or digit.")
        return all_of(terms)

    def _peek(self) -> str:
        return self.symbols[self.at] if self.at < len(self.symbols) else ""

    def _error(self, hint: str) -> InvalidInput:
        return InvalidInput("keywords", _RULE, self.text, hint=hint)


def _join(operator: str, parts: list[Expression]) -> Expression:
    return parts[0] if len(parts) == 1 else Expression(operator, tuple(parts))


def _minimal(branches: set[Branch]) -> set[Branch]:
    """Remove every branch that a smaller one implies."""
    minimal: list[Branch] = []
    for branch in sorted(branches, key=len):
        if not any(smaller <= branch for smaller in minimal):
            minimal.append(branch)
    return set(minimal)


def _checked(branches: set[Branch], limit: int) -> set[Branch]:
    if len(branches) > limit:
        raise _too_many(len(branches), limit)
    return branches


def _too_many(n: int, limit: int) -> InvalidInput:
    rule = f"must have at most {limit} branches as an OR of ANDs"
    return InvalidInput("keywords", rule, n, hint="Split it into several subscriptions.")
