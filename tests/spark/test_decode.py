"""All bad rows, and no others, are rejected with a reason."""

import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nearcast as nc
from nearcast.jobs.frame import pack
from nearcast.spark import match, pack_messages
from nearcast.spark.decode import decode_messages, decode_subscriptions
from nearcast.spark.job_handle import send_job
from nearcast.testing import strategies
from spark import inputs

NAN, INF = float("nan"), float("inf")
TEXT = {"id": "m", "x": 1.0, "y": 1.0, "text": "a", "at": 1_000_000, "place": None}
ENDS = {"expires_at": 1_000_001, "body": "b" * 50}

BAD_MESSAGES = [
    ({"id": None}, "id must be a string or a 64-bit integer; got None"),
    ({"x": None}, "location must be a pair of finite numbers; got (None, 1.0)"),
    ({"x": NAN}, "location must be a pair of finite numbers; got (nan, 1.0)"),
    ({"y": INF}, "location must be a pair of finite numbers; got (1.0, inf)"),
    ({"y": -INF}, "location must be a pair of finite numbers; got (1.0, -inf)"),
    ({"x": 8.5}, "location must lie in Box"),
    ({"y": -0.5}, "location must lie in Box"),
    ({"text": None}, "text must be a string or a list of strings; got None"),
    ({"text": "a" * 101}, "text must be at most 100 bytes; got 101"),
    ({"text": "é" * 51}, "text must be at most 100 bytes; got 102"),
    ({"at": None}, "at must be given where the window is a TimeWindow; got None"),
    ({"id": "é" * 257}, "id must be at most 512 bytes; got 514"),
    ({"place": "p" * 513}, "place must be at most 512 bytes; got 513"),
    ({"op": "delete"}, "op must be 'publish', 'retract' or 'replace'; got 'delete'"),
    ({"op": "replace", "y": None}, "location must be a pair of finite numbers; got (1.0, None)"),
    ({"op": "retract", "id": "é" * 300}, "id must be at most 512 bytes; got 600"),
    ({"expires_at": 1_000_000}, "expires_at must be later than at; got 1.0"),
    ({"op": "replace", "expires_at": -1}, "expires_at must be later than at; got -1e-06"),
    ({"body": "é" * 26}, "body must be at most 50 bytes; got 52"),
    ({"price": NAN}, "price must be a finite number; got nan"),
    ({"op": "replace", "price": -INF}, "price must be a finite number; got -inf"),
    ({"stars": (1 << 53) + 1}, "stars must be an integer between -2**53 and 2**53; got 9007199254740993"),
    ({"stars": -(1 << 63)}, "stars must be an integer between -2**53 and 2**53; got -9223372036854775808"),
    ({"category": "é" * 257}, "category must be at most 512 bytes; got 514"),
]

POINT = {"id": "s", "op": "subscribe", "kind": "topk", "x": 1.0, "y": 1.0, "keywords": "a", "k": 1, "alpha": 0.5}
BOX = {"id": "s", "kind": "boolean", "xmin": 0.0, "ymin": 0.0, "xmax": 1.0, "ymax": 1.0, "keywords": "a"}
WKT = "POLYGON ((0 0, 4 0, 0 4, 0 0))"
NEAR = POINT | {"kind": "similarity", "delta": 0.5, "tau": 0.5}
SOCIAL_ROW = POINT | {"kind": "social", "user": "u0"}
BAD_SUBSCRIPTIONS = [
    (POINT | {"id": None}, "id must be a string or a 64-bit integer; got None"),
    (POINT | {"op": "delete"}, "op must be 'subscribe' or 'unsubscribe'; got 'delete'"),
    ({"op": "unsubscribe", "id": None}, "id must be a string or a 64-bit integer; got None"),
    (POINT | {"kind": "top"}, "kind must be one of"),
    (POINT | {"kind": None}, "kind must be one of"),
    (POINT | {"x": NAN}, "location must be a pair of finite numbers"),
    (POINT | {"y": INF}, "location must be a pair of finite numbers"),
    (POINT | {"x": 9.0}, "location must lie in"),
    (POINT | {"y": None}, "y must be given for kind 'topk'"),
    (POINT | {"keywords": "!?"}, "keywords must hold at least one term; got '!?'"),
    (POINT | {"keywords": None}, "keywords must be given"),
    (POINT | {"keywords": "a b c d"}, "keywords must hold at most 3 terms; got 4"),
    (POINT | {"k": 0}, "k must be an integer of 1 or more; got 0"),
    (POINT | {"k": 10_001}, "k must be at most 10000; got 10001"),
    (POINT | {"alpha": 1.7}, "alpha must be in [0, 1]; got 1.7"),
    (POINT | {"alpha": NAN}, "alpha must be in [0, 1]; got nan"),
    (NEAR | {"delta": -0.1}, "delta must be in [0, 1]; got -0.1"),
    (NEAR | {"tau": 2.0}, "tau must be in [0, 1]; got 2.0"),
    (BOX | {"xmin": 2.0}, "region must have xmin <= xmax on a plane"),
    (BOX | {"xmax": NAN}, "xmax must be a finite number"),
    (BOX | {"radius": 1.0, "x": 1.0, "y": 1.0}, "region must be given in one way"),
    (POINT | {"radius": -1.0}, "radius must"),
    (POINT | {"radius": 1.0, "region": WKT}, "region must be given in one way"),
    (POINT | {"region": "POLYGON ((0 0, 1 1))"}, "region must"),
    (POINT | {"region": '{"type": "Polygon"'}, "region must be valid GeoJSON"),
    (POINT | {"region": "01ff"}, "region must"),
    (POINT | {"where": "price <"}, "where must be a condition on attributes"),
    (POINT | {"where": "weight < 3"}, "where must"),
    (POINT | {"where": "category < 3"}, "where must"),
    (POINT | {"require": "a AND ("}, "require must"),
    (BOX | {"keywords": "a AND ("}, "keywords must"),
    (SOCIAL_ROW | {"user": "nobody"}, "user must"),
]


@pytest.fixture(params=[4, pytest.param(16_384, marks=pytest.mark.soak)], ids=lambda n: f"blocks of {n}")
def blocks(spark, request):
    """Pass rows to Python in small blocks, most of them valid, or all at once."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, request.param)
    yield
    spark.conf.set(name, before)


@pytest.fixture
def sent(spark):
    limits = nc.Limits(text_bytes=100, body_bytes=50, terms=3)
    return send_job(spark, inputs.job(window=nc.TimeWindow(9), limits=limits))


def frame(spark, folder, rows, schema):
    pq.write_table(inputs.table(rows, schema), folder / "rows.parquet")
    return spark.read.parquet(str(folder / "rows.parquet"))


def mixed(bad, good):
    """Return bad rows at random positions among good ones; every row has its own id."""
    rows = [*bad, *({**good, "id": f"good{i}"} for i in range(50))]
    random.Random(4).shuffle(rows)
    return rows


def reasons(rejected, source):
    rows = rejected.collect()
    assert all(row.source == source for row in rows)
    return [(json.loads(row.row), row.reason) for row in rows]


def test_messages_that_break_a_rule_are_rejected_with_the_error_of_the_engine(spark, sent, blocks, tmp_path):
    bad = [TEXT | {"id": f"bad{i}"} | fault for i, (fault, _) in enumerate(BAD_MESSAGES)]
    retraction = {"id": "good0", "op": "retract", "expires_at": -1, "body": "b" * 51, "price": NAN}
    rows = [*mixed(bad, TEXT | ENDS), retraction, TEXT | {"id": "good1", "op": "publish"}]
    decoded = decode_messages(frame(spark, tmp_path, rows, inputs.MESSAGE_ROWS), sent)
    assert {row.id for row in decoded.good.collect()} == {f"good{i}" for i in range(50)}
    assert decoded.good.count() == 52
    emitted = {row["id"]: (row, reason) for row, reason in reasons(decoded.rejected, "message")}
    assert len(emitted) == len(BAD_MESSAGES)
    for i, (fault, words) in enumerate(BAD_MESSAGES):
        row, reason = emitted[fault.get("id", f"bad{i}")]
        assert words in reason, fault
        assert row["text"] == fault.get("text", "a")


def test_packed_messages_that_break_a_rule_are_rejected_like_rows(spark, sent, tmp_path):
    bad = [TEXT | {"id": f"bad{i}"} | fault for i, (fault, _) in enumerate(BAD_MESSAGES)]
    strange = inputs.table([TEXT], inputs.MESSAGE_ROWS).set_column(3, "text", not_utf8([b"caf\xe9"]))
    table = pa.concat_tables([strange, inputs.table(mixed(bad, TEXT), inputs.MESSAGE_ROWS)])
    pq.write_table(table, tmp_path / "rows.parquet")
    (tmp_path / "blocks").mkdir()
    for start in (0, 31):
        (tmp_path / "blocks" / f"{start}.arrow").write_bytes(
            pack_messages(table.slice(start, 31 if not start else None), attributes=inputs.ATTRIBUTES)
        )
    rows = decode_messages(spark.read.parquet(str(tmp_path / "rows.parquet")), sent).rejected
    packed = decode_messages(spark.read.format("binaryFile").load(str(tmp_path / "blocks")), sent).rejected
    emitted = [sorted(reasons(rejected, "message"), key=str) for rejected in (rows, packed)]
    assert emitted[0] == emitted[1]
    assert len(emitted[0]) == len(BAD_MESSAGES) + 1


def test_anything_but_a_block_is_rejected_and_shown_by_its_size(spark, sent):
    whole = pack_messages(inputs.table([TEXT], inputs.MESSAGE_ROWS))
    lacking = pa.table({"id": ["m"]})
    given = [("a", whole), ("b", b"{}"), ("c", None), ("d", pack(lacking)), ("e", whole[:-200])]
    blocks = spark.createDataFrame(given, "topic string, payload binary").coalesce(1)
    emitted = {row["topic"]: (row["payload_bytes"], reason) for row, reason in reasons(
        decode_messages(blocks, sent).rejected, "message"
    )}  # fmt: skip
    assert {topic: size for topic, (size, _) in emitted.items()} == {
        "b": 2, "c": None, "d": len(pack(lacking)), "e": len(whole) - 200
    }  # fmt: skip
    assert emitted["b"][1].startswith("payload must be an Arrow stream of messages; got 2 bytes")
    assert emitted["c"][1] == "payload must be an Arrow stream of messages; got None"
    assert emitted["d"][1] == "columns must include ['x', 'y', 'text']; got ['id'] (messages)"


def test_subscriptions_that_break_a_rule_are_rejected_with_the_error_of_the_engine(spark, sent, blocks, tmp_path):
    bad = [row | {"id": row["id"] and f"bad{i}"} for i, (row, _) in enumerate(BAD_SUBSCRIPTIONS)]
    decoded = decode_subscriptions(frame(spark, tmp_path, mixed(bad, POINT), inputs.SUBSCRIPTIONS), sent)
    assert {row.id for row in decoded.good.collect()} == {f"good{i}" for i in range(50)}
    emitted = reasons(decoded.rejected, "subscription")
    assert len(emitted) == len(BAD_SUBSCRIPTIONS)
    for i, (fault, words) in enumerate(BAD_SUBSCRIPTIONS):
        mine = [reason for row, reason in emitted if row["id"] == (fault["id"] and f"bad{i}")]
        assert any(words in reason for reason in mine), (fault, mine)


def not_utf8(values):
    """Return an array of strings with arbitrary bytes."""
    return pa.Array.from_buffers(pa.string(), len(values), pa.array(values, pa.binary()).buffers())


def test_bytes_that_are_not_utf8_are_rejected_and_shown(spark, sent, tmp_path):
    n = 4
    rows = pa.table(
        {
            "id": not_utf8([b"m0", b"m1", b"\xffm2", b"m3"]),
            "x": [1.0] * n,
            "y": [1.0] * n,
            "text": not_utf8([b"ok", b"caf\xe9", b"ok", b"ok"]),
            "at": pa.array([1] * n, pa.timestamp("us", tz="UTC")),
            "place": not_utf8([b"p0", b"p0", b"p0", b"\xc0\x80"]),
        }
    )
    pq.write_table(rows, tmp_path / "messages.parquet")
    decoded = decode_messages(spark.read.parquet(str(tmp_path / "messages.parquet")), sent)
    assert [row.id for row in decoded.good.collect()] == ["m0"]
    emitted = sorted(reason for _, reason in reasons(decoded.rejected, "message"))
    assert emitted == [
        "id must be UTF-8; got '\ufffdm2' (message '\ufffdm2')",
        "place must be UTF-8; got '\ufffd\ufffd' (message 'm3')",
        "text must be UTF-8; got 'caf\ufffd' (message 'm1')",
    ]
    wanted = pa.table({"id": ["s0", "s1"], "kind": ["nearest"] * 2, "x": [1.0] * 2, "y": [1.0] * 2, "k": [1] * 2})
    wanted = wanted.append_column("keywords", not_utf8([b"a", b"\xfe"]))
    pq.write_table(wanted, tmp_path / "subscriptions.parquet")
    decoded = decode_subscriptions(spark.read.parquet(str(tmp_path / "subscriptions.parquet")), sent)
    assert [row.id for row in decoded.good.collect()] == ["s0"]
    ((_, reason),) = reasons(decoded.rejected, "subscription")
    assert reason == "keywords must be UTF-8; got '\ufffd' (subscription 's1')"


def test_bad_rows_never_stop_a_query(spark, tmp_path):
    good, bad = (
        [TEXT | {"id": f"good{i}"} for i in range(5)],
        [TEXT | {"id": f"bad{i}"} | f for i, (f, _) in enumerate(BAD_MESSAGES)],
    )
    (tmp_path / "m").mkdir()
    (tmp_path / "s").mkdir()
    messages = frame(spark, tmp_path / "m", [*bad, *good, *bad], inputs.MESSAGE_ROWS).coalesce(1)
    changes = [row for row, _ in BAD_SUBSCRIPTIONS] + [POINT | {"id": "t"}]
    subscriptions = frame(spark, tmp_path / "s", changes, inputs.SUBSCRIPTIONS)
    matched = match(
        messages, subscriptions, space=strategies.PLANE, vocabulary=strategies.vocabulary(), social=strategies.social_graph(),
        window=nc.TimeWindow(9), limits=nc.Limits(text_bytes=100, body_bytes=50, terms=3),
        attributes=inputs.ATTRIBUTES,
    )  # fmt: skip
    rows = matched.updates.collect()
    assert {(row.subscription, row.message) for row in rows if row.change == "enter"} == {
        ("t", m["id"]) for m in good
    }
    assert matched.rejected.count() == 2 * len(bad) + len(BAD_SUBSCRIPTIONS)


EXTREME_NUMBERS = [None, NAN, INF, -INF, 0.0, -0.0, 1.0, 8.0, 1e308, -1e308, 5e-324]
EXTREME_STRINGS = [
    None,
    "",
    " ",
    "a",
    "a" * 512,
    "é" * 257,
    "\0",
    "\U0010ffff",
    "a AND (b OR",
    "(" * 300,
    "x " * 9000,
]
EXTREME_TIMES = [None, 0, -1, (1 << 63) - 1, -(1 << 63), 9 * 10**18, -8 * 10**18]
EXTREME_INTEGERS = [None, 0, 1, -1, 10_000, 10_001, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63)]


def extreme_rows(rng, good, **choices):
    """Return rows of which each has an extreme value in one or two columns."""
    rows = []
    for name, values in choices.items():
        rows += [{**good, name: value} for value in values]
    for _ in range(60):
        first, second = rng.sample(list(choices), 2)
        rows.append({**good, first: rng.choice(choices[first]), second: rng.choice(choices[second])})
    return rows


def test_extreme_values_never_stop_a_query(spark, tmp_path):
    """Every row is either used or rejected, as the engine alone would decide, whatever its columns hold."""
    rng = random.Random(3)
    times = pa.timestamp("us", tz="UTC")
    rows = extreme_rows(
        rng, {"id": "m", "x": 1.0, "y": 1.0, "text": "a", "at": 1, "place": None},
        id=EXTREME_STRINGS, x=EXTREME_NUMBERS, y=EXTREME_NUMBERS, text=EXTREME_STRINGS, at=EXTREME_TIMES,
        place=EXTREME_STRINGS, price=EXTREME_NUMBERS, stars=EXTREME_INTEGERS, category=EXTREME_STRINGS,
    )  # fmt: skip
    types = dict.fromkeys(("id", "text", "place", "category"), pa.string()) | {"stars": pa.int64()}
    columns = {name: pa.array([row.get(name) for row in rows], types.get(name, pa.float64()))
               for name in ("id", "x", "y", "text", "place", "price", "stars", "category")}  # fmt: skip
    columns["at"] = pa.array([row["at"] for row in rows], pa.int64()).cast(times)
    pq.write_table(pa.table(columns), tmp_path / "messages.parquet")
    changes = [
        row
        for good in (POINT, BOX, NEAR, SOCIAL_ROW, {"id": "s", "op": "unsubscribe"})
        for row in extreme_rows(
            rng, good, op=[None, "subscribe", "unsubscribe", "x"], id=EXTREME_STRINGS, kind=["boolean", "topk", None, "x"],
            x=EXTREME_NUMBERS, xmin=EXTREME_NUMBERS, keywords=EXTREME_STRINGS, k=EXTREME_INTEGERS, alpha=EXTREME_NUMBERS,
            tau=EXTREME_NUMBERS, user=EXTREME_STRINGS, at=EXTREME_TIMES, radius=EXTREME_NUMBERS,
            region=[*EXTREME_STRINGS, WKT], where=[*EXTREME_STRINGS, "stars = 1"], require=[*EXTREME_STRINGS, "NOT b"],
        )
    ]  # fmt: skip
    kinds = {"k": pa.int64(), "at": times} | dict.fromkeys(
        ("id", "op", "kind", "keywords", "user", "region", "where", "require"), pa.string()
    )
    table = {}
    for name in ("op", "id", "kind", "x", "y", "xmin", "ymin", "xmax", "ymax", "keywords", "k", "alpha", "delta", "tau",
                 "user", "radius", "region", "where", "require", "at"):  # fmt: skip
        kind = kinds.get(name, pa.float64())
        values = pa.array([row.get(name) for row in changes], pa.int64() if name == "at" else kind)
        table[name] = values.cast(kind)
    pq.write_table(pa.table(table), tmp_path / "subscriptions.parquet")
    messages, subscriptions = (
        spark.read.parquet(str(tmp_path / f"{name}.parquet")) for name in ("messages", "subscriptions")
    )
    of = inputs.job(window=nc.TimeWindow(9))
    engine, n_bad = of.new_engine(), 0
    for row in rows:
        at = None if row["at"] is None else row["at"] / 1e6
        try:
            attributes = {name: row.get(name) for name in ("price", "stars", "category")}
            message = nc.Message(
                row["id"], (row["x"], row["y"]), row["text"], at, row["place"], attributes=attributes
            )
            engine.publish([message])
        except nc.InvalidInput:
            n_bad += 1
    matched = match(
        messages, subscriptions, space=strategies.PLANE, vocabulary=strategies.vocabulary(), social=strategies.social_graph(),
        window=nc.TimeWindow(9), attributes=inputs.ATTRIBUTES,
    )  # fmt: skip
    assert isinstance(matched.updates.count(), int)
    rejected = matched.rejected.collect()
    assert sum(row.source == "message" for row in rejected) == n_bad > 30
    assert not [row for row in rejected if "cannot be read" in row.reason]
    n_subscriptions = sum(row.source == "subscription" for row in rejected)
    assert 100 < n_subscriptions < len(changes) - 100
