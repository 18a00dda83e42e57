"""FIND: which subscriptions does a message concern? One module a structure, each behind the same protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from nearcast.errors import require
from nearcast.index.base import Index, Work
from nearcast.index.scan import Scan
from nearcast.model import KINDS, ScoringContext

if TYPE_CHECKING:
    from nearcast._jit import Arena


class IndexEntry(NamedTuple):
    """An index, and the kinds it can serve."""

    name: str
    kinds: frozenset[str]
    make: Callable[[ScoringContext, Arena], Index]
    """Make one that keeps its state in an arena, if it can."""
    in_arena: bool = True
    """Whether it does: an arena that holds such an index already is gone on with."""
    result_store: str | None = None
    """The keeper that goes with it; without one, the slow one."""


def _boolean(scoring: ScoringContext, arena: Arena) -> Index:
    from nearcast.index.boolean import BooleanIndex

    return BooleanIndex(scoring, arena=arena)


def _similarity(scoring: ScoringContext, arena: Arena) -> Index:
    from nearcast.index.similarity import SimilarityIndex

    return SimilarityIndex(scoring, arena=arena)


def _topk(scoring: ScoringContext, arena: Arena) -> Index:
    from nearcast.index.topk import TopKIndex

    return TopKIndex(scoring, arena=arena)


def _nearest(scoring: ScoringContext, arena: Arena) -> Index:
    from nearcast.index.nearest import NearestIndex

    return NearestIndex(scoring, arena=arena)


def _social(scoring: ScoringContext, arena: Arena) -> Index:
    from nearcast.index.social import SocialIndex

    return SocialIndex(scoring, arena=arena)


INDEXES: tuple[IndexEntry, ...] = (
    IndexEntry("scan", frozenset(kind.kind for kind in KINDS), lambda scoring, arena: Scan(scoring), in_arena=False),
    IndexEntry("boolean", frozenset({"boolean"}), _boolean),
    IndexEntry("similarity", frozenset({"similarity"}), _similarity),
    IndexEntry("topk", frozenset({"topk"}), _topk, result_store="cskyband"),
    IndexEntry("nearest", frozenset({"nearest"}), _nearest, result_store="heaped"),
    IndexEntry("social", frozenset({"social"}), _social, result_store="cskyband"),
)
"""Every index, the slowest first: "auto" takes the last one that serves a kind. Kernels are loaded when chosen."""

_REGISTERED: dict[str, IndexEntry] = {}


def register(entry: IndexEntry) -> None:
    """Let an index from elsewhere be chosen by name, as rivals in benchmarks are; "auto" never takes it."""
    taken = {"auto", *(known.name for known in INDEXES)}
    require(entry.name not in taken, "name", f"must not be one of {sorted(taken)}", entry.name, subject="index")
    _REGISTERED[entry.name] = entry


def index_names() -> list[str]:
    """Return the names by which an index can be chosen."""
    return ["auto", *(entry.name for entry in INDEXES), *_REGISTERED]


def find_index(name: str, kind: str) -> IndexEntry | None:
    """Return the index of that name if it serves a kind; "auto" is the fastest there is."""
    if name in _REGISTERED:
        return _REGISTERED[name] if kind in _REGISTERED[name].kinds else None
    serving = [entry for entry in INDEXES if kind in entry.kinds and name in ("auto", entry.name)]
    return serving[-1] if serving else None


__all__ = ["INDEXES", "Index", "IndexEntry", "Scan", "Work", "find_index", "index_names", "register"]
