"""Frames: what travels through the shuffle. One row per shard and block of rows, with a columnar payload.

    key        the shard, see `shard_keys`; `keys` lists all shards with the same payload, until it is copied for each
    source     "message", "subscription", "edge", "clock", see `batch_time`, or, in a log, "move", see `moves`
    part       the task that packed it, and
    block      its number within that task: together they give the order of arrival
    rows       number of rows of the block, those for other shards included
    ats        8 bytes per row of the block: its time in microseconds, NO_TIME for none; null if no row has one
    payload    the rows for this shard, as an Arrow stream; for subscriptions that may move, a second stream with a
               marker for each row of the block follows, the same for all shards
    ends       of messages, like `ats`: when each expires by a time of its own, NEVER for none; null if none does
    epoch      the number of the routing that it was packed with, see `epochs`
    file       where `ats`, `payload` and `ends` are instead, if several shards get many rows, see `block_files`

A payload of messages holds terms, not texts: they are tokenised and hashed once, before the shuffle. `row` holds the
positions of the rows in the block, so that a shard with some of the messages knows the position of each in the
stream, and `order` the terms in the order of the text. `codes` exists where the job declares attributes. `body`
exists where messages have bodies and the job keeps them. Where shards see some messages only, `seen_by` holds the
shards of each message, and `placements` those of each subscription; both are masks. `op` exists where not all rows
publish. Rows that retract or replace go to every shard, whichever shards publish the message. Rows that may be too
far ahead of the clock go to the first shard, which rejects them, with the row as it came in `source_row`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.errors import StateError
from nearcast.jobs.message_rows import RETRACT, are
from nearcast.model import NEVER, NO_TIME, MessageBatch
from nearcast.model.columns import BODY, subscriptions_schema
from nearcast.model.id_column import IdColumn
from nearcast.partition import Masks
from nearcast.partition.masks import from_arrow, to_arrow
from nearcast.text import TermOrder, TermRows, Vocabulary

FRAMES = (
    "keys array<int>, source string, part int, block int, rows long, ats binary, payload binary, ends binary, "
    "epoch int, file string"
)
FRAME_COLUMNS = pa.schema(
    {"keys": pa.list_(pa.int32()), "source": pa.string(), "part": pa.int32(), "block": pa.int32(), "rows": pa.int64(),
     "ats": pa.binary(), "payload": pa.binary(), "ends": pa.binary(), "epoch": pa.int32(),
     "file": pa.string()}
)  # fmt: skip

OP = "op"
"""The operation that caused updates: a column of the output of shards where subscriptions may move between them."""


def shard_updates(*, bodies: bool) -> str:
    """Return the columns of the output of a shard: groups of updates, see `nearcast.engine.groups`."""
    columns = (
        "seq long, at timestamp, message string, change string, subscriptions array<string>, scores array<double>"
    )
    return f"{columns}, body string" if bodies else columns


def loose_updates(*, bodies: bool) -> str:
    """Return the same where subscriptions may move between shards: also the key of the joining task, and `OP`.

    An operation is its position in the batch; updates that messages caused have none.
    """
    return f"{shard_updates(bodies=bodies)}, key int, {OP} long"


REPORTED = "key int, source string, part int, block int, rows long, payload binary, epoch int, file string"
"""The columns of the output of a shard whose results are merged: frames for the merge stage, see `replica_frames`."""

UPDATES = "updates"
"""The source of a frame with groups of updates that need no merge; `block` is the number of updates."""

PACKED = "seq long, updates long, payload binary"
"""The same in blocks: the first seq, the number of updates, and their groups as an Arrow stream."""

MESSAGE, SUBSCRIPTION, EDGE, MOVE = "message", "subscription", "edge", "move"

PACKED_MESSAGES = pa.schema(
    {"row": pa.int64(), "id": pa.string(), "x": pa.float64(), "y": pa.float64(), "place": pa.string(),
     "terms": pa.list_(pa.int64()), "counts": pa.list_(pa.uint8()), "order": pa.list_(pa.uint16())}
)  # fmt: skip
PACKED_EDGES = pa.schema({"row": pa.int64(), "op": pa.string(), "user": pa.string(), "place": pa.string()})
SEEN_BY, PLACEMENTS = "seen_by", "placements"
"""Columns that exist where shards see some messages only, or where the key does not determine the shard."""
CODES = "codes"
"""A column of the values of attributes, see `Attributes`."""
SOURCE_ROW = "source_row"
"""A column of messages that may be too far ahead of the clock: the row as JSON."""
ELSEWHERE = "elsewhere"
"""The operation that a shard receives for a subscription that lives in other shards."""


def packed_subscriptions_schema() -> pa.Schema:
    """Return the columns of a payload of subscription operations: the row in its block, and all columns of tables."""
    return pa.schema([pa.field("row", pa.int64()), *subscriptions_schema()])


class Frame(NamedTuple):
    """A block of rows for one shard."""

    source: str
    part: int
    block: int
    rows: int
    ats: bytes | None
    payload: bytes
    ends: bytes | None = None
    epoch: int = 0
    file: str | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the rows and their times."""
        return sum(len(part) for part in (self.ats, self.payload, self.ends) if part is not None)

    @property
    def ats_us(self) -> npt.NDArray[np.int64]:
        """The time of every row of the block."""
        return self._times(self.ats, NO_TIME)

    @property
    def ends_us(self) -> npt.NDArray[np.int64]:
        """When every message of the block expires by a time of its own."""
        return self._times(self.ends, NEVER)

    def _times(self, packed: bytes | None, missing: int) -> npt.NDArray[np.int64]:
        if packed is None:
            return np.full(self.rows, missing, dtype=np.int64)
        return np.frombuffer(packed, dtype="<i8").astype(np.int64, copy=False)

    def only_counted(self) -> Frame:
        """Return a frame of messages with the same order and times but without messages: retractions take no seq."""
        if self.source != MESSAGE:
            return self
        table = unpack(self.payload)
        retracted = are(RETRACT, table)
        return self._replace(payload=pack(table.filter(pa.array(retracted))) if retracted.any() else _NOTHING)


def pack_times(times_us: npt.NDArray[np.int64], *, missing: int = NO_TIME) -> bytes | None:
    """Return the times of a block as a frame carries them, given the value of a missing one."""
    return None if (times_us == missing).all() else times_us.astype("<i8").tobytes()


def messages_table(
    batch: MessageBatch,
    rows: npt.NDArray[np.int64],
    seen_by: Masks | None = None,
    more: Mapping[str, pa.Array] = MappingProxyType({}),
) -> pa.Table:
    """Return some messages of a block as a table, with the shards of each if these matter, and further columns."""
    batch.prepare_order()  # before the terms alone are encoded
    are_all = len(rows) == len(batch) and bool((np.diff(rows) == 1).all())
    part = batch if are_all else batch.take(rows)
    bounds = pa.array(part.term_indptr.astype(np.int32))
    columns = [
        pa.array(rows),
        part.ids.strings,
        pa.array(part.xs),
        pa.array(part.ys),
        pa.array(part.places, pa.string()),
        pa.ListArray.from_arrays(bounds, pa.array(part.term_ids)),
        pa.ListArray.from_arrays(bounds, pa.array(_narrow(part.term_counts))),
        pa.ListArray.from_arrays(pa.array(part.order.indptr.astype(np.int32)), pa.array(part.order.ranks)),
    ]
    table = pa.Table.from_arrays(columns, names=PACKED_MESSAGES.names)
    if part.codes is not None:
        flat = pa.array(np.ascontiguousarray(part.codes).reshape(-1))
        table = table.append_column(CODES, pa.FixedSizeListArray.from_arrays(flat, part.codes.shape[1]))
    if part.bodies is not None:
        table = table.append_column(BODY, part.bodies)
    for name, column in more.items():
        table = table.append_column(name, column.take(pa.array(rows)))
    return table if seen_by is None else table.append_column(SEEN_BY, masks_to_arrow(seen_by[rows]))


def masks_to_arrow(masks: Masks) -> pa.Array:
    """Return masks as a column."""
    return to_arrow(masks)


def masks_from_arrow(table: pa.Table, name: str) -> Masks | None:
    """Return a column of masks, or None."""
    return from_arrow(table[name]) if name in table.column_names else None


def _narrow(counts: npt.NDArray[np.int32]) -> npt.NDArray[np.integer[Any]]:
    """Return counts as bytes if they fit, which they nearly always do."""
    return counts if counts.max(initial=0) > 255 else counts.astype(np.uint8)


def unpack_batch(
    packed: pa.Table,
    ats_us: npt.NDArray[np.int64],
    ends_us: npt.NDArray[np.int64] | None = None,
    *,
    vocabulary: Vocabulary,
    first_seq: int = 1,
) -> MessageBatch:
    """Return packed messages as a batch, given the time of each, and when each expires if any does."""
    table = packed.combine_chunks()
    terms, counts = (_one_chunk(table, name) for name in ("terms", "counts"))
    indptr, order = _bounds(terms), _one_chunk(table, "order")
    return MessageBatch.from_columns(
        ids=IdColumn(_one_chunk(table, "id")),
        xs=table["x"].to_numpy().copy(),
        ys=table["y"].to_numpy().copy(),
        ats_us=ats_us,
        places=_one_chunk(table, "place"),
        texts=TermRows(
            indptr, terms.flatten().to_numpy().copy(), counts.flatten().to_numpy().astype(np.int32),
            TermOrder(_bounds(order), order.flatten().to_numpy().copy()),
        ),
        vocabulary=vocabulary,
        first_seq=first_seq,
        expires_us=ends_us,
        bodies=_one_chunk(table, BODY.name) if BODY.name in table.column_names else None,
        codes=_codes(table),
    )  # fmt: skip


def _bounds(lists: pa.Array) -> npt.NDArray[np.int64]:
    """Return where each of some lists begins."""
    return np.concatenate([[0], np.cumsum(np.diff(lists.offsets.to_numpy()))]).astype(np.int64)


def _codes(table: pa.Table) -> npt.NDArray[np.int64] | None:
    """Return the values of attributes, or None if there is no such column."""
    if CODES not in table.column_names:
        return None
    column = _one_chunk(table, CODES)
    codes: npt.NDArray[np.int64] = column.flatten().to_numpy().copy().reshape(len(table), column.type.list_size)
    return codes


def pack(table: pa.Table, *, compression: str | None = None) -> bytes:
    """Return a table as the bytes of an Arrow stream."""
    return pack_buffer(table, compression=compression).to_pybytes()  # type: ignore[no-any-return]


def pack_buffer(table: pa.Table, *, compression: str | None = None) -> pa.Buffer:
    """Return a table as an Arrow stream without a copy for Python."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue()


def unpack(payload: bytes) -> pa.Table:
    """Return the table of an Arrow stream, or the operations of two: those of a shard, and markers for all others."""
    reader = pa.BufferReader(payload)
    table = pa.ipc.open_stream(reader).read_all()
    return table if reader.tell() == reader.size() else _joined(table, pa.ipc.open_stream(reader).read_all())


def _joined(own: pa.Table, markers: pa.Table) -> pa.Table:
    """Return all operations of a block, given the markers of all and the operations that are for this shard."""
    rows = own["row"].to_numpy()
    are_others = np.ones(len(markers), np.bool_)
    are_others[rows] = False
    own = own.append_column(PLACEMENTS, markers[PLACEMENTS].take(pa.array(rows)))
    others = markers.filter(pa.array(are_others))
    table = pa.concat_tables([own, others], promote_options="default")
    return table.take(pa.array(np.argsort(np.concatenate([rows, np.flatnonzero(are_others)]))))


def epoch_of(frames: Iterable[Frame]) -> int:
    """Return the epoch of the frames of a batch; raise `StateError` if they do not agree.

    The tasks that packed them may have seen different files. A replay of the batch sees them all.
    """
    epochs = sorted({frame.epoch for frame in frames})
    if len(epochs) > 1:
        raise StateError(f"the frames of a batch must have one epoch; got {epochs}")
    return epochs[0] if epochs else 0


def pack_frames(frames: Sequence[Frame]) -> bytes:
    """Return the frames of one shard as bytes, for its log."""
    columns = [pa.array(values, FRAME_COLUMNS.field(name).type) for name, values in _columns(frames)]
    return pack(pa.Table.from_arrays(columns, names=list(Frame._fields)))


def unpack_frames(data: bytes) -> list[Frame]:
    """Return the frames that bytes hold."""
    return [Frame(**row) for row in unpack(data).to_pylist()]


_NOTHING = pack(PACKED_MESSAGES.empty_table())


def _columns(frames: Sequence[Frame]) -> list[tuple[str, list[object]]]:
    return [(name, [getattr(frame, name) for frame in frames]) for name in Frame._fields]


def _one_chunk(table: pa.Table, name: str) -> pa.Array:
    column = table[name]
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)
