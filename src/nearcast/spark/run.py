"""How does a job file run? Sources, match, sinks; started, watched and stopped as one.

    plan ── sources ── match ──┬── updates ──── a query
                               └── rejected ─── another, if it has a sink

Everything a job must not forget lies in its folder of checkpoints: Spark's own, the state of the shards, and the
vocabulary if it was learned. Started again with the same file, it goes on where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from nearcast.errors import StateError, require
from nearcast.social import SocialGraph
from nearcast.spark.log import Folder
from nearcast.spark.pipeline import match
from nearcast.spark.plan import Plan
from nearcast.spark.streams import (
    MESSAGES,
    SUBSCRIPTIONS,
    checkpoint,
    read_static,
    read_stream,
    start,
)
from nearcast.text import Vocabulary

_LEARNED = "vocabulary.arrow"


@dataclass(frozen=True)
class Run:
    """A job that runs."""

    updates: StreamingQuery
    rejected: StreamingQuery | None

    @property
    def queries(self) -> Iterator[StreamingQuery]:
        """The queries of the job."""
        yield self.updates
        if self.rejected is not None:
            yield self.rejected

    @property
    def is_active(self) -> bool:
        """Whether any of them runs."""
        return any(query.isActive for query in self.queries)

    def wait(self, seconds: int) -> None:
        """Wait a while, or until the updates end; raise the error that a query ended with."""
        if self.updates.isActive:
            self.updates.awaitTermination(seconds)
        elif self.rejected is not None and self.rejected.isActive:
            self.rejected.awaitTermination(seconds)
        for query in self.queries:
            error = query.exception()
            if error is not None:
                self.stop()
                raise StateError(f"query {query.name!r} must not fail; it did:\n{error}")

    def stop(self) -> None:
        """Stop; what is not committed is done again when the job goes on."""
        for query in self.queries:
            query.stop()


def start_run(spark: SparkSession, plan: Plan) -> Run:
    """Start a job."""
    matched = match(
        read_stream(spark, plan, plan.messages, MESSAGES),
        read_stream(spark, plan, plan.subscriptions, SUBSCRIPTIONS),
        space=plan.space.space(),
        vocabulary=_vocabulary(spark, plan),
        window=None if plan.window is None else plan.window.window(),
        social=_social(spark, plan),
        text_similarity=plan.match.text_similarity,
        partitioner=plan.match.partitioner,
        shards=plan.match.shards,
        index=plan.match.index,
        state=checkpoint(plan, "state"),
    )
    updates = start(matched.updates, plan, plan.updates, "updates")
    rejected = None if plan.rejected is None else start(matched.rejected, plan, plan.rejected, "rejected")
    return Run(updates, rejected)


def _vocabulary(spark: SparkSession, plan: Plan) -> Vocabulary | None:
    table = plan.vocabulary
    if table is None:
        return None
    if table.file is not None:
        folder, _, name = plan.place(table.file).rpartition("/")
        return vocabulary_of(json.loads(Folder(folder).read(name)), table.file)
    folder_ = Folder(plan.place(plan.run.checkpoint))
    if folder_.size(_LEARNED) is None:
        texts = read_static(spark, plan, plan.messages, str(table.learn)).select("text").limit(table.rows)
        learned = Vocabulary.from_texts(row.text for row in texts.toLocalIterator() if row.text is not None)
        folder_.write(_LEARNED, _packed(learned))
    return _unpacked(folder_.read(_LEARNED))


def vocabulary_of(content: Any, file: str) -> Vocabulary:
    """Return the vocabulary that a JSON file spells.

    >>> vocabulary_of({"weights": {"jazz": 2.0}}, "words.json").idf("jazz")
    2.0
    """
    keys = set(content) if isinstance(content, dict) else None
    if keys == {"weights"}:
        return Vocabulary.with_weights(content["weights"])
    require(
        keys == {"documents", "frequencies"}, "vocabulary", "must have documents and frequencies, or weights",
        sorted(keys) if keys is not None else content, subject=file,
    )  # fmt: skip
    return Vocabulary(content["documents"], content["frequencies"])


def _packed(vocabulary: Vocabulary) -> bytes:
    state = vocabulary.state()
    default = json.dumps(state["default"])
    table = pa.table({"id": state["ids"], "idf": state["idfs"]}).replace_schema_metadata({"default": default})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _unpacked(data: bytes) -> Vocabulary:
    table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
    default = json.loads(table.schema.metadata[b"default"])
    return Vocabulary.from_state(ids=table["id"].to_numpy(), idfs=table["idf"].to_numpy(), default=default)


def _social(spark: SparkSession, plan: Plan) -> SocialGraph | None:
    if plan.social is None:
        return None
    path = plan.place(plan.social.file)
    kind = path.rpartition(".")[2]
    reader = spark.read.format({"jsonl": "json", "ndjson": "json"}.get(kind, kind)).option("header", "true")
    edges = reader.schema("user string, place string").load(path)
    return SocialGraph((row.user, row.place) for row in edges.toLocalIterator())
