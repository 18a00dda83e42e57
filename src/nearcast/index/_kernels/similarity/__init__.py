"""Kernels of `nearcast.index.similarity`: plan a subscription, store its postings, match a batch of messages.

    plan_prefix ──> the terms that are posted, and their reaches     match_rows ──> for each message
    insert_rows, split_term, delete_slots ──> lists and blocks           gather cells, filter lists, verify candidates

All kernels work on one nested NamedTuple, `SimilarityState`; its parts document their fields.
"""

from nearcast.index._kernels.similarity.change import delete_slots, describe_terms, insert_rows, split_term
from nearcast.index._kernels.similarity.layout import (
    DELTA,
    FACET,
    FREE_LIST,
    LENGTH,
    LONGEST,
    MARGIN,
    MAX_LEVELS,
    MIN_SIDE,
    N_LISTS,
    RUN,
    TAU,
    PostingPool,
    SimilarityColumns,
    SimilarityLists,
    SimilarityParams,
    SimilarityRecords,
    SimilarityScratch,
    SimilarityState,
    SimilarityTerms,
)
from nearcast.index._kernels.similarity.match import match_rows
from nearcast.index._kernels.similarity.scores import reach_of_nearness

__all__ = [
    "DELTA",
    "FACET",
    "FREE_LIST",
    "LENGTH",
    "LONGEST",
    "MARGIN",
    "MAX_LEVELS",
    "MIN_SIDE",
    "N_LISTS",
    "RUN",
    "TAU",
    "PostingPool",
    "SimilarityColumns",
    "SimilarityLists",
    "SimilarityParams",
    "SimilarityRecords",
    "SimilarityScratch",
    "SimilarityState",
    "SimilarityTerms",
    "delete_slots",
    "describe_terms",
    "insert_rows",
    "match_rows",
    "reach_of_nearness",
    "split_term",
]
