"""Groups hold the updates in the same order, in fewer rows."""

from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nearcast as nc
from nearcast.engine import group, groups, id_strings
from nearcast.errors import InvalidInput
from nearcast.model.columns import GROUPS, UPDATES
from nearcast.testing import strategies
from spark import inputs

ROWS = st.tuples(
    st.integers(1, 3), st.sampled_from("ab"), st.sampled_from("xyz"), st.sampled_from(["enter", "leave"]),
    st.sampled_from([0.25, 0.5, 1.0]),
)  # fmt: skip


def table_of(rows):
    columns = dict(zip(["seq", "subscription", "message", "change", "score"], zip(*rows, strict=True), strict=True))
    return pa.table(columns | {"at": [None] * len(rows)}).select(UPDATES.names).cast(UPDATES)


@given(st.lists(ROWS, min_size=1), st.lists(st.integers(0, 12), max_size=3))
def test_groups_hold_the_updates_in_order(rows, cuts):
    updates = table_of(rows)
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    pieces = pa.concat_tables([updates.slice(a, b - a) for a, b in pairwise(bounds)])
    grouped = group(pieces)
    assert grouped.schema == GROUPS
    assert nc.ungroup(grouped).to_pylist() == updates.to_pylist()
    assert groups.count_updates(grouped) == len(rows)
    assert group(updates).num_rows == 1 + sum(a[0:4:2] + a[3:4] != b[0:4:2] + b[3:4] for a, b in pairwise(rows))


def test_no_updates_give_no_groups():
    assert group(UPDATES.empty_table()).num_rows == 0
    assert nc.ungroup(GROUPS.empty_table()).num_rows == 0
    assert groups.count_updates(GROUPS.empty_table()) == 0


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("window", [nc.CountWindow(7), nc.TimeWindow(9)], ids=["count", "time"])
@pytest.mark.parametrize("conflate", [False, True], ids=["all", "net"])
def test_grouped_updates_equal_plain_ones(window, workers, conflate, random_fields):
    n_groups = n_updates = 0
    for seed in range(6):
        of = inputs.job(space=strategies.SPACES[0], window=window)
        plain, grouped = (nc.Engine.from_config(replace(of.config, workers=workers)) for _ in range(2))
        for batch in inputs.batches(seed, random_fields, timed=True):
            for engine in (plain, grouped):
                requested = batch.subscriptions
                engine.subscribe(requested.filter(pc.not_equal(pc.fill_null(requested["op"], ""), "unsubscribe")))
            emitted = plain.publish(batch.messages, conflate=conflate)
            published = grouped.publish(batch.messages, conflate=conflate, grouped=True)
            assert nc.ungroup(published).to_pylist() == emitted.to_pylist()
            n_groups, n_updates = n_groups + len(published), n_updates + len(emitted)
        assert grouped.stats().updates == plain.stats().updates
    assert 0 < n_groups < n_updates


def test_names_in_several_pieces_are_grouped_piece_by_piece(monkeypatch):
    """A column of strings holds two gigabytes; longer ones are chunked, and no list spans two chunks."""

    monkeypatch.setattr(id_strings._columns, "__kwdefaults__", {"most_words": 20})
    engine = nc.Engine(space=nc.Space(nc.Box(0, 0, 1, 1)))
    ids = [f"subscriber-{i}" for i in range(40)]
    engine.subscribe([nc.BooleanSubscription(id, region=nc.Box(0, 0, 1, 1), keywords="tea") for id in ids])
    published = engine.publish(pa.table({"id": ["m"], "x": [0.5], "y": [0.5], "text": ["tea"]}), grouped=True)
    assert len(published) > 1
    assert set(published["message"].to_pylist()) == {"m"}
    assert sorted(nc.ungroup(published)["subscription"].to_pylist()) == sorted(ids)


def test_objects_are_not_grouped():
    engine = nc.Engine(space=nc.Space(nc.Box(0, 0, 1, 1)))
    with pytest.raises(InvalidInput, match="grouped must be False unless messages are a table; got True"):
        engine.publish([nc.Message("m", (0.5, 0.5), "tea")], grouped=True)
    assert engine.stats().messages == 0
