"""The engine of one shard of a distributed job: it sees a slice of the stream, and may live in a folder.

Processes take turns with the folder: one seals the engine under a mark, the next attaches it by that mark. Several
such engines share a stream. Each receives some of the messages and subscriptions, with enough of the rest to number
and expire messages as all others do.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from os import PathLike
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.engine import archive
from nearcast.engine.config import EngineConfig
from nearcast.engine.engine import Engine
from nearcast.engine.folder import EngineFolder, Sealed
from nearcast.engine.state import EngineState
from nearcast.engine.stream_slice import StreamSlice
from nearcast.engine.updates import Form
from nearcast.errors import StateError
from nearcast.index import Work
from nearcast.model import MessageBatch, SubscriptionBatch
from nearcast.model.columns import ids_from_table, updates_to_table
from nearcast.partition import Masks


class ShardEngine(Engine):
    """An engine that sees a slice of a stream; with a folder, its arrays lie in files that processes share."""

    @classmethod
    def create(cls, config: EngineConfig, *, folder: str | PathLike[str] | None = None) -> ShardEngine:
        """Return an engine without subscriptions, in memory or in a folder whose content is replaced."""
        engine = cls._in(folder)
        engine._set_up(EngineState(config))
        return engine

    @classmethod
    def load(cls, path: str | PathLike[str], *, folder: str | PathLike[str] | None = None) -> ShardEngine:
        """Return a saved engine that continues in memory or in a folder, whose content is replaced."""
        state = archive.read(path)
        engine = cls._in(folder)
        engine._restore(state)
        return engine

    @classmethod
    def attach(cls, folder: str | PathLike[str], mark: str, config: EngineConfig) -> ShardEngine:
        """Return the engine that was sealed with a mark in a folder; `config` is the one it was created with."""
        engine = cls.__new__(cls)
        engine._folder = EngineFolder(folder)
        counters, tables = engine._folder.open(mark)
        work = {kind: Work(**done) for kind, done in counters.pop("work").items()}
        social = archive.read_graph(tables["graph"]) if "graph" in tables else config.social
        engine._set_up(EngineState(replace(config, social=social), **counters, work=work))
        if "routing" in tables:
            engine._shards.router.resume(archive.read_routing(tables["routing"]))
        results = archive.read_results(tables["results"]) if "results" in tables else {}
        engine._shards.attach(engine._folder, results)
        return engine

    @classmethod
    def _in(cls, folder: str | PathLike[str] | None) -> ShardEngine:
        engine = cls.__new__(cls)
        if folder is not None:
            engine._folder = EngineFolder(folder)
            engine._folder.clear()
        return engine

    def seal(self, mark: str) -> None:
        """Leave the engine to the process that attaches it next.

        The mark names this version of the state. The first change breaks the seal, so that a process that dies on the
        way leaves nothing that looks complete.
        """
        if self._folder is None:
            raise StateError("an engine must live in a folder to be sealed; give it one")
        tables = {}
        results = [
            (f"{shard.number}.{kind}", found)
            for shard in self._shards.shards
            for kind, found in shard.results_outside_arena()
        ]
        if results:
            tables["results"] = archive.table_of_results(results)
        if self._edge_changes:
            tables["graph"] = archive.table_of_graph(self._scoring.social)
        if (routing := self._shards.router.packed()) is not None:
            tables["routing"] = archive.table_of_routing(routing)
        work = {kind: asdict(done) for kind, done in self._work().items()}
        self._folder.seal(mark, Sealed({**self._counters(), "work": work}, tables))

    def is_sealed(self, mark: str) -> bool:
        """Return whether this object still is the engine that was sealed with a mark: no other process changed it."""
        return self._folder is not None and self._folder.is_sealed(mark)

    def _before_change(self) -> None:
        if self._folder is not None:
            self._folder.break_seal()

    def subscribe_replicas(self, subscriptions: pa.Table, before: Masks | None) -> pa.Table:
        """Add subscriptions with distinct ids; `before` holds, per row, the engines before this one that have it too.

        A match of a stateless kind is reported by the first engine that has the subscription and sees the message.
        """
        if before is None:
            return self._subscribe(subscriptions)
        ids = subscriptions["id"].combine_chunks()

        def of_batch(batch: SubscriptionBatch) -> Masks:
            own: Masks = before[pc.index_in(batch.ids.strings, value_set=ids).to_numpy()]
            return own

        return self._subscribe(subscriptions, of_batch)

    def release(self, ids: pa.Table) -> pa.Table:
        """Remove the given subscriptions where they exist, because they continue elsewhere; return their leaves."""
        leaving = ids_from_table(ids)
        self._before_change()
        removed = self._shards.remove(leaving)
        updates = [update for id_, results in removed.items() for update in self._difference(id_, results, [])]
        self._updates += len(updates)
        return updates_to_table(updates)

    def publish_slice(
        self,
        messages: pa.Table | MessageBatch,
        stream_slice: StreamSlice,
        *,
        conflate: bool = False,
        grouped: bool = False,
    ) -> Any:
        """Publish the messages of the stream that this engine sees, and count the steps of all others."""
        batch = self._batch(messages)
        stream_slice.check(len(batch))
        ticks = self._ticks(stream_slice.ats_us)
        batch = replace(batch, seqs=ticks.seqs[stream_slice.rows])
        form = Form.GROUPS if grouped else Form.TABLE
        return self._publish(batch, ticks, form, conflate=conflate, seen_by=stream_slice.seen_by)
