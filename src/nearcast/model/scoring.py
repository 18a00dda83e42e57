"""The context of scores and filters: space, vocabulary, social graph, text function and attributes of an engine."""

from __future__ import annotations

from dataclasses import dataclass

from nearcast.model.attributes import NO_ATTRIBUTES, Attributes
from nearcast.social import SocialGraph
from nearcast.space import Space
from nearcast.text import HashKey, TextSimilarity, Vocabulary


@dataclass(frozen=True)
class ScoringContext:
    """What scores and filters depend on besides the message and the subscription."""

    space: Space
    vocabulary: Vocabulary
    social: SocialGraph
    text_similarity: TextSimilarity
    attributes: Attributes = NO_ATTRIBUTES

    @property
    def hash_key(self) -> HashKey:
        """The key under which terms and ids are hashed."""
        return self.vocabulary.hash_key
