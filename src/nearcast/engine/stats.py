"""Statistics of an engine: counts, memory, and the work that pruning saved."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from nearcast.index import Work


@dataclass(frozen=True)
class Stats:
    """What an engine holds, and what it has done since it was created.

    `visited`, `candidates`, `verified` and `matched` are sums over all kinds; `work` has them kind by kind.
    """

    messages: int
    """Messages published, late ones included."""
    late: int
    """Messages that had expired on arrival and were dropped."""
    window: int
    """Messages in the window now."""
    subscriptions: int
    updates: int
    """Updates returned."""
    memory_bytes: int
    """Resident memory of the process."""
    kinds: dict[str, int]
    """Subscriptions of each kind."""
    shards: tuple[int, ...]
    """Subscriptions of each shard; those of stateless kinds that all threads share count for the first."""
    work: dict[str, Work] = field(default_factory=dict)

    @property
    def visited(self) -> int:
        """Index entries visited."""
        return sum(work.visited for work in self.work.values())

    @property
    def candidates(self) -> int:
        """Subscriptions that no bound ruled out."""
        return sum(work.candidates for work in self.work.values())

    @property
    def verified(self) -> int:
        """Subscriptions whose score was computed."""
        return sum(work.verified for work in self.work.values())

    @property
    def matched(self) -> int:
        """Arrivals that changed a result."""
        return sum(work.matched for work in self.work.values())


def resident_bytes() -> int:
    """Return the resident memory of this process, or its peak where the system reports only that."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def add_work(a: Work, b: Work) -> Work:
    """Return the sum of two counters."""
    return Work(a.visited + b.visited, a.candidates + b.candidates, a.verified + b.verified, a.matched + b.matched)
