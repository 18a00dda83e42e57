"""Each shard has some words, as in `keyword`; a subscription lives with those it may still need (DSkype, 7.3.4).

Words are cut as there. Once a subscription has k results, a message must hold one of its weightier terms to beat the
last of them, however near it is (definition 12, the loose prefix): the engine, which knows the results, hands over
footprints that have no other branches, and hands them over again when a result falls back and more are needed.
"""

from __future__ import annotations

from dataclasses import dataclass

from nearcast.partition.base import Sample, check_shards
from nearcast.partition.keyword import cut_words
from nearcast.partition.term_assignment import TermRouting
from nearcast.partition.term_frequencies import TermFrequencies


@dataclass(frozen=True)
class PrefixRouting(TermRouting):
    """Subscriptions by the terms they may still need, messages by all terms."""

    narrows = True


class PrefixPartitioner:
    """Cuts the words into runs of equal cost."""

    name = "prefix"

    def fit(self, sample: Sample, *, n_shards: int) -> PrefixRouting:
        """Cut the terms of subscriptions and messages of the sample."""
        check_shards(n_shards)
        frequencies = TermFrequencies.of(sample.messages)
        words, loads = cut_words(sample.footprints, sample.messages, frequencies, n_shards=n_shards)
        return PrefixRouting(n_shards, words, frequencies, loads)
