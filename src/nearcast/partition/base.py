"""Who does which part of the work? The protocol of all partitioners.

    fit(sample)          learn from footprints and messages, once          -> routing
    routing.place        which shards hold each subscription
    routing.route        which shards must see each message

They see footprints only: a new kind and a new partitioner never meet. What has to hold, whatever was learned from: a
message that may touch a subscription meets it in some shard. It may meet it in several; the first of these, the
lowest number, is the one that answers.

Sets of shards are masks, bit i for shard i: a message and a subscription meet where both have a bit.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from nearcast.errors import require
from nearcast.model import Footprints, MessageBatch
from nearcast.space import Box

Masks = npt.NDArray[np.uint64]
MOST_SHARDS = 64


class Sample(NamedTuple):
    """What a partitioner may learn from."""

    footprints: Footprints
    messages: MessageBatch

    @classmethod
    def none(cls) -> Sample:
        """Nothing to learn from."""
        return cls(Footprints.joined([]), MessageBatch.empty())


class Region(NamedTuple):
    """A part of space."""

    box: tuple[float, float, float, float]
    """xmin, ymin, xmax, ymax."""
    shards: int
    """The mask of those it belongs to: several where terms part them further."""


class Routing(Protocol):
    """A fitted partitioner: a frozen dataclass of numbers and arrays, so that it can be kept (see `saved`)."""

    @property
    def n_shards(self) -> int:
        """How many shards there are."""

    @property
    def sends_all(self) -> bool:
        """Whether every message goes to every shard, so that who holds a subscription makes no difference."""

    @property
    def by_key(self) -> bool:
        """Whether the key alone says where a subscription lives: who leaves a stream has nothing else."""

    @property
    def narrows(self) -> bool:
        """Whether a subscription is placed by those of its branches only that can still bring a result."""

    @property
    def loads(self) -> npt.NDArray[np.float64]:
        """float64 (n_shards,): how much work of the sample each shard has, by the partitioner's own measure."""

    def regions(self, bounds: Box) -> list[Region]:
        """Return which part of space belongs to whom, to be drawn; none where it is not space that is parted."""

    def place(self, footprints: Footprints) -> Masks:
        """Return the shards of each subscription, at least one."""

    def route(self, batch: MessageBatch) -> Masks:
        """Return the shards of each message; none if it touches nobody."""

    def fixed(self) -> Routing:
        """Return a routing that answers alike whatever it placed before.

        Windows hold what those need who come later, and some place and route in different processes.
        """


class ToAll:
    """What routings have in common that send every message to every shard: who holds what is all they decide."""

    n_shards: int
    sends_all = True
    by_key = False
    narrows = False

    def regions(self, bounds: Box) -> list[Region]:
        """Return none: space is not parted, unless the routing says otherwise."""
        return []

    def route(self, batch: MessageBatch) -> Masks:
        """Send every row to every shard."""
        return np.full(len(batch), all_shards(self.n_shards))

    def fixed(self) -> Self:
        """Return itself: it does not learn, unless the routing says otherwise."""
        return self


class ToSome:
    """What routings have in common that send a message where it may matter."""

    sends_all = False
    by_key = False
    narrows = False

    def fixed(self) -> Self:
        """Return itself: it does not learn, unless the routing says otherwise."""
        return self


class Partitioner(Protocol):
    """A way to share the work."""

    @property
    def name(self) -> str:
        """How it is called in configurations."""

    def fit(self, sample: Sample, *, n_shards: int) -> Routing:
        """Learn how to share the work among so many shards."""


def check_shards(n_shards: int) -> None:
    """Raise `InvalidInput` if masks cannot hold so many shards."""
    require(1 <= n_shards <= MOST_SHARDS, "n_shards", f"must be between 1 and {MOST_SHARDS}", n_shards)


def all_shards(n_shards: int) -> np.uint64:
    """Return the mask of all shards.

    >>> int(all_shards(3)), int(all_shards(64)) == 2**64 - 1
    (7, True)
    """
    check_shards(n_shards)
    return np.uint64((1 << n_shards) - 1)


def mask_of(shards: npt.NDArray[np.integer]) -> Masks:
    """Return masks of one shard each.

    >>> mask_of(np.array([0, 3])).tolist()
    [1, 8]
    """
    return np.uint64(1) << shards.astype(np.uint64)


def place_by_key(keys: npt.NDArray[np.uint64], n_shards: int) -> Masks:
    """Return the shard that each key falls on.

    >>> place_by_key(np.array([5, 6], np.uint64), 4).tolist()
    [2, 4]
    """
    return mask_of(keys % np.uint64(n_shards))


def before_it(masks: Masks, shard: int) -> Masks:
    """Return the shards of each mask that come before one.

    >>> before_it(np.array([1, 6, 7], np.uint64), 2).tolist()
    [1, 2, 3]
    """
    return masks & np.uint64((1 << shard) - 1)


def has_shard(masks: Masks, shard: int) -> npt.NDArray[np.bool_]:
    """Tell which masks hold a shard.

    >>> has_shard(np.array([1, 3, 2], np.uint64), 1).tolist()
    [False, True, True]
    """
    held: npt.NDArray[np.bool_] = (masks >> np.uint64(shard)) & np.uint64(1) != 0
    return held
