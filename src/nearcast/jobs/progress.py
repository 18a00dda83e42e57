"""How is a job doing? What Spark reports of each batch, added up and put into words.

The pipeline observes its own rows on the way, so that counting them costs no query of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nearcast.jobs.frame import MESSAGE, SUBSCRIPTION

MESSAGES, SUBSCRIPTIONS, SHARDS = "nearcast_messages", "nearcast_subscriptions", "nearcast_shards"
"""Names under which the pipeline observes what came in, and what shards report."""
MALFORMED = {MESSAGE: "nearcast_malformed_messages", SUBSCRIPTION: "nearcast_malformed_subscriptions"}
"""The same for lines of a source that are no rows at all."""
_MAY_REJECT = (MESSAGES, SUBSCRIPTIONS, *MALFORMED.values())


@dataclass
class Tally:
    """What a job has done since this process watches it."""

    batches: int = 0
    messages: int = 0
    rejected: int = 0
    updates: int = 0
    late: int = 0
    unknown: int = 0
    """Unsubscribed, but not there."""
    subscriptions: dict[int, int] = field(default_factory=dict)
    """Standing subscriptions of each shard."""
    state_bytes: dict[int, int] = field(default_factory=dict)
    """Bytes of the state of each shard."""
    work: dict[int, float] = field(default_factory=dict)
    """Seconds that each shard has worked."""
    last_batch: int = -1
    last_seconds: float = 0.0
    last_messages: int = 0
    last_updates: int = 0

    def take(self, progress: Iterable[Mapping[str, Any]]) -> bool:
        """Add what Spark reports; tell whether there was a batch that was not known yet."""
        is_new = False
        for batch in progress:
            if batch["batchId"] > self.last_batch and batch["numInputRows"]:
                self._add(batch)
                is_new = True
        return is_new

    def _add(self, batch: Mapping[str, Any]) -> None:
        observed = batch.get("observedMetrics") or {}
        said = observed.get(MESSAGES) or {}
        reports = [json.loads(report) for report in (observed.get(SHARDS) or {}).get("reports") or ()]
        self.batches += 1
        self.last_batch = batch["batchId"]
        self.last_seconds = (batch.get("durationMs") or {}).get("triggerExecution", 0) / 1e3
        self.last_messages = (said.get("rows") or 0) - (said.get("rejected") or 0)
        self.last_updates = sum(report["updates"] for report in reports)
        self.messages += self.last_messages
        self.updates += self.last_updates
        self.rejected += sum((observed.get(name) or {}).get("rejected") or 0 for name in _MAY_REJECT)
        self.late += max((report["late"] for report in reports), default=0)
        self.unknown += sum(report["unknown"] for report in reports)
        for report in reports:
            shard = report["shard"]
            self.subscriptions[shard] = report["subscriptions"]
            self.state_bytes[shard] = report["state_bytes"]
            self.work[shard] = self.work.get(shard, 0.0) + report["seconds"]

    @property
    def balance(self) -> float:
        """How much more the busiest shard has to do than the average one; 1 is even."""
        total = sum(self.work.values())
        return max(self.work.values()) * len(self.work) / total if total else 1.0

    def figures(self) -> dict[str, float]:
        """Return what there is to say, as numbers; rates are those of the last batch."""
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
            "state_bytes": sum(self.state_bytes.values()),
            "shard_balance": round(self.balance, 3),
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return what there is to say, name by name, for people."""
        said = self.figures()
        return [
            ("batches", f"{self.batches:,}"),
            ("last batch", f"{self.last_seconds:.2f} s"),
            ("messages", f"{self.messages:,}"),
            ("messages/s", f"{said['messages_per_second']:,.0f}"),
            ("updates", f"{self.updates:,}"),
            ("updates/s", f"{said['updates_per_second']:,.0f}"),
            ("rejected", f"{self.rejected:,}"),
            ("late", f"{self.late:,}"),
            ("left, never there", f"{self.unknown:,}"),
            ("subscriptions", f"{said['subscriptions']:,}"),
            ("state", f"{said['state_bytes'] / 1e6:,.1f} MB"),
            ("shard balance", f"{self.balance:.2f} busiest / average"),
        ]
