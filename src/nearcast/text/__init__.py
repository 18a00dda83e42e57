"""Text: tokens, term ids and term weights."""

from nearcast.text.encode import TermRows, encode_column, encode_texts, hash_column
from nearcast.text.similarity import TEXT_SIMILARITIES, TextSimilarity, dice
from nearcast.text.terms import term_id, term_ids
from nearcast.text.tokenizer import Text, tokenize
from nearcast.text.vocabulary import Vocabulary, add_up, to_units

__all__ = [
    "TEXT_SIMILARITIES",
    "TermRows",
    "Text",
    "TextSimilarity",
    "Vocabulary",
    "add_up",
    "dice",
    "encode_column",
    "encode_texts",
    "hash_column",
    "term_id",
    "term_ids",
    "to_units",
    "tokenize",
]
