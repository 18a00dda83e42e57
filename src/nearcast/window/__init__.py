"""KEEP: sliding windows, and what each kind keeps of what was found."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from nearcast.errors import require
from nearcast.model import BEST_EVER, BEST_IN_WINDOW, MATCHES, ResultPolicy, ScoringContext, Subscription
from nearcast.window.cumulative import CumulativeResults
from nearcast.window.pass_through import PassThrough
from nearcast.window.policy import CountWindow, TimeWindow, WindowPolicy
from nearcast.window.recompute import RecomputedResults
from nearcast.window.result_store import Changes, Find, Moved, Results, ResultStore, ScoredMessage
from nearcast.window.sliding import SlidingWindow, Steps, Ticks
from nearcast.window.store import LIVE

if TYPE_CHECKING:
    from nearcast._jit import Arena


class ResultStoreEntry(NamedTuple):
    """A keeper, and what it can keep."""

    name: str
    policy: ResultPolicy
    make: Callable[[ScoringContext, SlidingWindow, Arena], ResultStore]
    """Make one that keeps its state in an arena, if it can."""
    kinds: frozenset[str] | None = None
    """The kinds whose scores it knows, if it has to."""
    in_arena: bool = False
    """Whether it does: an arena that holds its state already is gone on with."""


def buffers(policy: str, kind: str, *, factor: float | None = None, name: str | None = None) -> ResultStoreEntry:
    """Return buffers of a kind by their policy, with its own factor or another; named after it unless told."""

    def make(scoring: ScoringContext, window: SlidingWindow, arena: Arena) -> ResultStore:
        from nearcast.window.buffered import BufferedResults

        return BufferedResults(scoring, window, arena, kind=kind, policy=policy, factor=factor)

    return ResultStoreEntry(name or policy, BEST_IN_WINDOW, make, frozenset({kind}), in_arena=True)


def _heaps(scoring: ScoringContext, window: SlidingWindow, arena: Arena) -> ResultStore:
    from nearcast.window.heaps import HeapResults

    return HeapResults(arena)


RESULT_STORES: tuple[ResultStoreEntry, ...] = (
    ResultStoreEntry("forward", MATCHES, lambda scoring, window, arena: PassThrough(), in_arena=True),
    ResultStoreEntry(
        "recompute", BEST_IN_WINDOW, lambda scoring, window, arena: RecomputedResults(window.documents())
    ),
    ResultStoreEntry("ever", BEST_EVER, lambda scoring, window, arena: CumulativeResults()),
    *(buffers(policy, kind) for kind in ("topk", "social") for policy in ("kmax", "skyband", "cskyband")),
    ResultStoreEntry("heaped", BEST_EVER, _heaps, in_arena=True),
)
"""Every keeper; of those that keep one thing, the slow one that is always right comes first."""

_REGISTERED: dict[str, ResultStoreEntry] = {}


def register(entry: ResultStoreEntry) -> None:
    """Let a keeper be named by an index, as rivals in benchmarks name buffers with other factors."""
    taken = sorted({known.name for known in RESULT_STORES})
    require(entry.name not in taken, "name", f"must not be one of {taken}", entry.name, subject="result_store")
    _REGISTERED[entry.name] = entry


def find_result_store(name: str | None, kind: type[Subscription]) -> ResultStoreEntry:
    """Return the keeper of that name; without one, the slow one that serves every kind that keeps the same."""
    serving = [
        entry
        for entry in (*RESULT_STORES, *_REGISTERED.values())
        if entry.policy == kind.result_policy and (entry.kinds is None or kind.kind in entry.kinds)
    ]
    named = [entry for entry in serving if entry.name == name]
    return named[0] if named else serving[0]


__all__ = [
    "LIVE",
    "RESULT_STORES",
    "Changes",
    "CountWindow",
    "Find",
    "Moved",
    "ResultStore",
    "ResultStoreEntry",
    "Results",
    "ScoredMessage",
    "SlidingWindow",
    "Steps",
    "Ticks",
    "TimeWindow",
    "WindowPolicy",
    "buffers",
    "find_result_store",
    "register",
]
