"""The progress of a job: Spark's reports of batches, added up and formatted.

The pipeline observes its own rows in passing, so counting them needs no extra query.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nearcast.jobs.frame import EDGE, MESSAGE, SUBSCRIPTION
from nearcast.partition.balance.steps import Refit, Retire

MESSAGES, SUBSCRIPTIONS, EDGES = "nearcast_messages", "nearcast_subscriptions", "nearcast_edges"
SHARDS = "nearcast_shards"
"""Names of the observations of rows, and of the reports of shards."""
ADJUSTMENT = "nearcast_adjustment"
"""The name of the summary of the decision that led to the routing of a batch, if one did."""
MALFORMED = {
    MESSAGE: "nearcast_malformed_messages",
    SUBSCRIPTION: "nearcast_malformed_subscriptions",
    EDGE: "nearcast_malformed_edges",
}
"""Names of the observations of malformed lines."""
_MAY_REJECT = (MESSAGES, SUBSCRIPTIONS, EDGES, *MALFORMED.values())


@dataclass
class Tally:
    """What a job has done since this process observes it."""

    batches: int = 0
    messages: int = 0
    rejected: int = 0
    updates: int = 0
    late: int = 0
    unknown: int = 0
    """Unsubscribe operations and retractions for unknown ids, and removals of edges that are not there."""
    epoch: int = 0
    """The number of the routing, see `epochs`."""
    subscriptions: dict[int, int] = field(default_factory=dict)
    """Subscriptions of each shard."""
    adjustments: int = 0
    """Adjustments of the routing that have taken effect."""
    adjustment: dict[str, Any] = field(default_factory=dict)
    """The last one: its summary, the epoch that it led to, and the seconds for which the slowest shards moved."""
    moving_seconds: float = 0.0
    """Seconds for which the slowest shards have moved subscriptions since the last change of the epoch."""
    moved_bytes: int = 0
    """Bytes of subscriptions that moved between shards."""
    state_bytes: dict[int, int] = field(default_factory=dict)
    """Bytes of the state of each shard."""
    merge_bytes: dict[int, int] = field(default_factory=dict)
    """Bytes of the state of each partition of the merge stage, if there is one."""
    work: dict[int, float] = field(default_factory=dict)
    """Seconds of work of each shard."""
    last_batch: int = -1
    last_seconds: float = 0.0
    last_messages: int = 0
    last_updates: int = 0

    def take(self, progress: Iterable[Mapping[str, Any]]) -> bool:
        """Add Spark's reports; return whether there was a new batch."""
        is_new = False
        for batch in progress:
            if batch["batchId"] > self.last_batch and batch["numInputRows"]:
                self._add(batch)
                is_new = True
        return is_new

    def _add(self, batch: Mapping[str, Any]) -> None:
        observed = batch.get("observedMetrics") or {}
        rows = observed.get(MESSAGES) or {}
        every = [json.loads(report) for report in (observed.get(SHARDS) or {}).get("reports") or ()]
        reports, merges = ([one for one in every if what in one] for what in ("shard", "merge"))
        self.batches += 1
        self.last_batch = batch["batchId"]
        self.last_seconds = (batch.get("durationMs") or {}).get("triggerExecution", 0) / 1e3
        n_good = (rows.get("rows") or 0) - (rows.get("rejected") or 0)
        self.last_messages = max((report["messages"] for report in reports), default=n_good)  # each counts them all
        self.last_updates = sum(report["updates"] for report in every)
        self.messages += self.last_messages
        self.updates += self.last_updates
        self.rejected += sum((observed.get(name) or {}).get("rejected") or 0 for name in _MAY_REJECT)
        self.rejected += sum(report.get("rejected", 0) for report in reports)
        self.late += max((report["late"] for report in reports), default=0)
        self.unknown += sum(report["unknown"] for report in reports)
        retractions = (report.get("retractions", "") for report in reports)  # every shard receives each of them
        self.unknown += sum("1" not in known for known in zip(*retractions, strict=False))
        self.moved_bytes += sum(report.get("moved_bytes", 0) for report in reports)
        self.moving_seconds += max((report.get("moving", 0.0) for report in reports), default=0.0)
        epoch = epoch_of_reports(reports)
        if epoch > self.epoch:  # shards may have retired; the others report again
            self.epoch, self.subscriptions, self.state_bytes, self.work = epoch, {}, {}, {}
            if summary := batch.get(ADJUSTMENT):
                self.adjustments += 1
                self.adjustment = {"epoch": epoch, "seconds": round(self.moving_seconds, 3), **summary}
            self.moving_seconds = 0.0
        for report in reports:
            shard = report["shard"]
            self.subscriptions[shard] = report["subscriptions"]
            self.state_bytes[shard] = report["state_bytes"]
            self.work[shard] = self.work.get(shard, 0.0) + report["seconds"]
        self.merge_bytes |= {report["merge"]: report["state_bytes"] for report in merges}

    @property
    def balance(self) -> float:
        """The work of the busiest shard over that of the average one; 1 is even."""
        total = sum(self.work.values())
        return max(self.work.values()) * len(self.work) / total if total else 1.0

    def figures(self) -> dict[str, Any]:
        """Return the figures as plain values, and the last adjustment; rates are those of the last batch."""
        rate = 1 / self.last_seconds if self.last_seconds else 0.0
        return {
            "batch": self.last_batch,
            "batches": self.batches,
            "last_batch_seconds": self.last_seconds,
            "messages": self.messages,
            "messages_per_second": round(self.last_messages * rate, 1),
            "updates": self.updates,
            "updates_per_second": round(self.last_updates * rate, 1),
            "rejected": self.rejected,
            "late": self.late,
            "unknown": self.unknown,
            "subscriptions": sum(self.subscriptions.values()),
            "state_bytes": sum(self.state_bytes.values()) + sum(self.merge_bytes.values()),
            "shard_balance": round(self.balance, 3),
            "shards": len(self.work),
            "epoch": self.epoch,
            "adjustments": self.adjustments,
            "last_adjustment": self.adjustment or None,
            "moved_bytes": self.moved_bytes,
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return the figures for people, name by name."""
        figures = self.figures()
        return [
            ("batches", f"{self.batches:,}"),
            ("last batch", f"{self.last_seconds:.2f} s"),
            ("messages", f"{self.messages:,}"),
            ("messages/s", f"{figures['messages_per_second']:,.0f}"),
            ("updates", f"{self.updates:,}"),
            ("updates/s", f"{figures['updates_per_second']:,.0f}"),
            ("rejected", f"{self.rejected:,}"),
            ("late", f"{self.late:,}"),
            ("unknown", f"{self.unknown:,}"),
            ("subscriptions", f"{figures['subscriptions']:,}"),
            ("state", f"{figures['state_bytes'] / 1e6:,.1f} MB"),
            ("shards", f"{len(self.work)}, epoch {self.epoch}"),
            ("shard balance", f"{self.balance:.2f} busiest / average"),
            *([("moved", f"{self.moved_bytes / 1e6:,.1f} MB")] if self.moved_bytes else []),
            *([("last adjustment", _described(self.adjustment))] if self.adjustment else []),
        ]


def _described(adjustment: Mapping[str, Any]) -> str:
    """Return the figures of an adjustment as a line of text."""
    before, after = adjustment["load_ratio_before"], adjustment["load_ratio_after"]
    moved = f"{adjustment['moved_subscriptions']:,} subscriptions moved in {adjustment['seconds']:.2f} s"
    if adjustment["action"] == Refit.name:
        return f"epoch {adjustment['epoch']}: a fresh routing takes new subscriptions"
    if adjustment["action"] == Retire.name:
        return f"epoch {adjustment['epoch']}: the old routing has retired, {moved}"
    return f"epoch {adjustment['epoch']}: {moved}, busiest / idlest {before:,.2f} to {after:,.2f}"


def epoch_of_reports(reports: Iterable[Mapping[str, Any]]) -> int:
    """Return the number of the routing that shards report."""
    return max((report.get("epoch", 0) for report in reports), default=0)
