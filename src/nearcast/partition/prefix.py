"""Terms divided as in `keyword`; a subscription lives only with terms that it may still need (DSkype, section 7.3.4).

Once a subscription has k results, a message must hold one of its heavier terms to beat the last of them, however near
it is (definition 12, the loose prefix). The engine, which knows the results, passes footprints without the other
branches, and passes longer ones when a threshold falls.
"""

from __future__ import annotations

from dataclasses import dataclass

from nearcast.partition.base import Sample
from nearcast.partition.keyword import cut_words
from nearcast.partition.masks import check_shards
from nearcast.partition.term_assignment import TermRouting
from nearcast.partition.term_frequencies import TermFrequencies


@dataclass(frozen=True)
class PrefixRouting(TermRouting):
    """Subscriptions by the terms that they may still need, messages by all terms."""

    narrows = True


class PrefixPartitioner:
    """Cuts the terms into runs of equal cost."""

    name = "prefix"

    def fit(self, sample: Sample, *, n_shards: int) -> PrefixRouting:
        """Cut the terms of subscriptions and messages of the sample."""
        check_shards(n_shards)
        frequencies = TermFrequencies.of(sample.messages)
        words, loads = cut_words(sample.footprints, sample.messages, frequencies, n_shards=n_shards)
        return PrefixRouting(n_shards, words, frequencies, loads)
