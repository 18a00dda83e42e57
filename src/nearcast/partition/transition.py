"""Two routings at once: new subscriptions follow the new one, old ones stay where they are (PS2Stream, section V-B).

    subscription added before step `since`     old.place
    subscription added at that step or later   new.place
    message                                    old.route and new.route, together

A message that touches an old subscription shares a shard with it by the old routing, and one that touches a new
subscription by the new one, so the union of both serves all. When few old subscriptions are left, they move to where
the new routing places them, and it goes on alone; see `balance.refit`. Cost: that of both routings per message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from nearcast.model import Footprints, MessageBatch
from nearcast.partition.base import Routing, ShardArea
from nearcast.partition.masks import Masks, all_shards
from nearcast.space import Box

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class TransitionRouting:
    """A routing for the time between two, both of them fixed and among the same number of shards."""

    old: Routing
    new: Routing
    since: int = 0
    """The number of messages before which subscriptions are old; known once the transition begins."""

    by_key = False
    narrows = False

    @property
    def n_shards(self) -> int:
        """The number of shards."""
        return self.new.n_shards

    @property
    def sends_all(self) -> bool:
        """True if every message goes to every shard."""
        return self.old.sends_all and self.new.sends_all

    @property
    def loads(self) -> npt.NDArray[np.float64]:
        """The loads of the new routing for its sample."""
        return self.new.loads

    def shard_areas(self, bounds: Box) -> list[ShardArea]:
        """Return the areas of the new routing."""
        return self.new.shard_areas(bounds)

    def place(self, footprints: Footprints) -> Masks:
        """Return the shards of new subscriptions."""
        return self.new.place(footprints)

    def place_mixed(self, footprints: Footprints, are_old: Flags) -> Masks:
        """Return the shards of subscriptions, given which of them are old."""
        masks = self.new.place(footprints).copy()
        rows = np.flatnonzero(are_old)
        if len(rows):
            masks[rows] = self.old.place(footprints.take(rows))
        return masks

    def are_old(self, sinces: Longs) -> Flags:
        """Return which subscriptions are old, given the step at which each was added."""
        old: Flags = sinces < self.since
        return old

    def route(self, batch: MessageBatch) -> Masks:
        """Return the shards of each message by either routing."""
        if self.sends_all:
            return all_shards(len(batch), self.n_shards)
        return self.old.route(batch) | self.new.route(batch)

    def fixed(self) -> TransitionRouting:
        """Return the routing itself."""
        return self

    def beginning(self, since: int) -> TransitionRouting:
        """Return the routing with the step at which it begins."""
        return replace(self, since=since)


def place_added(routing: Routing, footprints: Footprints, sinces: Longs) -> Masks:
    """Return the shards of subscriptions, given the step at which each was added."""
    if isinstance(routing, TransitionRouting):
        return routing.place_mixed(footprints, routing.are_old(sinces))
    return routing.place(footprints)


def may_move(*, begins: bool, since: int) -> Callable[[Longs], Flags]:
    """Return a function that says which subscriptions a transition may move when it begins, or when it ends.

    It begins at a step, at which new subscriptions may already be there, and when it ends the old ones are left.
    """
    if begins:
        return lambda sinces: sinces >= since
    return lambda sinces: sinces < since


def are_old(routing: Routing, sinces: Longs) -> Flags:
    """Return which subscriptions stay where an old routing placed them."""
    if isinstance(routing, TransitionRouting):
        return routing.are_old(sinces)
    return np.zeros(len(sinces), np.bool_)
