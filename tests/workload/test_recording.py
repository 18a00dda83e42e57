import os
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nearcast.errors import FormatError, InvalidInput
from nearcast.text import tokenize
from nearcast.workload import QUERIES, SUBSCRIPTIONS, TEXT_MESSAGES, load

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("ts", pa.timestamp("ms", tz="UTC")),
        ("lat", pa.float64()),
        ("lon", pa.float64()),
        ("text", pa.string()),
        ("user", pa.string()),
        ("place", pa.string()),
    ]
)


def rows(n, first=0):
    return [
        {
            "id": first + i,
            "ts": datetime(2024, 5, 1, 12, 0, i % 60, tzinfo=UTC),
            "lat": -33.0 + i / 1_000,
            "lon": 151.0 - i / 1_000,
            "text": f"Road closed at word{i} and Café",
            "user": None,
            "place": f"Town {i}",
        }
        for i in range(n)
    ]


def write(path, records, schema=SCHEMA):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(records, schema), path)
    return path


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    monkeypatch.delenv("NEARCAST_DATA", raising=False)


def whole(tables):
    return pa.concat_tables(tables).combine_chunks()


def test_a_file_streams_as_messages(tmp_path):
    file = write(tmp_path / "a.parquet", rows(10))
    table = whole(load(file))
    assert table.schema.equals(TEXT_MESSAGES)
    assert table.to_pylist()[3] == {
        "id": "3",
        "x": 151.0 - 0.003,
        "y": -33.0 + 0.003,
        "text": "Road closed at word3 and Café",
        "at": datetime(2024, 5, 1, 12, 0, 3, tzinfo=UTC),
        "place": "Town 3",
    }


def test_a_time_without_a_zone_is_utc(tmp_path):
    naive = SCHEMA.set(1, pa.field("ts", pa.timestamp("ms")))
    records = [{**row, "ts": row["ts"].replace(tzinfo=None)} for row in rows(2)]
    file = write(tmp_path / "a.parquet", records, naive)
    assert whole(load(file))["at"][1].as_py() == datetime(2024, 5, 1, 12, 0, 1, tzinfo=UTC)


def test_a_time_of_another_zone_stays_the_same_instant(tmp_path):
    zoned = SCHEMA.set(1, pa.field("ts", pa.timestamp("ms", tz="Australia/Sydney")))
    file = write(tmp_path / "a.parquet", rows(2), zoned)
    assert whole(load(file))["at"][1].as_py() == datetime(2024, 5, 1, 12, 0, 1, tzinfo=UTC)


def test_a_folder_streams_its_files_by_name_subfolders_included(tmp_path):
    write(tmp_path / "b.parquet", rows(3, first=10))
    write(tmp_path / "a.parquet", rows(3))
    write(tmp_path / "c" / "d.parquet", rows(1, first=99))
    (tmp_path / "README.md").write_text("not data")
    assert whole(load(tmp_path))["id"].to_pylist() == ["0", "1", "2", "10", "11", "12", "99"]


def test_tables_have_the_requested_rows(tmp_path):
    recording = load(write(tmp_path / "a.parquet", rows(100)))
    assert [table.num_rows for table in recording.messages(block=30)] == [30, 30, 30, 10]
    assert whole(recording.messages(35, start=25, block=20))["id"].to_pylist() == [str(i) for i in range(25, 60)]
    assert list(recording.messages(0)) == []
    assert sum(table.num_rows for table in recording.messages(1_000, start=90)) == 10


def test_rows_without_a_valid_location_are_skipped_and_counted(tmp_path):
    records = rows(9)
    for row, change in enumerate(
        [
            {"lat": None},
            {"lon": float("nan")},
            {"lat": float("inf")},
            {"lat": 90.5},
            {"lon": -181.0},
            {"id": None},
            {"text": None},
        ]
    ):
        records[row].update(change)
    recording = load(write(tmp_path / "a.parquet", records))
    table = whole(recording)
    assert table["id"].to_pylist() == ["6", "7", "8"]
    assert table["text"][0].as_py() == ""
    assert recording.skipped == 6
    list(recording)
    assert recording.skipped == 6  # of the last pass, not of all
    assert recording.bounds.ymin == -33.0 + 0.006


def test_a_file_with_nothing_usable_gives_no_table_and_no_bounds(tmp_path):
    recording = load(write(tmp_path / "a.parquet", [{**row, "lat": None} for row in rows(3)]))
    assert list(recording) == []
    assert recording.skipped == 3
    with pytest.raises(InvalidInput, match="must hold at least one message"):
        _ = recording.bounds
    with pytest.raises(InvalidInput, match="must hold a message with a term"):
        recording.vocabulary()


def test_missing_columns_are_named_with_their_file(tmp_path):
    file = tmp_path / "bad.parquet"
    pq.write_table(pa.table({"id": [1], "lat": [0.0], "text": ["a"], "place": ["b"]}), file)
    with pytest.raises(FormatError, match=r"bad\.parquet lacks the columns lon, ts; it has id, lat, text, place"):
        list(load(file))


def test_the_user_column_may_be_missing(tmp_path):
    file = write(tmp_path / "a.parquet", rows(2), SCHEMA.remove(SCHEMA.get_field_index("user")))
    assert whole(load(file)).num_rows == 2


def test_a_column_of_the_wrong_type_is_named(tmp_path):
    wrong = SCHEMA.set(2, pa.field("lat", pa.string()))
    file = write(tmp_path / "a.parquet", [{**row, "lat": "north"} for row in rows(2)], wrong)
    with pytest.raises(FormatError, match="column lat, is string, which does not become double"):
        list(load(file))


def test_a_file_that_is_not_parquet_is_named(tmp_path):
    file = tmp_path / "a.parquet"
    file.write_text("hello")
    with pytest.raises(FormatError, match=r"a\.parquet is not a Parquet file"):
        list(load(file))


def test_a_damaged_file_is_named(tmp_path):
    file = write(tmp_path / "a.parquet", rows(5_000))
    damaged = bytearray(file.read_bytes())
    damaged[100:20_000] = bytes(19_900)
    file.write_bytes(damaged)
    with pytest.raises(FormatError, match=r"a\.parquet cannot be read"):
        list(load(file))


def test_a_path_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match=r"path must exist; got .* set NEARCAST_DATA to a folder"):
        load(tmp_path / "nothing")
    with pytest.raises(InvalidInput, match="must be a Parquet file or hold one"):
        load(tmp_path)
    with pytest.raises(InvalidInput, match="must be given where NEARCAST_DATA is not set"):
        load()


def test_the_environment_names_the_data_folder(tmp_path, monkeypatch):
    write(tmp_path / "traffic" / "a.parquet", rows(4))
    monkeypatch.setenv("NEARCAST_DATA", str(tmp_path))
    for path in (None, "traffic", "traffic/a.parquet"):
        assert whole(load(path)).num_rows == 4


def test_the_space_contains_the_messages(tmp_path):
    space = load(write(tmp_path / "a.parquet", rows(101))).space(max_distance=5_000)
    assert space.bounds.as_tuple() == pytest.approx((150.9, -33.0, 151.0, -32.9))
    assert (space.metric, space.max_distance) == ("haversine", 5_000)


def test_a_vocabulary_counts_the_messages(tmp_path):
    recording = load(write(tmp_path / "a.parquet", rows(50)))
    vocabulary = recording.vocabulary()
    assert vocabulary.idf("road") == pytest.approx(np.log(1 + 50 / 51))
    assert vocabulary.idf("word7") == pytest.approx(np.log(1 + 50 / 2))
    assert recording.terms()[:4].to_pylist() == ["at", "café", "closed", "road"]


@pytest.mark.parametrize("kind", ["boolean", "similarity", "topk", "nearest"])
def test_subscriptions_are_made_from_the_messages(tmp_path, kind):
    records = rows(200)
    file = write(tmp_path / "a.parquet", records)
    table = whole(load(file, seed=3).subscriptions(kind, 500))
    assert table.schema.equals(SUBSCRIPTIONS)
    assert table.equals(whole(load(file, seed=3).subscriptions(kind, 500, block=77)))
    assert not table.equals(whole(load(file, seed=4).subscriptions(kind, 500)))
    published = [set(tokenize(row["text"])) - {"and"} for row in records]
    at = {(row["lon"], row["lat"]): terms for row, terms in zip(records, published, strict=True)}
    for row in table.to_pylist():
        words = {word for word in row["keywords"].split(" ") if word not in ("AND", "OR")}
        if kind == "boolean":
            assert any(words <= terms for terms in published)
        else:
            assert words <= at[row["x"], row["y"]]


@pytest.mark.parametrize("queries", QUERIES)
def test_boolean_groups_work_on_real_messages(tmp_path, queries):
    recording = load(write(tmp_path / "a.parquet", rows(500)))
    frequent = set(recording.terms()[: len(recording.terms()) // 100].to_pylist())
    table = whole(recording.subscriptions("boolean", 300, queries=queries))
    rare = [bool(set(row.split(" ")) - frequent - {"AND", "OR"}) for row in table["keywords"].to_pylist()]
    assert all(rare) or queries != "q2"
    assert not all(rare) or queries == "q2"


def test_q2_replaces_the_words_of_messages_that_have_no_rare_term(tmp_path):
    records = [{**row, "text": "common", "lat": -50 + i / 2} for i, row in enumerate(rows(50))]
    for record in records[::10]:
        record["text"] = "common " + " ".join(f"rare{i}" for i in range(200))
    recording = load(write(tmp_path / "a.parquet", records))
    table = whole(recording.subscriptions("boolean", 200, queries="q2"))
    assert all("rare" in keywords for keywords in table["keywords"].to_pylist())
    middles = (table["ymin"].to_numpy() + table["ymax"].to_numpy()) / 2
    assert len(set(np.round(2 * middles).tolist())) > 40  # the places stay


def test_a_pool_bounds_what_subscriptions_are_drawn_from(tmp_path):
    file = write(tmp_path / "a.parquet", rows(2_000))
    recording = load(file, pool=100)
    assert 60 < len(recording.terms()) < 150  # a word of its own in each message, and four others
    with pytest.raises(InvalidInput, match="pool must be 1 or more"):
        load(file, pool=0)


DATA = os.environ.get("NEARCAST_DATA")


@pytest.mark.skipif(not DATA, reason="NEARCAST_DATA does not name a folder of real data")
@pytest.mark.parametrize("folder", ["places", "traffic"])
def test_real_data_streams_and_yields_subscriptions(folder, monkeypatch):
    monkeypatch.setenv("NEARCAST_DATA", DATA)
    recording = load(folder, pool=2_000)
    n = 0
    for table in recording:
        assert table.schema.equals(TEXT_MESSAGES)
        n += table.num_rows
    assert n > 200_000
    assert recording.skipped == 0
    assert all(recording.bounds.contains(row["x"], row["y"]) for row in table.to_pylist())
    for kind in ("boolean", "similarity", "topk", "nearest"):
        assert whole(recording.subscriptions(kind, 1_000)).num_rows == 1_000
