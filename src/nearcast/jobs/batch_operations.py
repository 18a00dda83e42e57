"""The operations of a micro-batch for one shard, of all sources besides the messages, in one order.

    edges            e1      e2               at equal times before subscriptions
    subscriptions        s1      s2  s3
    messages       m1       m2      m3        after both

A change of an edge ends a run of messages: the results of its users change at that point.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from nearcast.engine.groups import group
from nearcast.engine.shard_engine import ShardEngine
from nearcast.jobs.edge_operations import EdgeOperations
from nearcast.jobs.frame import OP
from nearcast.jobs.job import Job
from nearcast.jobs.operations import SubscriptionOperations


class BatchOperations:
    """Changes of edges and operations on subscriptions, either of which may be missing."""

    def __init__(
        self,
        engine: ShardEngine,
        job: Job,
        edges: EdgeOperations | None,
        subscriptions: SubscriptionOperations | None,
    ) -> None:
        self._engine, self._job, self._edges, self._subscriptions = engine, job, edges, subscriptions

    def apply(self, position: int) -> Iterator[pa.Table]:
        """Apply the operations before the message at a position, and yield their updates as groups."""
        edges, subscriptions = self._edges, self._subscriptions
        while edges is not None and (at_us := edges.first(position)) is not None:
            if subscriptions is not None:
                yield from subscriptions.apply(position, before_us=at_us)
            until_us = None if subscriptions is None else subscriptions.next_us(position)
            yield uncaused(group(edges.apply(self._engine, position, until_us)), self._job)
        if subscriptions is not None:
            yield from subscriptions.apply(position)

    def first_position(self, stop: int) -> int:
        """Return the position of the next operation, `stop` at most."""
        for source in (self._edges, self._subscriptions):
            stop = stop if source is None else source.first_position(stop)
        return stop

    def run_until(self, start: int, stop: int) -> int:
        """Return the end, `stop` at most, of the run of messages from `start` on that no operation divides."""
        stop = stop if self._edges is None else self._edges.first_position(stop)
        return stop if self._subscriptions is None else self._subscriptions.run_until(start, stop)

    def begin(self, start: int, stop: int) -> None:
        """Begin the operations among the messages of such a run."""
        if self._subscriptions is not None:
            self._subscriptions.begin(start, stop)

    def end(self) -> Iterator[pa.Table]:
        """End the operations that have begun, and yield their updates as groups."""
        if self._subscriptions is not None:
            yield from self._subscriptions.end()


def uncaused(updates: pa.Table, job: Job) -> pa.Table:
    """Return groups of updates that no operation on a subscription has caused, as the shard returns them."""
    return updates.append_column(OP, pa.nulls(len(updates), pa.int64())) if job.moves else updates
