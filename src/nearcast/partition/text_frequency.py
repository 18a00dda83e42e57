"""Terms are dealt out by how frequent they are; text alone says who sees a message (PS2Stream, section VI-B).

The dearest term goes first, each to the shard that has least. A term costs what a shard with it alone would do
(definition 1): handle the messages that hold it, and the branches posted under it. That a shard handles a message
once, however many of its terms it has, does not count here; see `text_metric`.

Cost: fitting deals out the terms of the sample; placing and routing look up each term.
"""

from __future__ import annotations

import numpy as np

from nearcast.partition.base import Sample, check_shards
from nearcast.partition.load import deal
from nearcast.partition.text_postings import Postings
from nearcast.partition.words import WordsRouting


class TextFrequencyPartitioner:
    """Deals out terms."""

    name = "text_frequency"

    def fit(self, sample: Sample, *, n_shards: int) -> WordsRouting:
        """Count the terms of the sample, and deal them out."""
        check_shards(n_shards)
        postings = Postings.of(sample)
        return postings.routing(deal(postings.costs(), np.zeros(n_shards)), sample, n_shards)
