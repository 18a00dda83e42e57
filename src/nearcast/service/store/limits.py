"""The limits of a service: how much it queues and writes at once, what each subscriber may have, what it retains."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServiceLimits:
    """Limits of the queue, the subscribers, the snapshots and the journal."""

    max_waiting: int = 1_000
    """Requests in the queue; the service rejects more."""
    max_waiting_each: int = 500
    """Requests of one subscriber in the queue, so that the others have room."""
    max_subscriptions: int = 1_000_000
    """Subscriptions per subscriber."""
    max_results: int = 20_000_000
    """Messages that the results of a subscriber can hold: k of all its subscriptions together."""
    max_subscription_bytes: int = 1_000_000_000
    """Bytes that the subscriptions of a subscriber take as JSON, as those with large regions may."""
    max_ahead_s: float | None = None
    """How far the time of a message may be ahead of the clock; None: 300 s with `clock="wall"`, else any."""
    max_commit_updates: int = 100_000
    """Updates per commit, unless a single message or subscription has more."""
    snapshot_every: int = 10_000
    """Minimum number of commands between two snapshots."""
    snapshot_share: float = 0.05
    """Share of the time that snapshots may take; commands wait during a snapshot."""
    max_age_s: float = 7 * 24 * 3600.0
    """How long updates stay in the journal, unless there are too many or it is too large."""
    max_updates: int = 10_000_000
    """How many updates stay in the journal."""
    max_bytes: int = 10_000_000_000
    """How large the journal may get; the oldest commands are deleted first, but none that recovery needs."""
    min_free_bytes: int = 100_000_000
    """Free bytes of the disk below which the service only reads."""
