"""The papers' own indexes, over the same arrays as ours, so that a comparison is fair."""

from benchmarks.baselines.ciq import CIQ
from benchmarks.baselines.gi2 import GI2
from benchmarks.baselines.igpt import IGPT
from benchmarks.baselines.nearest import Grid, Inverted
from benchmarks.baselines.social import RESULT_STORES
from benchmarks.baselines.social import RIVALS as SOCIAL
from benchmarks.baselines.stamp import RIVALS
from nearcast.index import IndexEntry

__all__ = ["BASELINES", "RESULT_STORES"]

_MAKERS = {"gi2": ("boolean", GI2), **{name: ("similarity", make) for name, make in RIVALS.items()}}
_TOPK = (("igpt", IGPT, ("cskyband", "skyband", "kmax")), ("ciq", CIQ, ("kmax",)))
_NEAREST = (("inverted", Inverted), ("grid", Grid))

BASELINES = (
    *(
        IndexEntry(name, frozenset({kind}), lambda scoring, arena, make=make: make(scoring), in_arena=False)
        for name, (kind, make) in _MAKERS.items()
    ),
    *(
        IndexEntry(f"{name}-{result_store}", frozenset({"topk"}), make, in_arena=False, result_store=result_store)
        for name, make, result_stores in _TOPK
        for result_store in result_stores
    ),
    *(
        IndexEntry(name, frozenset({"nearest"}), make, in_arena=False, result_store="heaped")
        for name, make in _NEAREST
    ),
    *SOCIAL,
)
