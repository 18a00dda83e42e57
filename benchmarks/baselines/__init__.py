"""The papers' own indexes, over the same arrays as ours, so that a comparison is fair."""

from benchmarks.baselines.gi2 import GI2
from benchmarks.baselines.stamp import RIVALS
from nearcast.index import IndexEntry

_MAKERS = {"gi2": ("boolean", GI2), **{name: ("similarity", make) for name, make in RIVALS.items()}}

BASELINES = tuple(
    IndexEntry(name, frozenset({kind}), lambda meaning, arena, make=make: make(meaning), in_arena=False)
    for name, (kind, make) in _MAKERS.items()
)
