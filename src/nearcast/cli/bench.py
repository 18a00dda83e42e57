"""`nearcast bench KIND`: throughput, latency and work of a kind on a seeded workload.

    fill the window ── subscribe (timed: build_seconds) ── warm up ── publish in batches (timed)

Setup and compilation are never timed. The latency of a batch is the time from the call to its updates. With a
baseline the same messages run through it in the same process, and it must return as many updates. For `nearest` the
step of its paper is timed as well: a thousand messages, a hundred insertions and a hundred deletions.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from nearcast.cli.arguments import amount, count, positive
from nearcast.errors import require

if TYPE_CHECKING:
    import pyarrow as pa

    from nearcast.engine import Engine
    from nearcast.partition import Routing

NAME = "bench"
HELP = "measure a kind of subscription on a seeded workload"

_FIGURES = ("messages_per_second", "p50_ms", "p99_ms", "updates", "build_seconds", "peak_rss_mb")
_WARM = 4  # batches before the timing, so that buffers have their final size
_WORK = ("visited", "candidates", "verified", "matched")
_STEPS, _STEP_MESSAGES, _STEP_CHANGES = 5, 1_000, 100
_FITTED_TO = 100_000  # messages and subscriptions that a partitioner is fitted to before Spark runs


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    from nearcast.index import INDEXES
    from nearcast.model import kinds
    from nearcast.partition import partitioner_names
    from nearcast.partition.balance.policy import SIGMA
    from nearcast.workload import QUERIES, WORKLOADS

    add = parser.add_argument
    add(
        "kind",
        choices=[kind.kind for kind in kinds()],
        metavar="KIND",
        help="boolean, similarity, topk, nearest or social",
    )
    add("--workload", choices=[one.name for one in WORKLOADS], default="tweets", help="the stream")
    add("--subscriptions", type=positive, default=2_000, help="number of subscriptions; 10k and 5M are valid")
    add("--messages", type=positive, default=1_000, help="number of timed messages")
    add(
        "--window",
        type=positive,
        default=1_000,
        help="messages in the window; for nearest, messages before the timing",
    )
    add("--k", type=positive, default=20, help="k of each subscription; for nearest and social, the greatest k")
    add(
        "--workers",
        type=positive,
        default=1,
        help="number of threads",
    )
    add("--seed", type=count, default=0, help="seed of the workload")
    add("--batch", type=positive, default=100, help="messages per call")
    add("--queries", choices=list(QUERIES), default="q1", help="group of boolean queries")
    add(
        "--max-distance",
        type=amount,
        default=0.0,
        help="distance at which nearness is zero, in metres; 0 means the diagonal of the bounds",
    )
    add(
        "--analyzer",
        default=None,
        metavar="NAME",
        help="publish texts, and make terms of them with this analyzer; default: messages come as terms",
    )
    add("--partitioner", choices=partitioner_names(), default="hash", help="how workers share the work")
    add(
        "--balance", type=float, nargs="?", const=SIGMA, metavar="RATIO",
        help="without Spark: move subscriptions when the busiest worker does more than RATIO times the work of the "
        f"idlest; default: {SIGMA}",
    )  # fmt: skip
    add("--index", choices=["auto", *(entry.name for entry in INDEXES)], default="auto", help="index to measure")
    add(
        "--baseline",
        default=None,
        metavar="NAME",
        help="an index to compare on the same messages: scan, or a baseline",
    )
    add("--spark", action="store_true", help="run the same through Spark, one shard per worker")
    add("--spark-batch", type=positive, default=100_000, help="messages per batch of Spark")
    add(
        "--packed",
        action="store_true",
        help="use packed blocks of messages and updates on Spark",
    )
    add("--json", action="store_true", help="print one JSON object instead of a table")


def run(options: argparse.Namespace) -> int:
    """Measure, and print the figures."""
    report = {
        name: getattr(options, name) for name in ("kind", "workload", "subscriptions", "messages", "window", "k")
    }
    report |= {name: getattr(options, name) for name in ("workers", "seed", "batch", "index")}
    if options.baseline:
        _check_baseline(options.baseline, options.kind)
    benchmark = Benchmark(options)
    report |= benchmark.measure(options.index)
    if options.baseline:
        report["baseline"] = {"name": options.baseline, **benchmark.measure(options.baseline)}
        report["ratio"] = report["messages_per_second"] / report["baseline"]["messages_per_second"]
    if options.spark:
        report["spark"] = benchmark.measure_on_spark()
        report["spark"]["ratio"] = report["spark"]["messages_per_second"] / report["messages_per_second"]
    if options.json:
        print(json.dumps(report))
    else:
        _print_table(report)
    if options.baseline and report["baseline"]["updates"] != report["updates"]:
        print(f"nearcast: {options.baseline} returned another number of updates", file=sys.stderr)
        return 1
    return 0


def _check_baseline(name: str, kind: str) -> None:
    """Raise `InvalidInput` if no registered index of that name serves the kind."""
    from nearcast.index import registered_indexes

    names = ["scan", *(entry.name for entry in registered_indexes() if entry.serves(kind))]
    require(name in names, "baseline", f"must be one of {names} for kind {kind!r}", name)


class Benchmark:
    """One workload with one configuration, for every index that is measured."""

    def __init__(self, options: argparse.Namespace) -> None:
        from nearcast.model import find_kind
        from nearcast.workload import make

        self._options = options
        self._workload = make(options.workload, seed=options.seed)
        policy = find_kind(options.kind).result_policy
        self._is_windowed, self._needs_history = policy.needs_window, policy.must_be_saved
        self._community = self._workload.social(options.subscriptions) if options.kind == "social" else None

    def measure(self, index: str) -> dict[str, Any]:
        """Run once on an index and return the figures."""
        import pyarrow as pa

        options = self._options
        self._warm_up(index)
        before_timing = options.window if self._is_windowed or self._needs_history else 0
        with self._engine(index) as engine:
            if self._is_windowed:
                self._publish(engine, self._messages(before_timing, 0, "window"))
            started = time.perf_counter()
            for table in self._subscriptions():
                engine.subscribe(table)
            build_seconds = time.perf_counter() - started
            if self._needs_history:
                self._publish(engine, self._messages(before_timing, 0, "messages"))
            warm = _WARM * options.batch
            self._publish(engine, self._messages(warm, before_timing, "warming up"))
            tables = list(self._messages(options.messages, before_timing + warm, "messages"))
            timed = list(_batches(pa.concat_tables(tables).combine_chunks(), options.batch))
            figures = self._time(engine, timed)
            if self._needs_history:
                figures["step_ms"] = self._time_steps(
                    engine, options.subscriptions, start=before_timing + warm + options.messages
                )
            return {
                **figures,
                "build_seconds": round(build_seconds, 3),
                "peak_rss_mb": _peak_rss_mb(),
                **({} if options.balance is None else {"adjustments": len(engine.adjustments)}),
            }

    def measure_on_spark(self) -> dict[str, Any]:
        """Run the same through the pipeline and return the figures."""
        from nearcast.cli.bench_spark import measure, pipeline

        options = self._options
        options_of_job = {**self._engine_options(options.index), "partitioner": self._routing()}
        with pipeline(shards=options.workers, is_packed=options.packed, **options_of_job) as job:
            return measure(
                job,
                self._subscriptions(),
                lambda n, start: self._messages(n, start, "messages"),
                n_messages=options.messages,
                batch=options.spark_batch,
                window=options.window if self._is_windowed else 0,
                history=options.window if self._needs_history else 0,
            )

    def _routing(self) -> Routing:
        """Return the routing among processes, fitted to a sample."""
        import pyarrow as pa

        from nearcast.advice.stream import Stream
        from nearcast.partition.fitting import fit
        from nearcast.social import SocialGraph

        given = self._engine_options(self._options.index)
        some = Stream(
            self._options.workload,
            given["space"],
            given["vocabulary"],
            given["social"] or SocialGraph(),
            given["window"],
            subscriptions=pa.concat_tables(
                self._tables_of_subscriptions(min(_FITTED_TO, self._options.subscriptions))
            ),
            messages=pa.concat_tables(self._workload.messages(_FITTED_TO, community=self._community)),
        )
        return fit(self._options.partitioner, some.sample, n_shards=self._options.workers, in_threads=False)

    def _warm_up(self, index: str) -> None:
        """Do everything once on a few rows, so that all kernels are compiled."""
        n = min(100, self._options.subscriptions)
        with self._engine(index) as engine:
            for table in self._tables_of_subscriptions(n):
                engine.subscribe(table)
            for table in self._messages(200, 0, "warming up"):
                engine.publish(table)
            if self._needs_history:
                self._time_steps(engine, n, start=200)

    def _time(self, engine: Engine, batches: list[pa.Table]) -> dict[str, Any]:
        import numpy as np

        work_before = engine.stats()
        updates, seconds = 0, []
        for batch in batches:
            started = time.perf_counter()
            updates += engine.publish(batch).num_rows
            seconds.append(time.perf_counter() - started)
        work = engine.stats()
        p50, p99 = np.percentile(seconds, [50, 99]) * 1e3
        return {
            "messages_per_second": round(sum(b.num_rows for b in batches) / sum(seconds), 1),
            "p50_ms": round(float(p50), 3),
            "p99_ms": round(float(p99), 3),
            "updates": updates,
            **{name: getattr(work, name) - getattr(work_before, name) for name in _WORK},
        }

    def _time_steps(self, engine: Engine, n: int, *, start: int) -> float:
        """Return the median duration of a step: messages, insertions and as many deletions.

        The first `n` subscriptions exist, and the messages before `start` are published.
        """
        import numpy as np
        import pyarrow as pa

        kind, k, seconds = self._options.kind, self._options.k, []
        for step in range(_STEPS):
            tables = self._workload.messages(_STEP_MESSAGES, start=start + step * _STEP_MESSAGES)
            messages = pa.concat_tables(tables).combine_chunks()
            added, removed = (
                pa.concat_tables(self._workload.subscriptions(kind, _STEP_CHANGES, start=first, k=k))
                for first in (n + step * _STEP_CHANGES, step * _STEP_CHANGES)
            )
            started = time.perf_counter()
            engine.publish(messages)
            engine.subscribe(added)
            engine.unsubscribe(removed.select(["id"]))
            seconds.append(time.perf_counter() - started)
        return round(float(np.median(seconds)) * 1e3, 3)

    def _engine(self, index: str) -> Engine:
        from nearcast import Balance, Engine

        sigma = self._options.balance
        balance = None if sigma is None else Balance(sigma=sigma)
        return Engine(**self._engine_options(index), workers=self._options.workers, balance=balance)

    def _engine_options(self, index: str) -> dict[str, Any]:
        """Return the options of engines and pipelines."""
        from nearcast import CountWindow

        options = self._options
        return {
            "space": self._workload.space(max_distance=options.max_distance or None),
            "vocabulary": self._workload.vocabulary(),
            "window": CountWindow(options.window) if self._is_windowed else None,
            "social": self._community.graph if self._community else None,
            "analyzer": options.analyzer,
            "partitioner": options.partitioner,
            "index": index,
        }

    def _subscriptions(self) -> Iterator[pa.Table]:
        from nearcast.workload import progress

        n = self._options.subscriptions
        return progress(self._tables_of_subscriptions(n), n, "subscriptions")

    def _tables_of_subscriptions(self, n: int) -> Iterator[pa.Table]:
        options = self._options
        return self._workload.subscriptions(
            options.kind, n, k=options.k, queries=options.queries, community=self._community
        )

    def _messages(self, n: int, start: int, what: str) -> Iterator[pa.Table]:
        from nearcast.workload import progress

        tables = self._workload.messages(n, start=start, community=self._community)
        are_texts = self._options.spark or self._options.analyzer is not None
        return progress(map(_as_texts, tables) if are_texts else tables, n, what)

    def _publish(self, engine: Engine, tables: Iterator[pa.Table]) -> None:
        for table in tables:
            for batch in _batches(table, self._options.batch):
                engine.publish(batch)


def _as_texts(messages: pa.Table) -> pa.Table:
    """Return messages whose terms are joined to texts, as users have them; `simple` makes the same terms of them."""
    import pyarrow.compute as pc

    column = messages.column_names.index("text")
    return messages.set_column(column, "text", pc.binary_join(messages["text"], " "))


def _batches(table: pa.Table, size: int) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, size):
        yield table.slice(start, size)


def _peak_rss_mb() -> float:
    import resource

    unit = 1 if sys.platform == "darwin" else 1024  # bytes on macOS, kilobytes elsewhere
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6, 1)


def _print_table(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    baseline = report.get("baseline")
    title = f"{report['kind']} on {report['workload']}: {report['subscriptions']:,} subscriptions"
    table = Table("figure", title=title)
    table.add_column(report["index"], justify="right")
    if baseline:
        table.add_column(baseline["name"], justify="right")
    for name in (*_FIGURES, *_WORK, *(["step_ms"] if "step_ms" in report else [])):
        values = [source[name] for source in (report, baseline) if source]
        table.add_row(name, *(f"{value:,}" for value in values))
    if baseline:
        table.add_row("ratio", f"{report['ratio']:.2f}")
    Console().print(table)
    if "spark" in report:
        figures = Table("on Spark", "", title=f"{report['workers']} shards")
        for name, value in report["spark"].items():
            figures.add_row(name, f"{value:,}" if isinstance(value, int) else f"{value:,.3f}")
        Console().print(figures)
