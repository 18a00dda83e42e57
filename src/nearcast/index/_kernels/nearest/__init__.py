"""Kernels of `nearcast.index.nearest`: insert subscriptions, move their thresholds, match a batch of messages.

    insert_rows, delete_slots, set_thresholds ──> lists, groups     match_rows ──> for each message
    sort_list ──────────────────────────────────> sorted lists          scan the lists of its terms, verify

All kernels work on one NamedTuple, `NearestState`.
"""

from nearcast.index._kernels.nearest.change import delete_slots, insert_rows, set_thresholds
from nearcast.index._kernels.nearest.layout import (
    LIST,
    N_BOUNDS,
    N_FIELDS,
    SETTLED,
    SITE,
    NearestColumns,
    NearestScratch,
    NearestState,
)
from nearcast.index._kernels.nearest.match import match_rows

__all__ = [
    "LIST",
    "N_BOUNDS",
    "N_FIELDS",
    "SETTLED",
    "SITE",
    "NearestColumns",
    "NearestScratch",
    "NearestState",
    "delete_slots",
    "insert_rows",
    "match_rows",
    "set_thresholds",
]
