"""Conditions mean what SQL says, and what is no condition gets an error that says where and why."""

import sqlite3
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from effort import effort
from nearcast.errors import InvalidInput
from nearcast.model import Message, MessageBatch
from nearcast.model.attributes import Attributes
from nearcast.model.filter_program import holds
from nearcast.model.filter_program import test_of_where as of_where
from nearcast.model.where import parse_where
from nearcast.testing import strategies

ATTRIBUTES, VOCABULARY = Attributes.of(strategies.ATTRIBUTES), strategies.vocabulary()


@pytest.fixture(scope="module")
def sqlite():
    connection = sqlite3.connect(":memory:")
    yield connection
    connection.close()


def by_sqlite(connection, condition, values):
    """Return whether SQLite finds the condition true; its columns have no types, as values are compared as they are."""
    names = [f'"{name}"' for name in ATTRIBUTES.names]
    row = [values.get(name) for name in ATTRIBUTES.names]
    columns = ", ".join(f"? AS {name}" for name in names)
    found = connection.execute(f"SELECT ({condition}) FROM (SELECT {columns})", row).fetchone()[0]
    return found == 1


@settings(max_examples=effort(200, 20_000))
@given(condition=strategies.conditions(), values=strategies.attribute_values())
@example(condition="NOT (price IN (1.5, 300.0) OR stars > 0)", values={})
@example(condition="NOT price BETWEEN 300.0 AND 0.0", values={"price": 1.5})
def test_conditions_are_true_where_sqlite_says_so(sqlite, condition, values):
    parsed = parse_where(condition)
    parsed.check(ATTRIBUTES, subject="")
    message = Message("m", (0, 0), "a", attributes=values)
    batch = MessageBatch.from_messages([message], vocabulary=VOCABULARY, attributes=ATTRIBUTES)
    test = of_where(parsed, ATTRIBUTES, VOCABULARY.hash_key)
    assert holds(test, batch.documents[0]) == by_sqlite(sqlite, condition, values)


def test_precedence_and_spelling_are_those_of_sql():
    assert parse_where("a = 1 OR b = 2 AND c = 3") == parse_where("a = 1 or (b = 2 and c = 3)")
    assert parse_where("NOT a = 1 AND b = 2") == parse_where("(NOT a = 1) AND b = 2")
    assert parse_where("5 < price").tests()[0][::3] == parse_where("price > 5").tests()[0][::3]
    assert parse_where("name = 'it''s'").values == ("it's",)
    assert parse_where('"open now" = TRUE').values == (True,)
    assert parse_where("x IN (1, 2.5, -3e2, 'a', FALSE)").values == (1, 2.5, -300.0, "a", False)


def test_literals_of_any_form_keep_their_values_where_conditions_are_parsed_once():
    for value in ("1", "01", "-1", "+1.", ".5", "1e3", "9" * 30, "1E-7"):
        for text in (f"x = {value}", f"{value}=x", f"x BETWEEN {value} AND {value}", f"x IN (7,{value})"):
            assert float(value) in [float(one) for test in parse_where(text).tests() for one in test.values], text
    assert parse_where("x = 1").values == (1,) and isinstance(parse_where("x = 1").values[0], int)
    assert parse_where("x = 1.0").values == (1.0,) and isinstance(parse_where("x = 1.0").values[0], float)
    assert parse_where("a1 = 5 AND b2.c3 = 6").tests()[1].name == "b2.c3"


ERRORS = [
    ("", "Something is missing at the end"),
    ("price <=", "Something is missing at the end"),
    ("price <= 300 AND", "Something is missing at the end"),
    ("price <= 300 category = 'x'", "'category' is not expected at character 14"),
    ("price < 1.2.3", "'.3' is not expected at character 12"),
    ("price = 'open", '"\'" is not expected at character 9'),
    ("price ~ 3", "'~' is not expected at character 7"),
    ("price", "Something is missing at the end"),
    ("3 = 4", "must compare an attribute with a value"),
    ("price = cost", "Strings stand in single quotes"),
    ("price IN ()", "is not expected"),
    ("price LIKE 'a%'", "'LIKE' is not expected at character 7"),
    ("(" * 200 + "a = 1" + ")" * 200, None),
    ("NOT " * 500 + "a = 1", None),
]


@pytest.mark.parametrize(("text", "hint"), ERRORS, ids=range(len(ERRORS)))
def test_what_does_not_parse_gets_an_error_with_the_position(text, hint):
    if hint is None:
        parse_where(text)
        return
    with pytest.raises(InvalidInput) as raised:
        parse_where(text)
    assert raised.value.field == "where" and hint in str(raised.value)


def test_depth_is_limited():
    def nested(n):
        return "a = 1" if n == 0 else f"(a = 1 {'OR' if n % 2 else 'AND'} {nested(n - 1)})"

    assert parse_where(nested(90))
    with pytest.raises(InvalidInput, match="nest at most 100 deep"):
        parse_where(nested(150))


CHECKED = [
    ("colour = 'red'", "must name attributes of the engine"),
    ("price = 'a'", "must compare price with a number"),
    ("price = TRUE", "must compare price with a number"),
    ("stars = 1e400", "finite number"),
    ("stars < 9007199254740993", "2**53"),
    ("category = 3", "a string in single quotes"),
    ("category < 'b'", "with =, <>, IN or IS NULL"),
    ('"open now" = 1', "TRUE or FALSE"),
    ('"open now" > FALSE', "with =, <>, IN or IS NULL"),
]


@pytest.mark.parametrize(("text", "reason"), CHECKED)
def test_types_are_checked_against_the_attributes(text, reason):
    with pytest.raises(InvalidInput) as raised:
        parse_where(text).check(ATTRIBUTES, subject="subscription 's'")
    assert reason in str(raised.value) and "subscription 's'" in str(raised.value)


@settings(max_examples=effort(200, 20_000))
@given(st.text(alphabet="a1'\" =<>()ANDORT.,-é\n", max_size=40))
def test_any_text_is_a_condition_or_refused(text):
    try:
        condition = parse_where(text)
    except InvalidInput as error:
        assert error.field == "where"
    else:
        assert condition.tests()


def test_few_long_conditions_are_remembered():
    def long_condition(first):
        return " OR ".join(f"price = {first + i}" for i in range(400))

    parse_where(long_condition(0))
    tracemalloc.start()
    try:
        for i in range(60):
            parse_where(long_condition(1000 * i))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 30 * 100_000  # one takes about 80,000 bytes
