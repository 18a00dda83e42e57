"""Frequencies of terms in the messages of a sample, and the cost of subscriptions by them (DkM-SKS, equation 1).

For a branch of several terms, the rarest counts; a subscription that needs no term depends on all messages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nearcast.model import Footprints, MessageBatch

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TermFrequencies:
    """Frequencies of terms."""

    terms: Longs
    """int64 (n_terms,): the terms of the sampled messages, ascending."""
    shares: Floats
    """float64 (n_terms,): the share of messages that hold each term."""
    least: float
    """The least cost of a subscription, even if its terms occur in no message: about one message of the sample."""

    @classmethod
    def of(cls, messages: MessageBatch) -> TermFrequencies:
        """Count the terms of messages."""
        terms, counts = np.unique(messages.term_ids, return_counts=True)
        return cls(terms, counts / max(1, len(messages)), 1.0 / (len(messages) + 1))

    def costs(self, footprints: Footprints, *, shares: Floats | None = None) -> Floats:
        """Return the cost of subscriptions: the sum of the shares of messages that may hold each of their branches.

        `shares` are the shares of messages per term, if not those of the whole sample.
        """
        shares = self.shares if shares is None else shares
        lengths = np.diff(footprints.term_indptr)
        of_branch = np.ones(len(lengths))  # a subscription that needs no term depends on all messages
        if len(footprints.term_ids):
            of_terms = np.zeros(len(footprints.term_ids))
            if len(self.terms):
                at = np.minimum(np.searchsorted(self.terms, footprints.term_ids), len(self.terms) - 1)
                of_terms = np.where(self.terms[at] == footprints.term_ids, shares[at], 0.0)
            some = lengths > 0
            of_branch[some] = np.minimum.reduceat(of_terms, footprints.term_indptr[:-1][some])
        totals = np.concatenate([[0.0], np.cumsum(of_branch)])
        costs: Floats = totals[footprints.branch_indptr[1:]] - totals[footprints.branch_indptr[:-1]]
        return np.maximum(costs, self.least)
