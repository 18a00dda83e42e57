"""Kernels of `nearcast.index.topk`: insert subscriptions, move their thresholds, match a batch of messages.

    insert_rows, delete_slots, set_thresholds ──> lists, groups     match_rows ──> for each message
    sort_unsorted, sort_list ───────────────────> sorted lists          order its terms, scan their lists, verify

All kernels work on one nested NamedTuple, `TopKState`; its parts document their fields.
"""

from nearcast.index._kernels.topk.change import delete_slots, insert_rows, set_thresholds
from nearcast.index._kernels.topk.groups import sort_unsorted
from nearcast.index._kernels.topk.layout import (
    N_BOUNDS,
    N_FIELDS,
    PostingRefs,
    TopKColumns,
    TopKLists,
    TopKScratch,
    TopKState,
)
from nearcast.index._kernels.topk.match import match_rows

__all__ = [
    "N_BOUNDS",
    "N_FIELDS",
    "PostingRefs",
    "TopKColumns",
    "TopKLists",
    "TopKScratch",
    "TopKState",
    "delete_slots",
    "insert_rows",
    "match_rows",
    "set_thresholds",
    "sort_unsorted",
]
