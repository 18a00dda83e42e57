"""Who does the matching? A stateful operator of Spark with one key a shard, and the shard's engine behind it.

    frames of a shard ── state: which version? ── engine of that version ── apply ── updates
                                                        │                     │
                                                  `home`, or rebuilt      log, then state

Spark runs a batch again if it was not committed. What a run of a batch leaves behind besides Spark's own state is
harmless then: see `state`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark import SparkFiles, TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from nearcast.errors import StateError
from nearcast.spark.frame import TOLD, Frame, pack
from nearcast.spark.home import Home
from nearcast.spark.log import Folder
from nearcast.spark.progress import SHARDS
from nearcast.spark.sent import Sent
from nearcast.spark.shard import Counts, apply
from nearcast.spark.spread import keys_of
from nearcast.spark.state import TRUTH, ShardState, Truth

_QUERY = "sql.streaming.queryId"


def work(frames: DataFrame, sent: Sent, *, state: str | None) -> DataFrame:
    """Let shards answer their frames; `state` is the folder that streaming queries keep theirs in."""
    told = frames.groupBy("key").transformWithStateInPandas(
        statefulProcessor=Worker(sent, state), outputStructType=TOLD, outputMode="Append", timeMode="none"
    )
    return told.observe(SHARDS, F.collect_list("report").alias("reports"))


@dataclass
class Report(Counts):
    """How a shard fared in one micro-batch; see `progress`."""

    shard: int = field(kw_only=True)
    subscriptions: int = 0
    state_bytes: int = 0
    seconds: float = 0.0


class Worker(StatefulProcessor):
    """The shards of one query, one key each."""

    def __init__(self, sent: Sent, state: str | None) -> None:
        self._sent, self._folder = sent, state

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state."""
        self._truth = handle.getValueState("shard", TRUTH)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Answer the frames of a shard in one micro-batch."""
        (number,) = key
        report = Report(shard=keys_of(self._sent.job.shards).index(number))
        started = perf_counter()
        for told in self._answer(report, [frame for some in rows for frame in _frames(some)]):
            if len(told):
                yield _row(number, None, pack(told))
        report.seconds = perf_counter() - started
        yield _row(number, report, None)

    def _answer(self, report: Report, frames: list[Frame]) -> Iterator[pa.Table]:
        job = self._sent.job
        vocabulary = job.meaning.vocabulary
        if self._folder is None:  # a static run is one batch, and has nothing to remember
            engine = job.new_engine()
            yield from apply(engine, frames, vocabulary=vocabulary, counts=report)
            report.subscriptions = len(engine)
            return
        query, shard = _query_id(), report.shard
        local = Path(job.local or SparkFiles.getRootDirectory()) / "nearcast" / query / job.fingerprint
        with Home(local / str(shard), job.options) as home:
            state = ShardState(job, Folder(f"{self._folder}/{query}"), home, shard)
            held = self._truth.get()
            before = Truth() if held is None else Truth(*held)
            engine = state.open(before)
            after = state.write(before, frames)
            yield from apply(engine, frames, vocabulary=vocabulary, counts=report)
            report.subscriptions = len(engine)
            after = state.close(after._replace(messages=before.messages + report.messages), engine)
        report.state_bytes = after.log_bytes + after.snapshot_bytes
        self._truth.update(after)

    def close(self) -> None:
        """Nothing to give back."""


def _frames(rows: pd.DataFrame) -> list[Frame]:
    return [
        Frame(source, int(part), int(block), int(n), ats, payload)
        for source, part, block, n, ats, payload in rows[list(Frame._fields)].itertuples(index=False)
    ]


def _query_id() -> str:
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(_QUERY)
    if query is None:
        raise StateError(f"a streaming query must have an id; its tasks have no {_QUERY}")
    return query


def _row(key: int, report: Report | None, payload: bytes | None) -> pd.DataFrame:
    told = None if report is None else json.dumps(asdict(report))
    return pd.DataFrame({"key": [key], "report": [told], "payload": [payload]})
