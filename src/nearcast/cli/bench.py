"""`nearcast bench KIND`: how fast is a kind on a seeded workload, and how much work does it do?

    fill the window ── subscribe (timed: build_seconds) ── warm up ── publish in batches (timed)

Setting up and compiling are never timed. A batch's latency is the time from handing it over to having its updates.
With a baseline the same messages run through it in the same process, and it must tell as many updates. For `nearest`
the step of its paper is timed as well: a thousand messages, a hundred insertions and a hundred deletions.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearcast.cli.arguments import amount, count, positive
from nearcast.cli.rehearsal import rehearse
from nearcast.errors import StateError, require

if TYPE_CHECKING:
    import pyarrow as pa

    from nearcast.engine import Engine
    from nearcast.partition import Routing

NAME = "bench"
HELP = "measure a kind of subscription on a seeded workload"

RIVALS = {
    "boolean": ("gi2",),
    "similarity": ("sp", "sp-hi", "sp-rp-hi"),
    "topk": ("igpt-cskyband", "igpt-skyband", "igpt-kmax", "ciq-kmax"),
    "nearest": ("inverted", "grid"),
    "social": ("baseline1", "baseline2", "baseline3", "quadtree"),
}
"""Kind -> the papers' indexes, which live in `benchmarks/baselines` of a checkout; the scan serves every kind."""

_FIGURES = ("messages_per_second", "p50_ms", "p99_ms", "updates", "build_seconds", "peak_rss_mb")
_WARM = 4  # batches before the timing: buffers then have their size
_WORK = ("visited", "candidates", "verified", "matched")
_STEPS, _STEP_MESSAGES, _STEP_CHANGES = 5, 1_000, 100
_LEARNED = 100_000  # messages and subscriptions that a partitioner learns from before Spark runs


def add_options(parser: argparse.ArgumentParser) -> None:
    """Say what the bench can be told."""
    from nearcast.index import INDEXES
    from nearcast.model import kinds
    from nearcast.partition import partitioner_names
    from nearcast.workload import QUERIES, WORKLOADS

    add = parser.add_argument
    add(
        "kind",
        choices=[kind.kind for kind in kinds()],
        metavar="KIND",
        help="boolean, similarity, topk, nearest or social",
    )
    add("--workload", choices=[one.name for one in WORKLOADS], default="tweets", help="what streams past")
    add("--subscriptions", type=positive, default=2_000, help="standing subscriptions; 10k and 5M are numbers too")
    add("--messages", type=positive, default=1_000, help="messages that are timed")
    add(
        "--window",
        type=positive,
        default=1_000,
        help="messages in the window; for nearest, messages before the timing",
    )
    add("--k", type=positive, default=20, help="results a subscription keeps; for nearest and social, the greatest k")
    add(
        "--workers",
        type=positive,
        default=1,
        help="threads; they part the messages of kinds that only grow, else the subscriptions",
    )
    add("--seed", type=count, default=0, help="two runs with one seed see the same bytes")
    add("--batch", type=positive, default=100, help="messages a call")
    add("--queries", choices=list(QUERIES), default="q1", help="which boolean queries")
    add(
        "--max-distance",
        type=amount,
        default=0.0,
        help="where nearness ends, in metres; 0 means as far as the bounds go",
    )
    add("--partitioner", choices=partitioner_names(), default="hash", help="how workers share the work")
    add("--index", choices=["auto", *(entry.name for entry in INDEXES)], default="auto", help="what finds")
    rivals = ["scan", *(name for names in RIVALS.values() for name in names)]
    add("--baseline", choices=rivals, default=None, help="a rival to run on the same messages")
    add("--spark", action="store_true", help="run the same through the pipeline on Spark, a shard a worker")
    add("--spark-batch", type=positive, default=100_000, help="messages a batch of Spark")
    add(
        "--packed",
        action="store_true",
        help="let messages come to Spark in blocks, not in rows, and updates leave it so",
    )
    add("--json", action="store_true", help="print one JSON object instead of a table")


def run(options: argparse.Namespace) -> int:
    """Measure, and print what came of it."""
    report = {
        name: getattr(options, name) for name in ("kind", "workload", "subscriptions", "messages", "window", "k")
    }
    report |= {name: getattr(options, name) for name in ("workers", "seed", "batch", "index")}
    if options.baseline:
        _load_rival(options.baseline, options.kind)
    course = Course(options)
    report |= course.measure(options.index)
    if options.baseline:
        report["baseline"] = {"name": options.baseline, **course.measure(options.baseline)}
        report["ratio"] = report["messages_per_second"] / report["baseline"]["messages_per_second"]
    if options.spark:
        report["spark"] = course.measure_on_spark()
        report["spark"]["ratio"] = report["spark"]["messages_per_second"] / report["messages_per_second"]
    if options.json:
        print(json.dumps(report))
    else:
        _print_table(report)
    if options.baseline and report["baseline"]["updates"] != report["updates"]:
        print(f"nearcast: {options.baseline} told another number of updates", file=sys.stderr)
        return 1
    return 0


def _load_rival(name: str, kind: str) -> None:
    """Make a rival, and whatever keeps for it, known to the engine."""
    from nearcast import index, window

    if name == "scan":
        return
    require(name in RIVALS.get(kind, ()), "baseline", f"must be one of {['scan', *RIVALS.get(kind, ())]} here", name)
    sys.path.insert(0, str(Path.cwd()))
    try:
        baselines = importlib.import_module("benchmarks.baselines")
    except ImportError:
        raise StateError("the papers' baselines live in benchmarks/ of a checkout; run from there") from None
    finally:
        sys.path.pop(0)
    for result_store in baselines.RESULT_STORES:
        window.register(result_store)
    for entry in baselines.BASELINES:
        index.register(entry)


class Course:
    """One workload, the same for everyone who runs it."""

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
        rehearse(lambda: self._rehearse(index))
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
            }

    def measure_on_spark(self) -> dict[str, Any]:
        """Run the same through the pipeline and return the figures."""
        from nearcast.cli.bench_spark import measure, pipeline

        options = self._options
        scoring = {**self._scoring(options.index), "partitioner": self._routing()}
        with pipeline(shards=options.workers, is_packed=options.packed, **scoring) as job:
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
        """Return how processes share the work, learned from some of it."""
        import pyarrow as pa

        from nearcast.advice.stream import Stream
        from nearcast.partition.fitting import fit
        from nearcast.social import SocialGraph

        given = self._scoring(self._options.index)
        some = Stream(
            self._options.workload,
            given["space"],
            given["vocabulary"],
            given["social"] or SocialGraph(),
            given["window"],
            subscriptions=pa.concat_tables(self._tables_of_subscriptions(min(_LEARNED, self._options.subscriptions))),
            messages=pa.concat_tables(self._workload.messages(_LEARNED, community=self._community)),
        )
        return fit(self._options.partitioner, some.sample, n_shards=self._options.workers, in_threads=False)

    def _rehearse(self, index: str) -> None:
        """Do everything once on a few rows, so that nothing is compiled later."""
        n = min(100, self._options.subscriptions)
        with self._engine(index) as engine:
            for table in self._tables_of_subscriptions(n):
                engine.subscribe(table)
            for table in self._workload.messages(200, community=self._community):
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
        """Return how long a step takes, the median of some: messages, insertions and as many deletions.

        The first `n` subscriptions are there, and the messages before `start` have been.
        """
        import numpy as np
        import pyarrow as pa

        kind, k, seconds = self._options.kind, self._options.k, []
        for step in range(_STEPS):
            tables = self._workload.messages(_STEP_MESSAGES, start=start + step * _STEP_MESSAGES)
            messages = pa.concat_tables(tables).combine_chunks()
            coming, leaving = (
                pa.concat_tables(self._workload.subscriptions(kind, _STEP_CHANGES, start=first, k=k))
                for first in (n + step * _STEP_CHANGES, step * _STEP_CHANGES)
            )
            started = time.perf_counter()
            engine.publish(messages)
            engine.subscribe(coming)
            engine.unsubscribe(leaving.select(["id"]))
            seconds.append(time.perf_counter() - started)
        return round(float(np.median(seconds)) * 1e3, 3)

    def _engine(self, index: str) -> Engine:
        from nearcast import Engine

        return Engine(**self._scoring(index), workers=self._options.workers)

    def _scoring(self, index: str) -> dict[str, Any]:
        """Return what engines and pipelines are made with."""
        from nearcast import CountWindow

        options = self._options
        return {
            "space": self._workload.space(max_distance=options.max_distance or None),
            "vocabulary": self._workload.vocabulary(),
            "window": CountWindow(options.window) if self._is_windowed else None,
            "social": self._community.graph if self._community else None,
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
        return progress(map(_as_texts, tables) if self._options.spark else tables, n, what)

    def _publish(self, engine: Engine, tables: Iterator[pa.Table]) -> None:
        for table in tables:
            for batch in _batches(table, self._options.batch):
                engine.publish(batch)


def _as_texts(messages: pa.Table) -> pa.Table:
    """Return messages whose terms are joined to texts, as people have them; tokenised, they are the same terms."""
    import pyarrow.compute as pc

    column = messages.column_names.index("text")
    return messages.set_column(column, "text", pc.binary_join(messages["text"], " "))


def _batches(table: pa.Table, size: int) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, size):
        yield table.slice(start, size)


def _peak_rss_mb() -> float:
    import resource

    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, everyone else kilobytes
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6, 1)


def _print_table(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    rival = report.get("baseline")
    title = f"{report['kind']} on {report['workload']}: {report['subscriptions']:,} subscriptions"
    table = Table("figure", title=title)
    table.add_column(report["index"], justify="right")
    if rival:
        table.add_column(rival["name"], justify="right")
    for name in (*_FIGURES, *_WORK, *(["step_ms"] if "step_ms" in report else [])):
        values = [source[name] for source in (report, rival) if source]
        table.add_row(name, *(f"{value:,}" for value in values))
    if rival:
        table.add_row("ratio", f"{report['ratio']:.2f}")
    Console().print(table)
    if "spark" in report:
        figures = Table("on Spark", "", title=f"{report['workers']} shards")
        for name, value in report["spark"].items():
            figures.add_row(name, f"{value:,}" if isinstance(value, int) else f"{value:,.3f}")
        Console().print(figures)
