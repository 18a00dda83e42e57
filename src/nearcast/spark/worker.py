"""The work of a shard in one micro-batch; `shard_operator` is what Spark sends, `shard_run` what a shard does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import SparkFiles
from pyspark.sql import DataFrame

from nearcast.engine.groups import count_updates
from nearcast.jobs.folder import Folder
from nearcast.jobs.frame import (
    OP,
    PACKED,
    REPORTED,
    SUBSCRIPTION,
    UPDATES,
    Frame,
    epoch_of,
    loose_updates,
    pack,
    pack_buffer,
    shard_updates,
    unpack,
)
from nearcast.jobs.job import Job
from nearcast.jobs.merge_run import MergeRun, by_reference
from nearcast.jobs.replica_frames import ReplicaReport
from nearcast.jobs.shard import ShardCounts, apply
from nearcast.jobs.shard_run import ShardRun
from nearcast.jobs.shard_state import MANIFEST, ShardManifest
from nearcast.jobs.static_rejections import rejected_operations
from nearcast.model.columns import BODY, groups_schema
from nearcast.model.id_column import IdColumn
from nearcast.spark.batch_epoch import query_and_batch
from nearcast.spark.decode import REJECTED, rejected_rows
from nearcast.spark.freeze_gc import freezing_gc
from nearcast.spark.job_handle import JobHandle
from nearcast.spark.merge_operator import MergeOperator
from nearcast.spark.shard_keys import keys_of, shard_of
from nearcast.spark.shard_operator import ShardOperator
from nearcast.text import HashKey


def work(frames: DataFrame, handle: JobHandle, *, is_packed: bool = False) -> DataFrame:
    """Apply the frames of all shards and return updates, in rows or packed."""
    return frames.groupBy("key").transformWithStateInPandas(
        statefulProcessor=ShardOperator(handle, manifest=MANIFEST, is_packed=is_packed),
        outputStructType=_output(handle.job, is_packed=is_packed),
        outputMode="Append",
        timeMode="none",
    )


def _output(job: Job, *, is_packed: bool) -> str:
    """Return the columns of the output of shards."""
    if job.merges:
        return REPORTED
    if job.moves:
        return loose_updates(bodies=job.config.bodies)
    return PACKED if is_packed else shard_updates(bodies=job.config.bodies)


def reject_operations(frames: DataFrame, handle: JobHandle) -> DataFrame:
    """Return the subscriptions in static frames that shards reject at their place in the order."""

    def rejected(key: tuple[pa.Scalar, ...], table: pa.Table) -> pa.Table:
        job, own = handle.job, [Frame(**row) for row in table.select(list(Frame._fields)).to_pylist()]
        shard = keys_of(job.shards, job.n_tasks).index(key[0].as_py())
        found = rejected_operations(own, job, shard=shard)
        rows, reasons = [rejection.row for rejection in found], [rejection.reason for rejection in found]
        return pa.Table.from_batches([rejected_rows(SUBSCRIPTION, rows, reasons)])

    return frames.groupBy("key").applyInArrow(rejected, REJECTED)


def apply_frames(
    job: Job, number: int, rows: Iterable[pd.DataFrame], manifest: Any, *, is_packed: bool
) -> Iterator[pd.DataFrame]:
    """Apply the frames of a shard, given its key, in one micro-batch; `manifest` is its value in the state store."""
    frames, replicas = [frame for some in rows for frame in _frames(some)], ReplicaReport.new()
    shard = shard_of(number, job.n_tasks)
    if job.state is None:  # a static run is a single batch without state
        engine = job.new_shard_engine()
        updates = apply(engine, frames, shard=shard, job=job, counts=ShardCounts(), replicas=replicas)
    else:
        updates = _streamed(job, shard, frames, manifest, replicas)
    for groups in freezing_gc(updates):
        if not len(groups):
            continue
        if job.merges:
            yield _reported(job, shard % job.n_tasks, Frame(UPDATES, shard, 0, len(groups), None, pack(groups)))
        elif job.moves:
            yield _columns(addressed(groups, number, keys_of(job.n_tasks, job.n_tasks), job.scoring.hash_key))
        else:
            yield packed_row(groups) if is_packed else _columns(groups)
    for partition, frame in replicas.frames(job, shard=shard, epoch=epoch_of(frames)):
        yield _reported(job, partition, _by_reference(job, partition, frame))


def _streamed(
    job: Job, shard: int, frames: list[Frame], manifest: Any, replicas: ReplicaReport
) -> Iterator[pa.Table]:
    """Continue a shard of a stream."""
    query, batch = query_and_batch()
    run = ShardRun(job, shard, frames, query=query, batch=batch, local=_local(job))
    stored = manifest.get()
    yield from run.updates(None if stored is None else ShardManifest(*stored), replicas)
    manifest.update(run.manifest)


def _by_reference(job: Job, partition: int, frame: Frame) -> Frame:
    """Return a frame for a partition of the merge stage; in a stream the rows of a large one are in a file."""
    if job.state is None:
        return frame
    query, batch = query_and_batch()
    return by_reference(Folder(f"{job.state}/{query}"), partition, frame, batch=batch)


def _local(job: Job) -> Path:
    """Return the folder of engines on this host."""
    return Path(job.local or SparkFiles.getRootDirectory()) / "nearcast"


def _reported(job: Job, partition: int, frame: Frame) -> pd.DataFrame:
    """Return a frame for a partition of the merge stage."""
    key = keys_of(job.n_tasks, job.n_tasks)[partition]
    row = (key, frame.source, frame.part, frame.block, frame.rows, frame.payload, frame.epoch, frame.file)
    return pd.DataFrame([row], columns=["key", "source", "part", "block", "rows", "payload", "epoch", "file"])


def merge_replicas(reported: DataFrame, handle: JobHandle, *, is_packed: bool = False) -> DataFrame:
    """Merge what the replicas of all shards report, and return all updates, in rows or packed."""
    bodies = handle.job.config.bodies
    return reported.groupBy("key").transformWithStateInPandas(
        statefulProcessor=MergeOperator(handle, manifest=MANIFEST, is_packed=is_packed),
        outputStructType=PACKED if is_packed else shard_updates(bodies=bodies),
        outputMode="Append",
        timeMode="none",
    )


def merge_frames(
    job: Job, key: int, rows: Iterable[pd.DataFrame], manifest: Any, *, is_packed: bool
) -> Iterator[pd.DataFrame]:
    """Merge the frames of a partition of the merge stage, given its key, in one micro-batch."""
    form, frames = packed_row if is_packed else _columns, list[Frame]()

    def merged() -> Iterator[pa.Table]:
        for some in rows:
            for _, source, part, block, n, payload, epoch, file in some.itertuples(index=False):
                if source == UPDATES:
                    yield unpack(payload)
                else:
                    frames.append(
                        Frame(source, int(part), int(block), int(n), None, payload, None, int(epoch), file or None)
                    )
        if job.state is None:
            from nearcast.jobs.merge_partition import MergePartition  # loads the kernels

            yield from MergePartition.create(job.config).apply(frames)
            return
        query, batch = query_and_batch()
        partition = keys_of(job.n_tasks, job.n_tasks).index(key)
        run, stored = MergeRun(job, partition, frames, query=query, batch=batch, local=_local(job)), manifest.get()
        yield from run.updates(None if stored is None else ShardManifest(*stored))
        if run.manifest is not None:
            manifest.update(run.manifest)

    for groups in freezing_gc(merged()):
        if len(groups):
            yield form(groups)


def _frames(rows: pd.DataFrame) -> list[Frame]:
    return [
        Frame(source, int(part), int(block), int(n), ats, payload, ends, int(epoch), file)
        for source, part, block, n, ats, payload, ends, epoch, file in rows[list(Frame._fields)].itertuples(
            index=False
        )
    ]


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
