"""Terms that occur together share a shard; a message goes to the shards of its terms (PS2Stream, section VI-B).

The paper uses the partitioner of S3-TM, which considers the messages of a term and not only their number: terms, the
most expensive first, go where a metric is best. The metric here is the added load (definition 1), among shards with
capacity: a message that a shard sees already, because of another of its terms, adds none. The capacity is halved down
to about the least at which all terms fit, so the busiest shard has as little as possible, and frequent terms without
postings end up together.

Cost: fitting reads each term of each message once per halving, for all shards; placing and routing look up each term.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nearcast.partition.base import Sample
from nearcast.partition.load import CHECK, HANDLE, INSERT, load_of
from nearcast.partition.masks import check_shards, no_shards
from nearcast.partition.term_assignment import TermRouting
from nearcast.partition.text_postings import TermPostings

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

NEAR = 0.005  # down to the least capacity


class TextMetricPartitioner:
    """Keeps terms together that occur together."""

    name = "text_metric"

    def fit(self, sample: Sample, *, n_shards: int) -> TermRouting:
        """Assign the terms of the sample."""
        check_shards(n_shards)
        postings = TermPostings.of(sample)
        shards = gather(postings.message_indptr, postings.message_rows, postings.held, len(sample.messages), n_shards)
        return postings.routing(shards, sample, n_shards)


def gather(message_indptr: Longs, message_rows: Ints, held: Longs, n_messages: int, n_shards: int) -> Ints:
    """Return the shard of each term, given the messages that hold it and the number of branches posted under it.

    >>> messages = np.array([0, 1, 0, 1, 2, 3, 2, 3], np.int32)  # two terms in two messages, and two in two others
    >>> gather(np.array([0, 2, 4, 6, 8]), messages, np.ones(4, np.int64), 4, 2).tolist()
    [0, 0, 1, 1]
    """
    from nearcast.partition._kernels.terms import TermMessages, gather_terms

    costs = load_of(np.diff(message_indptr), held)
    terms = TermMessages(message_indptr, message_rows, held, np.argsort(-costs, kind="stable"))
    seen_by, loads = no_shards(n_messages, n_shards), np.zeros(n_shards)
    best, tried = np.zeros(len(costs), np.int32), np.zeros(len(costs), np.int32)
    low, high = 0.0, float(load_of(n_messages, held.sum()))  # at this capacity one shard takes all
    while high - low > NEAR * high:
        most = (low + high) / 2
        if gather_terms(terms, seen_by, tried, most, loads, (CHECK, HANDLE, INSERT)):
            best, high = tried.copy(), float(loads.max())
        else:
            low = most
    return best
