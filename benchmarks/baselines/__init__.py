"""The papers' own indexes, over the same arrays as ours, so that a comparison is fair."""

from benchmarks.baselines.gi2 import GI2
from benchmarks.baselines.stamp import RIVALS
from nearcast.index import IndexEntry

BASELINES = (
    IndexEntry("gi2", frozenset({"boolean"}), GI2),
    *(IndexEntry(name, frozenset({"similarity"}), make) for name, make in RIVALS.items()),
)
