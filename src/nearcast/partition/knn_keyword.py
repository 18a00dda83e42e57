"""Subscriptions are dealt out by how often their terms are said; every shard sees every message (DkM-SKS, 3.1).

What a subscription costs is the sum of the shares of messages that hold each of its terms (equation 1; of a branch of
several terms, the rarest counts). The dearest goes first, each to the shard that has least (algorithm 1), and so does
who comes later. Cost: fitting sorts the terms of the sample; a message goes to all shards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nearcast.model import Footprints, MessageBatch
from nearcast.partition.base import Masks, Sample, ToAll, check_shards
from nearcast.partition.homes import Homes

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Spoken:
    """How often terms are said."""

    terms: Longs
    """int64 (n_terms,): the terms of the sampled messages, ascending."""
    shares: Floats
    """float64 (n_terms,): how many of the messages hold each."""

    @classmethod
    def of(cls, messages: MessageBatch) -> Spoken:
        """Count the terms of messages."""
        terms, counts = np.unique(messages.term_ids, return_counts=True)
        return cls(terms, counts / max(1, len(messages)))

    def costs(self, footprints: Footprints) -> Floats:
        """Return what subscriptions cost: the sum of the shares of messages that may hold each of their branches."""
        lengths = np.diff(footprints.term_indptr)
        of_branch = np.ones(len(lengths))  # who needs no term is concerned by all
        if len(footprints.term_ids):
            of_terms = np.zeros(len(footprints.term_ids))
            if len(self.terms):
                at = np.minimum(np.searchsorted(self.terms, footprints.term_ids), len(self.terms) - 1)
                of_terms = np.where(self.terms[at] == footprints.term_ids, self.shares[at], 0.0)
            some = lengths > 0
            of_branch[some] = np.minimum.reduceat(of_terms, footprints.term_indptr[:-1][some])
        totals = np.concatenate([[0.0], np.cumsum(of_branch)])
        costs: Floats = totals[footprints.branch_indptr[1:]] - totals[footprints.branch_indptr[:-1]]
        return np.maximum(costs, 0.0)


@dataclass(frozen=True)
class KnnKeywordRouting(ToAll):
    """Subscriptions by what they cost, messages to all."""

    n_shards: int
    spoken: Spoken
    homes: Homes

    @property
    def loads(self) -> Floats:
        """The sum of what its subscriptions cost, of each shard."""
        return self.homes.loads

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
