"""How is the service doing? Counts and times, for Prometheus to read."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nearcast.engine.stats import Stats
from nearcast.service.commands import COMMANDS

_KINDS = [command.kind for command in COMMANDS]
_SECONDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class Meters:
    """Everything that is counted, in a registry of its own."""

    def __init__(self) -> None:
        own = self._registry = CollectorRegistry()
        self.commands = Counter("nearcast_commands", "Commands committed", ["kind"], registry=own)
        self.messages = Counter("nearcast_messages", "Messages committed", registry=own)
        self.updates = Counter("nearcast_updates", "Updates committed", registry=own)
        self.refused = Counter("nearcast_refused", "Commands refused as invalid", registry=own)
        self.waiting = Gauge("nearcast_queue_depth", "Commands and questions that wait", registry=own)
        self.behind = Gauge(
            "nearcast_job_behind", "Messages that a job on Spark was given and has not reported yet", registry=own
        )
        self.apply_seconds = Histogram(
            "nearcast_apply_seconds", "A command in the engine", registry=own, buckets=_SECONDS
        )
        self.commit_seconds = Histogram(
            "nearcast_commit_seconds", "Writing a batch of commands to disk", registry=own, buckets=_SECONDS
        )
        self.snapshot_seconds = Histogram("nearcast_snapshot_seconds", "Saving the engine", registry=own)
        self.clients = Gauge("nearcast_clients", "Clients that updates are pushed to", ["transport"], registry=own)
        self.lagging = Counter("nearcast_lagging_clients", "Clients closed because they lagged", registry=own)
        self.deliveries = Counter(
            "nearcast_webhook_deliveries", "Attempts to deliver to a webhook", ["outcome"], registry=own
        )
        self.webhooks = Gauge("nearcast_webhooks", "Webhooks", ["state"], registry=own)
        self._engine = _EngineStats()
        own.register(self._engine)

    def so_far(self) -> dict[str, float]:
        """Return what was counted so far, and how many seconds commands took in all."""
        read = self._registry.get_sample_value
        commands = sum(read("nearcast_commands_total", {"kind": kind}) or 0.0 for kind in _KINDS)
        seconds = sum(read(f"nearcast_{name}_seconds_sum") or 0.0 for name in ("apply", "commit"))
        counted = {name: read(f"nearcast_{name}_total") or 0.0 for name in ("messages", "updates")}
        return {**counted, "commands": commands, "seconds": seconds}

    def text(self, stats: Stats | None) -> bytes:
        """Return everything as Prometheus reads it; of the engine, what was last known."""
        if stats is not None:
            self._engine.stats = stats
        return generate_latest(self._registry)


class _EngineStats(Collector):
    """What the engine says of itself."""

    stats: Stats | None = None

    def collect(self) -> Iterator[Metric]:
        """Yield its counts."""
        if self.stats is None:
            return
        stats = self.stats
        for name, said, value in (
            ("subscriptions", "Subscriptions", stats.subscriptions),
            ("window_messages", "Messages in the window", stats.window),
            ("memory_bytes", "Resident memory of the process", stats.memory_bytes),
        ):
            yield GaugeMetricFamily(f"nearcast_engine_{name}", said, value)
        for name, said, value in (
            ("messages", "Messages of the whole stream", stats.messages),
            ("late", "Messages that had expired when they came", stats.late),
        ):
            yield CounterMetricFamily(f"nearcast_engine_{name}", said, value)
        for name, said in (
            ("visited", "Entries looked at"),
            ("candidates", "Subscriptions that no bound ruled out"),
            ("verified", "Subscriptions whose score was computed"),
            ("matched", "Arrivals that changed a result"),
        ):
            family = CounterMetricFamily(f"nearcast_engine_{name}", said, labels=["kind"])
            for kind, work in stats.work.items():
                family.add_metric([kind], getattr(work, name))
            yield family
