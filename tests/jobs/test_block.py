"""A block holds the packed messages, and anything else is refused with a reason."""

import random
import subprocess
import sys

import pyarrow as pa
import pytest

import nearcast as nc
from nearcast.errors import InvalidInput
from nearcast.jobs.block import open_block, pack_messages
from nearcast.jobs.frame import pack
from nearcast.jobs.validate import bad_messages, fault, good_messages, message_at, to_json
from nearcast.model import Attributes
from nearcast.model.columns import MESSAGES, TIMESTAMP
from spark import inputs

ROWS = [
    {"id": f"m{i}", "x": float(i % 8), "y": 1.0, "text": "to be, or not", "at": i * 1_000_000, "place": None}
    for i in range(20)
]
TABLE = inputs.table(ROWS, MESSAGES)


def not_utf8(values):
    """Return an array of strings with arbitrary bytes."""
    return pa.Array.from_buffers(pa.string(), len(values), pa.array(values, pa.binary()).buffers())


def test_a_block_holds_the_packed_messages():
    assert open_block(pack_messages(TABLE)).equals(TABLE)
    assert open_block(pack_messages(TABLE.slice(3, 0))).num_rows == 0
    assert open_block(pack_messages(TABLE.select(["text", "y", "x", "id"]))).column_names == ["id", "x", "y", "text"]


def test_an_arrow_ipc_file_is_a_block(tmp_path):
    with pa.ipc.new_file(tmp_path / "0.arrow", TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=7)
    assert open_block((tmp_path / "0.arrow").read_bytes()).equals(TABLE)


def test_columns_of_compatible_types_are_cast():
    updates = pa.table(
        {
            "id": pa.array(["a", "b"], pa.large_string()),
            "x": pa.array([1, 2**60 + 1], pa.int64()),
            "y": pa.array([1, 2], pa.float32()),
            "text": pa.array([["a b"], []], pa.large_list(pa.large_string())),
            "at": pa.array([1_500, None], pa.timestamp("ns")),
            "place": pa.nulls(2),
            "price": [3, 4],
        }
    )
    opened = open_block(pack(updates))
    assert opened.schema.types == [pa.string(), pa.float64(), pa.float64(), pa.list_(pa.string()), TIMESTAMP]
    assert opened["text"].to_pylist() == [["a b"], []]
    assert opened["at"].cast(pa.int64()).to_pylist() == [1, None]


PLAIN = {"id": ["m"], "x": [1.0], "y": [1.0], "text": ["a"]}
ODD = Attributes.of({"broken": float, "row": int, "a.b": str, "good": bool, "missing": str})
"""Attributes whose names columns of the job have, too."""


def test_attributes_are_numbered_in_a_block_whatever_their_names():
    columns = {"good": [True], "a.b": pa.array(["x"], pa.large_string()), "row": pa.array([3], pa.uint64())}
    columns |= {"broken": pa.array([2], pa.int8()), "other": [1]}
    packed = pack_messages(pa.table(PLAIN | columns), attributes=ODD)
    opened = open_block(packed, ODD)
    names = [f"attribute_{i}" for i in range(4)]
    assert opened.select(names).to_pylist() == [dict(zip(names, (2.0, 3, "x", True), strict=True))]
    assert opened.schema.types[4:] == [pa.float64(), pa.uint64(), pa.string(), pa.bool_()]
    assert opened.num_columns == 8
    of = inputs.job(attributes=ODD)
    assert not list(bad_messages(opened, of))
    shown = '"broken":2.0,"row":3,"a.b":"x","good":true}'
    assert to_json(message_at(opened, 0), opened.column_names, ODD).endswith(shown)
    assert open_block(packed).column_names == list(PLAIN), "a job without attributes ignores them"


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("broken", pa.array([float("nan")]), "broken must be a finite number; got nan (message 'm')"),
        ("row", pa.array([2.5]), "row must be an integer between -2**53 and 2**53; got 2.5 (message 'm')"),
        ("row", pa.array([1 << 63], pa.uint64()), "row must be an integer between -2**53 and 2**53; got 9223"),
        ("a.b", pa.array(["a" * 600]), "a.b must be at most 512 bytes; got 600 (message 'm')"),
        ("a.b", not_utf8([b"caf\xe9"]), "a.b must be UTF-8; got 'caf\ufffd' (message 'm')"),
    ],
)
def test_a_bad_value_of_an_attribute_rejects_its_row_only(name, values, words):
    of = inputs.job(attributes=ODD)
    table = pa.table({column: 2 * cells for column, cells in PLAIN.items()})
    table = table.append_column(name, pa.concat_arrays([pa.nulls(1, values.type), values]))
    opened = open_block(pack(table), ODD)
    assert [row for row, _ in bad_messages(opened, of)] == [1]
    engine = of.new_engine()
    assert fault(message_at(opened, 0), engine, of) is None
    assert words in fault(message_at(opened, 1), engine, of)


@pytest.mark.parametrize(
    "columns",
    [{"broken": ["1"]}, {"row": [True]}, {"a.b": [1]}, {"good": [1]}, {"a.b": pa.array(["x"]).dictionary_encode()}],
)
def test_a_block_with_an_attribute_of_another_type_is_refused(columns):
    (name,) = columns
    with pytest.raises(InvalidInput, match=f"{name} must be a column of"):
        open_block(pack(pa.table(PLAIN | columns)), ODD)


REFUSED = {
    "a column is missing": (
        pack(pa.table({"id": ["m"], "x": [1.0], "text": ["a"]})),
        r"columns must include \['y'\]; got \['id', 'x', 'text'\] \(messages\)",
    ),
    "ids are numbers": (pack(pa.table(PLAIN | {"id": [1]})), "id must be a column of string; got 'int64'"),
    "texts are bytes": (
        pack(pa.table(PLAIN | {"text": [b"a"]})),
        "text must be a column of string or list of strings",
    ),
    "times are numbers": (pack(pa.table(PLAIN | {"at": [1.0]})), "at must be a column of timestamp; got 'double'"),
    "a column of nulls where values must be": (pack(pa.table(PLAIN | {"x": pa.nulls(1)})), "x must be a column of"),
    "a column is there twice": (
        pack(pa.Table.from_arrays([pa.array(["m"])] * 2 + [pa.array([1.0])] * 3, ["id", "text", "x", "y", "x"])),
        "columns must include 'x' once",
    ),
    "a time that no timestamp holds": (
        pack(pa.table(PLAIN | {"at": pa.array([2**62], pa.timestamp("s"))})),
        "payload must be an Arrow stream of messages; got [0-9]+ bytes",
    ),
    "nothing": (None, "payload must be an Arrow stream of messages; got None"),
    "no bytes": (b"", "payload must be an Arrow stream of messages; got 0 bytes"),
    "JSON": (b'{"id": "m"}', r"payload must be an Arrow stream of messages; got 11 bytes \(.+\)"),
    "a torn stream": (pack_messages(TABLE)[:-300], "payload must be an Arrow stream of messages; got [0-9]+ bytes"),
    "a torn file": (b"ARROW1\0\0", "payload must be an Arrow stream of messages; got 8 bytes"),
}


@pytest.mark.parametrize("payload, words", REFUSED.values(), ids=REFUSED)
def test_anything_but_a_block_is_refused_with_a_reason(payload, words):
    with pytest.raises(InvalidInput, match=words):
        open_block(payload)


def test_packing_an_invalid_table_is_refused():
    with pytest.raises(InvalidInput, match="id must be a column of string; got 'int64'"):
        pack_messages(pa.table(PLAIN | {"id": [1]}))


def test_any_modified_block_is_opened_or_refused():
    """Bytes are changed at random; a block that opens can be validated, and its valid rows can be published."""
    of = inputs.job(window=nc.TimeWindow(9))
    rng = random.Random(3)
    texts = TABLE.set_column(3, "text", pa.array([["to", "be"]] * len(TABLE), pa.list_(pa.string())))
    opened = refused = sifted = 0
    for payload in (pack_messages(TABLE), pack_messages(texts)):
        for _ in range(1_500):
            broken = bytearray(payload)
            for _ in range(rng.choice([1, 1, 3])):
                broken[rng.randrange(len(broken))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            try:
                table = open_block(bytes(broken))
            except InvalidInput:
                refused += 1
                continue
            opened += 1
            bad = list(bad_messages(table, of))
            sifted += bool(bad)
            for row, _ in bad:
                to_json(message_at(table, row), table.column_names)
            good = good_messages(table, of)
            assert len(good) == len(table) - len(bad)
            if "at" in good.column_names or not len(good):
                of.new_engine().publish(good)
    assert opened > 300 and refused > 300 and sifted > 100


@pytest.mark.parametrize(
    "text", [not_utf8([b"caf\xe9"]), pa.ListArray.from_arrays([0, 2], not_utf8([b"a", b"\xff"]))]
)
def test_bytes_that_are_not_utf8_reject_their_row_only(text):
    table = pa.table(PLAIN | {"text": text})
    whole = pa.table(PLAIN | {"text": pa.array([["ok"]] if pa.types.is_list(text.type) else ["ok"], text.type)})
    opened = open_block(pack(pa.concat_tables([whole, table, whole])))
    assert [row for row, _ in bad_messages(opened, inputs.job())] == [1]
    shown = message_at(opened, 1)
    assert shown["broken"] == ["text"]
    assert shown["text"] in ("caf\ufffd", ["a", "\ufffd"])


def test_packing_needs_no_spark():
    program = "import sys; from nearcast.spark import pack_messages; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
