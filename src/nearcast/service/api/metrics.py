"""Metrics of the service in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nearcast.engine.stats import Stats
from nearcast.service.commands import COMMANDS

_BUCKETS_S = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class Metrics:
    """All metrics of one service, in a registry of their own."""

    def __init__(self) -> None:
        own = self._registry = CollectorRegistry()
        self.commands = Counter("nearcast_commands", "Commands committed", ["command"], registry=own)
        self.messages = Counter("nearcast_messages", "Messages committed", registry=own)
        self.updates = Counter("nearcast_updates", "Updates committed", registry=own)
        self.rejected = Counter("nearcast_rejected_requests", "Requests rejected as invalid", registry=own)
        self.waiting = Gauge("nearcast_waiting_requests", "Requests waiting in the queue", registry=own)
        self.job_lag = Gauge(
            "nearcast_job_lag_messages", "Messages sent to the job on Spark and not yet reported", registry=own
        )
        self.apply_seconds = Histogram(
            "nearcast_apply_seconds", "Time to apply a command to the engine", registry=own, buckets=_BUCKETS_S
        )
        self.commit_seconds = Histogram(
            "nearcast_commit_seconds", "Time to write a batch of commands to disk", registry=own, buckets=_BUCKETS_S
        )
        self.snapshot_seconds = Histogram("nearcast_snapshot_seconds", "Time to save the engine", registry=own)
        self.failed_snapshots = Counter(
            "nearcast_failed_snapshots", "Attempts to save the engine that failed", registry=own
        )
        self.push_clients = Gauge(
            "nearcast_push_clients", "Clients that receive updates", ["transport"], registry=own
        )
        self.lagged_clients = Counter(
            "nearcast_lagged_clients", "Clients disconnected because they lagged", registry=own
        )
        self.deliveries = Counter(
            "nearcast_webhook_deliveries", "Attempts to deliver to a webhook", ["outcome"], registry=own
        )
        self.webhooks = Gauge("nearcast_webhooks", "Registered webhooks", ["state"], registry=own)
        self._engine = _EngineCollector()
        own.register(self._engine)

    def totals(self) -> dict[str, float]:
        """Return the totals of messages, updates and commands, and of the seconds that commands took."""
        value = self._registry.get_sample_value
        commands = sum(value("nearcast_commands_total", {"command": name}) or 0.0 for name in COMMANDS)
        seconds = sum(value(f"nearcast_{name}_seconds_sum") or 0.0 for name in ("apply", "commit"))
        counts = {name: value(f"nearcast_{name}_total") or 0.0 for name in ("messages", "updates")}
        return {**counts, "commands": commands, "seconds": seconds}

    def render(self, stats: Stats | None) -> bytes:
        """Return all metrics as text; without `stats`, those of the engine are the last known ones."""
        if stats is not None:
            self._engine.stats = stats
        return generate_latest(self._registry)


class _EngineCollector(Collector):
    """Metrics from the statistics of the engine."""

    stats: Stats | None = None

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        if self.stats is None:
            return
        stats = self.stats
        for name, text, value in (
            ("subscriptions", "Subscriptions", stats.subscriptions),
            ("window_messages", "Messages in the window", stats.window),
            ("memory_bytes", "Resident memory of the process", stats.memory_bytes),
        ):
            yield GaugeMetricFamily(f"nearcast_engine_{name}", text, value)
        for name, text, value in (
            ("messages", "Messages of the whole stream", stats.messages),
            ("late_messages", "Messages that had expired on arrival", stats.late),
        ):
            yield CounterMetricFamily(f"nearcast_engine_{name}", text, value)
        for name, text in (
            ("visited", "Index entries visited"),
            ("candidates", "Subscriptions that no bound ruled out"),
            ("verified", "Subscriptions whose score was computed"),
            ("matched", "Arrivals that changed a result"),
        ):
            family = CounterMetricFamily(f"nearcast_engine_{name}", text, labels=["kind"])
            for kind, work in stats.work.items():
                family.add_metric([kind], getattr(work, name))
            yield family
