"""Boolean expressions and their canonical form."""

import contextlib
import itertools

import pytest
from hypothesis import given, settings

import nearcast as nc
from nearcast.model import expression
from nearcast.model.expression import hints_of, parse
from nearcast.testing import strategies
from oracle import satisfies


def branches(text, limit=1000):
    return [sorted(branch) for branch in parse(text).branches(limit=limit)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", [["a"]]),
        ("a b", [["a", "b"]]),
        ("a AND b OR c", [["a", "b"], ["c"]]),
        ("a OR b AND c", [["a"], ["b", "c"]]),
        ("a (b OR c)", [["a", "b"], ["a", "c"]]),
        ("(a OR b) (c OR d)", [["a", "c"], ["a", "d"], ["b", "c"], ["b", "d"]]),
        ("a OR a AND b", [["a"]]),
        ("a AND a", [["a"]]),
        ("b OR a", [["a"], ["b"]]),
        ("T-Shirt OR #Sale", [["sale"], ["shirt", "t"]]),
        ("and OR or", [["and"], ["or"]]),  # only capitals are operators
        ("((a))", [["a"]]),
        ("a)b".replace(")", " ") + "(c)", [["a", "b", "c"]]),
    ],
)
def test_canonical_form(text, expected):
    assert branches(text) == expected


@settings(max_examples=300)
@given(strategies.expressions())
def test_the_canonical_form_is_equivalent(text):
    canonical = parse(text).branches(limit=1000)
    for size in range(len(strategies.TERMS) + 1):
        for held in map(set, itertools.combinations(strategies.TERMS, size)):
            assert any(branch <= held for branch in canonical) == satisfies(text, held)


@settings(max_examples=200)
@given(strategies.expressions())
def test_no_branch_implies_another_and_the_order_is_fixed(text):
    canonical = parse(text).branches(limit=1000)
    assert not any(a < b for a in canonical for b in canonical)
    assert [sorted(b) for b in canonical] == sorted(sorted(b) for b in canonical)
    again = " OR ".join("(" + " AND ".join(sorted(b)) + ")" for b in reversed(canonical))
    assert parse(again).branches(limit=1000) == canonical


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a AND", "A word is missing at the end"),
        ("a OR OR b", "A word is missing before 'OR'"),
        ("(a", "A parenthesis is not closed"),
        ("a)", "A parenthesis is closed that was not opened"),
        ("a () b", "A word is missing before ')'"),
        ("a & b", "'&' holds no letter or digit"),
        ("a NOT", "A word is missing at the end"),
        ('a "b', "A quotation mark is not closed, at character 3"),
        ("(" * 101 + "a" + ")" * 101, "nest deeper"),
    ],
)
def test_a_syntax_error_has_its_position(text, hint):
    with pytest.raises(nc.InvalidInput) as caught:
        parse(text)
    assert hint in str(caught.value)
    assert caught.value.field == "keywords"


def test_a_wide_product_with_a_small_canonical_form_is_accepted():
    text = " AND ".join(["(a OR b)"] * 60)
    assert branches(text, limit=2) == [["a"], ["b"]]


def test_the_limit_counts_branches():
    assert len(branches("a OR b OR c", limit=3)) == 3
    with pytest.raises(nc.InvalidInput, match=r"must have at most 2 branches .*; got 'more than 2'"):
        branches("a OR b OR c", limit=2)


def factors(*sizes):
    """Return an AND of ORs of different words."""
    words = iter(range(10_000))
    return " AND ".join("(" + " OR ".join(f"w{next(words)}" for _ in range(size)) + ")" for size in sizes)


LONG = {
    "a product of pairs": factors(*[2] * 500),
    "a product of lists": factors(*[40] * 25),
    "one long OR": " OR ".join(f"w{i}" for i in range(1000)),
    "one long AND": " AND ".join(f"w{i}" for i in range(1000)),
    "many branches, then many words": factors(*[2] * 8) + " AND " + " ".join(f"v{i}" for i in range(900)),
    "factors that others imply": " ".join(f"(x{i % 8} OR y{i % 8} OR z{i})" for i in range(700)),
    "branches that others imply": " OR ".join(["a", *(f"a b{i}" for i in range(1000))]),
    "pairs that the last of many implies": " OR ".join(
        [*(f"a b{i}" for i in range(250)), *(f"a b249 c{i}" for i in range(700))]
    ),
    "nested": "(a OR b AND " * 90 + "c" + ")" * 90,
    "many branches within many parentheses": "".join(f"(v{i} OR u{i} " for i in range(90))
    + factors(*[2] * 7)
    + ")" * 90,
    "nested products": "((a OR b) AND (c OR d) OR " * 90 + "e" + ")" * 90,
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_the_work_for_an_expression_is_bounded_by_its_size(text, monkeypatch):
    """Every expression of 16 KiB, refused or not, takes less than a hundred steps per byte."""
    assert len(text) <= 16 * 1024
    steps = 0

    class CountedBranch(frozenset):
        def __le__(self, other):
            nonlocal steps
            steps += 1
            return frozenset.__le__(self, other)

        def __or__(self, other):
            nonlocal steps
            steps += 1 + len(self)
            return CountedBranch(frozenset.__or__(self, other))

    monkeypatch.setattr(expression, "frozenset", CountedBranch, raising=False)
    subscription = nc.BooleanSubscription("b", region=nc.Box(0, 0, 1, 1), keywords=text)
    with contextlib.suppress(nc.InvalidInput):
        subscription.check(strategies.scoring(strategies.PLANE), nc.Limits())
    assert steps < 100 * len(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [("a or b", ["or"]), ("a Or b and c", ["Or", "and"]), ("a OR b AND c", []), ("oracle, android, a-or-b", [])],
)
def test_an_operator_in_small_letters_gets_a_hint(text, words):
    hints = hints_of(text)
    assert [hint.split("'")[1] for hint in hints] == words
    subscription = nc.BooleanSubscription("b", region=nc.Box(0, 0, 1, 1), keywords=text)
    assert subscription.hints() == hints
    with nc.Engine(space=nc.Space(nc.Box(0, 0, 1, 1))) as engine:
        explanation = engine.score(subscription, nc.Message("m", (0, 0), "a"))
    assert explanation.hints == hints
    assert str(explanation).count("hint:") == len(words)
