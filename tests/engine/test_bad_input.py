"""Bad input raises an error with field, rule and value, and changes nothing."""

from datetime import datetime
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import nearcast as nc
from nearcast.engine import Engine

SPACE = nc.Space(nc.Box(0, 0, 1, 1))
NAN, INF = float("nan"), float("inf")
BOX = nc.Box(0, 0, 1, 1)
HALF = "a half \ud83d of a character"


def engine(**options):
    given = {"window": nc.CountWindow(10), "social": nc.SocialGraph([("ann", "cafe")]),
             "attributes": {"price": float, "category": str}, **options}  # fmt: skip
    return Engine(space=SPACE, **given)


GOOD = {
    "boolean": {"region": BOX, "keywords": "a"},
    "similarity": {"location": (0.5, 0.5), "keywords": "a", "delta": 0.5, "tau": 0.5},
    "topk": {"location": (0.5, 0.5), "keywords": "a", "k": 1, "alpha": 0.5},
    "nearest": {"location": (0.5, 0.5), "keywords": "a", "k": 1},
    "social": {"location": (0.5, 0.5), "keywords": "a", "k": 1, "user": "ann"},
}
KIND = {
    "boolean": nc.BooleanSubscription,
    "similarity": nc.SimilaritySubscription,
    "topk": nc.TopKSubscription,
    "nearest": nc.NearestSubscription,
    "social": nc.SocialSubscription,
}
BAD = [
    *[(kind, "location", value) for kind in GOOD if kind != "boolean"
      for value in [(NAN, 0), (0, INF), (-INF, 0), (2, 0), (0, -0.1), (1,), "ab", None, (True, 0), ("0", "0")]],
    *[(kind, "keywords", value) for kind in GOOD for value in ["", "   ", "!?", [], 7, ["a", 7], HALF, [HALF]]],
    *[(kind, "k", value) for kind in ("topk", "nearest", "social") for value in [0, -1, 1.5, True, None, "3", 10_001]],
    *[(kind, field, value) for kind, field in
      [("topk", "alpha"), ("similarity", "delta"), ("similarity", "tau")] for value in [-0.1, 1.1, NAN, INF, None, "x"]],
    *[("boolean", "keywords", value) for value in
      ["a AND", "OR a", "a AND AND b", "(a", "a)", "()", "a OR", "NOT a", "a & b", "AND", "(" * 200 + "a" + ")" * 200]],
    ("boolean", "region", None),
    ("boolean", "region", (0, 0, 1, 1)),
    ("boolean", "region", nc.Box(1, 0, 0, 1)),
    *[(kind, "region", value) for kind in GOOD for value in
      ["here", 7, {"type": "Point"}, "POLYGON ((0 0, 1 1))", nc.Box(1, 0, 0, 1)]],
    *[(kind, "where", value) for kind in GOOD for value in
      [7, "", "price", "price <=", "price <= 'a'", "size > 1", "category < 'a'", "price = NULL", "price = price",
       "price LIKE 'a'", "(price = 1", "price = 1e999", HALF, "(" * 200 + "price = 1" + ")" * 200 + "x"]],
    *[(kind, "require", value) for kind in GOOD if kind != "boolean"
      for value in ["", "NOT", "(a", '"a', "a AND", 7, [], HALF]],
    ("social", "user", "nobody"),
    ("social", "user", None),
    *[(kind, "id", value) for kind in GOOD for value in [None, 1.5, True, ("a",), 1 << 70, HALF]],
]  # fmt: skip


@pytest.mark.parametrize(("kind", "field", "value"), BAD)
def test_a_bad_subscription_is_refused_with_field_rule_and_value(kind, field, value):
    here = engine()
    fields = {"id": "bad", **GOOD[kind], field: value}
    with pytest.raises(nc.InvalidInput) as caught:
        here.subscribe([KIND["topk"]("good", **GOOD["topk"]), KIND[kind](**fields)])
    error = caught.value
    assert error.field == field
    assert field in str(error) and "must" in str(error) and "got" in str(error)
    assert len(here) == 0, "a batch is all or nothing"


@pytest.mark.parametrize(("field", "value"), [
    ("location", (NAN, 0)), ("location", (0, INF)), ("location", (1.5, 0)), ("location", None), ("location", (1, 2, 3)),
    ("text", None), ("text", 7), ("text", ["a", None]), ("text", b"bytes"), ("text", "x" * 65_537),
    ("text", "\u00e9" * 40_000), ("text", ["x" * 40_000, "y" * 40_000]),
    ("at", NAN), ("at", INF), ("at", "noon"), ("at", datetime(2024, 1, 1)), ("at", 1e300),
    ("place", 1.5), ("id", None), ("id", 2.5), ("id", HALF), ("text", HALF), ("text", [HALF]), ("place", HALF),
])  # fmt: skip
def test_a_bad_message_refuses_its_whole_batch(field, value):
    here = engine()
    here.subscribe([nc.TopKSubscription("t", **GOOD["topk"])])
    fields = {"id": "bad", "location": (0.5, 0.5), "text": "a", field: value}
    with pytest.raises(nc.InvalidInput) as caught:
        here.publish([nc.Message("good", (0.5, 0.5), "a"), nc.Message(**fields)])
    assert caught.value.field == field
    assert here.stats().messages == 0
    assert here.results("t") == []


def test_a_box_with_swapped_corners_is_refused():
    with pytest.raises(nc.InvalidInput, match=r"ymin must not exceed ymax; got 0.5 > 0.2"):
        nc.Box(0, 0.5, 1, 0.2)
    with pytest.raises(nc.InvalidInput, match="xmax must be a finite number"):
        nc.Box(0, 0, NAN, 1)


def test_an_error_names_field_rule_value_and_subject():
    with pytest.raises(nc.InvalidInput) as caught:
        nc.TopKSubscription("t9", location=(0, 0), keywords="a", k=1, alpha=1.7)
    assert str(caught.value) == "alpha must be in [0, 1]; got 1.7 (subscription 't9')"
    assert isinstance(caught.value, ValueError)


def test_an_expression_of_too_many_branches_is_refused_before_it_is_expanded():
    wide = " AND ".join(f"(a{i} OR b{i})" for i in range(40))
    with pytest.raises(nc.InvalidInput, match="at most 256 branches"):
        engine().subscribe([nc.BooleanSubscription("b", region=BOX, keywords=wide)])


def user_of(n_bytes):
    return "é" * (n_bytes // 2) + "e" * (n_bytes % 2)


SIZES = [
    ("id", 512, user_of, "must be at most 512 bytes"),
    ("user", 512, user_of, "must be at most 512 bytes"),
    ("keywords", 16_384, lambda n: "a" * n, "must be at most 16384 bytes"),
    ("keywords", 1_024, lambda n: " ".join(f"w{i}" for i in range(n)), "must hold at most 1024 terms"),
    ("k", 10_000, lambda n: n, "must be at most 10000"),
]


@pytest.mark.parametrize("as_table", [False, True], ids=["objects", "tables"])
@pytest.mark.parametrize(
    ("field", "most", "make", "rule"), SIZES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_subscription_may_reach_every_limit_and_not_exceed_it(as_table, field, most, make, rule):
    for n in (most, most + 1):
        fields = {"id": "s1", **GOOD["social"], field: make(n)}
        here = engine(social=nc.SocialGraph([("ann", "cafe"), (fields["user"], "cafe")]))
        given = [KIND["social"](**fields)]
        if as_table:
            x, y = fields.pop("location")
            given = pa.Table.from_pylist([{"kind": "social", "x": x, "y": y, **fields}])
        if n == most:
            here.subscribe(given)
            assert len(here) == 1
        else:
            with pytest.raises(nc.InvalidInput, match=f"{field} {rule}; got {n}") as caught:
                here.subscribe(given)
            assert len(here) == 0 and len(str(caught.value)) < 500, "an error does not repeat what was too long"


@pytest.mark.parametrize("as_table", [False, True], ids=["objects", "tables"])
@pytest.mark.parametrize(("field", "most"), [("id", 512), ("place", 512), ("text", 65_536)])
def test_a_message_may_reach_every_limit_and_not_exceed_it(as_table, field, most):
    here = engine()
    for n in (most, most + 1):
        fields = {"id": "m1", "location": (0.5, 0.5), "text": "a", "place": "cafe", field: user_of(n)}
        given = [nc.Message(**fields)]
        if as_table:
            x, y = fields.pop("location")
            given = pa.Table.from_pylist([{"x": x, "y": y, **fields}])
        if n == most:
            here.publish(given)
        else:
            with pytest.raises(nc.InvalidInput, match=f"{field} must be at most {most} bytes; got {n}"):
                here.publish(given)
    assert here.stats().messages == 1


@pytest.mark.parametrize("edge", [("u" * 513, "cafe"), ("ann", "p" * 513)])
def test_a_user_or_place_of_an_edge_has_a_greatest_length(edge):
    here = engine()
    here.add_edges([tuple(end[:512] for end in edge)])
    with pytest.raises(nc.InvalidInput, match="edges must be at most 512 bytes; got 513"):
        here.add_edges([edge])


def test_limits_are_configurable():
    small = engine(limits=nc.Limits(text_bytes=3, terms=2, k=5, branches=2))
    for bad in (
        nc.TopKSubscription("t", location=(0, 0), keywords="a b c", k=1, alpha=0),
        nc.TopKSubscription("t", location=(0, 0), keywords="a", k=6, alpha=0),
        nc.BooleanSubscription("b", region=BOX, keywords="a OR b OR c"),
        nc.BooleanSubscription("b", region=BOX, keywords="a b c"),
    ):
        with pytest.raises(nc.InvalidInput):
            small.subscribe([bad])
    with pytest.raises(nc.InvalidInput, match="text must be at most 3 bytes; got 4"):
        small.publish([nc.Message("m", (0, 0), "four")])
    with pytest.raises(nc.InvalidInput, match="k must be an integer"):
        nc.Limits(k=0)


@pytest.mark.parametrize("options", [
    {"workers": 0}, {"workers": 1.5}, {"partitioner": "magic"}, {"text_similarity": "vibes"}, {"index": "magic"},
    {"analyzer": "klingon"},
    {"window": 5}, {"limits": 7}, {"space": "here"},
])  # fmt: skip
def test_bad_options_of_an_engine_are_refused(options):
    with pytest.raises(nc.InvalidInput) as caught:
        Engine(**{"space": SPACE, **options})
    assert caught.value.field == next(iter(options))


@pytest.mark.parametrize("make", [
    lambda: nc.Space("box"), lambda: nc.Space(BOX, metric="taxicab"), lambda: nc.Space(BOX, max_distance=0),
    lambda: nc.Space(BOX, max_distance=INF), lambda: nc.Space(nc.Box(1, 1, 1, 1)),
    lambda: nc.Space(nc.Box(0, 0, 200, 10), metric="haversine"), lambda: nc.CountWindow(0), lambda: nc.CountWindow(1.5),
    lambda: nc.CountWindow(1 << 63), lambda: nc.TimeWindow(1e12), lambda: nc.TimeWindow(10**400),
    lambda: nc.TimeWindow(0), lambda: nc.TimeWindow(NAN), lambda: nc.Vocabulary(-1, {}),
    lambda: nc.Vocabulary(1, {"a": 2}), lambda: nc.Vocabulary(1, {1: 1}), lambda: nc.Vocabulary.with_weights({"a": NAN}),
    lambda: nc.Vocabulary.with_weights({"a": -1}), lambda: nc.SocialGraph([("ann",)]), lambda: nc.SocialGraph([(1.5, "x")]),
])  # fmt: skip
def test_bad_arguments_of_parts_of_an_engine_are_refused(make):
    with pytest.raises(nc.InvalidInput):
        make()


def test_unknown_ids_are_refused():
    here = engine()
    here.subscribe([nc.TopKSubscription("t", **GOOD["topk"])])
    for call in (lambda: here.results("x"), lambda: here.explain("x", "m"), lambda: here.unsubscribe(["t", "x"])):
        with pytest.raises(nc.UnknownSubscription, match="'x'"):
            call()
    assert "t" in here, "an unknown id undoes the whole batch"
    with pytest.raises(nc.UnknownMessage, match="'gone'"):
        here.explain("t", "gone")
    with pytest.raises(KeyError):
        here.results("x")


def test_kinds_that_need_a_window_are_refused_without_one():
    here = Engine(space=SPACE, social=nc.SocialGraph([("ann", "cafe")]))
    for kind in ("topk", "social"):
        with pytest.raises(nc.StateError, match="needs a window"):
            here.subscribe([KIND[kind]("s", **GOOD[kind])])
    here.subscribe([nc.BooleanSubscription("b", **GOOD["boolean"])])
    with pytest.raises(nc.StateError, match="looked up in the window"):
        here.results("b")


def test_a_time_window_needs_times():
    here = engine(window=nc.TimeWindow(5))
    with pytest.raises(nc.InvalidInput, match="at must be given where the window is a TimeWindow"):
        here.publish([nc.Message("m", (0, 0), "a")])
    assert here.stats().messages == 0


def test_an_argument_of_the_wrong_type_is_named():
    here = engine()
    with pytest.raises(nc.InvalidInput, match="messages must hold messages or dicts; got 'm'"):
        here.publish(["m"])
    with pytest.raises(nc.InvalidInput, match="subscriptions must hold subscriptions; got 's'"):
        here.subscribe(["s"])


# -- tables


def messages(**columns):
    return pa.table({"id": ["m"], "x": [0.5], "y": [0.5], "text": ["a"], **columns})


@pytest.mark.parametrize(("column", "value"), [
    ("id", pa.array([None], pa.string())), ("x", [NAN]), ("x", pa.array([None], pa.float64())), ("x", ["east"]),
    ("y", [7.0]), ("text", pa.array([None], pa.string())), ("text", [7]), ("text", [["a", None]]), ("at", ["noon"]),
    ("at", [INF]), ("place", [1.5]), ("text", ["x" * 70_000]),
])  # fmt: skip
def test_a_bad_cell_in_a_table_of_messages_is_named(column, value):
    here = engine()
    with pytest.raises(nc.InvalidInput) as caught:
        here.publish(messages(**{column: value}))
    assert caught.value.field in (column, "location")
    assert here.stats().messages == 0


def test_missing_columns_are_named():
    with pytest.raises(nc.InvalidInput, match=r"columns of messages must include \['text'\]"):
        engine().publish(messages().drop_columns(["text"]))
    with pytest.raises(nc.InvalidInput, match=r"columns of subscriptions must include \['kind'\]"):
        engine().subscribe(pa.table({"id": ["s"]}))
    with pytest.raises(nc.InvalidInput, match="columns of ids"):
        engine().unsubscribe(pa.table({"name": ["s"]}))


@pytest.mark.parametrize(("row", "field"), [
    ({"kind": "magic"}, "kind"), ({"kind": None}, "kind"), ({"op": "unsubscribe"}, "op"), ({"k": None}, "k"),
    ({"x": None}, "x"), ({"alpha": 3.0}, "alpha"), ({"id": None}, "id"), ({"kind": "boolean"}, "xmin"),
    ({"kind": "boolean", "xmin": 1.0, "ymin": 0.0, "xmax": 0.0, "ymax": 1.0}, "xmin"), ({"keywords": None}, "keywords"),
])  # fmt: skip
def test_a_bad_row_in_a_table_of_subscriptions_is_named(row, field):
    good = {"op": "subscribe", "id": "t", "kind": "topk", "x": 0.5, "y": 0.5, "keywords": "a", "k": 1, "alpha": 0.5}
    here = engine()
    with pytest.raises(nc.InvalidInput) as caught:
        here.subscribe(pa.Table.from_pylist([good, {**good, "id": "bad", **row}]))
    assert caught.value.field == field
    assert len(here) == 0


def not_utf8(*values):
    return pa.Array.from_buffers(pa.string(), len(values), pa.array(values, pa.binary()).buffers())


SUBSCRIPTION = {"id": ["t"], "kind": ["topk"], "x": [0.5], "y": [0.5], "keywords": ["a"], "k": [1], "alpha": [0.5]}
STRANGE = [
    ("id", not_utf8(b"\xff")),
    ("text", not_utf8(b"caf\xe9")),
    ("place", not_utf8(b"\xc0\x80")),
    ("text", pa.array([["a"]]).cast(pa.list_(pa.binary()))),
    ("id", pa.array([(1 << 63) - 1], pa.timestamp("s"))),  # beyond what Python can show
    ("place", pa.array([(1 << 63) - 1], pa.duration("us"))),
    ("place", pa.array([1], pa.timestamp("us", tz="Nowhere/Nothing"))),
    ("x", pa.array([{"a": 1}])),
    ("y", pa.array([1], pa.date32())),
]


@pytest.mark.parametrize(("column", "value"), STRANGE, ids=lambda value: str(getattr(value, "type", value)))
def test_a_column_of_messages_that_cannot_be_read_is_named_and_nothing_changes(column, value):
    here = engine()
    here.subscribe([nc.TopKSubscription("t", **GOOD["topk"])])
    with pytest.raises(nc.InvalidInput) as caught:
        here.publish(messages(**{column: value}))
    assert caught.value.field == column
    assert here.stats().messages == 0 and here.publish([nc.Message("m", (0.5, 0.5), "a")])


@pytest.mark.parametrize(("column", "value"), [
    ("keywords", not_utf8(b"\xfe")), ("id", not_utf8(b"\xfe")), ("kind", not_utf8(b"\xfe")), ("op", [7]), ("op", [False]),
    ("op", [""]), ("op", [["subscribe"]]), ("alpha", pa.array([(1 << 63) - 1], pa.duration("ns"))), ("k", [1 << 62]),
    ("k", pa.array([1 << 63], pa.uint64())), ("x", [1 << 62]), ("y", pa.array([b"y"])), ("user", pa.array([1], pa.date64())),
])  # fmt: skip
def test_a_column_of_subscriptions_that_cannot_be_read_is_named(column, value):
    here = engine()
    row = {**SUBSCRIPTION, "op": ["subscribe"], column: value}
    with pytest.raises(nc.InvalidInput) as caught:
        here.subscribe(pa.table(row))
    assert caught.value.field in (column, "location") and len(here) == 0


@pytest.mark.parametrize(
    "column", [not_utf8(b"a", b"\xff"), pa.ListArray.from_arrays([0, 1, 2], not_utf8(b"a", b"\xff"))]
)
def test_only_the_rows_of_a_slice_are_checked(column):
    here = engine()
    table = pa.concat_tables([messages(), messages()]).set_column(
        messages().column_names.index("text"), "text", column
    )
    assert len(here.publish(table.slice(0, 1))) == 0 and here.stats().messages == 1
    with pytest.raises(nc.InvalidInput):
        here.publish(table.slice(1, 1))


def test_columns_of_other_types_with_the_same_values_are_read():
    here, half = engine(), pa.array([0.5], pa.float64()).cast(pa.float16())
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), pa.array(["t"]))
    here.subscribe(
        pa.table(
            {**SUBSCRIPTION, "id": runs, "x": half, "alpha": half, "keywords": pa.array(["a"]).dictionary_encode()}
        )
    )
    assert list(here.subscriptions()) == [nc.TopKSubscription("t", **GOOD["topk"])]


@pytest.mark.parametrize(
    "extra", [pa.array([(1 << 63) - 1], pa.timestamp("s")), not_utf8(b"\xff"), pa.array([{"a": None}])]
)
def test_columns_that_a_call_does_not_read_may_hold_anything(extra):
    here = engine()
    here.subscribe(pa.table({**SUBSCRIPTION, "colour": extra, "at": extra}))
    here.publish(messages(colour=extra))
    assert len(here) == here.stats().messages == 1


def test_a_column_that_occurs_twice_is_refused():
    here = engine()
    table = messages().append_column("x", pa.array([0.1]))
    with pytest.raises(nc.InvalidInput, match="columns must include 'x' once"):
        here.publish(table)
    with pytest.raises(nc.InvalidInput, match="columns must include 'id' once"):
        here.unsubscribe(pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["id", "id"]))


@pytest.mark.parametrize("value", [10**400, -(10**400), Fraction(10**400, 3)])
def test_a_number_beyond_the_range_of_floats_is_refused(value):
    here = engine(window=nc.TimeWindow(9))
    for call in (
        lambda: nc.Message("m", (value, 0), "a"),
        lambda: nc.Message("m", (0, 0), "a", at=value),
        lambda: nc.TopKSubscription("t", **{**GOOD["topk"], "k": value}),
        lambda: nc.TopKSubscription("t", **{**GOOD["topk"], "alpha": value}),
        lambda: here.advance(value),
    ):
        with pytest.raises(nc.InvalidInput):
            call()
    with pytest.raises(nc.InvalidInput, match="got a very long number"):
        nc.Message("m", (0, 0), "a", at=10**5000)


@pytest.mark.parametrize("region", [7, None, "abcd", (0, 0, 1), (0, 0, 1, "x"), {"xmin": 0}])
def test_a_dict_with_a_bad_region_is_refused(region):
    here = engine()
    with pytest.raises(nc.InvalidInput):
        here.subscribe([{"id": "b", "kind": "boolean", "keywords": "a", "region": region}])
    here.subscribe([{"id": "b", "kind": "boolean", "keywords": "a", "region": BOX}])
    here.subscribe([{"id": "c", "kind": "boolean", "keywords": "a", "region": [0, 0, 1, 1]}])
    assert len(here) == 2


@pytest.mark.parametrize("column", ["id", "text", "place"])
def test_offsets_that_end_within_a_number_are_refused(column):
    """Arrow reads such a column from a damaged file, and does not complain."""
    offsets, here = np.array([0, 1], np.int32).tobytes() + b"\0", engine()
    words = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(b"a")])
    words.validate(full=True)
    with pytest.raises(nc.InvalidInput, match="offsets must be numbers of 4 bytes; got 9 bytes") as caught:
        here.publish(messages(**{column: words}))
    assert caught.value.field == column and here.stats().messages == 0


@pytest.mark.parametrize("window", [nc.CountWindow(1 << 62), nc.TimeWindow(1e11)])
def test_the_greatest_window_holds_all_messages_even_the_earliest(window):
    here = engine(window=window)
    here.publish([nc.Message(i, (0.5, 0.5), "a", at=at) for i, at in enumerate((-8.99e12, -8.91e12, -8.9e12))])
    assert (here.stats().late, here.stats().window) == (0, 3)
