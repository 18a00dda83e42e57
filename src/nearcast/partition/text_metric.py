"""Terms that are said together share a shard; text alone says who sees a message (PS2Stream, section VI-B).

The paper takes the partitioner of S3-TM, which looks at which messages hold a term and not only at how many: terms,
the dearest first, go where a metric is best. The metric here is the load that is added (definition 1), among shards
that have room: a message that a shard sees already, because of another of its terms, adds none. How much room each
has is halved down to about the least in which all terms fit: so the busiest shard has as little as it can, and
frequent terms that nobody asks for end up together.

Cost: fitting looks at each term of each message once a halving, for all shards; placing and routing look up each
term.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nearcast.partition.base import Sample, check_shards
from nearcast.partition.load import CHECK, HANDLE, INSERT, load_of
from nearcast.partition.term_assignment import TermRouting
from nearcast.partition.text_postings import TermPostings

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

NEAR = 0.005  # to the least room


class TextMetricPartitioner:
    """Keeps terms together that are said together."""

    name = "text_metric"

    def fit(self, sample: Sample, *, n_shards: int) -> TermRouting:
        """Give out the terms of the sample."""
        check_shards(n_shards)
        postings = TermPostings.of(sample)
        shards = gather(postings.message_indptr, postings.message_rows, postings.held, len(sample.messages), n_shards)
        return postings.routing(shards, sample, n_shards)


def gather(message_indptr: Longs, message_rows: Ints, held: Longs, n_messages: int, n_shards: int) -> Ints:
    """Return the shard of each term, given the messages that hold it and how many branches are posted under it.

    >>> said_by = np.array([0, 1, 0, 1, 2, 3, 2, 3], np.int32)  # two terms by two messages, and two by two others
    >>> gather(np.array([0, 2, 4, 6, 8]), said_by, np.ones(4, np.int64), 4, 2).tolist()
    [0, 0, 1, 1]
    """
    from nearcast.partition._kernels.terms import TermMessages, gather_terms

    costs = load_of(np.diff(message_indptr), held)
    terms = TermMessages(message_indptr, message_rows, held, np.argsort(-costs, kind="stable"))
    seen_by, loads = np.zeros(n_messages, np.uint64), np.zeros(n_shards)
    best, tried = np.zeros(len(costs), np.int32), np.zeros(len(costs), np.int32)
    low, high = 0.0, float(load_of(n_messages, held.sum()))  # one shard has room for all
    while high - low > NEAR * high:
        most = (low + high) / 2
        if gather_terms(terms, seen_by, tried, most, loads, (CHECK, HANDLE, INSERT)):
            best, high = tried.copy(), float(loads.max())
        else:
            low = most
    return best
