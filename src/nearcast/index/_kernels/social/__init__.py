"""Kernels of `nearcast.index.social`: insert subscriptions, move their thresholds, match a batch of messages.

write_sites, set_thresholds, remove_items ──> sites, lists     match_rows ──> for each message
                                                                   collect by graph, terms and nearness; verify
"""

from nearcast.index._kernels.social.change import facet_user_keys, remove_items, set_thresholds, write_sites
from nearcast.index._kernels.social.layout import (
    FACET,
    LANES,
    REST_BITS,
    SITE,
    THRESHOLD,
    USER,
    SocialColumns,
    SocialScratch,
    SocialState,
)
from nearcast.index._kernels.social.match import match_rows

__all__ = [
    "FACET",
    "LANES",
    "REST_BITS",
    "SITE",
    "THRESHOLD",
    "USER",
    "SocialColumns",
    "SocialScratch",
    "SocialState",
    "facet_user_keys",
    "match_rows",
    "remove_items",
    "set_thresholds",
    "write_sites",
]
