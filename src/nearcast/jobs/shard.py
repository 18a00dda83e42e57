"""A shard: it applies the frames of one micro-batch, subscriptions first, then messages.

    subscription frames ── by time, else arrival ── rounds of one op ── subscribe, unsubscribe, release ───┐
    message frames ─────── by time, else arrival ── chunks ──────────── publish ───────────────────────────┴─ updates

Rows without a time come first, in the order of arrival; the others follow by time, ties in the order of arrival.
Every shard sees the times of all messages, so all shards put the stream into the same order and number it alike.
Operations on one subscription are applied one by one, so the result does not depend on the other subscriptions of the
shard. Where subscriptions may move, the updates of an operation carry its position: the shard that a subscription
leaves and the one that it enters each report one half.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.engine.groups import count_updates, group
from nearcast.engine.shard_engine import ShardEngine
from nearcast.engine.stream_slice import StreamSlice
from nearcast.jobs.frame import (
    ELSEWHERE,
    MESSAGE,
    OP,
    PLACEMENTS,
    SEEN_BY,
    SUBSCRIPTION,
    Frame,
    masks_from_arrow,
    unpack,
    unpack_batch,
)
from nearcast.jobs.job import Job
from nearcast.jobs.validate import UNSUBSCRIBE
from nearcast.model.columns import GROUPS, subscriptions_schema
from nearcast.model.id_column import IdColumn
from nearcast.partition import before_it, has_shard, place_by_key
from nearcast.text import Vocabulary

CHUNK = 8192
"""The most messages per call of the engine."""

UPDATES_PER_ROW = 1 << 18
"""The number of updates that a chunk of messages should have; they are in memory at once."""

_FIRST = 64  # messages of the first chunk, whose updates show the right size


@dataclass
class ShardCounts:
    """Counts of one shard in one micro-batch."""

    messages: int = 0
    updates: int = 0
    late: int = 0
    unknown: int = 0
    """Unsubscribe operations for unknown ids."""
    visited: int = 0
    """Index entries visited."""
    candidates: int = 0
    """Subscriptions that no bound ruled out."""
    verified: int = 0
    """Subscriptions whose score was computed."""


class _Arrived(NamedTuple):
    """The rows of a source for this shard, in the order of the stream."""

    table: pa.Table
    places: npt.NDArray[np.int64]
    """Position of each row among the rows of all shards."""
    ats_us: npt.NDArray[np.int64]
    """The time of every row of all shards, in order."""


def apply(
    engine: ShardEngine, frames: Iterable[Frame], *, shard: int, job: Job, counts: ShardCounts
) -> Iterator[pa.Table]:
    """Apply the frames of one micro-batch, yield groups of updates, and count."""
    arrived, vocabulary = list(frames), job.scoring.vocabulary
    before = engine.stats()
    steps = (
        _subscribe(engine, [f for f in arrived if f.source == SUBSCRIPTION], shard, job, counts),
        _publish(engine, [f for f in arrived if f.source == MESSAGE], vocabulary, counts),
    )
    for step in steps:
        for updates in step:
            counts.updates += count_updates(updates)
            yield updates
    after = engine.stats()
    for name in ("late", "visited", "candidates", "verified"):
        setattr(counts, name, getattr(counts, name) + getattr(after, name) - getattr(before, name))


def _subscribe(
    engine: ShardEngine, frames: Sequence[Frame], shard: int, job: Job, counts: ShardCounts
) -> Iterator[pa.Table]:
    if not frames:
        return
    table, places, _ = _in_order(frames)
    ops, placements = np.array(table["op"].to_pylist()), masks_from_arrow(table, PLACEMENTS)
    for rows in _rounds(table["id"], ops):
        part = table if len(rows) == len(table) else table.take(pa.array(rows))
        if ops[rows[0]] == UNSUBSCRIBE:
            counts.unknown += _unsubscribe(engine, part["id"], shard, job)
            continue
        if ops[rows[0]] == ELSEWHERE:
            updates = engine.release(part.select(["id"]))
        else:
            before = None if placements is None else before_it(placements[rows], shard)
            updates = engine.subscribe_replicas(part.select(subscriptions_schema().names), before)
        yield _caused(updates, part["id"], places[rows]) if job.moves else group(updates)


def _unsubscribe(engine: ShardEngine, ids: pa.ChunkedArray, shard: int, job: Job) -> int:
    """Remove subscriptions; return the number of unknown ids. If all shards get an operation, the counts add up."""
    listed = ids.to_pylist()
    known = [id_ for id_ in listed if id_ in engine]
    n_here = len(listed)
    if not job.routing.by_key:
        n_here = int(has_shard(place_by_key(IdColumn.of(listed).keys, job.shards), shard).sum())
    before = len(engine)
    engine.unsubscribe(known)
    return n_here - (before - len(engine))


def _caused(updates: pa.Table, ids: pa.ChunkedArray, places: npt.NDArray[np.int64]) -> pa.Table:
    """Return updates as groups of one, with the operations that caused them."""
    n = len(updates)
    ones = pa.array(np.arange(n + 1, dtype=np.int32))
    at = pc.index_in(updates["subscription"], value_set=ids.combine_chunks()).to_numpy()
    lists = {
        "subscriptions": pa.ListArray.from_arrays(ones, updates["subscription"].combine_chunks()),
        "scores": pa.ListArray.from_arrays(ones, updates["score"].combine_chunks()),
    }
    columns = {name: lists[name] if name in lists else updates[name] for name in GROUPS.names}
    return pa.table({**columns, OP: pa.array(places[at])})


def _rounds(ids: pa.ChunkedArray, ops: npt.NDArray[np.str_]) -> Iterator[npt.NDArray[np.int64]]:
    """Yield rows with the same operation and distinct ids; those of one id come in their order.

    Subscriptions are independent of each other, so no other order matters, and few rounds are enough.
    """
    codes = ids.combine_chunks().dictionary_encode().indices.to_numpy()
    by_id = np.argsort(codes, kind="stable")
    is_first = np.diff(codes[by_id], prepend=-1) != 0
    nth = np.empty(len(codes), np.int64)  # occurrence of its id
    nth[by_id] = np.arange(len(codes)) - np.maximum.accumulate(np.where(is_first, np.arange(len(codes)), 0))
    for turn in range(int(nth.max()) + 1):
        for op in np.unique(ops):
            rows = np.flatnonzero((nth == turn) & (ops == op))
            if len(rows):
                yield rows


def _publish(
    engine: ShardEngine, frames: Sequence[Frame], vocabulary: Vocabulary, counts: ShardCounts
) -> Iterator[pa.Table]:
    if not frames:
        return
    table, places, ats_us = _in_order(frames)
    counts.messages += len(ats_us)
    start, size = 0, _FIRST
    while start < len(ats_us):
        stop = min(start + size, len(ats_us))
        first, last = np.searchsorted(places, (start, stop)).tolist()
        own = places[first:last]
        rows = table.slice(first, last - first)
        batch = unpack_batch(rows, ats_us[own], vocabulary=vocabulary)
        stream_slice = StreamSlice(own - start, ats_us[start:stop], masks_from_arrow(rows, SEEN_BY))
        updates = engine.publish_slice(batch, stream_slice, grouped=True)
        yield updates
        fitting = (stop - start) * UPDATES_PER_ROW // max(1, count_updates(updates))
        start, size = stop, max(1, min(fitting, 2 * size, CHUNK))


def _in_order(frames: Sequence[Frame]) -> _Arrived:
    """Concatenate the frames of one source, at least one, in the order of the stream."""
    frames = sorted(frames, key=lambda frame: (frame.part, frame.block))
    ats_us = np.concatenate([frame.ats_us for frame in frames])
    order = np.argsort(ats_us, kind="stable")
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    tables = [unpack(frame.payload) for frame in frames]
    starts = np.cumsum([0, *(frame.rows for frame in frames[:-1])])
    # Blocks are ordered by time first, whichever task packed them, so that mostly nothing is left to sort.
    arrived = [(ranks[table["row"].to_numpy() + start], table) for table, start in zip(tables, starts, strict=True)]
    arrived.sort(key=lambda block: block[0][:1].tolist())
    places = np.concatenate([places for places, _ in arrived])
    # Term counts may be wider in some blocks.
    table = pa.concat_tables([table for _, table in arrived], promote_options="permissive")
    if (np.diff(places) < 0).any():
        by_place = np.argsort(places)
        table, places = table.take(pa.array(by_place)), places[by_place]
    return _Arrived(table, places, ats_us[order])
