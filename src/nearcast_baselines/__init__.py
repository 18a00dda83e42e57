"""Baselines: the papers' indexes over the same kind of arrays as those of Nearcast, for fair comparisons.

`nearcast bench KIND --baseline NAME` finds them through the entry point `nearcast.indexes`.
"""

from __future__ import annotations

from nearcast import index, window
from nearcast.index import IndexEntry
from nearcast_baselines.ciq import CIQ
from nearcast_baselines.gi2 import GI2
from nearcast_baselines.igpt import IGPT
from nearcast_baselines.nearest import Grid, Inverted
from nearcast_baselines.social import BASELINES as SOCIAL
from nearcast_baselines.social import RESULT_STORES
from nearcast_baselines.stamp import BASELINES as STAMP

__all__ = ["BASELINES", "RESULT_STORES", "register"]

_TOPK = (("igpt", IGPT, ("cskyband", "skyband", "kmax")), ("ciq", CIQ, ("kmax",)))
_NEAREST = (("inverted", Inverted), ("grid", Grid))

BASELINES: tuple[IndexEntry, ...] = (
    IndexEntry("gi2", frozenset({"boolean"}), lambda scoring, arena: GI2(scoring), in_arena=False),
    *(
        IndexEntry(name, frozenset({"similarity"}), lambda scoring, arena, make=make: make(scoring), in_arena=False)  # type: ignore[misc]
        for name, make in STAMP.items()
    ),
    *(
        IndexEntry(f"{name}-{result_store}", frozenset({"topk"}), make, in_arena=False, result_store=result_store)
        for name, make, result_stores in _TOPK
        for result_store in result_stores
    ),
    *(
        IndexEntry(name, frozenset({"nearest"}), make, in_arena=False, result_store="heaps")
        for name, make in _NEAREST
    ),
    *SOCIAL,
)


def register() -> None:
    """Register all baselines with the indexes and result stores of Nearcast."""
    for result_store in RESULT_STORES:
        window.register(result_store)
    for entry in BASELINES:
        index.register(entry)
