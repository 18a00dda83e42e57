"""Terms are dealt out by how frequent they are; text alone says who sees a message (PS2Stream, section VI-B).

The dearest term goes first, each to the shard that has least. A term costs what a shard with it alone would do
(definition 1): handle the messages that hold it, and the branches posted under it. That a shard handles a message
once, however many of its terms it has, does not count here; see `text_metric`.

Cost: fitting deals out the terms of the sample; placing and routing look up each term.
"""

from __future__ import annotations

import numpy as np

from nearcast.partition.base import Sample, check_shards
from nearcast.partition.load import assign_greedily
from nearcast.partition.term_assignment import TermRouting
from nearcast.partition.text_postings import TermPostings


class TextFrequencyPartitioner:
    """Deals out terms."""

    name = "text_frequency"

    def fit(self, sample: Sample, *, n_shards: int) -> TermRouting:
        """Count the terms of the sample, and deal them out."""
        check_shards(n_shards)
        postings = TermPostings.of(sample)
        return postings.routing(assign_greedily(postings.costs(), np.zeros(n_shards)), sample, n_shards)
