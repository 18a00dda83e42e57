"""Calls take what people have: frames of pandas and Polars, Arrow streams, dicts, one object, values of NumPy."""

import random
from datetime import UTC, datetime
from math import cos, degrees, pi, radians, sin

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import nearcast as nc
from nearcast.errors import InvalidInput
from nearcast.space.metric import haversine

ROWS = [
    {"id": "m1", "x": 0.2, "y": 0.3, "text": "coffee sale"},
    {"id": "m2", "x": 0.8, "y": 0.3, "text": "coffee"},
    {"id": "m3", "x": 0.3, "y": 0.3, "text": "jazz"},
]
SUBSCRIPTIONS = [
    {"id": "n1", "kind": "nearest", "x": 0.2, "y": 0.3, "keywords": "coffee", "k": 1},
    {"id": "n2", "kind": "nearest", "x": 0.9, "y": 0.3, "keywords": "jazz", "k": 2},
]
TABLES = {
    "table": pa.Table.from_pylist,
    "record batch": pa.RecordBatch.from_pylist,
    "reader": lambda rows: pa.Table.from_pylist(rows).to_reader(),
    "pandas": pd.DataFrame,
    "pandas, indexed": lambda rows: pd.DataFrame(rows, index=[f"row {i}" for i in range(len(rows))]),
    "pandas, categories": lambda rows: pd.DataFrame(rows).astype({"id": "category"}),
    "pandas, floats": lambda rows: pd.DataFrame(rows).astype({"k": float} if "k" in rows[0] else {}),
    "polars": pl.DataFrame,
    "capsule": lambda rows: Capsule(pa.Table.from_pylist(rows)),
}
UPDATES = [("n1", "m1", "enter"), ("n2", "m3", "enter")]


class Capsule:
    """Something with the Arrow PyCapsule interface and nothing else."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


def engine(**options):
    return nc.Engine(space=nc.Space(nc.Box(0, 0, 1, 1)), **options)


def keys(updates):
    return [(u.subscription, u.message, u.change) for u in updates]


@pytest.mark.parametrize("form", TABLES)
def test_everything_that_holds_columns_is_a_table(form):
    make = TABLES[form]
    with engine() as one:
        assert isinstance(one.subscribe(make(SUBSCRIPTIONS)), pa.Table)
        updates = one.publish(make(ROWS))
        assert isinstance(updates, pa.Table)
        assert [(u["subscription"], u["message"], u["change"]) for u in updates.to_pylist()] == UPDATES
        one.unsubscribe(make([{"id": "n1"}, {"id": "n2"}]))
        assert len(one) == 0


def test_dicts_have_the_fields_of_objects_or_the_columns_of_tables():
    with engine() as one:
        subscriptions = [SUBSCRIPTIONS[0], {**SUBSCRIPTIONS[1], "location": (0.9, 0.3)}]
        del subscriptions[1]["x"], subscriptions[1]["y"]
        assert one.subscribe(subscriptions) == []
        box = {"id": "b1", "kind": "boolean", "region": (0, 0, 1, 1), "keywords": "tea"}
        assert one.subscribe(box) == []
        assert keys(one.publish(ROWS)) == UPDATES
        assert keys(one.publish({"id": "m4", "location": [0.5, 0.5], "text": "tea"})) == [("b1", "m4", "enter")]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": "m", "x": 0.5, "text": "a"}, "location must be a pair of finite numbers; got (0.5, None) (message 'm')"),
        ({"id": "m", "x": 0.5, "y": 0.5}, "message must have ['text']; got ['id', 'x', 'y'] (message 'm')"),
        ({"x": 0.5, "y": 0.5, "text": "a"}, "message must have ['id']; got ['text', 'x', 'y'] (item 0)"),
        ({"id": "m", "x": 0.5, "y": 0.5, "location": (1, 1), "text": "a"},
         "location must not be given together with x and y; got (1, 1) (message 'm')"),
        ({"id": "m", "x": 0.5, "y": 0.5, "text": "a", "lat": 3},
         "message must have no fields but ['id', 'location', 'x', 'y', 'text', 'at', 'place', 'expires_at', 'body', 'attributes']; "
         "got ['lat'] (message 'm')"),
        (7, "messages must be a list or a table; got 7"),
        ("m", "messages must be a list or a table; got 'm'"),
        ([7], "messages must hold messages or dicts; got 7 (item 0)"),
    ],
)  # fmt: skip
def test_a_dict_that_is_no_message_is_refused(row, message):
    with engine() as one, pytest.raises(InvalidInput) as error:
        one.publish(row)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"kind": "nearest"}, "id must be given; got None (item 0)"),
        ({"id": "s", "kind": "circle"}, "kind must be one of "),
        ({"id": "s", "kind": "nearest", "x": 0, "keywords": "a", "k": 1}, "y must be given for kind 'nearest'; got None"),
        ({"id": "s", "kind": "nearest", "x": 0, "y": 0, "keywords": "a"}, "k must be given for kind 'nearest'; got None"),
        ({"id": "s", "kind": "nearest", "x": 0, "y": 0, "keywords": "a", "k": 1, "alpha": 1},
         "subscription must have no fields but those of nearest; got ['alpha'] (subscription 's')"),
    ],
)  # fmt: skip
def test_a_dict_that_is_no_subscription_is_refused(row, message):
    with engine() as one, pytest.raises(InvalidInput) as error:
        one.subscribe(row)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("call", "what"),
    [("publish", "messages"), ("subscribe", "subscriptions"), ("unsubscribe", "ids"), ("add_edges", "edges")],
)
def test_what_is_neither_a_list_nor_a_table_is_refused(call, what):
    with engine() as one, pytest.raises(InvalidInput) as error:
        getattr(one, call)(None)
    assert str(error.value) == f"{what} must be a list or a table; got None"


def test_a_column_of_mixed_types_is_refused():
    frame = pd.DataFrame({"id": ["a", 7], "x": [0.1, 0.2], "y": [0.1, 0.2], "text": ["jazz", "jazz"]})
    with engine() as one, pytest.raises(InvalidInput, match="table must have columns of one type each"):
        one.publish(frame)


def test_one_object_is_a_list_of_one():
    with engine(window=nc.CountWindow(10), social=nc.SocialGraph([("ann", "cafe")])) as one:
        assert one.subscribe(nc.NearestSubscription("n1", location=(0, 0), keywords="jazz", k=1)) == []
        assert keys(one.publish(nc.Message("m1", (0.5, 0.5), "jazz"))) == [("n1", "m1", "enter")]
        assert one.add_edges(("ann", "bar")) == []
        assert one.remove_edges(("ann", "cafe")) == []
        one.unsubscribe("n1")
        assert "n1" not in one


def test_values_of_numpy_are_ids_coordinates_and_counts():
    ids = np.arange(3)
    with engine(social=nc.SocialGraph([(1, 2)]), window=nc.CountWindow(9)) as one:
        points = np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]], np.float32)
        subscription = nc.SocialSubscription(ids[0], location=points[0], keywords="jazz", k=np.int16(3), user=ids[1])
        assert subscription == nc.SocialSubscription(
            0, location=tuple(points[0].tolist()), keywords="jazz", k=3, user=1
        )
        one.subscribe([subscription])
        one.publish([nc.Message(id_, point, "jazz", place=ids[2]) for id_, point in zip(ids, points, strict=True)])
        assert sorted(result.message for result in one.results(ids[0])) == [0, 1, 2]
        assert ids[0] in one and ids[1] not in one
        assert one.explain(ids[0], ids[2]).score == one.explain(0, 2).score
        one.add_edges([(ids[1], ids[0])])
        one.unsubscribe(ids[:1])
        assert len(one) == 0


def test_a_float_without_a_fraction_is_a_count_and_others_are_not():
    assert nc.NearestSubscription("n", location=(0, 0), keywords="a", k=5.0).k == 5
    for k in (5.5, True, "5", None, float("inf")):
        with pytest.raises(InvalidInput, match="k must be an integer of 1 or more"):
            nc.NearestSubscription("n", location=(0, 0), keywords="a", k=k)


@pytest.mark.parametrize(
    "at",
    [
        pa.array([5, 20], pa.int64()),
        pa.array([5, 20], pa.uint8()),
        pa.array([5.0, 20.0]),
        pa.array([datetime.fromtimestamp(s, UTC) for s in (5, 20)], pa.timestamp("ms", tz="UTC")),
        pa.array([datetime.fromtimestamp(s, UTC) for s in (5, 20)], pa.timestamp("s", tz="Asia/Tokyo")),
    ],
    ids=["int64", "uint8", "float", "milliseconds", "Tokyo"],
)
def test_times_of_a_table_are_seconds_or_aware_timestamps(at):
    with engine(window=nc.TimeWindow(10)) as one:
        one.publish(
            pa.table({"id": ["a", "b"], "x": [0.1, 0.1], "y": [0.1, 0.1], "text": ["jazz", "jazz"], "at": at})
        )
        assert one.stats().window == 1


@pytest.mark.parametrize("at", [2**62, -1e300, float("inf")])
def test_times_far_away_are_refused_in_tables_and_objects(at):
    rule = "at must be (an aware datetime or )?finite seconds since the epoch"
    with engine(window=nc.TimeWindow(10)) as one:
        with pytest.raises(InvalidInput, match=rule):
            one.publish(pa.table({"id": ["a"], "x": [0.1], "y": [0.1], "text": ["jazz"], "at": [at]}))
        with pytest.raises(InvalidInput, match=rule):
            one.publish(nc.Message("a", (0.1, 0.1), "jazz", at=at))


def test_naive_times_are_refused_in_tables_and_objects():
    naive = datetime(2026, 1, 1)
    with engine() as one:
        row = {"id": "a", "x": 0.1, "y": 0.1, "text": "jazz", "at": naive}
        for make in (pd.DataFrame, pl.DataFrame, pa.Table.from_pylist):
            with pytest.raises(InvalidInput, match="at must carry a time zone"):
                one.publish(make([row]))
        with pytest.raises(InvalidInput, match="at must carry a time zone"):
            one.publish(row)


@pytest.mark.parametrize("workers", [1, 3])
def test_an_engine_lists_its_subscriptions(workers):
    subscriptions = [
        nc.BooleanSubscription(1, region=nc.Box(0, 0, 1, 1), keywords="a OR b"),
        nc.NearestSubscription("n1", location=(0, 0), keywords=["New", "York"], k=1),
        nc.TopKSubscription("t1", location=(0, 0), keywords="jazz", k=1, alpha=0.5),
    ]
    with engine(window=nc.CountWindow(10), workers=workers) as one:
        assert list(one.subscriptions()) == []
        one.subscribe(subscriptions)
        assert sorted(one.subscriptions(), key=str) == sorted(subscriptions, key=str)


def test_an_engine_describes_itself():
    with engine(window=nc.CountWindow(10)) as one:
        assert repr(one) == "<Engine: no subscriptions, 0 messages, CountWindow(n=10)>"
        one.subscribe(SUBSCRIPTIONS)
        one.publish(ROWS)
        assert repr(one) == "<Engine: 2 nearest subscriptions, 3 messages, CountWindow(n=10)>"


def test_a_box_around_a_point_encloses_the_circle():
    rng = random.Random(1)
    for _ in range(200):
        x, y, metres = rng.uniform(-170, 170), rng.uniform(-80, 80), rng.uniform(0, 100_000)
        box = nc.Box.around((x, y), metres)
        slack = 1e-9
        for turn in range(16):
            angle, far = turn * pi / 8, degrees(0.999 * metres / 6_371_008.8)
            px, py = x + far * sin(angle) / cos(radians(y)), y + far * cos(angle)
            if haversine(x, y, px, py) <= metres:
                assert box.xmin - slack <= px <= box.xmax + slack and box.ymin - slack <= py <= box.ymax + slack
        assert haversine(x, y, x, box.ymax) == pytest.approx(metres, abs=1e-3)
    assert nc.Box.around((10, 89.999), 1_000).as_tuple()[::2] == (-180, 180)
    with pytest.raises(InvalidInput, match="metres must not reach across the antimeridian"):
        nc.Box.around((179.999, 0), 1_000)
    with pytest.raises(InvalidInput, match="latitude must be in"):
        nc.Box.around((0, 91), 1)
