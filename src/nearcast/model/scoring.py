"""The context of scores: space, vocabulary, social graph and text function of an engine."""

from __future__ import annotations

from dataclasses import dataclass

from nearcast.social import SocialGraph
from nearcast.space import Space
from nearcast.text import HashKey, TextSimilarity, Vocabulary


@dataclass(frozen=True)
class ScoringContext:
    """What the score of a message depends on besides the message and the subscription."""

    space: Space
    vocabulary: Vocabulary
    social: SocialGraph
    text_similarity: TextSimilarity

    @property
    def hash_key(self) -> HashKey:
        """The key under which terms and ids are hashed."""
        return self.vocabulary.hash_key
