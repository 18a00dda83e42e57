"""Postings of terms in a sample: the messages that hold a term, and the branches posted under it.

    terms         t0        t1    t2 ...     ascending: all terms of messages, and all with a posted branch
    message_indptr 0         3     4         compressed rows, one per term
    message_rows   0 4 7     2     ...
    held           12        0     1         branches

Cost: fitting sorts the terms of the sample once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nearcast.partition.base import Sample
from nearcast.partition.load import load_of
from nearcast.partition.masks import count_rows
from nearcast.partition.term_assignment import TermAssignment, TermRouting, posting_terms
from nearcast.partition.term_frequencies import TermFrequencies

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TermPostings:
    """Messages and branches of a sample, by term."""

    frequencies: TermFrequencies
    terms: Longs
    message_indptr: Longs
    message_rows: Ints
    """int32 (n,): ascending within a term."""
    held: Longs
    """int64 (n_terms,): number of branches posted under each term."""

    @classmethod
    def of(cls, sample: Sample) -> TermPostings:
        """Return the rows of a sample by term."""
        frequencies, messages = TermFrequencies.of(sample.messages), sample.messages
        _, posted = posting_terms(sample.footprints, frequencies)
        terms = np.union1d(frequencies.terms, posted)
        at = np.searchsorted(terms, messages.term_ids)
        rows = np.repeat(np.arange(len(messages), dtype=np.int32), np.diff(messages.term_indptr))
        indptr = np.concatenate([[0], np.cumsum(np.bincount(at, minlength=len(terms)))])
        held = np.bincount(np.searchsorted(terms, posted), minlength=len(terms))
        return cls(frequencies, terms, indptr, rows[np.argsort(at, kind="stable")], held)

    def costs(self) -> Floats:
        """Return the load of each term if it were alone in a shard."""
        return load_of(np.diff(self.message_indptr), self.held)

    def routing(self, shards: Ints, sample: Sample, n_shards: int) -> TermRouting:
        """Return the routing that assigns each term to a shard, with the loads of the sample."""
        routing = TermRouting(
            n_shards, TermAssignment(self.terms, shards, n_shards), self.frequencies, np.zeros(n_shards)
        )
        held, seen = (
            count_rows(masks, n_shards)
            for masks in (routing.place(sample.footprints), routing.route(sample.messages))
        )
        routing.loads[:] = load_of(seen, held)
        return routing
