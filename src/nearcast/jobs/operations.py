"""Subscription operations of a micro-batch for one shard, each at its place among the messages.

    operations at one place ── rounds of one op ── subscribe, unsubscribe, release ────── updates
    operations among messages ── begin ── the messages, in chunks ── end ──────────────── updates

Operations on one subscription are applied one by one, so the result does not depend on the other subscriptions of the
shard. Where subscriptions may move, the updates of an operation carry its position: the shard that a subscription
leaves and the one that it enters each report one half.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.engine.groups import group
from nearcast.engine.interleaved import Interleaved, Operations
from nearcast.engine.replica_log import OPERATION_STEP, places_of
from nearcast.engine.shard_engine import ShardEngine
from nearcast.jobs.frame import ELSEWHERE, OP, PLACEMENTS, masks_from_arrow
from nearcast.jobs.job import Job
from nearcast.jobs.operation_rejections import ends_of, expired_rejections
from nearcast.jobs.order import SourceRows, positions_of
from nearcast.jobs.rejections import Rejection
from nearcast.jobs.validate import SUBSCRIBE, UNSUBSCRIBE
from nearcast.model import NEVER, kinds
from nearcast.model.columns import BODY, groups_schema, subscriptions_schema, updates_schema
from nearcast.model.id_column import IdColumn
from nearcast.partition import before_it, shards_by_key

Rows = npt.NDArray[np.int64]
_NONE: Rows = np.zeros(0, np.int64)

MOST_AMONG = 4096
"""The most operations among the messages of one run; all versions of their subscriptions are in the index at once."""

MOST_VERSIONS = 64
"""The most operations on one id in such a run: a message may match all versions, and at most one counts."""


class SubscriptionOperations:
    """The subscription operations of a micro-batch, applied from the first to the last."""

    def __init__(self, rows: SourceRows, message_ats_us: Rows, engine: ShardEngine, *, shard: int, job: Job) -> None:
        """Find the places of operations, which are in order, among messages of the given times."""
        self._table, self._places = rows.table.combine_chunks(), rows.places
        self._ats_us = rows.ats_us[rows.places]
        self._positions = positions_of(rows, message_ats_us)
        self._message_ats_us = message_ats_us
        self._job, self._shard, self._engine = job, shard, engine
        self._ids = IdColumn(_one_chunk(self._table, "id"))
        self._ops = np.array(self._table["op"].to_pylist(), dtype=object)
        placements = masks_from_arrow(self._table, PLACEMENTS)
        self._before = None if placements is None else before_it(placements, shard)
        self._ends_us = ends_of(self._table)
        self._n_applied = self._first_begun = 0
        self._interleaved: Interleaved | None = None
        self.n_unknown = 0
        """Unsubscribe operations for unknown ids so far; if all shards get an operation, their counts add up."""
        self.rejections: list[Rejection] = []
        """The subscriptions that had expired when they were added, so far, and that this shard reports."""

    @cached_property
    def _codes(self) -> npt.NDArray[np.int32]:
        """A number for each operation, the same for the same id."""
        codes: npt.NDArray[np.int32] = self._ids.strings.dictionary_encode().indices.to_numpy()
        return codes

    @cached_property
    def _cuts(self) -> Rows:
        """The operations that divide messages.

        Before or in this batch the result of their id needs a window, or the subscription that they add expires.
        """
        names = pa.array([kind.kind for kind in kinds() if kind.result_policy.needs_window], pa.string())
        subscribes = np.asarray(pc.is_in(self._table["kind"], value_set=names)) & (self._ops == SUBSCRIBE)
        divides = np.zeros(int(self._codes.max(initial=-1)) + 1, np.bool_)
        divides[self._codes[subscribes | self._engine.are_windowed(self._ids)]] = True
        are_cuts = divides[self._codes]
        return np.flatnonzero(are_cuts if self._ends_us is None else are_cuts | (self._ends_us != NEVER))

    @cached_property
    def _earlier(self) -> Rows:
        """For each operation the one that is `MOST_VERSIONS` operations before it on the same id; -1 for none."""
        by_id, earlier = np.argsort(self._codes, kind="stable"), np.full(len(self._codes), -1, np.int64)
        later, before = by_id[MOST_VERSIONS:], by_id[:-MOST_VERSIONS]
        same = self._codes[later] == self._codes[before]
        earlier[later[same]] = before[same]
        return earlier

    def next_us(self, position: int) -> int | None:
        """Return the time of the next operation before the message at a position; None if there is none."""
        row = self._n_applied
        return int(self._ats_us[row]) if row < len(self._ops) and self._positions[row] <= position else None

    def apply(self, position: int, *, before_us: int | None = None) -> Iterator[pa.Table]:
        """Apply the operations before the message at a position, and before a time if one is given; yield groups."""
        engine, start = self._engine, self._n_applied
        stop = int(np.searchsorted(self._positions, position, side="right"))
        if before_us is not None:
            stop = min(stop, int(np.searchsorted(self._ats_us, before_us, side="left")))
        self._n_applied = stop
        expired = self._reject_expired(start, stop)
        for rows in _rounds(self._ids, self._ops, start, stop):
            if len(expired):
                rows = np.setdiff1d(rows, expired)
                if not len(rows):
                    continue
            part = self._table.slice(start, stop - start)
            if len(rows) < stop - start:
                part = part.take(pa.array(rows - start))
            op = self._ops[rows[0]]
            with engine.at_place(self._places_of(rows), part["id"].combine_chunks()):
                updates = self._apply_round(op, part, rows)
            if len(updates):
                at = pc.index_in(updates["subscription"], value_set=part["id"].combine_chunks()).to_numpy()
                yield self._grouped(updates, self._places[rows[at]])

    def _apply_round(self, op: str, part: pa.Table, rows: Rows) -> pa.Table:
        """Apply operations of one kind on distinct ids, and return the updates."""
        engine = self._engine
        if op == ELSEWHERE:
            return engine.release(part.select(["id"]))
        if op != UNSUBSCRIBE:
            before = None if self._before is None else self._before[rows]
            return engine.subscribe_replicas(part.select(subscriptions_schema().names), before)
        n_before = len(engine)
        engine.unsubscribe([id_ for id_ in part["id"].to_pylist() if id_ in engine])
        self.n_unknown += self._n_counted(rows) - (n_before - len(engine))
        return updates_schema(bodies=self._job.config.bodies).empty_table()

    def _places_of(self, rows: Rows) -> Rows:
        """Return the places of operations for a log of replicas."""
        return places_of(self._positions[rows], self._ats_us[rows], OPERATION_STEP, self._places[rows])

    def _reject_expired(self, start: int, stop: int) -> Rows:
        """Reject the operations of a range whose subscriptions have expired by now, and return them."""
        if self._ends_us is None:
            return _NONE
        now_us = self._engine.now_us
        expired = start + np.flatnonzero(self._ends_us[start:stop] <= now_us)
        if len(expired):
            self.rejections += expired_rejections(self._table.take(pa.array(expired)), now_us, shard=self._shard)
        return expired

    def run_until(self, start: int, stop: int) -> int:
        """Return the end, `stop` at most, of the run of messages from `start` on that no operation divides.

        Operations on kinds that need a window divide them, and so do the ends of subscriptions; `begin` takes all
        other operations, unless these are too many.
        """
        first, last = self._n_applied, int(np.searchsorted(self._positions, stop))
        if first == last:
            return stop
        n_before = self._engine.steps_before_end(self._message_ats_us[start:stop])
        if n_before < stop - start:
            stop = start + max(n_before, 1)
            last = int(np.searchsorted(self._positions, stop))
            if first == last:
                return stop
        ends = [last, first + MOST_AMONG, *self._cuts[np.searchsorted(self._cuts, first) :][:1].tolist()]
        ends += (first + np.flatnonzero(self._earlier[first : min(ends)] >= first)[:1]).tolist()
        return stop if min(ends) == last else int(self._positions[min(ends)])

    def first_position(self, stop: int) -> int:
        """Return the position of the next operation, `stop` at most."""
        following = self._positions[self._n_applied :]
        return min(stop, int(following[0])) if len(following) else stop

    def begin(self, start: int, stop: int) -> None:
        """Begin the operations among the messages of such a run, and count unknown ids."""
        first, last = self._n_applied, int(np.searchsorted(self._positions, stop))
        if first == last:
            return
        self._n_applied, ops = last, self._ops[first:last]
        self._interleaved = self._engine.begin(
            Operations(
                self._table.slice(first, last - first).select(subscriptions_schema().names),
                ops == SUBSCRIBE,
                ops == ELSEWHERE,
                self._positions[first:last] - start,
                self._message_ats_us[start:stop],
                None if self._before is None else self._before[first:last],
                None if self._engine.replica_log is None else self._places_of(np.arange(first, last)),
            )
        )
        unsubscribes = np.flatnonzero(ops == UNSUBSCRIBE)
        self.n_unknown += self._n_counted(first + unsubscribes) - int(self._interleaved.removed[unsubscribes].sum())
        self._first_begun = first

    def end(self) -> Iterator[pa.Table]:
        """End the operations that have begun, and yield their updates as groups."""
        if self._interleaved is None:
            return
        updates, rows = self._engine.end(self._interleaved)
        self._interleaved = None
        if len(updates):
            yield self._grouped(updates, self._places[self._first_begun + rows])

    def _grouped(self, updates: pa.Table, places: Rows) -> pa.Table:
        """Return the updates of operations, given the place of each, as groups."""
        return _caused(updates, places) if self._job.moves else group(updates)

    def _n_counted(self, rows: Rows) -> int:
        """Return how many of some operations are counted in this shard."""
        if self._job.routing.by_key or not len(rows):
            return len(rows)
        keys = self._ids.take(rows).keys(self._job.scoring.hash_key)
        return int(np.count_nonzero(shards_by_key(keys, self._job.shards) == self._shard))


def _rounds(ids: IdColumn, ops: npt.NDArray[np.object_], start: int, stop: int) -> Iterator[Rows]:
    """Yield the given range as rows with the same operation and distinct ids; those of one id come in their order.

    Subscriptions are independent of each other, so no other order matters, and few rounds are enough.
    """
    n = stop - start
    if n <= 1:
        if n:
            yield np.array([start])
        return
    codes = ids.slice(start, stop).strings.dictionary_encode().indices.to_numpy()
    by_id = np.argsort(codes, kind="stable")
    is_first = np.diff(codes[by_id], prepend=-1) != 0
    nth = np.empty(n, np.int64)  # occurrence of its id
    nth[by_id] = np.arange(n) - np.maximum.accumulate(np.where(is_first, np.arange(n), 0))
    own = ops[start:stop]
    for turn in range(int(nth.max()) + 1):
        for op in sorted(set(own.tolist())):
            rows = np.flatnonzero((nth == turn) & (own == op))
            if len(rows):
                yield rows + start


def _caused(updates: pa.Table, places: Rows) -> pa.Table:
    """Return updates as groups of one, with the operations that caused them."""
    ones = pa.array(np.arange(len(updates) + 1, dtype=np.int32))
    lists = {
        "subscriptions": pa.ListArray.from_arrays(ones, updates["subscription"].combine_chunks()),
        "scores": pa.ListArray.from_arrays(ones, updates["score"].combine_chunks()),
    }
    names = groups_schema(bodies=BODY.name in updates.column_names).names
    columns = {name: lists[name] if name in lists else updates[name] for name in names}
    return pa.table({**columns, OP: pa.array(places)})


def _one_chunk(table: pa.Table, name: str) -> pa.Array:
    column = table[name]
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)
