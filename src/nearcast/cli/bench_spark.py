"""`nearcast bench --spark`: the same subscriptions and messages through the pipeline, batch by batch.

    fill the window ── subscriptions ── their history ── batches that warm up ── batches that count
                                                                     a restart ── small batches ──┘

A batch of messages consists of as many files as there are shards: Parquet, or packed blocks that Spark reads as whole
files.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from nearcast.cli.spark_session import spark_session
from nearcast.jobs.temporary_folder import temporary_folder

_WARM = 6  # uncounted batches: the first ones compile and fill caches
_SMALL, _N_SMALL = 100, 15


class Pipeline:
    """Folders of input files, and a session that runs them."""

    def __init__(
        self,
        spark: Any,
        folder: Path,
        local: Path,
        *,
        shards: int,
        tasks: int | None = None,
        is_packed: bool = False,
        **options: Any,
    ) -> None:
        self._spark, self._folder, self._local, self._shards, self._tasks = spark, folder, local, shards, tasks
        self._is_packed, self._options = is_packed, options
        self._n_files = 0
        for name in ("messages", "subscriptions"):
            (folder / name).mkdir(parents=True)

    def add(self, name: str, tables: Iterable[pa.Table]) -> None:
        """Add a batch of rows to a source; batches are processed in the order of these calls."""
        from nearcast.spark import pack_messages

        table = pa.concat_tables(tables)
        for part in range(self._shards):
            start, stop = (len(table) * i // self._shards for i in (part, part + 1))
            file = self._folder / name / f"{self._n_files:06d}"
            if self._is_packed and name == "messages":
                file.write_bytes(pack_messages(table.slice(start, stop - start)))
            else:
                pq.write_table(table.slice(start, stop - start), file)
            os.utime(file, (1e9 + self._n_files, 1e9 + self._n_files))
            self._n_files += 1

    def run(self, rescales: Mapping[int, int] = MappingProxyType({})) -> list[dict[str, Any]]:
        """Process what was added since the last run; return the reports of Spark and of the shards for each batch.

        `rescales` holds numbers of shards, by the batch after which the job is rescaled to them.
        """
        from nearcast.spark.query_progress import batches_of

        matched = self._match()

        def sink(rows: Any, batch: int) -> None:
            rows.write.format("noop").mode("overwrite").save()
            if batch in rescales:
                matched.rescale(rescales[batch])

        writer = (matched.packed if self._is_packed else matched.updates).writeStream.trigger(availableNow=True)
        writer = writer.foreachBatch(sink) if rescales else writer.format("noop")
        query = writer.option("checkpointLocation", str(self._folder / "checkpoint")).start()
        query.awaitTermination()
        return batches_of(query, self._state)

    @property
    def _state(self) -> str:
        return str(self._folder / "state")

    def _match(self) -> Any:
        """Return the frames of the job."""
        from nearcast.spark import match
        from nearcast.spark.schema import messages_ddl, subscriptions_ddl
        from nearcast.spark.streams import WHOLE_FILES

        def source(name: str, format_: str, schema: str) -> Any:
            reader = self._spark.readStream.format(format_).schema(schema)
            return reader.option("maxFilesPerTrigger", self._shards).load(str(self._folder / name))

        source_of_messages = ("binaryFile", WHOLE_FILES) if self._is_packed else ("parquet", messages_ddl())
        sources = source("messages", *source_of_messages), source("subscriptions", "parquet", subscriptions_ddl())
        return match(*sources, **self._options, shards=self._shards, max_shards=self._tasks, state=self._state)

    def lose_local_engines(self) -> None:
        """Delete the engines that shards cache on this host."""
        shutil.rmtree(self._local)


@contextmanager
def pipeline(*, shards: int, tasks: int | None = None, **options: Any) -> Iterator[Pipeline]:
    """Yield a pipeline with as many cores as shards, and as many tasks unless another number is given."""
    with temporary_folder() as root:
        settings = {
            "spark.ui.enabled": "false",
            "spark.driver.memory": "4g",
            "spark.log.level": "ERROR",
            "spark.nearcast.local": str(root / "local"),
        }
        master = f"local[{shards}]"
        with spark_session(root / "spark.log", shards=tasks or shards, master=master, settings=settings) as spark:
            yield Pipeline(spark, root / "job", root / "local", shards=shards, tasks=tasks, **options)


Messages = Callable[[int, int], Iterable[pa.Table]]
"""Function of a number of messages and the number of the first: tables of a workload."""


def measure(
    job: Pipeline,
    subscriptions: Iterable[pa.Table],
    messages: Messages,
    *,
    n_messages: int,
    batch: int,
    window: int,
    history: int,
) -> dict[str, Any]:
    """Run a workload and return the figures.

    `window` is the number of messages that fill the window before subscriptions exist, `history` the number that they
    see before the timing.
    """
    start = 0

    def add(n: int) -> None:
        nonlocal start
        job.add("messages", messages(n, start))
        start += n

    for _ in range(-(-window // batch)):
        add(batch)
    if window:
        job.run()
    job.add("subscriptions", subscriptions)
    add(_SMALL)
    first = job.run()
    for _ in range(-(-history // batch)):
        add(batch)
    if history:
        job.run()
    for _ in range(_WARM + max(1, n_messages // batch)):
        add(batch)
    counted = job.run()[_WARM:]
    for _ in range(_N_SMALL):
        add(_SMALL)
    small = job.run()[1:]
    job.lose_local_engines()
    add(_SMALL)
    begun = time.perf_counter()
    job.run()
    restart = time.perf_counter() - begun
    return {
        **_figures(counted),
        "first_batch_s": _seconds(first[0]),
        f"batch_of_{_SMALL}_p50_s": statistics.median(map(_seconds, small)),
        "restart_engines_lost_s": round(restart, 3),
    }


def _figures(batches: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the durations of batches of messages, by stage."""
    import json

    every = [
        [json.loads(report) for report in batch["observedMetrics"]["nearcast_shards"]["reports"]] for batch in batches
    ]
    reports = [[report for report in some if "shard" in report] for some in every]

    def mean(of_batch: Callable[[dict[str, Any]], float]) -> float:
        return round(statistics.mean(map(of_batch, batches)), 3)

    def slowest(part: str) -> float:
        return round(float(statistics.mean(max(report[part] for report in shards) for shards in reports)), 3)

    def ms(batch: dict[str, Any], *names: str) -> float:
        return float(sum(batch["durationMs"].get(name, 0) for name in names) / 1e3)

    n = sum(batch["observedMetrics"]["nearcast_messages"]["rows"] for batch in batches)
    seconds = sum(map(_seconds, batches))
    shard = slowest("seconds")
    parts = {part: slowest(part) for part in ("opening", "logging", "sealing")}
    return {
        "messages_per_second": round(n / seconds, 1),
        "updates": sum(report["updates"] for some in every for report in some),
        "batches": len(batches),
        "batch_s": mean(_seconds),
        "planning_s": mean(lambda batch: ms(batch, "queryPlanning", "getBatch", "latestOffset")),
        "log_s": mean(lambda batch: ms(batch, "walCommit", "commitOffsets")),
        "reading_shuffle_rows_s": round(mean(lambda batch: ms(batch, "addBatch")) - shard, 3),
        "state_s": round(sum(parts.values()), 3),
        "matching_s": round(shard - sum(parts.values()), 3),
    }


def _seconds(batch: dict[str, Any]) -> float:
    return float(batch["durationMs"]["triggerExecution"] / 1e3)
