"""Expressions: any text is parsed as a second, small parser reads it, or refused with its rule; the work is bounded."""

import contextlib
import itertools
import re

from hypothesis import given
from hypothesis import strategies as st

import nearcast as nc
from effort import search
from nearcast.model import expression
from nearcast.model.expression import hints_of, parse
from nearcast.testing import strategies

SYMBOLS = ("a", "b", "c", "d", "e", "AND", "OR", "(", ")")
LIMITS = nc.Limits(terms=8, branches=5, keywords_bytes=400)


class Refused(Exception):
    """The second parser does not accept a text."""


def read(symbols):
    """Return a function from the terms of a message to whether an expression holds; every word is one term."""
    rest = list(symbols)

    def either():
        parts = [every()]
        while rest[:1] == ["OR"]:
            rest.pop(0)
            parts.append(every())
        return lambda held: any(part(held) for part in parts)

    def every():
        parts = [factor()]
        while rest and rest[0] not in ("OR", ")"):
            if rest[0] == "AND":
                rest.pop(0)
            parts.append(factor())
        return lambda held: all(part(held) for part in parts)

    def factor():
        if not rest or rest[0] in ("AND", "OR", ")"):
            raise Refused
        word = rest.pop(0)
        if word != "(":
            return lambda held: word in held
        inner = either()
        if rest[:1] != [")"]:
            raise Refused
        rest.pop(0)
        return inner

    holds = either()
    if rest:
        raise Refused
    return holds


@search(usual=150)
@given(st.lists(st.sampled_from(SYMBOLS), max_size=24))
def test_a_text_means_what_a_second_parser_reads_in_it(symbols):
    text = " ".join(symbols)
    try:
        holds = read(symbols)
    except Refused:
        holds = None
    try:
        branches = parse(text).branches(limit=10_000)
    except nc.InvalidInput as error:
        assert holds is None and error.field == "keywords"
        return
    assert holds is not None, "only the second parser refuses it"
    words = sorted({symbol for symbol in symbols if len(symbol) == 1 and symbol.isalpha()})
    for size in range(len(words) + 1):
        for held in map(frozenset, itertools.combinations(words, size)):
            assert any(branch <= held for branch in branches) == holds(held)


PIECES = st.sampled_from(
    [*SYMBOLS, " ", "  ", "\t", "\n", "&", "NOT", "not", "and", "T-Shirt", "é", "ß", "İ", "\u0345", "\0"]
)
TEXTS = st.one_of(
    st.text(max_size=200),
    st.lists(PIECES | st.text(max_size=3), max_size=60).map("".join),
    st.lists(PIECES | st.text(max_size=3), max_size=60).map(" ".join),
    st.builds(lambda text, n: text * n, st.lists(PIECES, min_size=1, max_size=6).map(" ".join), st.integers(0, 200)),
)


def is_refused(call):
    """Return whether a call is refused by an error of the project; any other error is a failure of the test."""
    try:
        call()
    except nc.NearcastError as error:
        assert len(str(error)) < 1000, "an error does not repeat long input"
        return True
    return False


@search(usual=150)
@given(TEXTS, st.booleans())
def test_any_text_is_accepted_or_refused_as_a_whole(text, has_limits):
    limits = LIMITS if has_limits else nc.Limits()
    with contextlib.suppress(nc.InvalidInput):
        subscription = nc.BooleanSubscription("b", region=nc.Box(0, 0, 1, 1), keywords=text)
        assert all(isinstance(hint, str) for hint in hints_of(text))
        refused = is_refused(lambda: subscription.check(strategies.scoring(strategies.PLANE), limits))
        if not refused:
            branches = parse(text).branches(limit=limits.branches)
            assert 1 <= len(branches) <= limits.branches
            assert not any(one < other for one in branches for other in branches)
            assert len(frozenset().union(*branches)) <= limits.terms
            again = " OR ".join("(" + " AND ".join(sorted(branch)) + ")" for branch in branches)
            if all(re.fullmatch(r"\w+", term) for branch in branches for term in branch):
                assert set(parse(again).branches(limit=limits.branches)) == set(branches)


class CountedBranch(frozenset):
    """A branch that counts what is done with all of them."""

    steps = 0

    def __le__(self, other):
        CountedBranch.steps += 1
        return frozenset.__le__(self, other)

    def __or__(self, other):
        CountedBranch.steps += 1 + len(self)
        return CountedBranch(frozenset.__or__(self, other))


GROUPS = st.lists(st.integers(1, 40), min_size=1, max_size=60)


@search(usual=25)
@given(GROUPS, st.integers(1, 400), st.sampled_from([(" AND ", " OR "), (" OR ", " AND ")]), st.integers(0, 40))
def test_the_work_for_an_expression_is_bounded_by_its_size(sizes, n_words, joins, depth):
    """Groups of words that repeat after `n_words`, joined and nested, refused or not."""
    numbers = itertools.cycle(range(n_words))
    outer, inner = joins
    text = outer.join("(" + inner.join(f"w{next(numbers)}" for _ in range(size)) + ")" for size in sizes)
    text = "(v OR u " * depth + text + ")" * depth
    text = text[: 16 * 1024]
    CountedBranch.steps = 0
    expression.frozenset = CountedBranch
    try:
        with contextlib.suppress(nc.InvalidInput):
            parse(text).branches(limit=256)
    finally:
        del expression.frozenset
    assert CountedBranch.steps < 100 * len(text) + 256 * 256, "per byte, and to compare as many branches as allowed"
