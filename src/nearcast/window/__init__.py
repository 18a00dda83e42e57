"""Sliding windows, and result stores, which hold the current results of subscriptions by result policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from nearcast.errors import require
from nearcast.model import BEST_EVER, BEST_IN_WINDOW, MATCHES, ResultPolicy, ScoringContext, Subscription
from nearcast.window.cumulative import CumulativeResults
from nearcast.window.pass_through import PassThrough
from nearcast.window.policy import CountWindow, TimeWindow, WindowPolicy
from nearcast.window.recompute import RecomputedResults
from nearcast.window.result_store import Changes, Find, Results, ResultStore, ScoredMessage, ThresholdChanges
from nearcast.window.sliding import SlidingWindow, Steps, Ticks
from nearcast.window.store import LIVE

if TYPE_CHECKING:
    from nearcast._jit import Arena


class ResultStoreEntry(NamedTuple):
    """A result store by name, with the policy and the kinds that it serves."""

    name: str
    policy: ResultPolicy
    make: Callable[[ScoringContext, SlidingWindow, Arena], ResultStore]
    """Make a store; its state is in the arena if `in_arena`."""
    kinds: frozenset[str] | None = None
    """The kinds that it serves; None for all with its policy."""
    in_arena: bool = False
    """True if the arena holds its state; an arena that holds one already is continued."""


def buffers(policy: str, kind: str, *, factor: float | None = None, name: str | None = None) -> ResultStoreEntry:
    """Return the entry of buffers of a kind and a policy, by default with the policy's factor and under its name."""

    def make(scoring: ScoringContext, window: SlidingWindow, arena: Arena) -> ResultStore:
        from nearcast.window.buffered import BufferedResults

        return BufferedResults(scoring, window, arena, kind=kind, policy=policy, factor=factor)

    return ResultStoreEntry(name or policy, BEST_IN_WINDOW, make, frozenset({kind}), in_arena=True)


def _heaps(scoring: ScoringContext, window: SlidingWindow, arena: Arena) -> ResultStore:
    from nearcast.window.heaps import HeapResults

    return HeapResults(arena)


RESULT_STORES: tuple[ResultStoreEntry, ...] = (
    ResultStoreEntry("pass_through", MATCHES, lambda scoring, window, arena: PassThrough(), in_arena=True),
    ResultStoreEntry(
        "recompute", BEST_IN_WINDOW, lambda scoring, window, arena: RecomputedResults(window.documents())
    ),
    ResultStoreEntry("cumulative", BEST_EVER, lambda scoring, window, arena: CumulativeResults()),
    *(buffers(policy, kind) for kind in ("topk", "social") for policy in ("kmax", "skyband", "cskyband")),
    ResultStoreEntry("heaps", BEST_EVER, _heaps, in_arena=True),
)
"""All result stores; of those with the same policy, the slow reference comes first."""

_REGISTERED: dict[str, ResultStoreEntry] = {}


def register(entry: ResultStoreEntry) -> None:
    """Register a result store that an index may name, such as buffers with another factor in a benchmark."""
    taken = sorted({known.name for known in RESULT_STORES})
    require(entry.name not in taken, "name", f"must not be one of {taken}", entry.name, subject="result_store")
    _REGISTERED[entry.name] = entry


def find_result_store(name: str | None, kind: type[Subscription]) -> ResultStoreEntry:
    """Return the result store of a name that serves a kind; the slow reference if there is none."""
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
    "ResultStore",
    "ResultStoreEntry",
    "Results",
    "ScoredMessage",
    "SlidingWindow",
    "Steps",
    "ThresholdChanges",
    "Ticks",
    "TimeWindow",
    "WindowPolicy",
    "buffers",
    "find_result_store",
    "register",
]
