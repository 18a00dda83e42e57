"""The stages of the Spark pipeline over Arrow batches: every row, of every type and value, is used or rejected.

The functions that Spark runs over batches are called here without a session. Spark fixes the types of rows before
them; packed blocks may hold anything.
"""

import json
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import example, given
from hypothesis import strategies as st

import nearcast as nc
from effort import search
from fuzz.arrow_arrays import arrays, tables
from fuzz.test_arrow_tables import MESSAGES, SUBSCRIPTIONS
from nearcast.jobs.block import open_block
from nearcast.jobs.edge_rows import EDGE_ROWS
from nearcast.jobs.frame import MESSAGE, SUBSCRIPTION, pack, unpack
from nearcast.jobs.job import Job
from nearcast.jobs.validate import bad_edges, bad_subscriptions
from nearcast.model.columns import TIMESTAMP, subscriptions_schema
from nearcast.spark.decode import PAYLOAD, _keep_bad, _keep_bad_messages, _mark_good, _name_faults
from nearcast.spark.dispatch import (
    _distribute_edges,
    _distribute_messages,
    _distribute_subscriptions,
    _packer,
    _repacker,
)
from spark import inputs


@dataclass
class Handle:
    """A job that is not sent anywhere."""

    job: Job


LIMITS = nc.Limits(text_bytes=500, body_bytes=100, terms=5, k=100, branches=4, id_bytes=100)
HANDLES = [
    Handle(inputs.job(window=nc.CountWindow(3), limits=LIMITS)),
    Handle(inputs.job(window=nc.TimeWindow(9), limits=LIMITS, bodies=True)),
    Handle(inputs.job(window=nc.CountWindow(3), limits=LIMITS, partitioner="hash", shards=3)),
    Handle(inputs.job(window=nc.CountWindow(3), limits=LIMITS, partitioner="location", shards=3)),
]
SIZES = st.sampled_from([4, 1, 2, 0])


def batch_of(**columns_of_batch):
    return pa.RecordBatch.from_pydict(columns_of_batch)


def count_frames(batches):
    """Return the messages in all frames for all shards, and the sums of both counts."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    counted = [row for row in rows if row["keys"] is None]
    return rows, sum(row["read"] for row in counted), sum(row["rejected"] for row in counted)


def check_block(payload, handle):
    """Check that decode rejects just the rows of a block that dispatch leaves out."""
    batch = batch_of(row=pa.array(["{}"]), **{PAYLOAD: pa.array([payload], pa.binary())})
    (rejected,) = _keep_bad_messages([batch], handle=handle)
    for row, reason in zip(rejected["row"].to_pylist(), rejected["reason"].to_pylist(), strict=True):
        assert isinstance(json.loads(row), dict)
        assert "cannot be read" not in reason and "finds none" not in reason, reason
    frames, n_read, n_rejected = count_frames(_repacker(handle)([batch.select([PAYLOAD])]))
    assert n_rejected == len(rejected)
    good = {row["block"]: row["rows"] for row in frames if row["keys"] is not None}
    assert sum(good.values()) == n_read - n_rejected
    own = [unpack(row["payload"]) for row in frames if row["keys"] is not None]
    assert all("codes" in table.column_names for table in own)
    return n_read, n_rejected


@search(usual=80)
@given(st.data(), st.sampled_from(HANDLES), SIZES)
def test_every_message_of_a_block_is_packed_or_rejected(data, handle, n):
    table = data.draw(tables(MESSAGES | data.draw(st.sampled_from([{}, MORE, OFFERS, MORE | OFFERS])), n))
    try:
        payload = pack(table)
    except pa.ArrowException:
        return  # Arrow itself cannot write it
    n_read, n_rejected = check_block(payload, handle)
    try:
        opened = open_block(payload, inputs.ATTRIBUTES)
    except nc.InvalidInput:
        assert (n_read, n_rejected) == (1, 1)
    else:
        assert len(opened) == n_read == n


MORE = {
    "op": (pa.string(), [None, "replace", "retract", "publish"]),
    "expires_at": (TIMESTAMP, [None, 5, 1, 7]),
    "body": (pa.string(), ["b", None, "", "é"]),
}
OFFERS = {
    "price": (pa.float64(), [0.0, None, 1.5, -3.0]),
    "stars": (pa.int64(), [None, 3, -1, 1 << 53]),
    "category": (pa.string(), ["bike", "", None, "é"]),
    "open now": (pa.bool_(), [True, None, False, True]),
}
"""The attributes of all handles."""
_WHOLE = MESSAGES | MORE | OFFERS
WHOLE = pack(pa.table({name: pa.array(values, kind) for name, (kind, values) in _WHOLE.items()}))


@st.composite
def damaged(draw, whole):
    """Draw bytes with some changed, left out, repeated or cut off."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        size = draw(st.sampled_from([1, 1, 4, 8, 64]))
        change = draw(st.sampled_from(["flip", "flip", "set", "cut", "drop", "repeat"]))
        if change == "flip" and data:
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif change == "set":
            data[at : at + size] = draw(st.sampled_from([b"\xff", b"\0", b"\x7f", b"\x80"])) * size
        elif change == "cut":
            del data[at:]
        elif change == "drop":
            del data[at : at + size]
        else:
            data[at:at] = data[at : at + size]
    return bytes(data)


@search(usual=80)
@given(st.one_of(damaged(WHOLE), st.binary(max_size=200), st.none()), st.sampled_from(HANDLES))
@example(b"", HANDLES[0])
@example(b"ARROW1\0\0", HANDLES[0])
def test_a_damaged_block_is_rejected_or_read(payload, handle):
    check_block(payload, handle)


# -- rows whose types Spark fixed


def rows_of(schema, good, n, extra=()):
    """Draw a batch of a schema with any values; strings are UTF-8, since Spark replaces others."""

    @st.composite
    def drawn(draw):
        made = {}
        odd = draw(st.lists(st.sampled_from(sorted(schema.names)), max_size=3, unique=True))
        for field in schema:
            values = good.get(field.name, (field.type, [None] * 4))[1][:n]
            made[field.name] = pa.array(values, field.type)
            if field.name in odd:
                column = draw(arrays(field.type, n))
                made[field.name] = valid_utf8(column) if pa.types.is_string(field.type) else column
        for name, kind in extra:
            made[name] = pa.array([[] if pa.types.is_list(kind) else "{}"] * n, kind)
        return pa.RecordBatch.from_pydict(made)

    return drawn()


def valid_utf8(column):
    words = pa.Array.from_buffers(pa.binary(), len(column), column.buffers(), offset=column.offset).to_pylist()
    return pa.array([None if word is None else word.decode(errors="replace") for word in words], pa.string())


ROWS = pa.schema(
    {
        "id": pa.string(),
        "x": pa.float64(),
        "y": pa.float64(),
        "text": pa.string(),
        "at": pa.int64(),
        "place": pa.string(),
        "op": pa.string(),
        "expires_at": pa.int64(),
        "body": pa.string(),
    }
)
MARKS = (("row", pa.string()), ("broken", pa.list_(pa.string())))
OPERATIONS = pa.schema([field for field in subscriptions_schema() if field.name != "k"] + [pa.field("k", pa.int64())])
NO_SIDES = {side: (pa.float64(), [None, 0.0, 4.0, None]) for side in ("xmin", "ymin", "xmax", "ymax")}
FILTERS = {
    "where": (pa.string(), ["price <= 1.5", None, "category = 'bike' OR NOT stars IN (3)", '"open now" = TRUE']),
    "require": (pa.string(), ["NOT c", None, '"a b"', None]),
    "region": (
        pa.string(),
        ["POLYGON ((0 0, 4 0, 0 4, 0 0))", None, None, '{"type": "Point", "coordinates": [2, 2], "radius": 1}'],
    ),
}
GOOD_OPERATIONS = SUBSCRIPTIONS | NO_SIDES | FILTERS | {"at": (TIMESTAMP, [1, 2, 3, 4])}
NUMBERED = {f"attribute_{i}": values for i, values in enumerate(OFFERS.values())}
ROWS = pa.schema([*ROWS, *(pa.field(name, kind) for name, (kind, _) in NUMBERED.items())])
GOOD_ROWS = (
    MESSAGES | MORE | NUMBERED | {"at": (pa.int64(), [1, 2, 3, 4]), "expires_at": (pa.int64(), [None, 5, 1, 7])}
)


def check_rows(batch, handle, source, find):
    """Check that every row is good or rejected; return the good ones, if there are rows."""
    names = [name for name in batch.schema.names if (name, batch.schema.field(name).type) not in MARKS]
    marked = list(_mark_good([batch], handle=handle, names=names, find=find)) if len(batch) else []
    rejected = [
        row for part in _keep_bad([batch], handle=handle, source=source, find=find) for row in part.to_pylist()
    ]
    for row in rejected:
        assert row["source"] == source and "cannot be read" not in row["reason"], row["reason"]
    if not len(batch):
        return pa.table({})
    table = pa.Table.from_batches(marked)
    good = table.filter(table["good"])
    assert len(good) == len(batch) - len(rejected)
    return good


@search(usual=40)
@given(st.data(), st.sampled_from(HANDLES), SIZES)
def test_every_edge_is_dispatched_or_rejected(data, handle, n):
    edges = {
        "op": ["add", "remove", "add", "add"],
        "user": ["u0"] * 4,
        "place": ["p0", "p1"] * 2,
        "at": [1, None, 3, 4],
    }
    usual = {name: (EDGE_ROWS.field(name).type, values) for name, values in edges.items()}
    good = check_rows(data.draw(rows_of(EDGE_ROWS, usual, n, MARKS)), handle, "edge", bad_edges)
    if len(good):
        packed = _packer("edge", _distribute_edges, handle)(good.select(EDGE_ROWS.names).to_batches())
        assert sum(row["rows"] for part in packed for row in part.to_pylist()) == len(good)


@search(usual=80)
@given(st.data(), st.sampled_from(HANDLES), SIZES)
def test_every_operation_is_dispatched_or_rejected(data, handle, n):
    batch = data.draw(rows_of(OPERATIONS, GOOD_OPERATIONS, n, MARKS))
    op = pc.coalesce(batch["op"], pa.scalar("subscribe"))  # as decode does before
    batch = batch.set_column(batch.schema.get_field_index("op"), "op", op)
    good = check_rows(batch, handle, "subscription", bad_subscriptions)
    if not n:
        return
    ks = pa.array([k if k is not None and abs(k) < 1 << 31 else None for k in good["k"].to_pylist()], pa.int32())
    good = good.drop_columns(["good"]).set_column(good.column_names.index("k"), "k", ks)
    if len(good):
        frames = _packer(SUBSCRIPTION, _distribute_subscriptions, handle)(good.combine_chunks().to_batches())
        ids = [id_ for frame in frames for id_ in unpack(frame["payload"][0].as_py())["id"].to_pylist()]
        assert set(ids) == set(good["id"].to_pylist())


@search(usual=80)
@given(st.data(), st.sampled_from(HANDLES), SIZES)
def test_every_message_row_has_a_reason_or_is_dispatched(data, handle, n):
    batch = data.draw(rows_of(ROWS, GOOD_ROWS, n, MARKS))
    engine = handle.job.new_engine()
    (named,) = _name_faults([batch], handle=handle)
    good = [reason == "must break a rule; the engine finds none" for reason in named["reason"].to_pylist()]
    table = pa.Table.from_batches([batch]).drop_columns(["row", "broken"]).filter(pa.array(good, pa.bool_()))
    for name in ("at", "expires_at"):
        table = table.set_column(table.column_names.index(name), name, table[name].cast(TIMESTAMP))
    assert len(engine) == 0
    if len(table):
        frames = list(_packer(MESSAGE, _distribute_messages, handle)(table.combine_chunks().to_batches()))
        assert {frame["rows"][0].as_py() for frame in frames} == {len(table)}
