"""Subscriptions assigned by the frequency of their terms; every shard sees every message (DkM-SKS, section 3.1).

A subscription costs the sum of the shares of messages that hold each of its terms (equation 1; for a branch of
several terms, the rarest counts). The most expensive one comes first, each goes to the least loaded shard (algorithm
1), and so do later ones. Cost: fitting sorts the terms of the sample; a message goes to all shards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nearcast.model import Footprints
from nearcast.partition.assignment import AssignedRouting, Assignment
from nearcast.partition.base import Sample
from nearcast.partition.masks import check_shards
from nearcast.partition.term_frequencies import TermFrequencies

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class KnnKeywordRouting(AssignedRouting):
    """Subscriptions by cost, messages to all shards."""

    n_shards: int
    frequencies: TermFrequencies
    assignment: Assignment

    def costs(self, footprints: Footprints) -> Floats:
        """Return what later subscriptions add to the load of a shard."""
        return self.frequencies.costs(footprints)


class KnnKeywordPartitioner:
    """Assigns subscriptions by their terms."""

    name = "knn_keyword"

    def fit(self, sample: Sample, *, n_shards: int) -> KnnKeywordRouting:
        """Count the terms of messages and assign the subscriptions."""
        check_shards(n_shards)
        frequencies = TermFrequencies.of(sample.messages)
        assignment = Assignment.assigned(sample.footprints.keys, frequencies.costs(sample.footprints), n_shards)
        return KnnKeywordRouting(n_shards, frequencies, assignment)
