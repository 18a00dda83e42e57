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
from nearcast.partition.assignment import AssignedRouting, Assignment
from nearcast.partition.base import Masks, Sample, check_shards
from nearcast.partition.term_frequencies import TermFrequencies

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class KnnKeywordRouting(AssignedRouting):
    """Subscriptions by what they cost, messages to all."""

    n_shards: int
    frequencies: TermFrequencies
    assignment: Assignment

    def place(self, footprints: Footprints) -> Masks:
        """Return where it was dealt to, or who has least."""
        return self.assignment.place(footprints.keys, lambda rows: self.frequencies.costs(footprints.take(rows)))


class KnnKeywordPartitioner:
    """Deals out subscriptions by their terms."""

    name = "knn_keyword"

    def fit(self, sample: Sample, *, n_shards: int) -> KnnKeywordRouting:
        """Count the terms of messages, and deal out the subscriptions."""
        check_shards(n_shards)
        frequencies = TermFrequencies.of(sample.messages)
        assignment = Assignment.assigned(sample.footprints.keys, frequencies.costs(sample.footprints), n_shards)
        return KnnKeywordRouting(n_shards, frequencies, assignment)
