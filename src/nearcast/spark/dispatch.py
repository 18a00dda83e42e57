"""Who needs a row? Blocks of good rows go to the shards that the routing names, packed as frames.

    good messages ────── tokenise, number ── route ──┐
                                                     ├── frames
    good subscriptions ── footprints ─────── place ──┘

Stateless: a task that runs again packs the same frames. Every shard gets the times of every block of messages, even
where none of its messages are for it; so all of them count the stream alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame

from nearcast.errors import StateError
from nearcast.model import KINDS, NO_TIME, Cohort, Footprints
from nearcast.model.columns import SUBSCRIPTIONS, messages_from_table
from nearcast.model.ids import IdColumn
from nearcast.model.stored import store_table
from nearcast.spark.frame import (
    FRAME_COLUMNS,
    FRAMES,
    MESSAGE,
    PACKED_SUBSCRIPTIONS,
    SUBSCRIPTION,
    pack,
    pack_messages,
    pack_times,
)
from nearcast.spark.job import Job
from nearcast.spark.sent import Sent
from nearcast.spark.spread import keys_of

Packed = Iterator[tuple[int, bytes]]
"""Shards and their payloads."""


def dispatch_messages(good: DataFrame, sent: Sent) -> DataFrame:
    """Pack good messages as frames."""
    return good.mapInArrow(_packer(MESSAGE, _share_messages, sent), FRAMES)


def dispatch_subscriptions(good: DataFrame, sent: Sent) -> DataFrame:
    """Pack good subscriptions as frames."""
    return good.mapInArrow(_packer(SUBSCRIPTION, _share_subscriptions, sent), FRAMES)


def _packer(
    source: str, share: Callable[[pa.Table, Job], Packed], sent: Sent
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        part = 0 if context is None else context.partitionId()
        keys = keys_of(sent.job.shards)
        for block, batch in enumerate(batches):
            table = pa.Table.from_batches([batch])
            if not len(table):
                continue
            ats = pack_times(times_us(table))
            for shard, payload in share(table, sent.job):
                row = (keys[shard], source, part, block, len(table), ats, payload)
                columns = [pa.array([value], field.type) for value, field in zip(row, FRAME_COLUMNS, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, schema=FRAME_COLUMNS)

    return packed


def _share_messages(table: pa.Table, job: Job) -> Packed:
    batch = messages_from_table(table, vocabulary=job.meaning.vocabulary, limits=job.config.limits, first_seq=1)
    payloads: dict[bytes, bytes] = {}
    for shard, rows in enumerate(job.routing.route(batch)):
        same = rows.tobytes()  # often all shards get the same rows
        if same not in payloads:
            payloads[same] = pack_messages(batch, rows)
        yield shard, payloads[same]


def _share_subscriptions(table: pa.Table, job: Job) -> Packed:
    homes = _homes(table, job)
    numbered = table.select(SUBSCRIPTIONS.names).add_column(0, "row", pa.array(np.arange(len(table))))
    for shard in np.unique(homes).tolist():
        part = numbered.take(pa.array(np.flatnonzero(homes == shard)))
        yield shard, pack(part.cast(PACKED_SUBSCRIPTIONS))


def _homes(table: pa.Table, job: Job) -> npt.NDArray[np.int32]:
    """Return the shard of each row."""
    homes = np.zeros(len(table), dtype=np.int32)
    leaves = np.array(pc.equal(table["op"], "unsubscribe"))
    kinds = np.array(table["kind"].to_pylist(), dtype=object)
    for kind in KINDS:
        rows = np.flatnonzero((kinds == kind.kind) & ~leaves)
        if len(rows):
            cohort = Cohort(kind, store_table(table.take(pa.array(rows)), kind), job.meaning)
            homes[rows] = job.routing.place(cohort.footprints)
    rows = np.flatnonzero(leaves)
    if len(rows):
        ids = IdColumn(table["id"].combine_chunks().take(pa.array(rows)))
        homes[rows] = job.routing.place(Footprints(ids.keys, _unknown_footprint))
    return homes


def _unknown_footprint() -> NoReturn:
    raise StateError("partitioner must place by key alone who leaves a stream: there is no footprint of them")


def times_us(table: pa.Table) -> npt.NDArray[np.int64]:
    """Return the `at` of each row in microseconds, NO_TIME for none."""
    times: Any = pc.fill_null(table["at"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()), NO_TIME).to_numpy()
    return np.ascontiguousarray(times)
