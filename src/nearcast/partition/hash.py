"""Shares subscriptions evenly by the hash of their id; every shard sees every message (DSkype, section 7.3.1).

Nothing has to be learned and no subscription ever moves. Cost: each message goes to all shards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nearcast.model import Footprints, MessageBatch
from nearcast.partition.partitioner import Sample


@dataclass(frozen=True)
class HashRouting:
    """Subscriptions by key, messages to all."""

    n_shards: int
    sends_all = True

    def place(self, footprints: Footprints) -> npt.NDArray[np.int32]:
        """Return the key modulo the number of shards."""
        return (footprints.keys % np.uint64(self.n_shards)).astype(np.int32)

    def route(self, batch: MessageBatch) -> list[npt.NDArray[np.int64]]:
        """Send every row to every shard."""
        return [np.arange(len(batch), dtype=np.int64)] * self.n_shards


class HashPartitioner:
    """The partitioner that needs no sample."""

    name = "hash"

    def fit(self, sample: Sample, *, n_shards: int) -> HashRouting:
        """Learn nothing."""
        return HashRouting(n_shards)
