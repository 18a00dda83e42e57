"""Tables with regions are read as columns, and become what their rows become one by one."""

import numpy as np
import pyarrow as pa
import pytest

from nearcast import BooleanSubscription, CountWindow, Engine, InvalidInput, Limits, TopKSubscription
from nearcast.engine import admission
from nearcast.engine.admission import Admission
from nearcast.engine.config import EngineConfig
from nearcast.model import SubscriptionBatch
from nearcast.model.columns import subscription_columns, subscriptions_from_table
from nearcast.model.inputs import as_table
from nearcast.model.subscription_rows import restore, store, store_table
from nearcast.model.table_regions import read_regions, rows_of_text
from nearcast.space import MultiPolygon, Polygon, Space
from nearcast.space.region_formats import to_wkb

NOTHING = [None] * 4
RING = Polygon([(0, 0), (9, 0), (9, 9), (0, 9)], [[(1, 1), (2, 1), (2, 2)]])
TWO = MultiPolygon([Polygon([(0, 0), (1, 0), (0, 1)]), Polygon([(5, 5), (6, 5), (6, 6)])])
BIG_ENDIAN = b"\x00" + b"".join(
    n.to_bytes(4, "big") for n in (3, 1, 4)
) + np.array([(0, 0), (4, 0), (0, 4), (0, 0)], ">f8").tobytes()  # fmt: skip
ROWS = [
    ([0.0, 0.0, 2.0, 1.0], None, None),
    ([170.0, -10.0, -170.0, 10.0], None, None),
    (NOTHING, to_wkb(RING), None),
    (NOTHING, to_wkb(TWO), None),
    (NOTHING, BIG_ENDIAN, None),
    (NOTHING, None, 5e5),
    (NOTHING, None, 0.0),
]
CONFIG = EngineConfig.of({"space": Space.earth(), "window": CountWindow(9), "attributes": {"price": float}})


def table_of(kind, rows, wkb_type=None, **more):
    n = len(rows)
    sides = {
        name: pa.array([row[0][i] for row in rows], pa.float64())
        for i, name in enumerate(("xmin", "ymin", "xmax", "ymax"))
    }
    columns = {
        "id": [f"s{i}" for i in range(n)],
        "kind": [kind] * n,
        "keywords": ["bike"] * n,
        **sides,
        "region": pa.array([row[1] for row in rows], wkb_type or pa.binary()),
        "x": np.arange(n) / 1.0,
        "y": np.arange(n) / 2.0,
        "radius": pa.array([row[2] for row in rows], pa.float64()),
    }
    if kind == "topk":
        columns |= {"k": [3] * n, "alpha": [0.5] * n, "where": [None, "price < 3"] * (n // 2) + [None] * (n % 2)}
    return pa.table(columns | more)


@pytest.mark.parametrize("wkb_type", [pa.binary(), pa.large_binary()])
@pytest.mark.parametrize("kind", [BooleanSubscription, TopKSubscription])
def test_a_table_of_regions_is_stored_as_its_rows_are(kind, wkb_type):
    rows = ROWS if kind is BooleanSubscription else [*ROWS, (NOTHING, None, None)]
    table = as_table(table_of(kind.kind, rows, wkb_type), subscription_columns)
    (batch,) = Admission(CONFIG)._by_columns(table)
    objects = list(subscriptions_from_table(table))
    by_rows = SubscriptionBatch.of(objects, CONFIG.scoring)
    assert batch.stored.to_pylist() == store_table(table, kind).to_pylist() == store(objects, kind).to_pylist()
    assert restore(batch.stored, kind) == objects
    for name in ("rows", "indptr", "words"):
        assert getattr(batch.programs, name).tolist() == getattr(by_rows.programs, name).tolist()
    expected = [batch.subscriptions[row].filter_tests(CONFIG.scoring) for row in batch.programs.rows]
    has_region = (batch.programs.regions.codes != 0).tolist()
    assert has_region == ["region" in tests for tests in expected]
    for region, row in zip(range(len(batch.programs)), batch.programs.rows.tolist(), strict=True):
        if has_region[region]:
            assert batch.programs.regions.region(region) == objects[row].region
    assert np.array_equal(batch.footprints.boxes, by_rows.footprints.boxes)


BAD = [
    ([0.0, 0.0, 2.0, 1.0], to_wkb(RING), None),
    ([0.0, 0.0, 2.0, 1.0], None, 4.0),
    ([0.0, None, 2.0, 1.0], None, None),
    ([0.0, 3.0, 2.0, 1.0], None, None),
    ([0.0, float("nan"), 2.0, 1.0], None, None),
    (NOTHING, b"junk", None),
    (NOTHING, b"", None),
    (NOTHING, to_wkb(RING)[:-1], None),
    (NOTHING, None, -1.0),
    (NOTHING, None, float("inf")),
    (NOTHING, None, None),
]


@pytest.mark.parametrize("bad", BAD)
def test_one_bad_region_is_named_and_nothing_is_added(bad):
    engine = Engine(space=Space.earth())
    with pytest.raises(InvalidInput, match="s7"):
        engine.subscribe(table_of("boolean", [*ROWS, bad]))
    assert len(engine) == 0
    engine.subscribe(table_of("boolean", ROWS))
    assert len(engine) == len(ROWS)


def test_a_region_of_too_many_points_and_one_that_crosses_itself_are_refused():
    crossing = to_wkb(Polygon([(0, 0), (1, 0), (1, 1), (0, 1)]))
    swapped = crossing[:29] + crossing[45:61] + crossing[29:45] + crossing[61:]
    assert len(swapped) == len(crossing)
    for wkb, rule in ((swapped, "Self-intersection"), (to_wkb(RING), "at most 5 points")):
        engine = Engine(space=Space.earth(), limits=Limits(region_points=5))
        with pytest.raises(InvalidInput, match=rule):
            engine.subscribe(table_of("boolean", [ROWS[0], (NOTHING, wkb, None)]))
        assert len(engine) == 0


TEXTS = [
    "POLYGON ((0 0, 4 0, 0 4, 0 0))",
    '{"type": "Point", "coordinates": [1, 2], "radius": 5}',
    to_wkb(RING).hex(),
]
PLAIN = ["bike", "bike AND blue", "bike OR blue", "bike blue"]
OTHERS = ["bike NOT blue", '"blue bike" OR car', "(bike OR car) AND blue"]


def odd_table(n_plain, bad=None):
    """Return expressions and regions of all forms, in turn; two of three rows have to be read one by one."""
    words = [(PLAIN if i % 3 == 0 else OTHERS)[i % 3] for i in range(3 * n_plain)]
    regions = [TEXTS[i % 3] if i % 2 else None for i in range(len(words))]
    table = table_of("boolean", [ROWS[0] if text is None else (NOTHING, None, None) for text in regions])
    table = table.set_column(table.column_names.index("region"), "region", pa.array(regions, pa.string()))
    if bad is not None:
        words[-2] = bad
    return table.set_column(table.column_names.index("keywords"), "keywords", pa.array(words))


def test_rows_that_are_parsed_do_not_slow_down_the_others(monkeypatch):
    table, read = odd_table(200), []
    monkeypatch.setattr(
        admission, "subscriptions_from_table", lambda rows: read.append(len(rows)) or subscriptions_from_table(rows)
    )
    (batch,) = Admission(CONFIG)._by_columns(table)
    assert batch.stored.to_pylist() == store(list(subscriptions_from_table(table)), BooleanSubscription).to_pylist()
    parsed = [row for row, words in enumerate(table["keywords"].to_pylist()) if words in OTHERS]
    texts = [row for row, text in enumerate(table["region"].to_pylist()) if text is not None and not text.isalnum()]
    assert read == [len({*parsed, *texts})] and read[0] < len(table)


@pytest.mark.parametrize("bad", ["NOT bike", "bike AND", '"bike', ""])
def test_a_bad_row_among_parsed_ones_is_named_and_nothing_is_added(bad):
    engine = Engine(space=Space.earth())
    with pytest.raises(InvalidInput, match="s28"):
        engine.subscribe(odd_table(10, bad))
    assert len(engine) == 0
    engine.subscribe(odd_table(10))
    assert len(engine) == 30


def test_the_other_columns_of_parsed_rows_are_checked_too():
    table = odd_table(1).slice(1, 1).append_column("expires_at", pa.array([2e9]))
    engine = Engine(space=Space.earth())
    engine.subscribe(table)
    assert [one.expires_at for one in engine.subscriptions()] == [2e9]
    late = table.set_column(table.column_names.index("expires_at"), "expires_at", pa.array([1e300]))
    with pytest.raises(InvalidInput, match="expires_at"):
        engine.subscribe(late)


def test_text_is_read_row_by_row_with_the_same_result():
    wkt = ["POLYGON ((0 0, 4 0, 0 4, 0 0))", None, None]
    rows = [(NOTHING, None, None), ROWS[0], ROWS[5]]
    table = table_of("boolean", rows).set_column(7, "region", pa.array(wkt))
    assert read_regions(table, "region") is None and rows_of_text(table, "region").tolist() == [True, False, False]
    stored = store_table(table, BooleanSubscription)
    assert stored.to_pylist() == store(list(subscriptions_from_table(table)), BooleanSubscription).to_pylist()
