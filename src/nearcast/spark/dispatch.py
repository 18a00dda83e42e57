"""Dispatch: good rows go to the shards that the routing names, packed as frames.

    good messages ────── tokenise, hash ──── route ──┐
    packed messages ──── open, check, the same ──────┼── frames
    good subscriptions ── footprints ─────── place ──┘

The stage is stateless: a task that runs again packs the same frames. Every shard gets the times of every block of
messages, even if none of them is for it, so that all shards count the stream alike. Every shard also gets a marker
for every subscription, unless the key alone determines its shard: the subscription may have lived there before.
Packed messages are counted here: for Spark a block is one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count
from time import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from nearcast.errors import InvalidInput
from nearcast.jobs.batch_time import CLOCK, BatchTime
from nearcast.jobs.block import open_block
from nearcast.jobs.block_files import MIN_BYTES
from nearcast.jobs.frame import (
    EDGE,
    ELSEWHERE,
    FRAME_COLUMNS,
    FRAMES,
    MESSAGE,
    PACKED_EDGES,
    PLACEMENTS,
    SOURCE_ROW,
    SUBSCRIPTION,
    Frame,
    masks_to_arrow,
    messages_table,
    pack,
    pack_times,
    packed_subscriptions_schema,
)
from nearcast.jobs.job import Job
from nearcast.jobs.message_rows import REPLACE, RETRACT, are, has_ops, readable
from nearcast.jobs.progress import MESSAGES
from nearcast.jobs.validate import SUBSCRIBE, good_messages, message_at, to_json
from nearcast.model import NEVER, NO_TIME, SubscriptionBatch, kinds
from nearcast.model.columns import MESSAGES as MESSAGE_COLUMNS
from nearcast.model.columns import subscriptions_schema
from nearcast.model.id_column import IdColumn
from nearcast.model.subscription_rows import store_table
from nearcast.partition import Masks, no_shards, rows_of_shards, shards_by_key
from nearcast.spark.batch_epoch import BatchEpoch, batch_epoch
from nearcast.spark.clock_source import NOW_US
from nearcast.spark.decode import PAYLOAD
from nearcast.spark.freeze_gc import freezing_gc
from nearcast.spark.job_handle import JobHandle
from nearcast.spark.shard_keys import keys_of

FRAME_ROWS = 16_384
"""Messages per frame, for larger blocks."""

NEAR_S = 60.0
"""How far the clock of a host may be ahead of that of the job, with the time since the batch began."""

Packed = Iterator[tuple[list[int], bytes]]
"""Payloads with their shards."""
Distribute = Callable[[pa.Table, BatchEpoch], Packed]
FindEpoch = Callable[[Job], BatchEpoch]
Rows = npt.NDArray[np.int64]
Share = tuple[Rows, list[int]]
"""Rows, and the shards that get them."""
Stage = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_COUNTS = {"rows": "read", "rejected": "rejected"}
"""Observations of packed messages, and their columns in counting rows."""
_COUNTED = pa.schema([*FRAME_COLUMNS, *(pa.field(name, pa.int64()) for name in _COUNTS.values())])


def dispatch_messages(good: DataFrame, handle: JobHandle) -> DataFrame:
    """Pack good messages as frames; of packed ones, the good ones."""
    if good.columns != [PAYLOAD]:
        return _copied(good.mapInArrow(_packer(MESSAGE, _distribute_messages, handle), FRAMES))
    counted = good.mapInArrow(_repacker(handle), f"{FRAMES}, read long, rejected long")
    sums = (F.coalesce(F.sum(column), F.lit(0)).alias(name) for name, column in _COUNTS.items())
    return _copied(counted.observe(MESSAGES, *sums))


def dispatch_subscriptions(good: DataFrame, handle: JobHandle) -> DataFrame:
    """Pack good subscriptions as frames."""
    return _copied(good.mapInArrow(_packer(SUBSCRIPTION, _distribute_subscriptions, handle), FRAMES))


def dispatch_edges(good: DataFrame, handle: JobHandle) -> DataFrame:
    """Pack good changes of edges as frames, for every shard."""
    return _copied(good.mapInArrow(_packer(EDGE, _distribute_edges, handle), FRAMES))


def _copied(frames: DataFrame) -> DataFrame:
    """Return one frame per key: Spark copies them more cheaply than Python returns them."""
    return frames.select(F.explode("keys").alias("key"), *Frame._fields)


def _packer(source: str, distribute: Distribute, handle: JobHandle, find: FindEpoch = batch_epoch) -> Stage:
    def packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        epoch = find(handle.job)
        for block, batch in enumerate(batches):
            for frame in _frames(source, block, pa.Table.from_batches([batch]), distribute, epoch):
                yield _row(frame, FRAME_COLUMNS)

    return lambda batches: freezing_gc(packed(batches))


def _repacker(handle: JobHandle) -> Stage:
    """Return a function that packs blocks as frames and adds, per block, a row without a key that counts messages."""

    def packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers, epoch = count(), batch_epoch(handle.job)
        for batch in batches:
            for payload in batch[PAYLOAD]:
                n_read = n_good = 0
                for n, good in _opened(payload.as_py(), epoch.job):
                    n_read, n_good = n_read + n, n_good + len(good)
                    for frame in _frames(MESSAGE, next(numbers), good, _distribute_messages, epoch):
                        yield _row((*frame, None, None), _COUNTED)
                yield _row((None,) * len(FRAME_COLUMNS) + (n_read, n_read - n_good), _COUNTED)

    return lambda batches: freezing_gc(packed(batches))


def _opened(payload: bytes | None, job: Job) -> Iterator[tuple[int, pa.Table]]:
    """Yield the number of rows of a block and the good ones; an invalid block counts as one bad row."""
    try:
        table = open_block(payload, job.config.attributes)
    except InvalidInput:
        yield 1, MESSAGE_COLUMNS.empty_table()
        return
    for start in range(0, len(table), FRAME_ROWS):
        part = table.slice(start, FRAME_ROWS)
        yield len(part), good_messages(part, job)


def _frames(
    source: str, block: int, table: pa.Table, distribute: Distribute, epoch: BatchEpoch
) -> Iterator[tuple[Any, ...]]:
    """Yield the frames of a block; a payload for several shards occurs once, with all keys."""
    if not len(table):
        return
    context = TaskContext.get()
    part = 0 if context is None else context.partitionId()
    ats = pack_times(times_us(table))
    ends = pack_times(times_us(table, "expires_at", missing=NEVER), missing=NEVER) if source == MESSAGE else None
    keys = keys_of(epoch.job.shards, epoch.job.n_tasks)
    for shards, payload in distribute(table, epoch):
        frame = Frame(source, part, block, len(table), ats, payload, ends, epoch.number)
        if len(shards) > 1 and frame.nbytes >= MIN_BYTES:
            frame = epoch.share(frame)
        yield [keys[shard] for shard in shards], *frame


def _row(values: tuple[Any, ...], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array([value], field.type) for value, field in zip(values, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _distribute_messages(table: pa.Table, epoch: BatchEpoch) -> Packed:
    job = epoch.job
    more = {"op": table["op"].combine_chunks()} if has_ops(table) else {}
    to_first = _may_be_ahead(table, job)
    if to_first.any():
        more[SOURCE_ROW] = _source_rows(table, to_first, job)
    table = readable(table, job.config.space.bounds)
    batch = job.read_messages(table)
    if not job.config.bodies:
        batch = replace(batch, bodies=None)
    if job.routing.sends_all:
        yield list(range(job.shards)), pack(messages_table(batch, np.arange(len(batch)), None, more))
        return
    seen_by = job.placement.route(batch)
    for_all = np.flatnonzero(are(RETRACT, table) | are(REPLACE, table))
    rows_of = rows_of_shards(seen_by, job.shards)
    if len(for_all):
        rows_of = [np.union1d(rows, for_all) for rows in rows_of]
    if to_first.any():
        rows_of[0] = np.union1d(rows_of[0], np.flatnonzero(to_first))
    yield from _pack_slices(_shares(rows_of), lambda rows: messages_table(batch, rows, seen_by, more))


def _shares(rows_of: list[Rows]) -> list[Share]:
    """Return the rows of all shards, once for all shards with the same rows: many may have none."""
    shares: dict[bytes, Share] = {}
    for shard, rows in enumerate(rows_of):
        shares.setdefault(rows.tobytes(), (rows, []))[1].append(shard)
    return list(shares.values())


def _pack_slices(shares: list[Share], table_of: Callable[[Rows], pa.Table]) -> Packed:
    """Yield the payload of each share: a slice of the table of many, which costs less than a table for each."""
    first = 0
    while first < len(shares):
        sizes = np.cumsum([len(rows) for rows, _ in shares[first:]])
        last = first + max(1, int(np.searchsorted(sizes, FRAME_ROWS, side="right")))
        group, start = shares[first:last], 0
        table = table_of(np.concatenate([rows for rows, _ in group])).combine_chunks()
        for rows, shards in group:
            yield shards, pack(table.slice(start, len(rows)))
            start += len(rows)
        first = last


def _may_be_ahead(table: pa.Table, job: Job) -> npt.NDArray[np.bool_]:
    """Return the messages that may be too far ahead of the clock of the batch, which only shards know.

    The clock of this host is near enough: of a message that is missing here, `rejected` shows all but the text.
    """
    if not job.is_clocked:
        return np.zeros(len(table), np.bool_)
    latest = BatchTime.of(round((time() - NEAR_S) * 1_000_000), max_ahead_s=job.ahead_s).latest_us
    return times_us(table) > latest


def _source_rows(table: pa.Table, chosen: npt.NDArray[np.bool_], job: Job) -> pa.Array:
    """Return chosen rows as JSON, and null for the others."""
    rows: list[str | None] = [None] * len(table)
    for row in np.flatnonzero(chosen).tolist():
        rows[row] = to_json(message_at(table, row), table.column_names, job.config.attributes)
    return pa.array(rows, pa.string())


def dispatch_clock(times: DataFrame, handle: JobHandle) -> DataFrame:
    """Pack the time of a batch as a frame for every shard."""

    def packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        now_us = max((pc.max(batch[NOW_US]).as_py() for batch in batches if len(batch)), default=None)
        if now_us is not None:
            epoch = batch_epoch(handle.job)
            keys = list(keys_of(epoch.job.shards, epoch.job.n_tasks))
            payload = BatchTime.of(now_us, max_ahead_s=epoch.job.ahead_s).packed()
            yield _row((keys, CLOCK, 0, 0, 1, None, payload, None, epoch.number, None), FRAME_COLUMNS)

    return _copied(times.mapInArrow(packed, FRAMES))


def _distribute_subscriptions(table: pa.Table, epoch: BatchEpoch) -> Packed:
    job = epoch.job
    numbered = table.select(subscriptions_schema().names).add_column(0, "row", pa.array(np.arange(len(table))))
    if not job.routing.by_key:
        yield from _distribute_to_all(numbered.cast(packed_subscriptions_schema()), job)
        return
    numbered = numbered.cast(packed_subscriptions_schema())
    shards = shards_by_key(IdColumn(table["id"].combine_chunks()).keys(job.scoring.hash_key), job.shards)
    order = np.argsort(shards, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(shards[order])) + 1)
    shares = [(rows, [int(shards[rows[0]])]) for rows in parts if len(rows)]
    if epoch.is_ending:  # every shard must run
        shares += [(order[:0], [shard]) for shard in np.setdiff1d(np.arange(job.shards), shards).tolist()]
    yield from _pack_slices(shares, lambda rows: numbered.take(pa.array(rows)))


def _distribute_edges(table: pa.Table, epoch: BatchEpoch) -> Packed:
    numbered = table.add_column(0, "row", pa.array(np.arange(len(table))))
    yield list(range(epoch.job.shards)), pack(numbered.select(PACKED_EDGES.names).cast(PACKED_EDGES))


def _distribute_to_all(table: pa.Table, job: Job) -> Packed:
    """Yield, for each shard, the subscriptions that live there and a marker for the others."""
    masks = _placements(table, job)
    kept = ["row", "id", "expires_at"]  # all shards reject alike what has expired, and unknown users
    kept += ["kind", "user"] if job.has_edges else []
    ops = pc.if_else(pc.equal(table["op"], SUBSCRIBE), ELSEWHERE, table["op"])
    markers = pa.table({**{name: table[name] for name in kept}, "op": ops, PLACEMENTS: masks_to_arrow(masks)})
    packed_markers = pack(markers, compression="lz4")  # once: each shard gets the same
    for shards, payload in _pack_slices(
        _shares(rows_of_shards(masks, job.shards)), lambda rows: table.take(pa.array(rows))
    ):
        yield shards, payload + packed_markers


def _placements(table: pa.Table, job: Job) -> Masks:
    """Return the shards of subscriptions; none for unsubscribe operations."""
    masks = no_shards(len(table), job.shards)
    comes = np.array(pc.equal(table["op"], SUBSCRIBE))
    names = np.array(table["kind"].to_pylist())
    for kind in kinds():
        rows = np.flatnonzero(comes & (names == kind.kind))
        if len(rows):
            subscriptions = SubscriptionBatch(kind, store_table(table.take(pa.array(rows)), kind), job.scoring)
            masks[rows] = job.routing.place(subscriptions.routing_footprints)
    return masks


def times_us(table: pa.Table, name: str = "at", *, missing: int = NO_TIME) -> npt.NDArray[np.int64]:
    """Return a time of each row in microseconds, given the value of a missing one."""
    if name not in table.column_names:
        return np.full(len(table), missing, dtype=np.int64)
    times: Any = pc.fill_null(table[name].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()), missing).to_numpy()
    return np.ascontiguousarray(times)
