"""Boolean expressions: words, phrases, AND, OR, NOT and parentheses.

    expression := conjunction (OR conjunction)*
    conjunction := factor (AND? factor)*            words side by side mean AND
    factor := NOT* (word | phrase | "(" expression ")")
    phrase := '"' words '"'                         its terms stand side by side in the message, in this order

NOT binds tightest, then AND, then OR. Operators are written in capitals; any other word is analyzed like a message's
text. A word that gives several terms ("t-shirt") means all of them; a run of bigrams means them side by side.

The canonical form is an OR of ANDs of literals: the set of branches that are not implied by a smaller one, in a fixed
order, so that equal meanings look equal:

    coffee AND (sale OR discount) OR coffee AND sale AND today   ->   {coffee, discount}, {coffee, sale}

An OR of ANDs can be exponentially larger than its expression. So branches are counted, in one pass over the
expression, before any is made: no more than a few times the limit. Removing those that others imply then takes at
most `limit` comparisons each. Branches that a term is joined to are extended at the end, and not at every level of
parentheses around them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from nearcast.errors import InvalidInput, require
from nearcast.text import SIMPLE, Analyzer

_L = TypeVar("_L", bound="str | Literal")

Branch = frozenset[str]
"""Terms that a message must hold."""
Group = tuple[frozenset["Literal"], set[frozenset["Literal"]]]
"""Literals that several branches share, and the other literals of each."""

_SYMBOL = re.compile(r'"[^"]*"?|[()]|[^\s()"]+')
_OPERATORS = ("AND", "OR", "NOT")
_DEEPEST = 100
_SLACK = 16  # so many times the limit, before implied branches are removed
_RULE = "must be words and phrases joined by AND, OR, NOT and parentheses"


class Literal(NamedTuple):
    """Terms that a message must hold side by side, or must not; mostly a single term."""

    terms: tuple[str, ...]
    is_negated: bool = False

    def __str__(self) -> str:
        words = " ".join(self.terms)
        return ("NOT " if self.is_negated else "") + (f'"{words}"' if len(self.terms) > 1 else words)

    @property
    def expression(self) -> Expression:
        """The literal as an expression."""
        found = _side_by_side(self.terms)
        return Expression("NOT", (found,)) if self.is_negated else found


class Expression(NamedTuple):
    """A parsed expression: a term, a phrase, or an operator over parts."""

    operator: str  # "TERM", "PHRASE", "NOT", "AND" or "OR"
    parts: tuple[Expression, ...] = ()
    phrase: tuple[str, ...] = ()
    """The term, or the terms of the phrase."""

    @property
    def is_plain(self) -> bool:
        """True without phrases and NOT: then the terms that a message holds decide."""
        return self.operator == "TERM" or (
            self.operator in ("AND", "OR") and all(part.is_plain for part in self.parts)
        )

    def terms(self) -> set[str]:
        """Return the terms that occur.

        >>> sorted(parse("a AND (b OR NOT a)").terms())
        ['a', 'b']
        """
        found = set(self.phrase)
        for part in self.parts:
            found.update(part.phrase if not part.parts else part.terms())
        return found

    def branches(self, *, limit: int) -> tuple[Branch, ...]:
        """Return an OR of ANDs of terms that a message must hold; raise `InvalidInput` beyond `limit` branches.

        It is canonical and exact for a plain expression. Otherwise it over-approximates: what a branch excludes is
        left out, and a phrase stands for its terms.

        >>> [sorted(b) for b in parse("a AND (b OR c) OR a AND b AND d").branches(limit=9)]
        [['a', 'b'], ['a', 'c']]
        >>> [sorted(b) for b in parse('a NOT b OR "c d"').branches(limit=9)]
        [['a'], ['c', 'd']]
        """
        found = set()
        for branch in self.literal_branches(limit=limit):
            positive = frozenset(term for literal in branch if not literal.is_negated for term in literal.terms)
            rule = "must hold a word in each of its branches that is not excluded by NOT"
            require(bool(positive), "keywords", rule, " ".join(map(str, sorted(branch))))
            found.add(positive)
        return tuple(sorted(_minimal(found, limit), key=sorted))

    def literal_branches(self, *, limit: int) -> tuple[frozenset[Literal], ...]:
        """Return the canonical OR of ANDs; raise `InvalidInput` if it needs more than `limit` branches.

        >>> [sorted(branch) for branch in parse("a NOT (b OR c)").literal_branches(limit=9)]
        [[Literal(terms=('a',), is_negated=False), Literal(terms=('b',), is_negated=True), ...]]
        """
        distinct = self._without_not()._without_repetitions()
        if distinct._count(_SLACK * limit) > _SLACK * limit:
            raise _too_many(f"more than {_SLACK * limit}", limit)
        return tuple(sorted(_minimal(_joined(distinct._expand(limit)), limit), key=sorted))

    def beyond_terms(self) -> Expression:
        """Return what is left to test of a message that holds the terms of one of the `branches`.

        Each branch fulfils all parts of an AND that are plain. The expression must not be plain itself.

        >>> left = parse("(a OR b) c NOT d").beyond_terms()
        >>> left.operator, left.parts[0].phrase
        ('NOT', ('d',))
        """
        if self.operator != "AND":
            return self
        return _join("AND", [part.beyond_terms() for part in self.parts if not part.is_plain])

    def _without_not(self, *, negate: bool = False) -> Expression:
        """Return the expression with NOT at terms and phrases only."""
        if self.operator == "NOT":
            return self.parts[0]._without_not(negate=not negate)
        if self.parts:
            operator = self.operator if not negate else {"AND": "OR", "OR": "AND"}[self.operator]
            return Expression(operator, tuple(part._without_not(negate=negate) for part in self.parts))
        return Expression("NOT", (self,)) if negate else self

    def _without_repetitions(self) -> Expression:
        if self.operator not in ("AND", "OR"):
            return self
        return _join(self.operator, list(dict.fromkeys(part._without_repetitions() for part in self.parts)))

    def _count(self, most: int) -> int:
        """Return the number of branches before implied ones are removed, or any greater number than `most`."""
        if self.operator not in ("AND", "OR"):
            return 1
        n = 0 if self.operator == "OR" else 1
        for part in self.parts:
            n = n + part._count(most) if self.operator == "OR" else n * part._count(most)
            if n > most:
                break
        return n

    @property
    def _literal(self) -> Literal:
        return Literal(self.parts[0].phrase, True) if self.operator == "NOT" else Literal(self.phrase)

    def _expand(self, limit: int) -> list[Group]:
        """Return the branches in groups that share literals: one around many branches is joined to few groups."""
        if self.operator not in ("AND", "OR"):
            return [(frozenset((self._literal,)), {frozenset()})]
        parts = [part._expand(limit) for part in self.parts]
        if self.operator == "OR":
            return _either(parts, limit)
        common = frozenset().union(*(terms for part in parts if _size(part) == 1 for terms in _joined(part)))
        several = [part for part in parts if _size(part) > 1]
        if len(several) == 1:
            return [(common | terms, branches) for terms, branches in several[0]]
        product: set[frozenset[Literal]] = {frozenset()}
        for part in several:
            rest = _minimal({branch - common for branch in _joined(part)}, limit)
            product = _minimal({a | b for a in product for b in rest}, limit)
        return [(common, product)]


def parse(text: str, *, analyzer: Analyzer = SIMPLE, field: str = "keywords") -> Expression:
    """Parse an expression; raise `InvalidInput` with the position of a syntax error.

    >>> parse("coffee AND (sale").operator
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: keywords must be words and phrases joined by AND, OR, NOT and parentheses; got 'coffee AND (sale'. A parenthesis is not closed, at character 12.
    """  # noqa: E501
    return _Parser(text, analyzer, field).parse()


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
    return _join("AND", [_side_by_side((term,)) for term in terms])


class _Parser:
    def __init__(self, text: str, analyzer: Analyzer, field: str) -> None:
        self.text, self.analyzer, self.field = text, analyzer, field
        found = list(_SYMBOL.finditer(text))
        self.symbols = [match.group() for match in found]
        self.positions = [match.start() + 1 for match in found]
        self.at = 0

    def parse(self) -> Expression:
        if not self.symbols:
            raise InvalidInput(self.field, "must hold at least one term", self.text)
        made = self._either(0)
        if self._peek() == ")":
            raise self._error("A parenthesis is closed that was not opened", self.at)
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
        is_negated = False
        while self._peek() == "NOT":
            self.at += 1
            is_negated = not is_negated
        made = self._operand(depth)
        return Expression("NOT", (made,)) if is_negated else made

    def _operand(self, depth: int) -> Expression:
        symbol, at = self._peek(), self.at
        if symbol in ("", "AND", "OR", ")"):
            missing = "at the end" if symbol == "" else f"before {symbol!r}"
            raise self._error(f"A word is missing {missing}", at)
        self.at += 1
        if symbol == "(":
            if depth >= _DEEPEST:
                raise self._error(f"Parentheses nest deeper than {_DEEPEST}", at)
            inner = self._either(depth + 1)
            if self._peek() != ")":
                raise self._error("A parenthesis is not closed", at)
            self.at += 1
            return inner
        if symbol.startswith('"') and (len(symbol) == 1 or not symbol.endswith('"')):
            raise self._error("A quotation mark is not closed", at)
        runs = self.analyzer.runs(symbol)
        if not runs:
            raise self._error(f"{symbol!r} holds no letter or digit", at)
        if symbol.startswith('"'):
            return _side_by_side(tuple(term for run in runs for term in run))
        return _join("AND", [_side_by_side(tuple(run)) for run in runs])

    def _peek(self) -> str:
        return self.symbols[self.at] if self.at < len(self.symbols) else ""

    def _error(self, problem: str, symbol: int) -> InvalidInput:
        where = f", at character {self.positions[symbol]}" if symbol < len(self.symbols) else ""
        return InvalidInput(self.field, _RULE, self.text, hint=f"{problem}{where}.")


def _side_by_side(terms: tuple[str, ...]) -> Expression:
    return Expression("TERM" if len(terms) == 1 else "PHRASE", phrase=terms)


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


def _joined(groups: list[Group]) -> set[frozenset[Literal]]:
    """Return the branches of groups, each with all its literals."""
    return {common | branch for common, branches in groups for branch in branches}


def _minimal(branches: Iterable[frozenset[_L]], limit: int) -> set[frozenset[_L]]:
    """Remove every branch that a smaller one implies; raise `InvalidInput` as soon as more than `limit` are left."""
    minimal: list[frozenset[_L]] = []
    by_term: dict[_L, list[frozenset[_L]]] = {}  # each under one of its terms
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
