"""Subscriptions as columns and as objects are equal."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nearcast as nc
from nearcast.engine.admission import Admission
from nearcast.engine.config import EngineConfig
from nearcast.model import KINDS, Limits, SubscriptionBatch, id_key
from nearcast.model.columns import subscriptions_from_table, subscriptions_schema
from nearcast.model.subscription_columns import BooleanColumns
from nearcast.model.subscription_rows import restore, store, store_table
from nearcast.testing import strategies
from nearcast.text import term_id

KIND_NAMES = [kind.kind for kind in KINDS]
KIND_OF = {kind.kind: kind for kind in KINDS}
ODD = st.sampled_from([0.0, 1.0, -0.5, 2.0, 9.0, math.nan, math.inf])
WORDS = st.sampled_from(["a", "a b", "b a a", "", " ", "!", "T-Shirt", "é", "a AND b", "a OR b OR a", "a AND (b OR c)",
                         "a OR b c", "(a", "NOT a", "AND", "x1 y2 z3", "a NOT b", '"a b"'])  # fmt: skip


def rows(kind):
    """Draw rows of a table, many of them wrong in some way."""
    good = {
        "x": st.just(1.0), "y": st.just(2.0), "xmin": st.just(0.0), "ymin": st.just(0.0), "xmax": st.just(3.0),
        "ymax": st.just(3.0), "keywords": WORDS, "k": st.just(2), "alpha": st.just(0.5), "delta": st.just(0.5),
        "tau": st.just(0.5), "user": st.just("u0"),
    }  # fmt: skip
    odd = {
        **dict.fromkeys(("x", "y", "xmin", "ymin", "xmax", "ymax", "alpha", "delta", "tau"), ODD),
        "keywords": WORDS, "k": st.sampled_from([0, 1, 20_000]), "user": st.sampled_from(["u1", "nobody"]),
    }  # fmt: skip
    one = st.sampled_from(sorted(good))
    return st.builds(
        lambda row, name, value, use: {**row, name: value[name]} if use else row,
        st.fixed_dictionaries(good), one, st.fixed_dictionaries(odd), st.booleans(),
    ).map(lambda row: {**row, "kind": kind, "op": "subscribe"})  # fmt: skip


@pytest.mark.parametrize("kind", KIND_NAMES)
@settings(max_examples=80)
@given(data=st.data())
def test_a_table_is_accepted_only_if_every_row_is_valid(kind, data):
    drawn = data.draw(st.lists(rows(kind), min_size=1, max_size=3))
    table = pa.Table.from_pylist(
        [{**row, "id": f"s{i}"} for i, row in enumerate(drawn)], schema=subscriptions_schema()
    )
    known = strategies.scoring(strategies.PLANE)
    config = EngineConfig(
        space=known.space, vocabulary=known.vocabulary, social=known.social, window=nc.CountWindow(9)
    )  # fmt: skip
    batches = Admission(config)._by_columns(table)
    if batches is None:
        return
    objects = list(subscriptions_from_table(table))  # must not raise
    for subscription in objects:
        subscription.check(config.scoring, Limits())
    assert [batch.subscriptions for batch in batches] == [objects]


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_valid_columns_are_accepted_and_nulls_are_not(kind):
    row = {"op": "subscribe", "id": "s", "kind": kind, "x": 1.0, "y": 1.0, "xmin": 0.0, "ymin": 0.0, "xmax": 1.0,
           "ymax": 1.0, "keywords": "a AND b", "k": 3, "alpha": 0.5, "delta": 0.0, "tau": 1.0, "user": "u0"}  # fmt: skip
    row |= {} if kind == "boolean" else dict.fromkeys(("xmin", "ymin", "xmax", "ymax"))
    table = pa.Table.from_pylist([row], schema=subscriptions_schema())
    assert KIND_OF[kind].all_valid(table, strategies.scoring(), Limits())
    for name in ("x", "keywords", "k") if kind != "boolean" else ("xmin", "keywords"):
        if name in {"k"} and kind == "similarity":
            continue
        nulled = table.set_column(table.column_names.index(name), name, pa.nulls(1, table.schema.field(name).type))
        assert not KIND_OF[kind].all_valid(nulled, strategies.scoring(), Limits())


@pytest.mark.parametrize("kind", KIND_NAMES)
@settings(max_examples=40)
@given(data=st.data())
def test_stored_subscriptions_are_restored(kind, data):
    drawn = data.draw(st.lists(strategies.subscriptions(kind), min_size=1, max_size=4))
    assert restore(store(drawn, KIND_OF[kind]), KIND_OF[kind]) == drawn


@pytest.mark.parametrize("end", [0.0, 1.5, 32413886071.0, -32413886071.25, 8.0e12])
def test_an_end_beyond_the_integers_that_a_float_has_is_restored(end):
    subscription = nc.NearestSubscription("n", location=(0, 0), keywords="a", k=1, expires_at=end)
    assert restore(store([subscription], nc.NearestSubscription), nc.NearestSubscription) == [subscription]


@settings(max_examples=60)
@given(
    st.lists(
        strategies.expressions() | st.sampled_from(["a", "a AND b", "b OR a", "c c", "b OR b"]),
        min_size=1,
        max_size=80,
    )
)
def test_columns_of_expressions_hold_their_branches(expressions):
    subscriptions = [
        nc.BooleanSubscription(i, region=nc.Box(0, 0, i, 1), keywords=text) for i, text in enumerate(expressions)
    ]
    columns = BooleanColumns.of_stored(store(subscriptions, nc.BooleanSubscription), strategies.scoring())
    assert columns.xmaxs.tolist() == list(range(len(expressions)))
    for i, subscription in enumerate(subscriptions):
        held = set()
        for branch in range(columns.branch_indptr[i], columns.branch_indptr[i + 1]):
            terms = columns.term_ids[columns.term_indptr[branch] : columns.term_indptr[branch + 1]].tolist()
            assert terms == sorted(set(terms))
            held.add(frozenset(terms))
        assert held == {frozenset(map(term_id, branch)) for branch in subscription.branches()}
        assert columns.branch_indptr[i + 1] - columns.branch_indptr[i] == len(held)


@pytest.mark.parametrize("ids", [["a", "b7"], [7, "7", -1], [f"s{i}" for i in range(100)]])
def test_keys_of_a_batch_are_those_of_its_footprints(ids):
    subscriptions = [nc.NearestSubscription(id_, location=(0, 0), keywords="a", k=1) for id_ in ids]
    footprints = SubscriptionBatch.of(subscriptions, strategies.scoring()).footprints
    assert footprints.keys.tolist() == [id_key(id_) for id_ in ids]
    assert [f.key for f in footprints] == footprints.keys.tolist()
    assert footprints.keys.dtype == np.uint64


def test_a_large_table_and_its_rows_give_the_same_engine():
    from nearcast.workload import make

    workload = make("tweets", seed=3)
    table = pa.concat_tables(
        [next(workload.subscriptions(kind, 150)) for kind in ("boolean", "similarity", "topk", "nearest")]
    )
    table = table.set_column(1, "id", pa.array([f"s{i}" for i in range(len(table))]))
    messages = next(workload.messages(80))
    updates = []
    for given_as in (table, list(subscriptions_from_table(table))):
        engine = nc.Engine(space=workload.space(), vocabulary=workload.vocabulary(), window=nc.CountWindow(20))
        engine.subscribe(given_as)
        rows_ = engine.publish(messages).to_pylist()
        updates.append(sorted(rows_, key=lambda r: (r["seq"], r["subscription"], r["message"], r["change"])))
    assert updates[0] == updates[1]
    assert updates[0]


@pytest.mark.parametrize("kind", KIND_NAMES)
@settings(max_examples=20)
@given(data=st.data())
def test_a_table_of_valid_subscriptions_is_stored_with_their_filters(kind, data):
    """Rows with filters and without them may stand side by side; regions come in every form that a column has."""
    drawn = data.draw(
        st.lists(strategies.filtered_fields(kind) | strategies.subscription_fields(kind), min_size=1, max_size=4)
    )
    objects = [strategies.make_subscription(kind, f"s{i}", fields) for i, fields in enumerate(drawn)]
    rows_of_objects = [{**one.to_row(), "op": "subscribe"} for one in objects]
    for row in rows_of_objects:
        row["keywords"] = row["keywords"] if isinstance(row["keywords"], str) else " ".join(row["keywords"])
    table = pa.Table.from_pylist(rows_of_objects, schema=subscriptions_schema())
    batch = SubscriptionBatch(KIND_OF[kind], store_table(table, KIND_OF[kind]), strategies.scoring())
    assert batch.subscriptions == list(subscriptions_from_table(table))
    assert [one.to_json() | {"keywords": ""} for one in batch.subscriptions] == [
        one.to_json() | {"keywords": ""} for one in objects
    ]


@pytest.mark.parametrize("type_", [pa.int64(), pa.uint64()], ids=str)
def test_integers_that_no_float_holds_are_refused(type_):
    engine = nc.Engine(space=strategies.PLANE, attributes={"stars": int})
    message = {"id": ["m", "n"], "x": [0.0, 0.0], "y": [0.0, 0.0], "text": ["a", "a"]}
    engine.publish(pa.table({**message, "stars": pa.array([1 << 53, None], type_)}))
    with pytest.raises(nc.InvalidInput, match=r"stars must be an integer between -2\*\*53 and 2\*\*53; got 90071"):
        engine.publish(pa.table({**message, "stars": pa.array([0, (1 << 53) + 1], type_)}))
