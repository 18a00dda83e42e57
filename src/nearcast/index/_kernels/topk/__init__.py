"""The loops of `nearcast.index.topk`: post a subscription, move its bar, match a batch of messages.

    insert_rows, delete_slots, set_bars ──> lists, groups         match_rows ──> for each message
    tidy, sort_list ──────────────────────> lists in order            arrange its terms, scan their lists, verify

Everything works on one nested NamedTuple, `TopKState`; its parts say what they hold.
"""

from nearcast.index._kernels.topk.change import delete_slots, insert_rows, number_terms, set_thresholds
from nearcast.index._kernels.topk.groups import tidy
from nearcast.index._kernels.topk.layout import (
    BODY,
    BOUNDS,
    LANES,
    LONGEST,
    TILE,
    Posted,
    TopKColumns,
    TopKLists,
    TopKOutput,
    TopKPostings,
    TopKProjection,
    TopKScratch,
    TopKState,
)
from nearcast.index._kernels.topk.match import match_rows

__all__ = [
    "BODY",
    "BOUNDS",
    "LANES",
    "LONGEST",
    "TILE",
    "Posted",
    "TopKColumns",
    "TopKLists",
    "TopKOutput",
    "TopKPostings",
    "TopKProjection",
    "TopKScratch",
    "TopKState",
    "delete_slots",
    "insert_rows",
    "match_rows",
    "number_terms",
    "set_thresholds",
    "tidy",
]
