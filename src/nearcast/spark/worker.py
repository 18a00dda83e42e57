"""The stateful operator: one key per shard, with the shard's engine.

    frames of a shard ── manifest ── engine of that version ── apply ── updates
                                           │                     │
                                    cached, or rebuilt      files, then manifest

Spark replays a batch that was not committed. What a run leaves behind besides Spark's own state is then harmless, see
`shard_state`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from time import perf_counter, time
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import SparkFiles, TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from nearcast.engine.groups import count_updates
from nearcast.errors import StateError
from nearcast.jobs.batch_time import with_time
from nearcast.jobs.engine_cache import UNUSED_S, LocalEngineCache, remove_unused
from nearcast.jobs.folder import Folder
from nearcast.jobs.frame import OP, PACKED, SUBSCRIPTION, Frame, loose_updates, pack_buffer, shard_updates
from nearcast.jobs.job import Job
from nearcast.jobs.rejections import write_rejections
from nearcast.jobs.reports import write_report
from nearcast.jobs.shard import ShardCounts, apply
from nearcast.jobs.shard_state import MANIFEST, ShardManifest, ShardState
from nearcast.jobs.static_rejections import rejected_operations
from nearcast.model.columns import BODY, groups_schema
from nearcast.model.id_column import IdColumn
from nearcast.spark.decode import REJECTED, rejected_rows
from nearcast.spark.freeze_gc import freezing_gc
from nearcast.spark.job_handle import JobHandle
from nearcast.spark.shard_keys import keys_of
from nearcast.text import HashKey

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


def work(frames: DataFrame, handle: JobHandle, *, state: str | None, is_packed: bool = False) -> DataFrame:
    """Apply the frames of all shards and return updates, in rows or packed; streams keep state in a folder."""
    return frames.groupBy("key").transformWithStateInPandas(
        statefulProcessor=Worker(handle, state, is_packed=is_packed),
        outputStructType=_output(handle.job, is_packed=is_packed),
        outputMode="Append",
        timeMode="none",
    )


def _output(job: Job, *, is_packed: bool) -> str:
    """Return the columns of the output of shards."""
    if job.moves:
        return loose_updates(bodies=job.config.bodies)
    return PACKED if is_packed else shard_updates(bodies=job.config.bodies)


def reject_operations(frames: DataFrame, handle: JobHandle) -> DataFrame:
    """Return the subscriptions in static frames that shards reject at their place in the order."""

    def rejected(key: tuple[pa.Scalar, ...], table: pa.Table) -> pa.Table:
        job, own = handle.job, [Frame(**row) for row in table.select(list(Frame._fields)).to_pylist()]
        found = rejected_operations(own, job, shard=keys_of(job.shards).index(key[0].as_py()))
        rows, reasons = [rejection.row for rejection in found], [rejection.reason for rejection in found]
        return pa.Table.from_batches([rejected_rows(SUBSCRIPTION, rows, reasons)])

    return frames.groupBy("key").applyInArrow(rejected, REJECTED)


@dataclass
class ShardReport(ShardCounts):
    """The report of a shard for one micro-batch; see `progress`."""

    shard: int = field(kw_only=True)
    subscriptions: int = 0
    state_bytes: int = 0
    seconds: float = 0.0
    """Seconds in all."""
    opening: float = 0.0
    """Seconds to open the engine."""
    logging: float = 0.0
    """Seconds to write the frames."""
    sealing: float = 0.0
    """Seconds to seal the engine, with a snapshot if one was due."""


class Worker(StatefulProcessor):
    """The shards of one query, one key each."""

    def __init__(self, handle: JobHandle, state: str | None, *, is_packed: bool = False) -> None:
        self._handle, self._folder, self._is_packed = handle, state, is_packed

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._manifest = handle.getValueState("shard", MANIFEST)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Apply the frames of a shard in one micro-batch."""
        (number,), job = key, self._handle.job
        report = ShardReport(shard=keys_of(job.shards).index(number))
        frames = [frame for some in rows for frame in _frames(some)]
        for updates in freezing_gc(self._answer(report, frames)):
            if not len(updates):
                continue
            if job.moves:
                yield _columns(addressed(updates, number, keys_of(job.shards), job.scoring.hash_key))
            else:
                yield packed_row(updates) if self._is_packed else _columns(updates)

    def _answer(self, report: ShardReport, frames: list[Frame]) -> Iterator[pa.Table]:
        job = self._handle.job
        if self._folder is None:  # a static run is a single batch without state
            engine = job.new_shard_engine()
            yield from apply(engine, frames, shard=report.shard, job=job, counts=report)
            report.subscriptions = len(engine)
            return
        query, shard = _property(_QUERY), report.shard
        folder = Folder(f"{self._folder}/{query}")
        local = Path(job.local or SparkFiles.getRootDirectory()) / "nearcast"
        place = local / query / job.fingerprint / str(shard)
        with LocalEngineCache(place, job.config, job.shard_engine) as engine_cache:
            state = ShardState(job, folder, engine_cache, shard)
            clock = [perf_counter()]
            stored = self._manifest.get()
            if stored is None:  # a new query: what others have left is removed
                remove_unused(local, before=time() - UNUSED_S)
            before = ShardManifest() if stored is None else ShardManifest(*stored)
            engine = state.open(before)
            if job.is_clocked:
                frames = with_time(frames, engine.now_us, max_ahead_s=job.ahead_s)
            clock.append(perf_counter())
            yield from apply(engine, frames, shard=shard, job=job, counts=report)
            report.subscriptions = len(engine)
            clock.append(perf_counter())
            after = state.write(before, frames, engine)
            clock.append(perf_counter())
            after = state.close(after._replace(messages=before.messages + report.messages), engine)
            clock.append(perf_counter())
        report.state_bytes = after.log_bytes + after.snapshot_bytes
        report.opening, _, report.logging, report.sealing = (b - a for a, b in pairwise(clock))
        report.seconds = clock[-1] - clock[0]
        batch, written = int(_property(_BATCH)), asdict(report)
        written["rejected"] = len(written.pop("rejections"))
        write_rejections(self._folder, query, batch, shard, report.rejections)
        write_report(folder, batch, shard, written)
        self._manifest.update(after)

    def close(self) -> None:
        """Release nothing."""


def _frames(rows: pd.DataFrame) -> list[Frame]:
    return [
        Frame(source, int(part), int(block), int(n), ats, payload, ends)
        for source, part, block, n, ats, payload, ends in rows[list(Frame._fields)].itertuples(index=False)
    ]


def _property(name: str) -> str:
    """Return a local property that Spark sets for tasks of a streaming query."""
    context = TaskContext.get()
    value = None if context is None else context.getLocalProperty(name)
    if value is None:
        raise StateError(f"the task of a streaming query must have {name}; it has none")
    return value


def addressed(updates: pa.Table, own: int, keys: Sequence[int], hash_key: HashKey) -> pa.Table:
    """Return groups with the key of the joining task, which is the same for all updates of an operation."""
    to = np.full(len(updates), own, np.int32)
    is_caused = np.asarray(pc.is_valid(updates[OP]))
    if is_caused.any():
        names = IdColumn(pc.list_flatten(updates["subscriptions"].filter(pa.array(is_caused))).combine_chunks())
        to[is_caused] = np.array(keys, np.int32)[(names.keys(hash_key) % np.uint64(len(keys))).astype(np.int64)]
    names = groups_schema(bodies=BODY.name in updates.column_names).names
    return updates.append_column("key", pa.array(to)).select([*names, "key", OP])


def packed_row(table: pa.Table) -> pd.DataFrame:
    """Return groups as one row of bytes in Arrow's memory."""
    buffer = pack_buffer(table)
    bounds = pa.py_buffer(np.array([0, buffer.size], dtype=np.int32))
    payload = pa.Array.from_buffers(pa.binary(), 1, [None, bounds, buffer])
    row = {"seq": [table["seq"][0].as_py()], "updates": [count_updates(table)]}
    return pd.DataFrame(row | {"payload": pd.arrays.ArrowExtensionArray(payload)})


def _columns(table: pa.Table) -> pd.DataFrame:
    """Return a table as Spark takes it, its columns in one chunk of Arrow's memory, without an object per row."""
    whole = table.combine_chunks()  # Spark refuses columns of several chunks, which tables of several kinds have
    return pd.DataFrame({name: pd.arrays.ArrowExtensionArray(whole[name]) for name in whole.column_names})
