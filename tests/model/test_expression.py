"""Boolean expressions and their canonical form."""

import itertools

import pytest
from hypothesis import given, settings

import nearcast as nc
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
        ("NOT a", "NOT is not supported"),
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
    with pytest.raises(nc.InvalidInput, match=r"must have at most 2 branches .*; got 3"):
        branches("a OR b OR c", limit=2)


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
