"""Baselines of kind `social`: the paper's three baselines, and its own method (geo-social, sections 3 and 4).

            index                          result store
baseline1   scores all subscriptions       buffers of the messages that may still enter the result
baseline2   quadtree                       k results; searches the whole window when one expires
baseline3   quadtree                       the same, with the social scores of leaves as a bound
quadtree    quadtree                       buffers of the messages that may still enter the result
"""

from __future__ import annotations

from nearcast._jit import Arena
from nearcast.index import IndexEntry
from nearcast.model import BEST_IN_WINDOW, ScoringContext
from nearcast.window import ResultStore, ResultStoreEntry, SlidingWindow
from nearcast_baselines.social.quadtree import Quadtree
from nearcast_baselines.social.subscription_scan import SubscriptionScan
from nearcast_baselines.social.window_scan import BY_LEAF, BY_PAIR, WindowScan

__all__ = ["BASELINES", "RESULT_STORES", "Quadtree", "SubscriptionScan", "WindowScan"]

_SOCIAL = frozenset({"social"})


def _window_scan(name: str, way: int) -> ResultStoreEntry:
    def make(scoring: ScoringContext, window: SlidingWindow, arena: Arena) -> ResultStore:
        return WindowScan(scoring, window, arena, way=way)

    return ResultStoreEntry(name, BEST_IN_WINDOW, make, _SOCIAL)


RESULT_STORES = (_window_scan("whole-window", BY_PAIR), _window_scan("whole-window-by-leaf", BY_LEAF))

BASELINES = tuple(
    IndexEntry(name, _SOCIAL, make, in_arena=False, result_store=result_store)
    for name, make, result_store in (
        ("baseline1", SubscriptionScan, "cskyband"),
        ("baseline2", Quadtree, "whole-window"),
        ("baseline3", Quadtree, "whole-window-by-leaf"),
        ("quadtree", Quadtree, "cskyband"),
    )
)
