"""What shards send to the partitions of the merge stage, as frames: what replicas hold, and how that changes.

    source     "replicas": what all replicas of a shard hold when an epoch begins; so is a snapshot of a partition
               "changes": what happened to replicas in a batch, see `nearcast.engine.replica_log`
    part       the shard
    payload    four Arrow streams: steps, messages that enter, names of subscriptions, and rows, which refer to these
               by number; then one per kind with subscriptions that begin

A partition has the subscriptions whose key it is modulo the number of partitions, which never changes. Rows are
numbers until updates are made of them: strings are looked up once per subscription and message, not once per row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.engine.distinct_numbers import distinct, distinct_seqs
from nearcast.engine.replica_log import (
    BEGIN,
    ENTER,
    LEAVE,
    STEPS,
    ReplicaLog,
    ReplicaMessages,
    ReplicaRows,
)
from nearcast.jobs.frame import Frame, pack
from nearcast.jobs.job import Job
from nearcast.model import IdColumn
from nearcast.model.columns import one_array

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

REPLICAS, CHANGES = "replicas", "changes"
_STEPS = pa.schema({name: pa.int64() for name in STEPS})
_MESSAGES = pa.schema({"seq": pa.int64(), "message": pa.string(), "body": pa.string()})
_NAMES = pa.schema({"subscription": pa.string()})
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
        for source, log in ((REPLICAS, self.held), (CHANGES, self.changes)):
            rows, messages = log.take()
            if not rows:
                continue
            whole = ReplicaChanges.of(rows, messages)
            keys = IdColumn(whole.names).keys(job.scoring.hash_key)
            to = (keys % np.uint64(job.n_tasks)).astype(np.int64)
            for partition in np.unique(to).tolist():
                part = whole.of_names(to == partition)
                yield partition, Frame(source, shard, 0, len(part.rows), None, part.packed(), epoch=epoch)


@dataclass(frozen=True)
class ReplicaColumns:
    """The rows of replicas as columns of numbers."""

    kinds: npt.NDArray[np.int8]
    """The place of each kind among the names of kinds, in alphabetical order."""
    steps: npt.NDArray[np.int32]
    events: npt.NDArray[np.int8]
    names: npt.NDArray[np.int32]
    scores: npt.NDArray[np.float64]
    seqs: Longs
    """Of a message that enters or leaves, its seq; of a subscription that begins, its row among those of its kind."""

    def __len__(self) -> int:
        return len(self.steps)

    def take(self, rows: Longs | Flags) -> ReplicaColumns:
        """Return some rows."""
        return ReplicaColumns(*(getattr(self, field.name)[rows] for field in fields(self)))

    @classmethod
    def joined(cls, parts: Sequence[ReplicaColumns]) -> ReplicaColumns:
        """Concatenate rows."""
        columns = ([getattr(part, field.name) for part in parts] for field in fields(cls))
        return cls(*(np.concatenate(column) for column in columns))

    def table(self) -> pa.Table:
        """Return the rows as a table."""
        return pa.table({field.name: np.ascontiguousarray(getattr(self, field.name)) for field in fields(self)})

    @classmethod
    def from_table(cls, table: pa.Table) -> ReplicaColumns:
        """Return the rows of a table."""
        return cls(*(table[field.name].to_numpy() for field in fields(cls)))


class ReplicaChanges(NamedTuple):
    """Rows of replicas, with what they refer to."""

    steps: pa.Table
    """Distinct, in order."""
    messages: pa.Table
    """Distinct, by seq."""
    names: pa.StringArray
    """The ids of subscriptions, distinct."""
    kinds: tuple[str, ...]
    """The names of kinds, in alphabetical order."""
    rows: ReplicaColumns
    begun: dict[str, pa.Table]
    """The stored subscriptions that begin, by kind."""

    @classmethod
    def of(cls, rows: Sequence[ReplicaRows], messages: Sequence[ReplicaMessages]) -> ReplicaChanges:
        """Return what a log has taken."""
        parts = []
        for part in rows:
            kind, n = part.kind.kind, len(part.events)
            columns = ReplicaColumns(
                np.zeros(n, np.int8),
                part.step_rows.astype(np.int32),
                part.events,
                part.name_rows.astype(np.int32),
                part.scores,
                part.seqs,
            )
            begun = {} if part.begun is None else {kind: part.begun}
            parts.append(cls(_steps_table(part.steps), _messages_table([]), part.names, (kind,), columns, begun))
        made = cls.joined(parts, [_messages_table(messages)])
        are_parts = np.repeat([part.are_parts for part in rows], [len(part.events) for part in rows])
        return made._replace(rows=_net(made.rows, np.flatnonzero(are_parts)))

    @classmethod
    def joined(cls, parts: Sequence[ReplicaChanges], messages: Sequence[pa.Table] = ()) -> ReplicaChanges:
        """Concatenate rows, and let them refer to every step, message and name once."""
        kinds = tuple(sorted({kind for part in parts for kind in part.kinds}))
        steps, of_steps = np.unique(
            np.concatenate([_matrix(part.steps) for part in parts]), axis=0, return_inverse=True
        )
        names = pa.concat_arrays([part.names for part in parts]).dictionary_encode()
        of_names, of_steps = names.indices.to_numpy(), of_steps.reshape(-1)
        first_step = first_name = 0
        columns, begun = [], dict[str, list[pa.Table]]()
        for part in parts:
            rows, seqs = part.rows, part.rows.seqs
            numbers = np.array([kinds.index(kind) for kind in part.kinds], np.int8)
            for number, kind in enumerate(part.kinds):
                if kind in part.begun:
                    own = begun.setdefault(kind, [])
                    seqs = seqs + sum(map(len, own)) * ((rows.kinds == number) & (rows.events == BEGIN))
                    own.append(part.begun[kind])
            columns.append(
                ReplicaColumns(
                    numbers[rows.kinds],
                    of_steps[first_step:][rows.steps].astype(np.int32),
                    rows.events,
                    of_names[first_name:][rows.names],
                    rows.scores,
                    seqs,
                )
            )
            first_step, first_name = first_step + len(part.steps), first_name + len(part.names)
        table = pa.concat_tables([*(part.messages for part in parts), *messages]).combine_chunks()
        _, first = np.unique(table["seq"].to_numpy(), return_index=True)
        return cls(
            _steps_table(steps),
            table.take(pa.array(first)).combine_chunks(),
            names.dictionary,
            kinds,
            ReplicaColumns.joined(columns),
            {kind: _whole(some) for kind, some in begun.items()},
        )

    def of_names(self, are_chosen: Flags) -> ReplicaChanges:
        """Return the rows of some subscriptions, with what they refer to."""
        if are_chosen.all():
            return self
        rows = self.rows.take(np.flatnonzero(are_chosen[self.rows.names]))
        seqs, begun = rows.seqs, {}
        for number, kind in enumerate(self.kinds):
            own = np.flatnonzero((rows.events == BEGIN) & (rows.kinds == number))
            if len(own):
                begun[kind] = self.begun[kind].take(pa.array(seqs[own]))
                seqs[own] = np.arange(len(own))
        steps, of_rows = distinct(rows.steps)
        known = self.messages["seq"].to_numpy()
        are_mentioned = np.zeros(len(known), np.bool_)
        entering, _ = distinct_seqs(seqs[rows.events == ENTER])
        are_mentioned[np.searchsorted(known, entering)] = True
        number_of = (np.cumsum(are_chosen) - 1).astype(np.int32)
        return self._replace(
            steps=self.steps.take(pa.array(steps)).combine_chunks(),
            messages=self.messages.filter(pa.array(are_mentioned)).combine_chunks(),
            names=self.names.filter(pa.array(are_chosen)),
            rows=ReplicaColumns(
                rows.kinds, of_rows.astype(np.int32), rows.events, number_of[rows.names], rows.scores, seqs
            ),
            begun=begun,
        )

    def packed(self) -> bytes:
        """Return all as bytes."""
        names = pa.Table.from_arrays([self.names], schema=_NAMES)
        rows = self.rows.table().replace_schema_metadata({_KIND: " ".join(self.kinds)})
        begun = (table.replace_schema_metadata({_KIND: kind}) for kind, table in self.begun.items())
        return b"".join(pack(table) for table in (self.steps, self.messages, names, rows, *begun))

    @classmethod
    def unpack(cls, payload: bytes) -> ReplicaChanges:
        """Return what bytes hold."""
        reader, tables = pa.BufferReader(payload), []
        while reader.tell() < reader.size():
            tables.append(pa.ipc.open_stream(reader).read_all())
        steps, messages, names, rows, *begun = tables
        by_kind = {table.schema.metadata[_KIND].decode(): table.replace_schema_metadata(None) for table in begun}
        kinds = tuple(rows.schema.metadata[_KIND].decode().split())
        return cls(steps, messages, one_array(names["subscription"]), kinds, ReplicaColumns.from_table(rows), by_kind)


def _net(rows: ReplicaColumns, parts: Longs) -> ReplicaColumns:
    """Return rows with the net effect of those that are parts of steps.

    Of the rows of one message, result and step, the first counts if the message leaves, and the last if it enters.
    """
    if not len(parts):
        return rows
    names, steps, seqs, events = (column[parts] for column in (rows.names, rows.steps, rows.seqs, rows.events))
    order = np.lexsort((seqs, names, steps))  # stable
    key = np.stack([seqs, names, steps])[:, order]
    differs = (key[:, 1:] != key[:, :-1]).any(axis=0)
    is_first, is_last = np.concatenate([[True], differs]), np.concatenate([differs, [True]])
    counts = (is_first & (events[order] == LEAVE)) | (is_last & (events[order] == ENTER))
    kept = np.ones(len(rows), np.bool_)
    kept[parts[order[~counts]]] = False
    return rows.take(kept)


def _matrix(steps: pa.Table) -> Longs:
    return np.column_stack([steps[name].to_numpy() for name in STEPS])


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
