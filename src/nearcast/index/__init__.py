"""FIND: which subscriptions does a message concern? One module a structure, each behind the same protocol."""

from collections.abc import Callable
from typing import NamedTuple

from nearcast.index.matches import Index, Work
from nearcast.index.scan import Scan
from nearcast.model import KINDS, Meaning


class IndexEntry(NamedTuple):
    """An index, and the kinds it can serve."""

    name: str
    kinds: frozenset[str]
    make: Callable[[Meaning], Index]


INDEXES: tuple[IndexEntry, ...] = (IndexEntry("scan", frozenset(kind.kind for kind in KINDS), Scan),)
"""Every index, the slowest first: "auto" takes the last one that serves a kind."""

__all__ = ["INDEXES", "Index", "IndexEntry", "Scan", "Work"]
