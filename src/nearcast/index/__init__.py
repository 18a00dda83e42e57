"""Indexes of subscriptions: find the subscriptions that match a message. One module per index, one protocol for all.

    scan           every kind, without pruning: the reference
    boolean        boxes and AND/OR expressions, by rarest term and then by place (PS2Stream)
    similarity     text and nearness above a fixed score (STAMP)
    topk           text and nearness above a threshold that moves (Skype)
    nearest        nearness within a distance that shrinks (DkM-SKS)
    social         nearness, text and social score above a threshold that moves (geo-social)

`bounds` holds the papers' bounds as plain functions, `_kernels` the compiled loops. An index reads messages and
writes pairs of message and subscription; results and windows are not its concern.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, NamedTuple

from nearcast.errors import require
from nearcast.index.base import Index, Work
from nearcast.index.scan import Scan
from nearcast.model import ScoringContext

if TYPE_CHECKING:
    from nearcast._jit import Arena


class IndexEntry(NamedTuple):
    """An index by name, with the kinds it serves."""

    name: str
    kinds: frozenset[str] | None
    """The kinds that it serves; None for every kind, registered ones included."""
    make: Callable[[ScoringContext, Arena], Index]
    """Make an index that keeps its state in an arena, if `in_arena`."""
    in_arena: bool = True
    """Whether the state is in the arena; an arena that already holds such an index is then continued."""
    result_store: str | None = None
    """Name of the result store that goes with it; None for the reference store."""
    most_facet_values: int = 0
    """The most values of a facet under which it lists a subscription; 0 if it lists none under facets."""

    def serves(self, kind: str) -> bool:
        """Return whether the index serves a kind."""
        return self.kinds is None or kind in self.kinds


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
    IndexEntry("scan", None, lambda scoring, arena: Scan(scoring), in_arena=False),
    IndexEntry("boolean", frozenset({"boolean"}), _boolean, most_facet_values=16),
    IndexEntry("similarity", frozenset({"similarity"}), _similarity, most_facet_values=1),
    IndexEntry("topk", frozenset({"topk"}), _topk, result_store="cskyband", most_facet_values=1),
    IndexEntry("nearest", frozenset({"nearest"}), _nearest, result_store="heaps", most_facet_values=1),
    IndexEntry("social", frozenset({"social"}), _social, result_store="cskyband", most_facet_values=1),
)
"""Every index, the slowest first: "auto" takes the last one that serves a kind. Choosing one loads its kernels."""

ENTRY_POINTS = "nearcast.indexes"
"""Entry points of packages that register indexes and result stores; each names a function without parameters."""

_REGISTERED: dict[str, IndexEntry] = {}


def register(entry: IndexEntry) -> None:
    """Register an index from outside the package, such as a baseline; "auto" takes it for the kind of its name."""
    taken = {"auto", *(known.name for known in INDEXES)}
    require(entry.name not in taken, "name", f"must not be one of {sorted(taken)}", entry.name, subject="index")
    _REGISTERED[entry.name] = entry


def registered_indexes() -> tuple[IndexEntry, ...]:
    """Return the indexes of other packages; the first call imports them."""
    _load_entry_points()
    return tuple(_REGISTERED.values())


def index_names() -> list[str]:
    """Return the names of all indexes that are imported, and `auto`."""
    return ["auto", *(entry.name for entry in INDEXES), *_REGISTERED]


def has_index(name: object) -> bool:
    """Return whether an index has a name; a name that is not built in imports the indexes of other packages."""
    if name not in index_names():
        _load_entry_points()
    return name in index_names()


def find_index(name: str, kind: str) -> IndexEntry | None:
    """Return the index of a name if it serves a kind, else None; "auto" stands for the fastest one."""
    registered = _REGISTERED.get(kind if name == "auto" else name)
    if registered is not None:
        return registered if registered.serves(kind) else None
    serving = [entry for entry in INDEXES if entry.serves(kind) and name in ("auto", entry.name)]
    return serving[-1] if serving else None


@cache
def _load_entry_points() -> None:
    for entry in entry_points(group=ENTRY_POINTS):
        entry.load()()


__all__ = [
    "INDEXES",
    "Index",
    "IndexEntry",
    "Scan",
    "Work",
    "find_index",
    "has_index",
    "index_names",
    "register",
    "registered_indexes",
]
