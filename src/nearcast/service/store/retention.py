"""How much a service queues, how often it saves, and how long it retains updates."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RetentionConfig:
    """Limits of the queue, the snapshots and the journal."""

    max_waiting: int = 1_000
    """Requests in the queue; the service rejects more."""
    snapshot_every: int = 10_000
    """Minimum number of commands between two snapshots."""
    snapshot_share: float = 0.05
    """Share of the time that snapshots may take; commands wait during a snapshot."""
    max_age_s: float = 7 * 24 * 3600.0
    """How long updates stay in the journal, unless there are too many."""
    max_updates: int = 10_000_000
    """How many updates stay in the journal."""
