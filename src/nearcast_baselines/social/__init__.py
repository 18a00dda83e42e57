"""The rivals of kind `social`: the paper's three baselines, and its own method (geo-social, sections 3 and 4).

baseline1   all subscriptions are scored              what may yet be among the best is kept
baseline2   quadtree                                  k results; all of the window when one expires
baseline3   quadtree                                  the same, by social scores of leaves first
quadtree    quadtree                                  what may yet be among the best is kept
"""

from __future__ import annotations

from nearcast._jit import Arena
from nearcast.index import IndexEntry
from nearcast.model import BEST_IN_WINDOW, ScoringContext
from nearcast.window import ResultStore, ResultStoreEntry, SlidingWindow
from nearcast_baselines.social.quadtree import Quadtree
from nearcast_baselines.social.user_scan import UserScan
from nearcast_baselines.social.whole import BY_LEAF, BY_PAIR, Whole

__all__ = ["BASELINES", "RESULT_STORES", "Quadtree", "UserScan", "Whole"]

_SOCIAL = frozenset({"social"})


def _whole(name: str, way: int) -> ResultStoreEntry:
    def make(scoring: ScoringContext, window: SlidingWindow, arena: Arena) -> ResultStore:
        return Whole(scoring, window, arena, way=way)

    return ResultStoreEntry(name, BEST_IN_WINDOW, make, _SOCIAL)


RESULT_STORES = (_whole("whole-window", BY_PAIR), _whole("whole-window-by-leaf", BY_LEAF))

BASELINES = tuple(
    IndexEntry(name, _SOCIAL, make, in_arena=False, result_store=result_store)
    for name, make, result_store in (
        ("baseline1", UserScan, "cskyband"),
        ("baseline2", Quadtree, "whole-window"),
        ("baseline3", Quadtree, "whole-window-by-leaf"),
        ("quadtree", Quadtree, "cskyband"),
    )
)
