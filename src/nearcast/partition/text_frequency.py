"""Terms assigned by frequency; a message goes to the shards of its terms (PS2Stream, section VI-B).

The most expensive term comes first, each goes to the least loaded shard. A term costs what a shard with this term
alone would do (definition 1): handle the messages that hold it, and the branches posted under it. A shard handles a
message once, regardless of the number of its terms there; that is ignored here, see `text_metric`.

Cost: fitting assigns the terms of the sample; placing and routing look up each term.
"""

from __future__ import annotations

import numpy as np

from nearcast.partition.base import Sample
from nearcast.partition.load import assign_greedily
from nearcast.partition.masks import check_shards
from nearcast.partition.term_assignment import TermRouting
from nearcast.partition.text_postings import TermPostings


class TextFrequencyPartitioner:
    """Assigns terms."""

    name = "text_frequency"

    def fit(self, sample: Sample, *, n_shards: int) -> TermRouting:
        """Count the terms of the sample and assign them."""
        check_shards(n_shards)
        postings = TermPostings.of(sample)
        return postings.routing(assign_greedily(postings.costs(), np.zeros(n_shards)), sample, n_shards)
