"""Subscriptions by the hash of their id; every shard sees every message (DSkype, section 7.3.1).

It needs no sample, and no subscription ever moves. Cost: each message goes to all shards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nearcast.model import Footprints
from nearcast.partition.base import Sample, ToAll
from nearcast.partition.masks import Masks, check_shards, place_by_key


@dataclass(frozen=True)
class HashRouting(ToAll):
    """Subscriptions by key, messages to all shards."""

    n_shards: int
    by_key = True

    @property
    def loads(self) -> npt.NDArray[np.float64]:
        """Equal loads."""
        return np.ones(self.n_shards)

    def place(self, footprints: Footprints) -> Masks:
        """Return the shard of the key."""
        return place_by_key(footprints.keys, self.n_shards)


class HashPartitioner:
    """The partitioner that needs no sample."""

    name = "hash"

    def fit(self, sample: Sample, *, n_shards: int) -> HashRouting:
        """Return the routing; the sample is ignored."""
        check_shards(n_shards)
        return HashRouting(n_shards)
