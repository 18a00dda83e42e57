"""The protocol of partitioners.

    fit(sample)          fit to footprints and messages, once          -> routing
    routing.place        the shards that hold each subscription
    routing.route        the shards that see each message

Partitioners see footprints only, so kinds and partitioners are independent of each other. One rule holds for every
sample: a message that touches the footprint of a subscription shares a shard with it. If they share several, the one
with the lowest number reports the match.

Sets of shards are `masks`: a message and a subscription meet where both have a bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from nearcast.model import Footprints, MessageBatch
from nearcast.partition.masks import Masks, all_shards
from nearcast.space import Box


class Sample(NamedTuple):
    """What a partitioner is fitted to."""

    footprints: Footprints
    messages: MessageBatch

    @classmethod
    def none(cls) -> Sample:
        """Return an empty sample."""
        return cls(Footprints.joined([]), MessageBatch.empty())


class ShardArea(NamedTuple):
    """A part of space."""

    box: tuple[float, float, float, float]
    """xmin, ymin, xmax, ymax."""
    shards: int
    """The shards that own it, bit i for shard i; several where terms divide them further."""


class CellPairs(NamedTuple):
    """Messages or subscriptions with the cells that they are in: the pieces in which a routing divides the work."""

    rows: npt.NDArray[np.int64]
    """int64 (n,): rows of messages or subscriptions."""
    cells: npt.NDArray[np.int32]

    @classmethod
    def distinct(cls, rows: npt.NDArray[np.int64], cells: npt.NDArray[np.integer]) -> CellPairs:
        """Return pairs, each once.

        >>> CellPairs.distinct(np.array([1, 0, 1]), np.array([2, 3, 2])).cells.tolist()
        [3, 2]
        """
        both = np.unique((rows << 32) | cells)
        return cls(both >> 32, (both & 0xFFFFFFFF).astype(np.int32))

    @classmethod
    def joined(cls, parts: Sequence[CellPairs]) -> CellPairs:
        """Concatenate pairs."""
        rows = [np.zeros(0, np.int64), *(part.rows for part in parts)]
        return cls(np.concatenate(rows), np.concatenate([np.zeros(0, np.int32), *(part.cells for part in parts)]))


class Routing(Protocol):
    """A fitted partitioner: a frozen dataclass of numbers and arrays, which `serialization` can save."""

    @property
    def n_shards(self) -> int:
        """The number of shards."""

    @property
    def sends_all(self) -> bool:
        """True if every message goes to every shard, so that placement does not affect updates."""

    @property
    def by_key(self) -> bool:
        """True if the key alone determines the shard of a subscription; an unsubscribe operation has nothing else."""

    @property
    def narrows(self) -> bool:
        """True if a subscription is placed by those branches only that can still bring a result."""

    @property
    def loads(self) -> npt.NDArray[np.float64]:
        """float64 (n_shards,): the load of each shard for the sample, by the partitioner's own measure."""

    def shard_areas(self, bounds: Box) -> list[ShardArea]:
        """Return the parts of space with their shards, for maps; empty if the routing does not divide space."""

    def place(self, footprints: Footprints) -> Masks:
        """Return the shards of each subscription, at least one."""

    def route(self, batch: MessageBatch) -> Masks:
        """Return the shards of each message; none if it touches no subscription.

        Where `sends_all` is true, callers need no masks and do not ask for them.
        """

    def fixed(self) -> Routing:
        """Return a routing whose answers do not depend on what it placed before.

        Windows must hold what later subscriptions need, and some jobs place and route in different processes.
        """


class ToAll:
    """Base class of routings that send every message to every shard and decide placement only."""

    n_shards: int
    sends_all = True
    by_key = False
    narrows = False

    def shard_areas(self, bounds: Box) -> list[ShardArea]:
        """Return no areas; a routing that divides space overrides this."""
        return []

    def route(self, batch: MessageBatch) -> Masks:
        """Send every message to every shard."""
        return all_shards(len(batch), self.n_shards)

    def fixed(self) -> Self:
        """Return the routing itself; one that learns from placements overrides this."""
        return self


class ToSome:
    """Base class of routings that send a message only to shards where it may matter."""

    sends_all = False
    by_key = False
    narrows = False

    def fixed(self) -> Self:
        """Return the routing itself; one that learns from placements overrides this."""
        return self


class Partitioner(Protocol):
    """A way to divide the work.

    One that is registered also has `routing_types`, the dataclasses of its routings, so that they can be saved.
    """

    @property
    def name(self) -> str:
        """The name of the partitioner in configurations."""

    def fit(self, sample: Sample, *, n_shards: int) -> Routing:
        """Return a routing with the given number of shards, fitted to a sample."""
