"""Who does which part of the work? The protocol of all partitioners.

    fit(sample)          learn from footprints and messages, once          -> routing
    routing.place        which shard holds each subscription
    routing.route        which rows of a batch each shard must see

They see footprints only: a new kind and a new partitioner never meet.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from nearcast.model import Footprints, MessageBatch


class Sample(NamedTuple):
    """What a partitioner may learn from."""

    footprints: Footprints | None
    messages: MessageBatch | None


class Routing(Protocol):
    """A fitted partitioner."""

    @property
    def n_shards(self) -> int:
        """How many shards there are."""

    @property
    def sends_all(self) -> bool:
        """Whether every message goes to every shard, so that who holds a subscription makes no difference."""

    def place(self, footprints: Footprints) -> npt.NDArray[np.int32]:
        """Return the shard of each subscription."""

    def route(self, batch: MessageBatch) -> list[npt.NDArray[np.int64]]:
        """Return, for each shard, the rows of the batch that may touch what it holds."""


class Partitioner(Protocol):
    """A way to share the work."""

    @property
    def name(self) -> str:
        """How it is called in configurations."""

    def fit(self, sample: Sample, *, n_shards: int) -> Routing:
        """Learn how to share the work among so many shards."""
