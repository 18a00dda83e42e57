"""A shard: it applies the frames of one micro-batch, operations and messages in the order of their times.

    edge frames ─────────┐
    subscription frames ─┤                         ┌ operations before the next message ┐
                         ├─ one order, see `order` ┤                                    ├─ updates
    message frames ──────┘                         ├ a run of messages, in chunks       ┤
                                                   └ a retraction, or replacements      ┘

An operation on a kind whose results begin with the window ends a run of messages, because it needs the window as it
is at that point; all others are applied among the messages of a run, see `nearcast.engine.interleaved`. So do
retractions and replacements: they need the subscriptions as they are at that point. A run is published in chunks, so
that its updates fit into memory. No update depends on where runs or chunks end, so shards may divide the stream
differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from time import perf_counter

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.engine.groups import count_updates, group
from nearcast.engine.period_sampler import PeriodSampler
from nearcast.engine.replica_log import MESSAGE_STEP, RETRACTION_STEP
from nearcast.engine.shard_engine import ShardEngine
from nearcast.engine.stream_slice import StreamSlice
from nearcast.errors import InvalidInput
from nearcast.jobs.batch_operations import BatchOperations, uncaused
from nearcast.jobs.batch_time import BatchTime, time_of
from nearcast.jobs.edge_operations import EdgeOperations, reject_unknown
from nearcast.jobs.frame import (
    EDGE,
    MESSAGE,
    MOVE,
    PACKED_MESSAGES,
    SEEN_BY,
    SOURCE_ROW,
    SUBSCRIPTION,
    Frame,
    masks_from_arrow,
    unpack_batch,
)
from nearcast.jobs.job import Job
from nearcast.jobs.message_rows import PUBLISH, REPLACE, RETRACT, are
from nearcast.jobs.moves import apply_moves
from nearcast.jobs.operations import SubscriptionOperations
from nearcast.jobs.order import ends_in_order, in_order
from nearcast.jobs.rejections import Rejection
from nearcast.jobs.replica_frames import ReplicaReport
from nearcast.jobs.validate import to_json
from nearcast.model import Id, IdColumn, MessageBatch
from nearcast.partition import has_shard
from nearcast.text import Vocabulary

CHUNK = 8192
"""The most messages per call of the engine."""

UPDATES_PER_ROW = 1 << 18
"""The number of updates that a chunk of messages should have; they are in memory at once."""

_LAST = np.iinfo(np.int64).max
_FIRST = 64  # messages of the first chunk, whose updates show the right size


@dataclass
class ShardCounts:
    """Counts of one shard in one micro-batch."""

    messages: int = 0
    updates: int = 0
    late: int = 0
    unknown: int = 0
    """Unsubscribe operations for unknown ids, and removals of edges that are not there."""
    rejections: list[Rejection] = field(default_factory=list)
    """The rows that this shard rejected, for all shards."""
    retractions: str = ""
    """One character per retraction of the stream: "1" if this shard has a message under the id, else "0"."""
    visited: int = 0
    """Index entries visited."""
    candidates: int = 0
    """Subscriptions that no bound ruled out."""
    verified: int = 0
    """Subscriptions whose score was computed."""
    moving: float = 0.0
    """Seconds to take what moves from other shards, and to write what moves to them."""


def apply(
    engine: ShardEngine,
    frames: Iterable[Frame],
    *,
    shard: int,
    job: Job,
    counts: ShardCounts,
    sampler: PeriodSampler | None = None,
    replicas: ReplicaReport | None = None,
) -> Iterator[pa.Table]:
    """Apply the frames of one micro-batch, yield groups of updates, and count.

    Where subscriptions may move, groups have a column `OP`, see `frame`. A sampler takes some of the messages. Where
    results of replicas are merged, `replicas` takes what is to be merged, and groups are those of stateless kinds.
    """
    arrived = list(frames)
    report = (replicas or ReplicaReport.new()) if job.merges else None
    engine.replica_log = None
    if moves := [frame for frame in arrived if frame.source == MOVE]:
        started = perf_counter()
        apply_moves(engine, moves, shard=shard, job=job)
        if report is not None:
            engine.replica_log = report.held
            engine.log_replicas()
        counts.moving += perf_counter() - started
    engine.replica_log = None if report is None else report.changes
    before = engine.stats()
    time = time_of(arrived)
    latest_us = None if time is None else time.latest_us
    messages = _Messages([f for f in arrived if f.source == MESSAGE], job.scoring.vocabulary, shard, latest_us)
    if time is not None and shard == 0:
        counts.rejections += messages.rejections(time)
    changed, requested = ([f for f in arrived if f.source == source] for source in (EDGE, SUBSCRIPTION))
    edges = subscriptions = None
    if changed:
        edges = EdgeOperations(changed)
        edges.place(messages.ats_us)
    if requested:
        rows = in_order(requested)
        if job.has_edges:
            rows, rejected = reject_unknown(rows, edges, engine.users, shard=shard)
            counts.rejections += rejected
        subscriptions = SubscriptionOperations(rows, messages.ats_us, engine, shard=shard, job=job)
    operations = BatchOperations(engine, job, edges, subscriptions)
    expired = () if time is None else (_advanced(engine, time, job),)
    for updates in _gathered(chain(expired, _interleave(engine, operations, messages, job, counts, sampler))):
        counts.updates += count_updates(updates)
        yield updates
    counts.messages += len(messages) - messages.n_retractions
    if subscriptions is not None:
        counts.unknown += subscriptions.n_unknown
        counts.rejections += subscriptions.rejections
    counts.unknown += edges.n_unknown if edges and shard == 0 else 0  # every shard receives every edge
    after = engine.stats()
    for name in ("late", "visited", "candidates", "verified"):
        setattr(counts, name, getattr(counts, name) + getattr(after, name) - getattr(before, name))


def _advanced(engine: ShardEngine, time: BatchTime, job: Job) -> pa.Table:
    """Advance the clock of an engine before all else, and return the updates as groups."""
    with engine.at_place(np.array([-1, 0, MESSAGE_STEP, 0])):
        return uncaused(group(engine.advance_to(time.now_us)), job)


def _interleave(
    engine: ShardEngine,
    operations: BatchOperations,
    messages: _Messages,
    job: Job,
    counts: ShardCounts,
    sampler: PeriodSampler | None,
) -> Iterator[pa.Table]:
    """Apply operations and publish messages in their order; yield the updates of each step."""
    start, size = 0, _FIRST
    seen_by = None if job.routing.sends_all else job.placement.route
    while True:
        yield from operations.apply(start)
        if start == len(messages):
            return
        op, end = messages.op(start), messages.run_until(start)
        if op != PUBLISH:
            end = operations.first_position(end)
            if op == RETRACT:
                with engine.at_place(np.array([start, _LAST, RETRACTION_STEP, 0])):
                    updates = engine.retract_slice(messages.ids(start, end)[0], seen_by)
                counts.retractions += "0" if updates is None else "1"
            else:
                updates = engine.replace_slice(messages.ids(start, end), *messages.slice(start, end), seen_by)
            if updates is not None:
                yield uncaused(group(updates), job)
            start = end
            continue
        end = operations.run_until(start, end)
        operations.begin(start, end)
        while start < end:
            stop = min(start + size, end)
            batch, stream_slice = messages.slice(start, stop)
            updates = engine.publish_slice(batch, stream_slice, grouped=True)
            if sampler is not None:
                sampler.add(batch, stream_slice.seen_by)
            fitting = (stop - start) * UPDATES_PER_ROW // max(1, count_updates(updates))
            start, size = stop, max(1, min(fitting, 2 * size, CHUNK))
            yield uncaused(updates, job)
        yield from operations.end()


def _gathered(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Join small tables of updates, which operations among messages leave: each would be a row for Spark."""
    held: list[pa.Table] = []
    n_held = 0
    for table in tables:
        n = count_updates(table)
        is_large = n > UPDATES_PER_ROW // 8
        if held and (is_large or n_held + n > UPDATES_PER_ROW):
            yield _joined(held)
            held, n_held = [], 0
        if is_large:
            yield table
        elif n:
            held.append(table)
            n_held += n
    if held:
        yield _joined(held)


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()


class _Messages:
    """The rows of messages of a micro-batch, in order; a few thousand at a time are decoded."""

    def __init__(
        self, frames: Sequence[Frame], vocabulary: Vocabulary, shard: int, latest_us: int | None = None
    ) -> None:
        """Put rows into order; those after the latest time are rejected, and no part of the stream."""
        self._vocabulary = vocabulary
        self._first = self._last = 0
        self._decoded = MessageBatch.empty()
        """The rows from `_first` to `_last`."""
        self.ats_us: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        """The time of every row of the stream, also of those for other shards."""
        self._ends_us: npt.NDArray[np.int64] | None = None
        """When every message of the stream expires by a time of its own; None if none does."""
        self._withdrawing: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        """The positions of the rows that retract or replace, which every shard receives."""
        self._retracts = np.zeros(0, np.bool_)
        self._withdrawn = IdColumn.of([])
        self._is_own: npt.NDArray[np.bool_] | None = None
        """Which rows this shard publishes; None if all."""
        self._ahead = PACKED_MESSAGES.empty_table()
        """The rejected rows that this shard received, with their times."""
        if not frames:
            return
        self._table, self._places, self.ats_us = in_order(frames)
        if any(frame.ends is not None for frame in frames):
            self._ends_us = ends_in_order(frames)
        if latest_us is not None:
            self._reject_after(latest_us)
        self._seen_by = masks_from_arrow(self._table, SEEN_BY)
        retracts, replaces = are(RETRACT, self._table), are(REPLACE, self._table)
        rows = np.flatnonzero(retracts | replaces)
        if len(rows):
            self._withdrawing, self._retracts = self._places[rows], retracts[rows]
            self._withdrawn = IdColumn(self._table["id"].take(pa.array(rows)).combine_chunks())
        if self._seen_by is not None:
            self._is_own = has_shard(self._seen_by, shard)

    def __len__(self) -> int:
        return len(self.ats_us)

    def _reject_after(self, latest_us: int) -> None:
        n = int(np.searchsorted(self.ats_us, latest_us, side="right"))
        n_rows = int(np.searchsorted(self._places, n))
        ats_us = self.ats_us[self._places[n_rows:]]
        self._ahead = self._table.slice(n_rows).append_column("at_us", pa.array(ats_us))
        self._table, self._places, self.ats_us = self._table.slice(0, n_rows), self._places[:n_rows], self.ats_us[:n]

    def rejections(self, time: BatchTime) -> Iterator[Rejection]:
        """Yield the messages that are too far ahead of the clock; the first shard receives all of them."""
        rule = f"must be at most {(time.latest_us - time.now_us) / 1e6:g} s ahead of the clock of the job"
        rule = f"{rule}, {time.now_us / 1e6:.3f}"
        names = ["id", "x", "y", "place", "at"]
        for row in self._ahead.to_pylist():
            shown = row.get(SOURCE_ROW) or to_json(row | {"at": row["at_us"]}, names)  # without the text
            error = InvalidInput("at", rule, row["at_us"] / 1e6, subject=f"message {row['id']!r}")
            yield Rejection(MESSAGE, shown, str(error))

    @property
    def n_retractions(self) -> int:
        """Number of rows that are no messages."""
        return int(self._retracts.sum())

    def op(self, position: int) -> str:
        """Return what the row at a position does."""
        row = int(np.searchsorted(self._withdrawing, position))
        if row == len(self._withdrawing) or self._withdrawing[row] > position:
            return PUBLISH
        return RETRACT if self._retracts[row] else REPLACE

    def run_until(self, start: int) -> int:
        """Return the end of the run of rows that do the same as the one at a position; a retraction is alone."""
        op, row = self.op(start), int(np.searchsorted(self._withdrawing, start))
        if op == PUBLISH:
            return int(self._withdrawing[row]) if row < len(self._withdrawing) else len(self)
        if op == RETRACT:
            return start + 1
        others = np.flatnonzero(
            self._retracts[row:] | (np.diff(self._withdrawing[row:], prepend=start - 1) > 1)
        )  # a retraction, or a row after others that publish
        return start + (int(others[0]) if len(others) else len(self._withdrawing) - row)

    def ids(self, start: int, stop: int) -> list[Id]:
        """Return the ids of a run of rows that retract or replace."""
        first = int(np.searchsorted(self._withdrawing, start))
        return self._withdrawn.slice(first, first + stop - start).objects

    def slice(self, start: int, stop: int) -> tuple[MessageBatch, StreamSlice]:
        """Return the messages of a range of the stream that this shard publishes, and their place in it."""
        first, last = np.searchsorted(self._places, (start, stop)).tolist()
        if last > self._last:
            self._first, self._last = first, min(max(last, first + CHUNK), len(self._places))
            rows = self._table.slice(first, self._last - first)
            places = self._places[first : self._last]
            ends_us = None if self._ends_us is None else self._ends_us[places]
            self._decoded = unpack_batch(rows, self.ats_us[places], ends_us, vocabulary=self._vocabulary)
        seen_by = None if self._seen_by is None else self._seen_by[first:last]
        batch, places = self._decoded.slice(first - self._first, last - self._first), self._places[first:last]
        if self._is_own is not None and not self._is_own[first:last].all():
            own = np.flatnonzero(self._is_own[first:last])
            batch, places, seen_by = batch.take(own), places[own], None if seen_by is None else seen_by[own]
        ends_us = None if self._ends_us is None else self._ends_us[start:stop]
        return batch, StreamSlice(places - start, self.ats_us[start:stop], seen_by, ends_us)
