"""What shards send to the partitions of the merge stage, as frames: what replicas hold, and how that changes.

    source     "replicas": what all replicas of a shard hold when an epoch begins; so is a snapshot of a partition
               "changes": what happened to replicas in a batch, see `nearcast.engine.replica_log`
    part       the shard
    payload    three Arrow streams: steps, messages that enter, rows; then one per kind with subscriptions that begin

A partition has the subscriptions whose key it is modulo the number of partitions, which never changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.engine.replica_log import BEGIN, ENTER, LEAVE, STEPS, ReplicaLog, ReplicaMessages, ReplicaRows
from nearcast.jobs.frame import Frame, pack
from nearcast.jobs.job import Job
from nearcast.model import IdColumn
from nearcast.model.columns import one_array

Longs = npt.NDArray[np.int64]

REPLICAS, CHANGES = "replicas", "changes"
_STEPS = pa.schema({name: pa.int64() for name in STEPS})
_MESSAGES = pa.schema({"seq": pa.int64(), "message": pa.string(), "body": pa.string()})
_ROWS = pa.schema(
    {"kind": pa.string(), "step": pa.int32(), "event": pa.int8(), "subscription": pa.string(), "score": pa.float64(),
     "seq": pa.int64()}
)  # fmt: skip
_KIND = b"kind"


class ReplicaReport(NamedTuple):
    """What a shard reports of its replicas in a batch."""

    held: ReplicaLog
    """What they hold when an epoch begins."""
    changes: ReplicaLog

    @classmethod
    def new(cls) -> ReplicaReport:
        """Return an empty report."""
        return cls(ReplicaLog(), ReplicaLog())

    def frames(self, job: Job, *, shard: int, epoch: int) -> Iterator[tuple[int, Frame]]:
        """Take what was reported, and yield it as frames, each with its partition."""
        partitions = np.uint64(job.n_tasks)
        for source, log in ((REPLICAS, self.held), (CHANGES, self.changes)):
            rows, messages = log.take()
            if not rows:
                continue
            whole = ReplicaChanges.of(rows, messages)
            keys = IdColumn(one_array(whole.rows["subscription"])).keys(job.scoring.hash_key)
            to = (keys % partitions).astype(np.int64)
            for partition in np.unique(to).tolist():
                part = whole.take(np.flatnonzero(to == partition))
                yield partition, Frame(source, shard, 0, len(part.rows), None, part.packed(), epoch=epoch)


class ReplicaChanges(NamedTuple):
    """Rows of replicas as tables; `step` is a row of the steps, and `seq` of a `BEGIN` one of the subscriptions."""

    steps: pa.Table
    messages: pa.Table
    rows: pa.Table
    begun: dict[str, pa.Table]
    """The stored subscriptions that begin, by kind."""

    @classmethod
    def of(cls, rows: Sequence[ReplicaRows], messages: Sequence[ReplicaMessages]) -> ReplicaChanges:
        """Return what a log has taken as tables."""
        begun: dict[str, list[pa.Table]] = {}
        tables, first = [], 0
        for part in rows:
            seqs = part.seqs
            if part.begun is not None:
                own = begun.setdefault(part.kind.kind, [])
                seqs = seqs + sum(map(len, own))
                own.append(part.begun)
            n = len(part.events)
            columns = [pa.array([part.kind.kind]).take(pa.array(np.zeros(n, np.int32)))]
            columns += [pa.array(np.arange(first, first + n, dtype=np.int32)), pa.array(part.events)]
            columns += [part.subscriptions, pa.array(part.scores), pa.array(seqs)]
            tables.append(pa.Table.from_arrays(columns, schema=_ROWS))
            first += n
        table = pa.concat_tables(tables).combine_chunks()
        steps = _steps_table(np.concatenate([part.steps for part in rows]))
        made = cls(steps, _messages_table(messages), table, {k: _whole(v) for k, v in begun.items()})._compact()
        are_parts = np.repeat([part.are_parts for part in rows], [len(part.events) for part in rows])
        return made._replace(rows=_net(made.rows, np.flatnonzero(are_parts)))

    def _compact(self) -> ReplicaChanges:
        """Return the same with every step and message once, and only those that rows mention."""
        rows = self.rows
        at = rows["step"].to_numpy()
        steps = np.column_stack([self.steps[name].to_numpy() for name in STEPS])[at]
        begins = np.concatenate([[True], (steps[1:] != steps[:-1]).any(axis=1)])[
            : len(steps)
        ]  # most rows are in order
        once, step = np.unique(steps[begins], axis=0, return_inverse=True)
        step = step.reshape(-1)[np.cumsum(begins) - 1].astype(np.int32)
        rows = rows.set_column(1, _ROWS.field("step"), pa.array(step))
        entering = np.unique(rows["seq"].to_numpy()[rows["event"].to_numpy() == ENTER])
        seqs, first = np.unique(self.messages["seq"].to_numpy(), return_index=True)
        messages = self.messages.take(pa.array(first[np.isin(seqs, entering, assume_unique=True)]))
        return self._replace(steps=_steps_table(once), messages=messages.combine_chunks(), rows=rows)

    def take(self, chosen: Longs) -> ReplicaChanges:
        """Return some of the rows, with what they mention."""
        if len(chosen) == len(self.rows):
            return self
        rows = self.rows.take(pa.array(chosen)).combine_chunks()
        seqs, events = rows["seq"].to_numpy().copy(), rows["event"].to_numpy()
        kinds = rows["kind"].to_numpy(zero_copy_only=False)
        begun = {}
        for kind, table in self.begun.items():
            own = np.flatnonzero((events == BEGIN) & (kinds == kind))
            if len(own):
                begun[kind] = table.take(pa.array(seqs[own]))
                seqs[own] = np.arange(len(own))
        rows = rows.set_column(5, _ROWS.field("seq"), pa.array(seqs))
        return self._replace(rows=rows, begun=begun)._compact()

    def packed(self) -> bytes:
        """Return the tables as bytes."""
        begun = (table.replace_schema_metadata({_KIND: kind}) for kind, table in self.begun.items())
        rows = self.rows.set_column(0, "kind", self.rows["kind"].dictionary_encode())
        rows = rows.set_column(3, "subscription", rows["subscription"].dictionary_encode())
        return b"".join(pack(table) for table in (self.steps, self.messages, rows, *begun))

    @classmethod
    def unpack(cls, payload: bytes) -> ReplicaChanges:
        """Return the tables that bytes hold."""
        reader, tables = pa.BufferReader(payload), []
        while reader.tell() < reader.size():
            tables.append(pa.ipc.open_stream(reader).read_all())
        steps, messages, rows, *begun = tables
        by_kind = {table.schema.metadata[_KIND].decode(): table.replace_schema_metadata(None) for table in begun}
        return cls(steps, messages, rows.cast(_ROWS), by_kind)

    @classmethod
    def joined(cls, parts: Sequence[ReplicaChanges]) -> ReplicaChanges:
        """Concatenate the rows of several shards; every step and message is there once, steps in order."""
        n_steps = np.cumsum([0, *(len(part.steps) for part in parts)])
        begun: dict[str, list[pa.Table]] = {}
        tables = []
        for part, first in zip(parts, n_steps.tolist(), strict=False):
            rows, kinds = part.rows, part.rows["kind"].to_numpy(zero_copy_only=False)
            seqs, begins = rows["seq"].to_numpy().copy(), rows["event"].to_numpy() == BEGIN
            for kind, table in part.begun.items():
                own = begun.setdefault(kind, [])
                seqs[begins & (kinds == kind)] += sum(map(len, own))
                own.append(table)
            steps = pa.array((rows["step"].to_numpy() + first).astype(np.int32))
            rows = rows.set_column(1, _ROWS.field("step"), steps)
            tables.append(rows.set_column(5, _ROWS.field("seq"), pa.array(seqs)))
        return cls(
            _whole([part.steps for part in parts]),
            _whole([part.messages for part in parts]),
            _whole(tables),
            {kind: _whole(some) for kind, some in begun.items()},
        )._compact()


def _net(rows: pa.Table, parts: Longs) -> pa.Table:
    """Return rows with the net effect of those that are parts of steps.

    Of the rows of one message, result and step, the first counts if the message leaves, and the last if it enters.
    """
    if not len(parts):
        return rows
    codes = one_array(rows["subscription"]).dictionary_encode().indices.to_numpy()[parts]
    steps, seqs, events = (rows[name].to_numpy()[parts] for name in ("step", "seq", "event"))
    order = np.lexsort((seqs, codes, steps))  # stable
    key = np.stack([seqs, codes, steps])[:, order]
    differs = (key[:, 1:] != key[:, :-1]).any(axis=0)
    is_first, is_last = np.concatenate([[True], differs]), np.concatenate([differs, [True]])
    counts = (is_first & (events[order] == LEAVE)) | (is_last & (events[order] == ENTER))
    kept = np.ones(len(rows), np.bool_)
    kept[parts[order[~counts]]] = False
    return rows.filter(pa.array(kept))


def _steps_table(steps: Longs) -> pa.Table:
    columns = [pa.array(np.ascontiguousarray(column)) for column in steps.T]
    return pa.Table.from_arrays(columns, schema=_STEPS)


def _messages_table(messages: Sequence[ReplicaMessages]) -> pa.Table:
    tables = [_MESSAGES.empty_table()]
    for part in messages:
        bodies = pa.nulls(len(part.seqs), pa.string()) if part.bodies is None else part.bodies
        tables.append(pa.table([pa.array(part.seqs), part.ids, bodies], schema=_MESSAGES))
    return _whole(tables)


def _whole(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).combine_chunks()
