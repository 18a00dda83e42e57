"""The loops of `nearcast.index.nearest`: post a subscription, move its bar, match a batch of messages.

    insert_rows, delete_slots, set_bars ──> lists, groups         match_rows ──> for each message
    sort_list ────────────────────────────> lists in order            scan the lists of its terms, verify

Everything works on one NamedTuple, `NearestState`.
"""

from nearcast.index._kernels.nearest.change import delete_slots, insert_rows, set_thresholds
from nearcast.index._kernels.nearest.layout import (
    BODY,
    BOUNDS,
    LANES,
    LIST,
    LONGEST,
    SITE,
    TILE,
    NearestColumns,
    NearestOutput,
    NearestProjection,
    NearestScratch,
    NearestState,
)
from nearcast.index._kernels.nearest.match import match_rows
from nearcast.index._kernels.topk.change import number_terms

__all__ = [
    "BODY",
    "BOUNDS",
    "LANES",
    "LIST",
    "LONGEST",
    "SITE",
    "TILE",
    "NearestColumns",
    "NearestOutput",
    "NearestProjection",
    "NearestScratch",
    "NearestState",
    "delete_slots",
    "insert_rows",
    "match_rows",
    "number_terms",
    "set_thresholds",
]
