"""The loops of `nearcast.index.similarity`: plan a subscription, keep its postings, match a batch of messages.

    plan ──> which terms are posted, how far each reaches          match_rows ──> for each message
    insert_rows, split_term, delete_slots ──> lists and blocks         gather cells, filter lists, verify what is left

Everything works on one nested NamedTuple, `SimilarityState`; its parts say what they hold.
"""

from nearcast.index._kernels.similarity.change import delete_slots, insert_rows, number_terms, split_term
from nearcast.index._kernels.similarity.layout import (
    BLOCKS,
    CANDIDATES,
    DELTA,
    FREE_LIST,
    LEAST_SIDE,
    LENGTH,
    LONGEST,
    MARGIN,
    MOST_LEVELS,
    N_LISTS,
    NEEDED,
    RUN,
    TAU,
    USED,
    VERIFIED,
    VISITED,
    Pool,
    Records,
    SimilarityColumns,
    SimilarityLists,
    SimilarityOutput,
    SimilarityParams,
    SimilarityScratch,
    SimilarityState,
    Terms,
)
from nearcast.index._kernels.similarity.match import match_rows
from nearcast.index._kernels.similarity.scores import reach_of

__all__ = [
    "BLOCKS",
    "CANDIDATES",
    "DELTA",
    "FREE_LIST",
    "LEAST_SIDE",
    "LENGTH",
    "LONGEST",
    "MARGIN",
    "MOST_LEVELS",
    "NEEDED",
    "N_LISTS",
    "RUN",
    "TAU",
    "USED",
    "VERIFIED",
    "VISITED",
    "Pool",
    "Records",
    "SimilarityColumns",
    "SimilarityLists",
    "SimilarityOutput",
    "SimilarityParams",
    "SimilarityScratch",
    "SimilarityState",
    "Terms",
    "delete_slots",
    "insert_rows",
    "match_rows",
    "number_terms",
    "reach_of",
    "split_term",
]
