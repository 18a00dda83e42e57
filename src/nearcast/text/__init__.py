"""Text: tokens, term ids and term weights."""

from nearcast.text.analyzer import SIMPLE, Analyzer, analyze, analyzer_names, find_analyzer
from nearcast.text.encode import TermOrder, TermRows, encode_column, encode_texts, hash_column
from nearcast.text.hashing import (
    DEFAULT_HASH_KEY,
    HashKey,
    check_hash_key,
    hash_bytes,
    new_hash_key,
    term_id,
    term_ids,
)
from nearcast.text.highlight import Highlight, highlights_of
from nearcast.text.similarity import TEXT_SIMILARITIES, TextSimilarity, dice
from nearcast.text.tokenizer import Text, tokenize
from nearcast.text.vocabulary import Vocabulary, add_up, to_units

__all__ = [
    "DEFAULT_HASH_KEY",
    "SIMPLE",
    "TEXT_SIMILARITIES",
    "Analyzer",
    "HashKey",
    "Highlight",
    "TermOrder",
    "TermRows",
    "Text",
    "TextSimilarity",
    "Vocabulary",
    "add_up",
    "analyze",
    "analyzer_names",
    "check_hash_key",
    "dice",
    "encode_column",
    "encode_texts",
    "find_analyzer",
    "hash_bytes",
    "hash_column",
    "highlights_of",
    "new_hash_key",
    "term_id",
    "term_ids",
    "to_units",
    "tokenize",
]
