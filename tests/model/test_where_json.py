"""CQL2 JSON means what its operators say, and becomes CQL2 text that means the same."""

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import InvalidInput
from nearcast.model.attributes import Attributes
from nearcast.model.where import DEEPEST, parse_where
from nearcast.model.where_json import MOST_PARTS, parse_where_json, where_of_json
from oracle import is_true

COMPARE = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
NUMBERS = st.sampled_from([-2, 0, 1, 1.5, 3, 2.5e-9])
WORDS = st.sampled_from(["bike", "kid's bike", "", "e-bike"])


def prop(name):
    return {"property": name}


def op(name, *args):
    return {"op": name, "args": list(args)}


comparisons = st.builds(
    lambda name, attribute, value, is_mirrored: (
        op(name, value, prop(attribute)) if is_mirrored else op(name, prop(attribute), value)
    ),
    st.sampled_from(sorted(COMPARE)), st.sampled_from(["price", "open now"]), NUMBERS, st.booleans(),
)  # fmt: skip
words = st.builds(lambda name, value: op(name, prop("category"), value), st.sampled_from(["=", "<>"]), WORDS)
ranges = st.builds(lambda low, high: op("between", prop("price"), low, high), NUMBERS, NUMBERS)
choices = st.builds(lambda values: op("in", prop("category"), values), st.lists(WORDS, min_size=1, max_size=3))
nulls = st.builds(lambda name: op("isNull", prop(name)), st.sampled_from(["price", "category", "open now"]))
conditions = st.recursive(
    st.one_of(comparisons, words, ranges, choices, nulls),
    lambda inner: st.one_of(
        st.builds(
            lambda name, parts: op(name, *parts),
            st.sampled_from(["and", "or"]),
            st.lists(inner, min_size=2, max_size=3),
        ),
        st.builds(lambda part: op("not", part), inner),
    ),
    max_leaves=8,
)
attributes = st.fixed_dictionaries(
    {"price": st.none() | NUMBERS, "open now": st.none() | NUMBERS, "category": st.none() | WORDS}
)


def evaluate(condition, values):
    """Return True, False, or None for unknown."""
    name, args = condition["op"], condition["args"]
    if name == "not":
        found = evaluate(args[0], values)
        return None if found is None else not found
    if name in ("and", "or"):
        found = [evaluate(arg, values) for arg in args]
        decides = name == "or"
        return decides if decides in found else None if None in found else not decides
    held = [values[arg["property"]] if isinstance(arg, dict) else arg for arg in args]
    if name == "isNull":
        return held[0] is None
    if None in held[:2]:
        return None
    if name == "in":
        return held[0] in held[1]
    return held[1] <= held[0] <= held[2] if name == "between" else COMPARE[name](*held)


@given(conditions, attributes)
def test_the_text_of_a_condition_means_what_its_json_says(condition, values):
    text = where_of_json(condition)
    assert is_true(text, values) == (evaluate(condition, values) is True)
    parse_where(text).check(Attributes.of({"price": float, "open now": float, "category": str}), subject="")
    assert {test.name for test in parse_where(text).tests()} == {
        test.name for test in parse_where_json(condition).tests()
    }


@pytest.mark.parametrize(
    ("value", "rule", "shown", "at"),
    [
        ([], "must be a condition: an object with op and args", [], ""),
        (op("like", prop("a"), "x"), "must have an op among", "like", ""),
        ({"op": ["="], "args": []}, "must have an op among", ["="], ""),
        ({"op": "="}, "must have a list as args of =", None, ""),
        (op("=", prop("a")), "must have 2 args of =", 1, ""),
        (op("and", op("isNull", prop("a"))), "must have at least 2 conditions as args of and", 1, ""),
        (op("not", op("=", prop("a"), prop("b"))), "must compare with a finite number", prop("b"), "args.0.args.1"),
        (op("=", 1, 2), "must name an attribute as", 1, "args.0"),
        (op("=", {"property": 'a"b'}, 2), "must name an attribute as", {"property": 'a"b'}, "args.0"),
        (op("=", prop("a"), float("inf")), "must compare with a finite number", float("inf"), "args.1"),
        (op("=", prop("a"), None), "must compare with a finite number", None, "args.1"),
        (op("=", prop("a"), "\ud800"), "must hold no halves of characters", "\ud800", "args.1"),
        (op("in", prop("a"), []), "must have a list of values", [], "args.1"),
        (op("in", prop("a"), [1, None]), "must compare with a finite number", None, "args.1.1"),
    ],
)
def test_an_error_names_the_rule_and_the_place(value, rule, shown, at):
    with pytest.raises(InvalidInput) as caught:
        where_of_json(value)
    error = caught.value
    assert (error.field, error.value) == (f"where.{at}".rstrip("."), shown) and error.rule.startswith(rule)


def test_deep_conditions_are_refused_without_recursion_beyond_the_limit():
    made = op("isNull", prop("a"))
    for _ in range(DEEPEST - 1):
        made = op("not", made)
    where_of_json(made)
    with pytest.raises(InvalidInput, match=f"at most {DEEPEST} deep"):
        where_of_json(op("not", made))


@pytest.mark.parametrize("name", ["price", "and", "TRUE", "open now", "9lives", "größe", "a.b:c"])
def test_every_name_that_text_can_spell_is_quoted_where_it_must_be(name):
    (test,) = parse_where(where_of_json(op("=", prop(name), 1))).tests()
    assert test.name == name


def test_a_condition_of_too_many_parts_is_refused_before_it_is_translated():
    parts = [op("isNull", prop("a"))] * (MOST_PARTS // 6)
    with pytest.raises(InvalidInput, match=f"where must have at most {MOST_PARTS} parts"):
        where_of_json(op("or", op("like"), *parts, *parts))
    where_of_json(op("or", *parts))
