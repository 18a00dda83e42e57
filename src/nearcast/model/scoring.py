"""Against what are scores defined? The space, the vocabulary, the social graph and the text function of an engine."""

from __future__ import annotations

from dataclasses import dataclass

from nearcast.social import SocialGraph
from nearcast.space import Space
from nearcast.text import TextSimilarity, Vocabulary


@dataclass(frozen=True)
class ScoringContext:
    """What the reference scores of all kinds depend on, apart from message and subscription."""

    space: Space
    vocabulary: Vocabulary
    social: SocialGraph
    text_similarity: TextSimilarity
