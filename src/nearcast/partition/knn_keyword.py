"""Subscriptions are dealt out by how often their terms are said; every shard sees every message (DkM-SKS, 3.1).

What a subscription costs is the sum of the shares of messages that hold each of its terms (equation 1; of a branch of
several terms, the rarest counts). The dearest goes first, each to the shard that has least (algorithm 1), and so does
who comes later. Cost: fitting sorts the terms of the sample; a message goes to all shards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nearcast.model import Footprints
from nearcast.partition.base import Masks, Sample, check_shards
from nearcast.partition.homes import Dealt, Homes
from nearcast.partition.spoken import Spoken

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class KnnKeywordRouting(Dealt):
    """Subscriptions by what they cost, messages to all."""

    n_shards: int
    spoken: Spoken
    homes: Homes

    def place(self, footprints: Footprints) -> Masks:
        """Return where it was dealt to, or who has least."""
        return self.homes.place(footprints.keys, lambda rows: self.spoken.costs(footprints.take(rows)))


class KnnKeywordPartitioner:
    """Deals out subscriptions by their terms."""

    name = "knn_keyword"

    def fit(self, sample: Sample, *, n_shards: int) -> KnnKeywordRouting:
        """Count the terms of messages, and deal out the subscriptions."""
        check_shards(n_shards)
        spoken = Spoken.of(sample.messages)
        homes = Homes.dealt(sample.footprints.keys, spoken.costs(sample.footprints), n_shards)
        return KnnKeywordRouting(n_shards, spoken, homes)
