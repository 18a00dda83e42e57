"""Hypothesis strategies for Arrow arrays of every type, with any bit pattern that the type can hold."""

import pyarrow as pa
from hypothesis import reject
from hypothesis import strategies as st

FIXED_WIDTH = (
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
    pa.float16(), pa.float32(), pa.float64(), pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"),
    pa.time64("us"), pa.time64("ns"), pa.month_day_nano_interval(),
    pa.decimal128(38, 0), pa.decimal128(38, 38), pa.decimal128(5, -3), pa.decimal256(76, 10),
    *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.timestamp(unit, tz=tz) for unit in ("s", "ms", "us", "ns") for tz in (None, "UTC", "+14:00", "Nowhere/Nothing")),
)  # fmt: skip
STRINGS = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
VIEWS = (pa.string_view(), pa.binary_view())
SIMPLE = (pa.null(), pa.bool_(), pa.binary(0), pa.binary(3), *FIXED_WIDTH, *STRINGS, *VIEWS)
_RUNS = (pa.int64(), pa.float64(), pa.timestamp("us", tz="UTC"))  # Arrow checks the values of other runs itself

_WORDS = [b"", b"a", b"a b", b"s", b"topk", b"boolean", b"subscribe", b"u0", b"a AND (b", b"\xff", b"caf\xe9",
          b"\xed\xa0\x80", "é".encode() * 300, b"\0", b"x" * 600, b"(" * 200, b"7"]  # fmt: skip
WORDS = st.sampled_from(_WORDS) | st.binary(max_size=8) | st.text(max_size=6).map(str.encode)


def _patterns(width):
    """Draw the bytes of one value: extremes of integers and floats, and anything."""
    corners = {bytes(width), b"\xff" * width, b"\xff" * (width - 1) + b"\x7f", bytes(width - 1) + b"\x80"}
    corners |= {n.to_bytes(width, "little", signed=True) for n in (1, -1, 2, 5, 8, 100)}
    if width == 8:
        times = (1_700_000_000, 1_700_000_000_000_000, 9 * 10**18, -8 * 10**18)
        corners |= {n.to_bytes(8, "little", signed=True) for n in times}
        corners |= {bytes.fromhex(h)[::-1] for h in ("7ff0000000000000", "fff0000000000000", "7ff8000000000000",
                                                    "3ff0000000000000", "7fefffffffffffff", "0000000000000001")}  # fmt: skip
    return st.sampled_from(sorted(corners)) | st.binary(min_size=width, max_size=width)


def types():
    """Draw any type, nested ones included."""
    return st.integers(0, 9).flatmap(lambda n: _SIMPLE if n < 6 else _NESTED if n < 9 else _nested(_NESTED))


def _nested(inner):
    return st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        inner.map(pa.list_view),
        inner.map(pa.large_list_view),
        inner.map(lambda kind: pa.list_(kind, 2)),
        st.lists(inner, max_size=2).map(lambda kinds: pa.struct([(f"f{i}", kind) for i, kind in enumerate(kinds)])),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
        st.sampled_from([*FIXED_WIDTH, *STRINGS]).map(lambda kind: pa.dictionary(pa.int32(), kind)),
        st.sampled_from(_RUNS).map(lambda kind: pa.run_end_encoded(pa.int32(), kind)),
        st.lists(inner, min_size=1, max_size=2).map(
            lambda kinds: pa.sparse_union([pa.field(f"f{i}", kind) for i, kind in enumerate(kinds)])
        ),
        st.just(pa.uuid()),
        st.just(pa.bool8()),
        st.just(pa.json_()),
    )


_SIMPLE = st.sampled_from(SIMPLE)
_NESTED = _nested(_SIMPLE)


@st.composite
def arrays(draw, kind, n):
    """Draw an array of n values of a type; strings need not be UTF-8, and some values are null."""
    if draw(st.integers(0, 5)) == 0:
        return _values(draw, kind, n + 1).slice(1)  # with an offset
    return _values(draw, kind, n)


def _values(draw, kind, n):
    if pa.types.is_null(kind):
        return pa.nulls(n)
    if isinstance(kind, pa.BaseExtensionType):
        return kind.wrap_array(_values(draw, kind.storage_type, n))
    if pa.types.is_boolean(kind):
        return pa.array(draw(st.lists(st.sampled_from([True, False, None]), min_size=n, max_size=n)), kind)
    if kind in FIXED_WIDTH:
        width = kind.bit_width // 8
        data = b"".join(draw(st.lists(_patterns(width), min_size=n, max_size=n)))
        return pa.Array.from_buffers(kind, n, [_validity(draw, n), pa.py_buffer(data)])
    if pa.types.is_fixed_size_binary(kind):
        return pa.array(draw(st.lists(st.binary(min_size=kind.byte_width, max_size=kind.byte_width) | st.none(),
                                      min_size=n, max_size=n)), kind)  # fmt: skip
    if kind in STRINGS:
        values = draw(st.lists(WORDS | st.none(), min_size=n, max_size=n))
        is_large = kind in (pa.large_string(), pa.large_binary())
        plain = pa.array(values, pa.large_binary() if is_large else pa.binary())
        return pa.Array.from_buffers(kind, n, plain.buffers(), plain.null_count)
    if kind in VIEWS:
        plain = pa.array(draw(st.lists(WORDS | st.none(), min_size=n, max_size=n)), pa.binary_view())
        return pa.Array.from_buffers(kind, n, plain.buffers(), plain.null_count)
    if pa.types.is_struct(kind):
        if kind.num_fields == 0:
            return pa.array([{}] * n, kind)
        return pa.StructArray.from_arrays([_values(draw, field.type, n) for field in kind], fields=list(kind))
    if pa.types.is_map(kind):
        items = _values(draw, kind.item_type, n)
        return pa.MapArray.from_arrays(
            pa.array(range(n + 1), pa.int32()), pa.array(["k"] * n, pa.string()), items
        ).cast(kind)
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(_values(draw, kind.value_type, 2 * n), type=kind)
    if pa.types.is_dictionary(kind):
        words = _values(draw, kind.value_type, 3)
        places = draw(st.lists(st.sampled_from([0, 1, 2, None]), min_size=n, max_size=n))
        return pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), words)
    if pa.types.is_run_end_encoded(kind):
        return pa.RunEndEncodedArray.from_arrays(
            pa.array(range(1, n + 1), pa.int32()), _values(draw, kind.value_type, n)
        )
    if pa.types.is_union(kind):
        parts = [_values(draw, field.type, n) for field in kind]
        codes = draw(st.lists(st.integers(0, len(parts) - 1), min_size=n, max_size=n))
        return pa.UnionArray.from_sparse(pa.array(codes, pa.int8()), parts, [field.name for field in kind])
    return _lists(draw, kind, n)


def _lists(draw, kind, n):
    sizes = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    ends = [sum(sizes[: i + 1]) for i in range(n)]
    items = _values(draw, kind.value_type, sum(sizes))
    is_large = pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind)
    number = pa.int64() if is_large else pa.int32()
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        classes = pa.LargeListViewArray if is_large else pa.ListViewArray
        starts = [end - size for end, size in zip(ends, sizes, strict=True)]
        return classes.from_arrays(pa.array(starts, number), pa.array(sizes, number), items, type=kind)
    return pa.Array.from_buffers(
        kind, n, [_validity(draw, n), pa.array([0, *ends], number).buffers()[1]], children=[items]
    )


def _validity(draw, n):
    """Draw a bitmap of nulls, or none."""
    if not draw(st.booleans()):
        return None
    return pa.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), pa.bool_()).buffers()[1] if n else None


@st.composite
def columns(draw, n):
    """Draw a column of any type."""
    return draw(arrays(draw(types()), n))


@st.composite
def tables(draw, good, n, *, odd=2):
    """Draw a table like `good`, from column to a list of good values, with up to `odd` columns of any type and value."""
    made = {name: pa.array(values[:n], kind) for name, (kind, values) in good.items()}
    for name in draw(st.lists(st.sampled_from(sorted(good)), max_size=odd, unique=True)):
        made[name] = draw(columns(n) | arrays(good[name][0], n))
    for name in draw(st.lists(st.sampled_from(sorted(good)), max_size=draw(st.sampled_from([0, 0, 0, 1])))):
        made.pop(name, None)
    try:
        return pa.table(made) if made else pa.table({"other": pa.nulls(n)})
    except pa.ArrowInvalid:
        reject()  # Arrow itself refuses some nested arrays
