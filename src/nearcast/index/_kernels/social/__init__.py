"""The loops of `nearcast.index.social`: post a subscription, move its bar, match a batch of messages.

place_sites, set_bars, remove_items ──> sites, lists       match_rows ──> for each message
                                                               friends, words, those nearby; then verify
"""

from nearcast.index._kernels.social.change import place_sites, remove_items, set_thresholds
from nearcast.index._kernels.social.layout import (
    LANE_BITS,
    LANES,
    N_OPEN,
    SITE,
    THRESHOLD,
    USER,
    SocialColumns,
    SocialOutput,
    SocialProjection,
    SocialScratch,
    SocialState,
)
from nearcast.index._kernels.social.match import match_rows

__all__ = [
    "LANES",
    "LANE_BITS",
    "N_OPEN",
    "SITE",
    "THRESHOLD",
    "USER",
    "SocialColumns",
    "SocialOutput",
    "SocialProjection",
    "SocialScratch",
    "SocialState",
    "match_rows",
    "place_sites",
    "remove_items",
    "set_thresholds",
]
