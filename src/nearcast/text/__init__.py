"""TERMS: from a text to weighted term numbers."""

from nearcast.text.similarity import TEXT_SIMILARITIES, TextSimilarity, dice
from nearcast.text.terms import term_id, term_ids
from nearcast.text.tokenizer import Text, tokenize
from nearcast.text.vocabulary import Vocabulary

__all__ = [
    "TEXT_SIMILARITIES",
    "Text",
    "TextSimilarity",
    "Vocabulary",
    "dice",
    "term_id",
    "term_ids",
    "tokenize",
]
