"""The engine of one shard of a distributed job: it sees a slice of the stream, and may live in a folder.

Processes take turns with the folder: one seals the engine under a mark, the next attaches it by that mark. Several
such engines share a stream. Each receives some of the messages and subscriptions, with enough of the rest to number
and expire messages as all others do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.engine import archive
from nearcast.engine.config import EngineConfig
from nearcast.engine.engine import Engine
from nearcast.engine.folder import EngineFolder, Sealed
from nearcast.engine.interleaved import Interleaved, Leaves, Operations
from nearcast.engine.matcher import Matcher
from nearcast.engine.message_stream import SeenBy
from nearcast.engine.period_sampler import PeriodSampler
from nearcast.engine.relocation import moving, release_moved, staying
from nearcast.engine.replica_log import ReplicaLog
from nearcast.engine.state import EngineState, SavedSubscriptions
from nearcast.engine.step_changes import difference
from nearcast.engine.stream_slice import StreamSlice
from nearcast.engine.transfer import Placement, Rerouting, joined_transfers
from nearcast.engine.updates import Form
from nearcast.errors import StateError
from nearcast.index import Work
from nearcast.model import NEVER, Id, IdColumn, MessageBatch, SubscriptionBatch, Update
from nearcast.model.columns import ids_from_table
from nearcast.partition import Masks, are_empty, before_it, has_shard, n_words

Edge = tuple[Id, Id]
Longs = npt.NDArray[np.int64]


class ShardEngine(Engine):
    """An engine that sees a slice of a stream; with a folder, its arrays lie in files that processes share."""

    @classmethod
    def create(cls, config: EngineConfig, *, folder: str | PathLike[str] | None = None) -> ShardEngine:
        """Return an engine without subscriptions, in memory or in a folder whose content is replaced."""
        engine = cls._in(folder)
        engine._set_up(EngineState(config))
        return engine

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        workers: int | None = None,
        config: EngineConfig | None = None,
        folder: str | PathLike[str] | None = None,
    ) -> ShardEngine:
        """Return a saved engine that continues in memory or in a folder, whose content is replaced.

        It continues with workers, index and limits of `config`, if it is given; no result depends on them.
        """
        state = archive.read(path)
        if workers is not None:
            state = state.rescaled(workers)
        if config is not None:
            workers, index, limits = config.workers, config.index, config.limits
            state = replace(state, config=replace(state.config, workers=workers, index=index, limits=limits))
        engine = cls._in(folder)
        with archive.as_format_errors(path):
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
            engine._shards.resume(archive.read_routing(tables["routing"]), has_windows=True)
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
        changes = [change for id_, results in removed.items() for change in difference(id_, results, [])]
        return self._counted(changes, as_table=True)

    def begin_period(self, placement: Placement, *, shard: int) -> PeriodSampler:
        """Return a sampler of what this engine does from now on as a shard of a routing."""
        return PeriodSampler(lambda: self._matchers, self._scoring, placement, shard=shard)

    # -- replicas whose results are merged elsewhere ----------------------------------------------------------------

    @property
    def replica_log(self) -> ReplicaLog | None:
        """Where the results of stateful kinds are reported, instead of as updates, if others merge them."""
        return self._shards.replica_log

    @replica_log.setter
    def replica_log(self, log: ReplicaLog | None) -> None:
        self._shards.replica_log = log
        if log is not None:
            log.bodies = self._stream.bodies

    def log_replicas(self) -> None:
        """Report all replicas with what they hold to the log."""
        self._shards.log_replicas()

    def at_place(self, place: Longs, ids: pa.Array | None = None) -> AbstractContextManager[None]:
        """Log what happens after the last message at a place, or at one for each of some subscriptions."""
        log = self.replica_log
        return nullcontext() if log is None else log.at(self._stream.seq, self._stream.now_us, place, ids)

    # -- a change of the routing ----------------------------------------------------------------------------------

    def transfers(self, change: Rerouting) -> Iterator[tuple[int, EngineState]]:
        """Yield each other shard that gets something from this one at a change of the routing, with what it gets.

        Nothing changes here. Cost: a look at all subscriptions, and a copy of those that move.
        """
        moved = moving(self._matchers, self._scoring, change)
        for to in range(change.after.n_shards):
            if to == change.shard:
                continue
            is_base = to >= change.before.n_shards and change.shard == 0  # where a new shard begins
            seqs = self._seqs_for(to, change, is_base=is_base)
            if is_base or to in moved or len(seqs):
                live = self._shards.live_of(seqs) if is_base or len(seqs) else None
                yield to, self._part(moved.get(to, []), seqs, live)

    def reroute(self, shard: int, after: Placement, arriving: Sequence[EngineState]) -> None:
        """Give up the subscriptions that are placed elsewhere from now on, and add those that arrive.

        Where shards see some messages only, an engine with a window is built again, and so is one whose sets of
        shards change their size; otherwise the cost is that of the subscriptions that move, and a look at those that
        stay.
        """
        self._before_change()
        if not after.sends_all and (self._config.window is not None or self._has_other_masks(after)):
            kept = staying(self._matchers, self._scoring, shard, after)
            seqs = self._routed(self._shards.seqs, shard, after)
            self.rebuild([self._part(kept, seqs, self._shards.live_of(seqs)), *arriving])
            return
        release_moved(self._matchers, self._scoring, shard, after)
        for state in arriving:
            self._stream.add_known(state.bodies, state.expiries)
            for saved in state.subscriptions:
                self._shards.restore(SubscriptionBatch(saved.kind, saved.stored, self._scoring), saved)

    def rebuild(self, states: Sequence[EngineState]) -> None:
        """Continue with the state of transfers instead of the present one; the first has counters and graph."""
        self._before_change()
        if self._folder is not None:
            self._folder.clear()
        state = joined_transfers(states)
        self._restore(replace(state, config=replace(state.config, workers=self._config.workers)))

    def _has_other_masks(self, after: Placement) -> bool:
        """Return whether sets of shards are stored that have another size than those of a routing."""
        stored = {matcher.replicas.n_words for matcher in self._matchers} - {0}
        return bool(stored - {n_words(after.n_shards)})

    @property
    def _matchers(self) -> list[Matcher]:
        return list(self._shards.shards[0].matchers.values())

    def _part(self, subscriptions: list[SavedSubscriptions], seqs: Longs, live: pa.Table | None) -> EngineState:
        """Return some subscriptions and messages as a state, with what is known of the messages in their results."""
        held = [part.seqs for saved in subscriptions for part in saved.results]
        seqs = np.unique(np.concatenate([seqs, *held]))
        counters: dict[str, Any] = self._counters()
        return EngineState(
            self._config,
            **counters,
            live=live,
            bodies=self._stream.body_table(seqs),
            expiries=self._stream.expiry_table(seqs),
            subscriptions=subscriptions,
        )

    def _seqs_for(self, to: int, change: Rerouting, *, is_base: bool) -> Longs:
        """Return the messages of the window that another shard gets from this one."""
        seqs = self._shards.seqs
        if change.after.sends_all or not len(seqs):
            return seqs if is_base else seqs[:0]
        batch = self._shards.batch_of(seqs)
        is_first = are_empty(before_it(change.before.route(batch), change.shard))
        passed_on: Longs = batch.seqs[has_shard(change.after.route(batch), to) & is_first]
        return passed_on

    def _routed(self, seqs: Longs, shard: int, after: Placement) -> Longs:
        """Return which messages of the window a shard sees."""
        batch = self._shards.batch_of(seqs)
        seen: Longs = batch.seqs[has_shard(after.route(batch), shard)]
        return seen

    @property
    def config(self) -> EngineConfig:
        """The configuration, with the social graph as it is now."""
        return self._config

    @property
    def seq(self) -> int:
        """The number of messages of the stream so far."""
        return self._stream.seq

    @property
    def now_us(self) -> int:
        """The time of the engine in microseconds; NO_TIME before it has one."""
        return self._stream.now_us

    def advance_to(self, now_us: int) -> pa.Table:
        """Advance the clock, and return the updates."""
        return self._to_table(self.advance(now_us / 1_000_000))

    @property
    def users(self) -> Collection[Id]:
        """The users that the social graph knows."""
        return self._scoring.social.users.keys()

    def change_edges(
        self, edges: Sequence[Edge], are_added: Sequence[bool], places: Longs | None = None
    ) -> tuple[pa.Table, int]:
        """Add and remove edges one by one, and return the updates, and the number of removed ones that are not there.

        If no result depends on users, many edges cost about as much as one. A log of replicas needs their places.
        """
        graph, net, n_unknown = self._scoring.social, dict[Edge, bool](), 0
        updates: list[Update] = []
        for row, (edge, is_added) in enumerate(zip(edges, are_added, strict=True)):
            n_unknown += not (is_added or net.get(edge, edge in graph))
            net[edge] = is_added
            if self._has_users:
                with nullcontext() if places is None else self.at_place(places[row]):
                    updates += self._apply_edges([edge] if is_added else [], net)
                net.clear()
        added = [edge for edge, is_added in zip(edges, are_added, strict=True) if is_added]
        updates += self._apply_edges(added if net else [], net)
        return self._to_table(updates), n_unknown

    def _apply_edges(self, added: Sequence[Edge], net: Mapping[Edge, bool]) -> list[Update]:
        """Add edges, then remove those that are there and that `net` does not keep."""
        updates = self.add_edges(added) if added else []
        removed = [edge for edge, stays in net.items() if not stays and edge in self._scoring.social]
        return updates + (self.remove_edges(removed) if removed else [])

    @property
    def _has_users(self) -> bool:
        """True if a result depends on the edges of its user."""
        return any(
            len(matcher.registry)
            for shard in self._shards.shards
            for matcher in shard.matchers.values()
            if matcher.kind.depends_on_users()
        )

    def are_windowed(self, ids: IdColumn) -> npt.NDArray[np.bool_]:
        """Return which ids are those of subscriptions whose results begin with the window."""
        return self._shards.are_windowed(ids)

    @property
    def next_end_us(self) -> int:
        """The next time at which a subscription may expire, NEVER if none does."""
        return self._shards.next_end_us

    def steps_before_end(self, ats_us: npt.NDArray[np.int64]) -> int:
        """Return how many of the next messages, given their times, come before a subscription may expire."""
        if self.next_end_us == NEVER:
            return len(ats_us)
        return int(np.searchsorted(self._stream.ticks(ats_us).nows_us, self.next_end_us))

    def begin(self, operations: Operations) -> Interleaved:
        """Apply operations at their places among the next messages; once these are published, `end` must follow.

        No subscription may expire among these messages, neither one that exists nor one that an operation adds.
        """
        nows_us = self._stream.ticks(operations.ats_us).nows_us
        interleaved = Interleaved(
            operations,
            self._scoring,
            seq=self._stream.seq,
            nows_us=nows_us,
            bodies=self._stream.bodies,
            log=self.replica_log,
        )
        self._before_change()
        interleaved.begin(self._shards.shards[0])
        return interleaved

    def end(self, interleaved: Interleaved) -> Leaves:
        """Complete operations after the messages among which they were, and return their updates."""
        leaves = interleaved.end(self._shards.shards[0])
        self._updates += len(leaves.updates)
        return leaves

    def publish_slice(
        self,
        messages: pa.Table | MessageBatch,
        stream_slice: StreamSlice,
        *,
        conflate: bool = False,
        grouped: bool = False,
    ) -> Any:
        """Publish the messages of the stream that this engine sees, and count the steps of all others."""
        form = Form.GROUPS if grouped else Form.TABLE
        return self._publish_slice(self._batch(messages), stream_slice, form, conflate=conflate)

    def _publish_slice(
        self, batch: MessageBatch, stream_slice: StreamSlice, form: Form, *, conflate: bool = False, **replaced: Any
    ) -> Any:
        stream_slice.check(len(batch))
        ticks = self._stream.ticks(stream_slice.ats_us)._replace(expires_us=stream_slice.expires_us)
        batch = replace(batch, seqs=ticks.seqs[stream_slice.rows])
        return self._publish(batch, ticks, form, conflate=conflate, seen_by=stream_slice.seen_by, **replaced)

    def retract_slice(self, id_: Id, seen_by: SeenBy | None) -> pa.Table | None:
        """Withdraw the messages that this engine has under an id, and return the updates; None if it has none.

        Of the engines that have a subscription of a stateless kind, the one that reported the match reports that the
        message leaves. `seen_by` returns the engines that saw each message.
        """
        _, seqs = self._stream.seqs_of(IdColumn.of([id_]))
        if not len(seqs):
            return None
        self._before_change()
        return self._counted(self._stream.retract(seqs, seen_by), as_table=True)

    def replace_slice(
        self, ids: Sequence[Id], messages: MessageBatch, stream_slice: StreamSlice, seen_by: SeenBy | None
    ) -> pa.Table:
        """Publish messages of the stream, each in place of those under its id, and count the steps of all others.

        `ids` holds the id of every next message of the stream: an engine that does not see a message withdraws those
        under its id, too.
        """
        batch, held = self._batch(messages), self._stream.seqs_by_id(ids)
        tables, own, start = list[pa.Table](), set(stream_slice.rows.tolist()), 0
        for row, id_ in enumerate(ids):
            old = held.pop(id_, [])
            if old:
                if start < row:
                    tables.append(self._publish_slice(*stream_slice.part(batch, start, row), Form.TABLE))
                part, seqs = stream_slice.part(batch, row, row + 1), np.array(old, np.int64)
                tables.append(self._publish_slice(*part, Form.TABLE, replaced=seqs, replaced_in=seen_by))
                start = row + 1
            if row in own:
                held[id_] = [self._stream.seq + row + 1 - start]
        if start < len(ids):
            tables.append(self._publish_slice(*stream_slice.part(batch, start, len(ids)), Form.TABLE))
        return pa.concat_tables(tables)
