"""Boolean expressions: words, AND, OR and parentheses, parsed to an OR of ANDs.

    expression := conjunction (OR conjunction)*
    conjunction := factor (AND? factor)*            words side by side mean AND
    factor := word | "(" expression ")"

AND binds tighter than OR. Operators are written in capitals; any other word is analyzed like a message's text, and a
word that gives several terms ("t-shirt", or a run of bigrams) means all of them. The canonical form is the set of
branches that are not implied by a smaller one, in a fixed order, so that equal meanings look equal:

    coffee AND (sale OR discount) OR coffee AND sale AND today   ->   {coffee, discount}, {coffee, sale}

An OR of ANDs can be exponentially larger than its expression. So branches are counted, in one pass over the
expression, before any is made: no more than a few times the limit. Removing those that others imply then takes at
most `limit` comparisons each. Branches that a term is joined to are extended at the end, and not at every level of
parentheses around them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from nearcast.errors import InvalidInput
from nearcast.text import SIMPLE, Analyzer

Branch = frozenset[str]
Group = tuple[Branch, set[Branch]]
"""Terms that several branches share, and the other terms of each."""

_SYMBOL = re.compile(r"[()]|[^\s()]+")
_OPERATORS = ("AND", "OR")
_DEEPEST = 100
_SLACK = 16  # so many times the limit, before implied branches are removed
_RULE = "must be words joined by AND, OR and parentheses"


class Expression(NamedTuple):
    """A parsed expression: a term, or an operator over parts."""

    operator: str  # "TERM", "AND" or "OR"
    parts: tuple[Expression, ...] = ()
    term: str = ""

    def terms(self) -> set[str]:
        """Return the terms that occur.

        >>> sorted(parse("a AND (b OR a)").terms())
        ['a', 'b']
        """
        if self.operator == "TERM":
            return {self.term}
        found: set[str] = set()
        for part in self.parts:
            found.update((part.term,) if part.operator == "TERM" else part.terms())
        return found

    def branches(self, *, limit: int) -> tuple[Branch, ...]:
        """Return the canonical OR of ANDs; raise `InvalidInput` if it needs more than `limit` branches.

        >>> [sorted(b) for b in parse("a AND (b OR c) OR a AND b AND d").branches(limit=9)]
        [['a', 'b'], ['a', 'c']]
        """
        distinct = self._without_repetitions()
        if distinct._count(_SLACK * limit) > _SLACK * limit:
            raise _too_many(f"more than {_SLACK * limit}", limit)
        return tuple(sorted(_minimal(_joined(distinct._expand(limit)), limit), key=sorted))

    def _without_repetitions(self) -> Expression:
        if self.operator == "TERM":
            return self
        return _join(self.operator, list(dict.fromkeys(part._without_repetitions() for part in self.parts)))

    def _count(self, most: int) -> int:
        """Return the number of branches before implied ones are removed, or any greater number than `most`."""
        if self.operator == "TERM":
            return 1
        n = 0 if self.operator == "OR" else 1
        for part in self.parts:
            n = n + part._count(most) if self.operator == "OR" else n * part._count(most)
            if n > most:
                break
        return n

    def _expand(self, limit: int) -> list[Group]:
        """Return the branches in groups that share terms: a term around many branches is joined to few groups."""
        if self.operator == "TERM":
            return [(frozenset((self.term,)), {frozenset()})]
        parts = [part._expand(limit) for part in self.parts]
        if self.operator == "OR":
            return _either(parts, limit)
        common = frozenset().union(*(terms for part in parts if _size(part) == 1 for terms in _joined(part)))
        several = [part for part in parts if _size(part) > 1]
        if len(several) == 1:
            return [(common | terms, branches) for terms, branches in several[0]]
        product: set[Branch] = {frozenset()}
        for part in several:
            rest = _minimal({branch - common for branch in _joined(part)}, limit)
            product = _minimal({a | b for a in product for b in rest}, limit)
        return [(common, product)]


def parse(text: str, *, analyzer: Analyzer = SIMPLE) -> Expression:
    """Parse an expression; raise `InvalidInput` with the position of a syntax error.

    >>> parse("coffee AND (sale").operator
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: keywords must be words joined by AND, OR and parentheses; got 'coffee AND (sale'. A parenthesis is not closed.
    """  # noqa: E501
    return _Parser(text, analyzer).parse()


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
    def __init__(self, text: str, analyzer: Analyzer) -> None:
        self.text, self.analyzer = text, analyzer
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
        terms = self.analyzer.terms(symbol)
        if not terms:
            raise self._error(f"{symbol!r} holds no letter or digit.")
        return all_of(terms)

    def _peek(self) -> str:
        return self.symbols[self.at] if self.at < len(self.symbols) else ""

    def _error(self, hint: str) -> InvalidInput:
        return InvalidInput("keywords", _RULE, self.text, hint=hint)


def _join(operator: str, parts: list[Expression]) -> Expression:
    return parts[0] if len(parts) == 1 else Expression(operator, tuple(parts))


def _either(parts: list[list[Group]], limit: int) -> list[Group]:
    """Return the groups of an OR, single branches as one; far too many branches are reduced at once."""
    groups: list[Group] = [group for part in parts for group in part if len(group[1]) > 1]
    single = {branch for part in parts for group in part if len(group[1]) == 1 for branch in _joined([group])}
    if single:
        groups.append((frozenset(), single))
    if _size(groups) > 2 * limit:
        return [(frozenset(), _minimal(_joined(groups), limit))]
    return groups


def _size(groups: list[Group]) -> int:
    return sum(len(branches) for _, branches in groups)


def _joined(groups: list[Group]) -> set[Branch]:
    """Return the branches of groups, each with all its terms."""
    return {common | branch for common, branches in groups for branch in branches}


def _minimal(branches: set[Branch], limit: int) -> set[Branch]:
    """Remove every branch that a smaller one implies; raise `InvalidInput` as soon as more than `limit` are left."""
    minimal: list[Branch] = []
    by_term: dict[str, list[Branch]] = {}  # each under one of its terms
    for branch in sorted(branches, key=len):
        if not branch:
            return {branch}
        if any(smaller <= branch for term in branch for smaller in by_term.get(term, ())):
            continue
        minimal.append(branch)
        if len(minimal) > limit:
            raise _too_many(f"more than {limit}", limit)
        by_term.setdefault(min(branch), []).append(branch)
    return set(minimal)


def _too_many(n: str, limit: int) -> InvalidInput:
    rule = f"must have at most {limit} branches as an OR of ANDs"
    return InvalidInput("keywords", rule, n, hint="Split it into several subscriptions.")
