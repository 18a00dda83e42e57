"""Operations on subscriptions among messages, without a cut at each of them.

    messages          1  2  3  4  5  6  7  8  9
    operations            s         s     u             subscribe, replace, unsubscribe: the same id
    versions       ------|---------|-----|              the old one, two new ones, none

Where a result holds only messages that came after the subscription, a version of it depends on those messages alone.
So all versions of a subscription are in the index while the messages are published, and each receives the messages of
its lifetime: from its operation to the next one on the same id. Afterwards the last version of each id stays. The
others are deleted, and the results of those that were replaced leave, at the time of the operation.

Each operation costs what it costs without messages around it: one insert, one delete, or both. Operations on kinds
whose results begin with the window need it as it is at that message, so they divide the messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.engine.matcher import Matcher, Slots
from nearcast.engine.shard import Shard
from nearcast.engine.updates import Form, UpdateWriter
from nearcast.model import IdColumn, ScoringContext, Subscription, SubscriptionBatch, kinds
from nearcast.model.columns import updates_schema
from nearcast.model.subscription_rows import store_table
from nearcast.partition import are_empty
from nearcast.window import Changes, Results, Ticks

if TYPE_CHECKING:
    from nearcast.engine.message_bodies import MessageBodies
    from nearcast.engine.replica_log import ReplicaLog
    from nearcast.partition import Masks

Flags = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


class Operations(NamedTuple):
    """Operations among the next messages of a stream; none is on a kind whose results begin with the window."""

    subscriptions: pa.Table
    """One row per operation, in order, all checked before; where an operation removes, only `id` counts."""
    are_added: Flags
    """bool (n,): True where the operation adds or replaces a subscription, False where it removes one."""
    are_released: Flags
    """bool (n,): True where a removed subscription continues in another engine, so that its result leaves here."""
    positions: Rows
    """int64 (n,): how many of the messages come before each operation, at least one, ascending."""
    ats_us: Rows
    """int64 (n_messages,): the time of every message among which the operations are; NO_TIME where there is none."""
    before: Masks | None
    """The engines before this one that hold an added subscription too, as masks; None if no other does."""
    places: Rows | None = None
    """int64 (n, 4): the place of each operation, see `replica_log`; None unless replicas are logged."""


class Leaves(NamedTuple):
    """The updates of operations."""

    updates: pa.Table
    rows: Rows
    """The operation that caused each."""


class _Versions(NamedTuple):
    """Versions of subscriptions of one kind."""

    kind: type[Subscription]
    slots: Slots
    sinces: Rows
    """The seq after which each is in force."""
    nexts: Rows
    """The operation that ends each; -1 for those that stay."""


class Interleaved:
    """The operations among the messages that an engine of one shard is about to publish."""

    def __init__(
        self,
        operations: Operations,
        scoring: ScoringContext,
        *,
        seq: int,
        nows_us: Rows,
        bodies: MessageBodies | None = None,
        log: ReplicaLog | None = None,
    ) -> None:
        """Prepare operations; `seq` is that of the last message before them, `nows_us` the times of its steps."""
        self._operations, self._scoring, self._bodies, self._log = operations, scoring, bodies, log
        self._ids = IdColumn(operations.subscriptions["id"].combine_chunks())
        self._previous, self._next = _neighbours(self._ids)
        self._seqs = seq + operations.positions
        self._nows_us = nows_us[operations.positions - 1]
        self._last_seq = seq + len(operations.ats_us)
        self._versions: list[_Versions] = []
        self.removed = np.zeros(len(self._ids), np.bool_)
        """Which operations remove a subscription that counts here: it exists, and its first replica is here."""

    def _untils(self, nexts: Rows) -> Rows:
        """Return the last seq of versions, given the operations that end them."""
        return np.where(nexts < 0, self._last_seq, self._seqs[nexts])

    def _added(self) -> Iterator[tuple[SubscriptionBatch, Rows]]:
        """Yield, kind by kind, the subscriptions that operations add and that see a message or stay, and their rows.

        Several may have the same id: a registry stores them as any others, and only finds one of them.
        """
        added = np.flatnonzero(self._operations.are_added)
        added = added[(self._next[added] < 0) | (self._seqs[added] < self._untils(self._next[added]))]
        table = self._operations.subscriptions.take(pa.array(added))
        for kind in kinds():
            own = np.flatnonzero(np.asarray(pc.equal(table["kind"], kind.kind)))
            if len(own):
                stored = store_table(table if len(own) == len(table) else table.take(pa.array(own)), kind)
                yield SubscriptionBatch(kind, stored, self._scoring), added[own]

    def begin(self, shard: Shard) -> None:
        """Insert all versions, and limit each to the messages of its lifetime."""
        are_first = self._find_existing(shard)
        before = self._operations.before
        is_first = np.ones(len(self._ids), np.bool_) if before is None else are_empty(before)
        for batch, rows in self._added():
            slots, _ = shard.matcher(batch.kind).insert(
                batch, self._seqs[rows], None if before is None else before[rows]
            )
            if self._log is not None and batch.kind.result_policy.is_stateful:  # no result begins with the window
                self._log.begin(batch, self._steps(rows), Results.none(), np.zeros(0, np.int64))
            self._versions.append(_Versions(batch.kind, slots, self._seqs[rows], self._next[rows]))
        counts = np.where(self._previous < 0, are_first, (self._operations.are_added & is_first)[self._previous])
        self.removed = counts & ~self._operations.are_added
        for kind in {versions.kind for versions in self._versions}:
            own = [versions for versions in self._versions if versions.kind is kind]
            slots, sinces, nexts = (np.concatenate(columns) for columns in list(zip(*own, strict=True))[1:])
            matcher = shard.matcher(kind)
            matcher.lifetimes.set(slots, sinces=sinces, untils=self._untils(nexts), n_slots=matcher.registry.n_slots)

    def _find_existing(self, shard: Shard) -> Flags:
        """Note the subscriptions that operations replace or remove; return, by row, which count here."""
        firsts = np.flatnonzero(self._previous < 0)
        ids = self._ids.take(firsts)
        are_first = np.zeros(len(self._ids), np.bool_)
        for matcher in shard.matchers.values():
            found = matcher.registry.find(ids)
            slots, rows = found[found >= 0], firsts[found >= 0]
            if len(slots):
                are_first[rows] = matcher.replicas.are_first(slots)
                self._versions.append(_Versions(matcher.kind, slots, matcher.registry.sinces(slots), rows))
        return are_first

    def end(self, shard: Shard) -> Leaves:
        """Delete the versions that do not stay; return the messages that left with those that were replaced."""
        leaves = [Leaves(updates_schema(bodies=self._bodies is not None).empty_table(), np.zeros(0, np.int64))]
        for kind, slots, _, nexts in self._versions:
            matcher = shard.matcher(kind)
            matcher.lifetimes.clear()
            ended, ends = slots[nexts >= 0], nexts[nexts >= 0]
            if kind.result_policy.is_stateful and self._log is not None:
                self._end_replicas(matcher, ended, ends)
            elif kind.result_policy.is_stateful:
                is_reported = (self._operations.are_added | self._operations.are_released)[ends]
                leaves += self._leaves(matcher, ended[is_reported], ends[is_reported])
            if len(ended):
                matcher.delete(ended)
        rows = np.concatenate([part.rows for part in leaves])
        order = np.argsort(rows, kind="stable")
        updates = pa.concat_tables([part.updates for part in leaves])
        return Leaves(updates.take(pa.array(order)) if len(rows) else updates, rows[order])

    def _steps(self, rows: Rows) -> Rows:
        """Return the steps of operations for a log of replicas."""
        assert self._operations.places is not None
        return np.column_stack([self._seqs[rows], self._operations.places[rows], self._nows_us[rows]])

    def _end_replicas(self, matcher: Matcher, slots: Slots, ends: Rows) -> None:
        """Report the versions that do not stay to a log of replicas."""
        assert self._log is not None
        is_reported = (self._operations.are_added | self._operations.are_released)[ends]
        for leaves in (False, True):
            rows = np.flatnonzero(is_reported == leaves)
            ids = matcher.registry.ids(slots[rows])
            self._log.end(matcher.kind, self._steps(ends[rows]), ids, leaves=leaves)

    def _leaves(self, matcher: Matcher, slots: Slots, ends: Rows) -> Iterator[Leaves]:
        """Yield the results of versions as updates of the operations that replaced them."""
        if not len(slots):
            return
        row_of = np.zeros(int(slots.max()) + 1, np.int64)
        row_of[slots] = ends
        writer = UpdateWriter(Ticks(self._seqs, self._nows_us, self._nows_us), Form.TABLE, self._bodies)
        for results in matcher.held(slots):
            rows = row_of[results.slots]
            enters = np.zeros(len(rows), np.bool_)
            changes = Changes(rows, results.slots, enters, results.scores, results.ids, results.seqs, None, 0)
            yield Leaves(writer.write(matcher.registry, changes).updates, rows)


def _neighbours(ids: IdColumn) -> tuple[Rows, Rows]:
    """Return the previous and the next row with the same id; -1 where there is none."""
    codes = ids.strings.dictionary_encode().indices.to_numpy()
    by_id = np.argsort(codes, kind="stable")
    same = codes[by_id[1:]] == codes[by_id[:-1]]
    previous, following = np.full((2, len(codes)), -1, np.int64)
    previous[by_id[1:][same]] = by_id[:-1][same]
    following[by_id[:-1][same]] = by_id[1:][same]
    return previous, following
