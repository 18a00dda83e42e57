"""All shards of an engine behind one interface.

    subscriptions ── place ──┬─ shard 0 ─┐
    messages ─────── route ──┤    ...    ├── concatenated or merged ── updates
                             └─ shard n ─┘

Where a routing sends messages to some shards only, there is a shard per worker, each with a thread, indexes and a
window of its own. Otherwise there is one shard, and all threads work in it: its indexes, its window and the lists of
its messages exist once.

The result of a subscription has one owner. A subscription that lives in one shard belongs to the matcher there, and
so does one of a stateless kind: only one of its replicas reports a match. A stateful subscription that may live in
several shards belongs to the `ResultMerger` of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.engine.config import EngineConfig
from nearcast.engine.load_meter import LoadMeter
from nearcast.engine.matcher import Longs, Matcher, Slots, Withdrawal
from nearcast.engine.relocation import ROWS_AT_ONCE, counted, misplaced, saved
from nearcast.engine.result_changes import changes_between, changes_by_slot
from nearcast.engine.router import Router
from nearcast.engine.shard import Shard, ShardUpdates
from nearcast.engine.state import SavedSubscriptions
from nearcast.engine.stats import add_work
from nearcast.engine.updates import Form, UpdateBatch, UpdateWriter
from nearcast.errors import UnknownMessage
from nearcast.index import Work
from nearcast.model import NEVER, Document, Footprint, Id, IdColumn, MessageBatch, Subscription, SubscriptionBatch
from nearcast.model.subscription_rows import restore
from nearcast.partition import Masks, Routing, before_it, rows_of_shards
from nearcast.window import Changes, Results, ScoredMessage, SlidingWindow, Steps, Ticks
from nearcast.worker_pool import SERIAL, WorkerPool

if TYPE_CHECKING:
    from nearcast.engine.folder import EngineFolder
    from nearcast.engine.registry import SubscriptionRegistry
    from nearcast.engine.replica_log import ReplicaLog
    from nearcast.engine.replica_planner import ReplicaPlanner
    from nearcast.engine.result_merger import ResultMerger

_SAMPLE = 100_000  # messages that a partitioner is fitted to


class ShardSet:
    """The shards of an engine."""

    def __init__(self, config: EngineConfig, live: pa.Table | None, folder: EngineFolder | None) -> None:
        self.router = _make_router(config)
        self._config, self._scoring = config, config.scoring
        self._folder = folder
        self.shards = [self._make_shard(0, self._make_window(0, live))]
        self._work_before: dict[str, Work] = {}
        self._mergers: dict[str, ResultMerger] = {}
        self._replica_planners: dict[str, ReplicaPlanner] = {}
        self.replica_log: ReplicaLog | None = None
        """Where a single shard reports the results of its replicas, instead of as updates, if others merge them."""
        self._pool = WorkerPool(config.workers)
        self.shards[0].use(self._pool)
        self.load_meter = LoadMeter(self._scoring)

    def _make_shard(self, number: int, window: SlidingWindow) -> Shard:
        arena = None if self._folder is None else partial(self._folder.arena, number)
        return Shard(self._scoring, window, index=self._config.index, number=number, arena=arena)

    # -- another number of shards -------------------------------------------------------------------------------

    def rescale(self, config: EngineConfig) -> bool:
        """Continue with another number of threads in one shard; what they keep of results is divided again.

        Return False, and change nothing, if there are several shards, or would be. Cost: a copy of all results.
        """
        router = _make_router(config)
        router.prepare(self._sample(), self._recent)
        if not (self.router.sends_all and router.sends_all):
            return False
        self.router, self._config = router, config
        self.load_meter.drop()  # the next call begins another period
        self._pool.close()
        self._pool = WorkerPool(config.workers)
        self.shards[0].use(self._pool)
        return True

    def _drop_matchers(self, shard: Shard) -> None:
        """Drop the matchers of a shard, which hold no subscriptions, and remember the work that they did."""
        for kind, matcher in shard.matchers.items():
            self._work_before[kind] = add_work(self._work_before.get(kind, Work()), matcher.work)
        shard.matchers = {}

    def _sample(self) -> list[SubscriptionBatch]:
        """Return some subscriptions of every kind, for a partitioner to be fitted to."""
        found = []
        for owner in self._owners():
            slots = counted(owner)
            slots = slots[:: max(1, len(slots) // _SAMPLE)]
            if len(slots):
                found.append(self._batch_of(owner, slots))
        return found

    # -- load adjustment ----------------------------------------------------------------------------------------

    def reroute(self, routing: Routing) -> None:
        """Continue with another routing of the same shards, which have no window.

        Cost: that of the subscriptions that move, and a look at all others; where a transition begins or ends, at
        those that may move.
        """
        moving = list(misplaced(self._owners(), self._scoring, self.router.routing, routing))
        self.router.replace(routing)
        for subscriptions, stored in moving:
            self.remove(subscriptions.ids)
            self.restore(subscriptions, stored)

    # -- subscriptions ------------------------------------------------------------------------------------------

    def prepare(self, batches: Sequence[SubscriptionBatch]) -> None:
        """Fit the routing to the first subscriptions."""
        self.router.prepare(batches, self._recent)
        self._divide_window()

    def resume(self, routing: bytes, *, has_windows: bool = False) -> None:
        """Continue with a routing, before the first subscription; `has_windows` if the folder holds all windows."""
        self.router.resume(routing)
        self._divide_window(has_windows=has_windows)

    def _divide_window(self, *, has_windows: bool = False) -> None:
        """Make a shard per worker, each with a window of its own, if each sees some of the messages only."""
        if self.router.sends_all or len(self.shards) > 1:
            return
        (first,) = self.shards
        self._drop_matchers(first)  # no subscription is left in them
        first.use(SERIAL)
        messages = None if has_windows else first.window.table()
        self.shards += [
            self._make_shard(number, self._make_window(number, messages)) for number in range(1, self._config.workers)
        ]

    def _make_window(self, number: int, live: pa.Table | None) -> SlidingWindow:
        """Return a window with some messages, in the folder of the engine if it has one."""
        arena = None if self._folder is None else partial(self._folder.arena, number, "window")
        n_attributes = len(self._config.attributes)
        return SlidingWindow(self._config.window, live, arena=arena, n_attributes=n_attributes)

    def insert(
        self, subscriptions: SubscriptionBatch, sinces: npt.NDArray[np.int64], before: Masks | None = None
    ) -> list[tuple[SubscriptionRegistry, Results]]:
        """Place subscriptions of one kind; return their initial results, each with the registry of its slots.

        A single shard may be one of many in other processes: `before` holds those that have a subscription too.
        """
        if not len(subscriptions):
            return []
        return self._insert(subscriptions, sinces, self.router.placements(subscriptions, sinces), before)

    def _insert(
        self,
        subscriptions: SubscriptionBatch,
        sinces: npt.NDArray[np.int64],
        masks: Masks,
        before: Masks | None = None,
    ) -> list[tuple[SubscriptionRegistry, Results]]:
        """Add subscriptions to some shards each."""
        kind = subscriptions.kind

        def insert(part: tuple[Shard, npt.NDArray[np.int64]]) -> tuple[Slots, Results]:
            shard, rows = part
            own = subscriptions if len(rows) == len(subscriptions) else subscriptions.take(rows)
            if self.router.merges(kind):
                return shard.matcher(kind).insert(own, sinces[rows], None)
            others = before_it(masks[rows], shard.number) if before is None else before[rows]
            return shard.matcher(kind).insert(own, sinces[rows], others)

        rows_of = rows_of_shards(masks, len(self.shards))
        placed = [(shard, rows) for shard, rows in zip(self.shards, rows_of, strict=True) if len(rows)]
        for shard, _ in placed:
            shard.matcher(kind).prepare(subscriptions)
        self._catch_up()
        inserted = self._pool.map(insert, placed) if len(placed) > 1 else [insert(part) for part in placed]
        if (log := self._log_of(kind)) is not None:
            ((slots, results),) = inserted
            log.begin(subscriptions, log.here(subscriptions.ids.strings), results, positions(results.slots, slots))
            return []
        if not self.router.merges(kind):
            each = zip(placed, inserted, strict=True)
            return [(shard.matcher(kind).registry, results) for (shard, _), (_, results) in each]
        merger = self._merger(kind)
        slots, ks = merger.allocate(subscriptions, sinces), subscriptions.footprints.ks
        for (shard, rows), (replicas, results) in zip(placed, inserted, strict=True):
            merger.add(shard.number, replicas, slots[rows], ks[rows], results)
        if self.router.narrows:
            self._replica_planners[kind.kind].narrow(subscriptions, slots, masks)
        return [(merger.registry, results) for results in merger.held(slots)]

    def _log_of(self, kind: type[Subscription]) -> ReplicaLog | None:
        """Return the log of the replicas of a kind, if others merge their results."""
        return self.replica_log if kind.result_policy.is_stateful else None

    def log_replicas(self) -> None:
        """Report all replicas with what they hold, to those who merge them."""
        for matcher in self._matchers():
            if (log := self._log_of(matcher.kind)) is None:
                continue
            taken = matcher.registry.taken()
            for start in range(0, len(taken), ROWS_AT_ONCE):
                slots = taken[start : start + ROWS_AT_ONCE]
                subscriptions = SubscriptionBatch(matcher.kind, matcher.registry.rows(slots), self._scoring)
                held = Results.joined(matcher.held(slots))
                log.begin(subscriptions, log.here(subscriptions.ids.strings), held, positions(held.slots, slots))

    def _merger(self, kind: type[Subscription]) -> ResultMerger:
        if kind.kind not in self._mergers:
            from nearcast.engine.result_merger import (
                ResultMerger,  # loads the kernels, so not before the first merge
            )

            merger = self._mergers[kind.kind] = ResultMerger(kind, self._scoring, len(self.shards))
            if self.router.narrows:
                from nearcast.engine.replica_planner import ReplicaPlanner

                self._replica_planners[kind.kind] = ReplicaPlanner(merger, self.shards, self.router, self._scoring)
        return self._mergers[kind.kind]

    def remove(
        self, ids: IdColumn, *, leaves: bool = True, tick: tuple[int, int] | None = None
    ) -> dict[Id, list[ScoredMessage]]:
        """Remove those of the given subscriptions that exist; return their non-empty results.

        A log of replicas gets the end of each, at a tick if one is given: `leaves` says whether the results leave.
        """
        removed: dict[Id, list[ScoredMessage]] = {}

        def note(results: Results, rows: npt.NDArray[np.int64], slots: Slots) -> None:
            row_of = dict(zip(slots.tolist(), rows.tolist(), strict=True))
            removed.update({ids[row_of[slot]]: found for slot, found in results.by_slot().items()})

        for shard in self.shards:
            for matcher in shard.matchers.values():
                rows, slots = _find(matcher.registry, ids)
                results = matcher.delete(slots) if len(slots) else Results.none()
                if (log := self._log_of(matcher.kind)) is not None:
                    ended = ids.take(rows)
                    steps = log.here(ended.strings) if tick is None else log.steps(*tick, ended.strings)
                    log.end(matcher.kind, steps, ended, leaves=leaves)
                elif matcher.kind.kind not in self._mergers:
                    note(results, rows, slots)
        for merger in self._mergers.values():
            rows, slots = _find(merger.registry, ids)
            note(merger.forget(slots), rows, slots)
            if (replica_planner := self._replica_planners.get(merger.kind.kind)) is not None:
                replica_planner.forget(slots)
        return removed

    def _batch_of(self, owner: Matcher | ResultMerger, slots: Slots) -> SubscriptionBatch:
        return SubscriptionBatch(owner.kind, owner.registry.rows(slots), self._scoring)

    @property
    def next_end_us(self) -> int:
        """The next time at which a subscription may expire."""
        return min((registry.next_end_us for registry in self._registries()), default=NEVER)

    def forget_expired(self, ticks: Ticks, step: int = 0) -> None:
        """Remove the subscriptions that have expired by a step."""
        seq, now_us = int(ticks.seqs[step]), int(ticks.nows_us[step])
        expired: dict[Id, None] = {}
        for registry in self._registries():
            if registry.next_end_us <= now_us:
                expired |= dict.fromkeys(registry.ids(registry.take_expired(now_us)))
        if expired:
            self.remove(IdColumn.of(list(expired)), leaves=False, tick=(seq, now_us))

    def _registries(self) -> Iterator[SubscriptionRegistry]:
        yield from (matcher.registry for matcher in self._matchers())
        yield from (merger.registry for merger in self._mergers.values())

    def _matchers(self) -> Iterator[Matcher]:
        return (matcher for shard in self.shards for matcher in shard.matchers.values())

    def _owners(self) -> Iterator[Matcher | ResultMerger]:
        """Yield the owners of results."""
        yield from (matcher for matcher in self._matchers() if matcher.kind.kind not in self._mergers)
        yield from self._mergers.values()

    def locate(self, id_: Id) -> tuple[Matcher | ResultMerger, int] | None:
        """Return the owner of a subscription's result and the slot there; None if there is no such subscription."""
        for owner in self._owners():
            slot = int(owner.registry.find(IdColumn.of([id_]))[0])
            if slot >= 0:
                return owner, slot
        return None

    def are_windowed(self, ids: IdColumn) -> npt.NDArray[np.bool_]:
        """Return which ids are those of subscriptions whose results begin with the window."""
        are = np.zeros(len(ids), np.bool_)
        for owner in self._owners():
            if owner.kind.result_policy.needs_window:
                are |= owner.registry.find(ids) >= 0
        return are

    def missing(self, ids: IdColumn) -> npt.NDArray[np.bool_]:
        """Return which ids do not exist."""
        missing = np.ones(len(ids), np.bool_)
        for owner in self._owners():
            missing &= owner.registry.find(ids) < 0
        return missing

    def refresh_users(
        self, users: Collection[Id], seq: int
    ) -> Iterator[tuple[SubscriptionRegistry, dict[int, Any], dict[int, Any]]]:
        """Recompute results of users whose edges changed; yield a registry, and results before and after by slot."""
        self._catch_up()
        for kind in dict.fromkeys(matcher.kind for matcher in self._matchers()):
            refreshed = [
                (shard.number, shard.matchers[kind.kind].refresh_users(users))
                for shard in self.shards
                if kind.kind in shard.matchers
            ]
            if (merger := self._mergers.get(kind.kind)) is None:
                for number, (before, after) in refreshed:
                    registry = self.shards[number].matchers[kind.kind].registry
                    if (log := self._log_of(kind)) is None:
                        yield registry, before.by_slot(), after.by_slot()
                    else:
                        log.replace(kind, registry, before, after)
                continue
            deltas = [(number, changes_between(before, after)) for number, (before, after) in refreshed]
            now = np.array([seq], np.int64)
            changes = merger.merge(deltas, Ticks(now, now, now))
            yield merger.registry, changes_by_slot(changes, enters=False), changes_by_slot(changes, enters=True)

    def matches(
        self, seqs: Longs, seen_by: Callable[[MessageBatch], Masks] | None = None
    ) -> Iterator[tuple[SubscriptionRegistry, dict[int, Any], dict[int, Any]]]:
        """Yield a registry, and the messages of the window that its subscriptions of a stateless kind matched.

        `seen_by` returns the shards that saw each message, for a single shard that is one of many.
        """
        for shard in self.shards:
            batch = shard.window.batch_of(seqs, self._scoring.vocabulary)
            if seen_by is None:  # the window of a loaded engine also holds messages that are not for this shard
                masks, rows_of = self.router.route(batch)
                rows = rows_of[shard.number]
                batch, masks = batch.take(rows), None if masks is None else masks[rows]
            else:
                masks = seen_by(batch)
            for matcher in shard.matchers.values():
                if not matcher.kind.result_policy.is_stateful:
                    yield matcher.registry, matcher.matches(batch, masks).by_slot(), {}

    def withdraw(
        self, seqs: Longs, ticks: Ticks
    ) -> Iterator[tuple[SubscriptionRegistry, dict[int, Any], dict[int, Any]]]:
        """Withdraw messages; yield a registry, and results of stateful kinds before and after, by slot."""
        for replica_planner in self._replica_planners.values():
            replica_planner.widen(seqs)
        begun = [
            (shard, matcher, self._begin_withdrawal(shard, matcher, slots))
            for shard, matcher, slots in self._holders(seqs, int(ticks.seqs[0]))
        ]
        for window in self._windows:
            window.withdraw(seqs)
        self._catch_up()
        deltas: dict[str, list[tuple[int, Changes]]] = {}
        for shard, matcher, withdrawal in begun:
            after = matcher.end_withdrawal(withdrawal, seqs, shard.window)
            if (log := self._log_of(matcher.kind)) is not None:
                log.replace(matcher.kind, matcher.registry, withdrawal.before, after, ticks)
            elif matcher.kind.kind in self._mergers:
                deltas.setdefault(matcher.kind.kind, []).append(
                    (shard.number, changes_between(withdrawal.before, after))
                )
            else:
                yield matcher.registry, withdrawal.before.by_slot(), after.by_slot()
        for kind, replicas in deltas.items():
            merger = self._mergers[kind]
            changes = merger.merge(replicas, ticks)
            yield (
                merger.registry,
                changes_by_slot(changes, enters=False),
                changes_by_slot(changes, enters=True),
            )

    def _holders(self, seqs: Longs, step: int) -> list[tuple[Shard, Matcher, Slots]]:
        """Return all matchers of stateful kinds, each with the subscriptions whose results may hold some messages.

        Where replicas hold messages beyond the window, all replicas of a subscription are listed: each holds messages
        that are not in the merged result, and one that holds none of the given ones may hold what must not enter.
        """
        found: list[tuple[Shard, Matcher, Slots]] = []
        for shard in self.shards:
            batch = shard.window.batch_of(seqs, self._scoring.vocabulary)
            stateful = (m for m in shard.matchers.values() if m.kind.result_policy.is_stateful)
            found += [(shard, matcher, matcher.holders(batch, seqs, step)) for matcher in stateful]
        for kind, merger in self._mergers.items():
            if not merger.kind.result_policy.must_be_saved:
                continue
            own = [(matcher, slots) for _, matcher, slots in found if matcher.kind.kind == kind]
            ids = IdColumn.joined([matcher.registry.ids(slots) for matcher, slots in own])
            found = [
                (shard, matcher, np.unique(_find(matcher.registry, ids)[1]) if matcher.kind.kind == kind else slots)
                for shard, matcher, slots in found
            ]
        return found

    def _begin_withdrawal(self, shard: Shard, matcher: Matcher, slots: Slots) -> Withdrawal:
        """Delete results; of those beyond the window, only what is in merged results stays."""
        withdrawal = matcher.begin_withdrawal(slots)
        merger = self._mergers.get(matcher.kind.kind)
        return (
            withdrawal if merger is None else withdrawal._replace(kept=merger.merged(shard.number, withdrawal.before))
        )

    def seqs_of(self, ids: IdColumn) -> tuple[Longs, Longs]:
        """Return the messages that have some ids, in the window or in a result: rows of the ids, and seqs."""
        found = [window.seqs_of(ids) for window in self._windows]
        for matcher in self._matchers():
            if matcher.kind.result_policy.must_be_saved:
                found += [_rows_of(part, ids) for part in matcher.held(matcher.registry.taken())]
        rows, seqs = (np.concatenate(parts) for parts in zip(*found, strict=True))
        seqs, first = np.unique(seqs, return_index=True)
        return rows[first], seqs

    def kept_seqs(self) -> Longs:
        """Return the seqs of all messages that the window or a result holds, ascending."""
        return np.unique(np.concatenate([self.seqs, *(matcher.held_seqs() for matcher in self._beyond_window())]))

    def _beyond_window(self) -> Iterator[Matcher]:
        """Yield the matchers with subscriptions whose results hold messages beyond the window."""
        return (m for m in self._matchers() if m.kind.result_policy.must_be_saved and len(m.registry))

    @property
    def _window_needs_help(self) -> bool:
        """True if there is a window that does not know when messages expire by a time of their own."""
        return self._config.window is not None and not self._config.window.needs_time

    @property
    def withdraws_expired(self) -> bool:
        """True if a message that expires by a time of its own may have to be withdrawn then."""
        return self._window_needs_help or any(True for _ in self._beyond_window())

    def hold(self, seqs: Longs, tick: Ticks) -> npt.NDArray[np.bool_]:
        """Return which messages, by ascending seqs, have to be withdrawn if they expire at a step."""
        held = np.zeros(len(seqs), np.bool_)
        if self._window_needs_help:
            for window in self._windows:
                held |= window.holds(seqs, tick)
        for matcher in self._beyond_window():
            held |= matcher.holds(seqs)
        return held

    # -- messages -----------------------------------------------------------------------------------------------

    def publish(self, batch: MessageBatch, writer: UpdateWriter, seen_by: Masks | None = None) -> list[UpdateBatch]:
        """Publish a batch to all shards and return their updates.

        `seen_by` holds the shards that see each message, for a single shard that is one of many.
        """
        self._widen(writer.ticks)
        masks, rows_of = self.router.route(batch)
        masks = masks if seen_by is None else seen_by
        parts = [batch if len(rows) == len(batch) else batch.take(rows) for rows in rows_of]
        seen = [None if masks is None else masks[rows] for rows in rows_of]
        for shard, part, own in zip(self.shards, parts, seen, strict=True):
            self.load_meter.add(shard.number, part, own)
        return self._publish(parts, seen, writer, lambda shard, part: shard.window.admit(part, writer.ticks))

    def advance(self, writer: UpdateWriter) -> list[UpdateBatch]:
        """Advance the clock without a message."""
        seq, now_us = int(writer.ticks.seqs[-1]), int(writer.ticks.nows_us[-1])
        self._widen(writer.ticks)
        n_shards = len(self.shards)
        none: list[Masks | None] = [None] * n_shards
        return self._publish(
            [MessageBatch.empty()] * n_shards, none, writer, lambda shard, _: shard.window.advance(seq, now_us)
        )

    def _publish(
        self,
        parts: Sequence[MessageBatch],
        seen: Sequence[Masks | None],
        writer: UpdateWriter,
        admit: Callable[[Shard, MessageBatch], Steps],
    ) -> list[UpdateBatch]:
        """Publish to each shard its part of a batch and return all updates."""
        writes = self.router.sends_all and self.replica_log is None

        def publish(task: tuple[Shard, MessageBatch, Masks | None]) -> tuple[int, ShardUpdates]:
            shard, part, seen_by = task
            steps = partial(admit, shard, part)
            return shard.number, shard.publish(part, seen_by, steps, writer, writes_updates=writes)

        tasks = list(zip(self.shards, parts, seen, strict=True))
        published = self._pool.map(publish, tasks) if len(tasks) > 1 else [publish(task) for task in tasks]
        has_arrivals = any(len(part) for part in parts)
        updates: list[UpdateBatch] = []
        deltas: dict[str, list[tuple[int, Changes]]] = {}
        for number, done in published:
            for matcher, part in done:
                if isinstance(part, Changes) and self.replica_log is not None:
                    matcher.n_matched += part.n_matched
                    are_parts = writer.form is Form.CHANGES
                    self.replica_log.change(matcher.kind, matcher.registry, part, writer.ticks, are_parts=are_parts)
                elif isinstance(part, Changes):
                    deltas.setdefault(matcher.kind.kind, []).append((number, part))
                else:
                    matcher.n_matched += part.n_matched
                    updates.append(part)
        for kind, replicas in deltas.items():
            merger = self._mergers[kind]
            changes = merger.merge(replicas, writer.ticks)
            if has_arrivals:  # while the clock advances, the last message may enter a result, but it does not arrive
                merger.n_matched += changes.n_matched
            updates.append(writer.write(merger.registry, changes))
        return updates

    def _widen(self, ticks: Ticks) -> None:
        """Add the replicas that subscriptions need when messages leave at these steps."""
        if self._replica_planners:
            leaving = np.unique(np.concatenate([window.leaving(ticks) for window in self._windows]))
            for replica_planner in self._replica_planners.values():
                replica_planner.widen(leaving)

    def _cuts(self, n_messages: int) -> Sequence[int]:
        """Return where messages are divided among threads, if any thread may match any message."""
        n_parts = len(self.shards) if self.router.sends_all else 1
        return [n_messages * i // n_parts for i in range(n_parts + 1)]

    # -- the window; several shards may hold the same message -------------------------------------------------------

    @property
    def _windows(self) -> list[SlidingWindow]:
        """The windows, in the order of shards."""
        return [shard.window for shard in self.shards]

    def _catch_up(self) -> None:
        """Bring the lists of all windows up to date, before threads read them."""
        for window in self._windows:
            window.catch_up()

    def documents(self) -> Iterable[Document]:
        """Return the messages of the window."""
        return self._distinct(window.documents() for window in self._windows)

    def touching(self, footprint: Footprint, *, after: int) -> Iterable[Document]:
        """Return the messages of the window after a seq that may match a subscription."""
        return self._distinct(window.touching(footprint, after=after) for window in self._windows)

    def batches_touching(self, footprint: Footprint, *, after: int) -> Iterable[MessageBatch]:
        """Return the same messages as columns, window by window; several windows may hold one."""
        return (window.batch_touching(footprint, self._scoring.vocabulary, after=after) for window in self._windows)

    def _distinct(self, found: Iterable[Iterable[Document]]) -> Iterable[Document]:
        return {document.seq: document for documents in found for document in documents}.values()

    def find(self, id_: Id) -> Document:
        """Return the newest message with an id."""
        found = [document for window in self._windows if (document := window.find(id_)) is not None]
        if not found:
            raise UnknownMessage(id_)
        return max(found, key=lambda document: document.seq)

    def _recent(self) -> MessageBatch:
        """Return the newest messages of the window; before the routing is fitted, every shard has them all."""
        return self.shards[0].window.newest(_SAMPLE, self._scoring.vocabulary)

    def n_live(self) -> int:
        """Return the number of messages in the window."""
        return len(self.seqs)

    @property
    def seqs(self) -> Longs:
        """The seqs of the messages in the window, ascending."""
        windows = self._windows
        return windows[0].seqs if len(windows) == 1 else np.unique(np.concatenate([one.seqs for one in windows]))

    def live(self) -> pa.Table | None:
        """Return the messages of the window, in order."""
        tables = [table for window in self._windows if (table := window.table()) is not None]
        if len(tables) <= 1:
            return tables[0] if tables else None
        table = pa.concat_tables(tables)
        _, rows = np.unique(table["seq"].to_numpy(), return_index=True)
        return table.take(pa.array(rows))

    def batch_of(self, seqs: Longs) -> MessageBatch:
        """Return messages of the window of a single shard, by ascending seqs."""
        return self.shards[0].window.batch_of(seqs, self._scoring.vocabulary)

    def live_of(self, seqs: Longs) -> pa.Table | None:
        """Return some messages of the window, by ascending seqs; None without a window."""
        table = self.live()
        return None if table is None else table.filter(pa.array(np.isin(table["seq"].to_numpy(), seqs)))

    # -- counts, saving -------------------------------------------------------------------------------------------

    def kinds(self) -> dict[str, int]:
        """Return the number of subscriptions of each kind."""
        counts: dict[str, int] = {}
        for owner in self._owners():
            counts[owner.kind.kind] = counts.get(owner.kind.kind, 0) + len(counted(owner))
        return counts

    def work(self) -> dict[str, Work]:
        """Return the work done so far, by kind."""
        total = dict(self._work_before)
        for matcher in self._matchers():
            total[matcher.kind.kind] = add_work(total.get(matcher.kind.kind, Work()), matcher.work)
        for kind, merger in self._mergers.items():
            total[kind] = add_work(total.get(kind, Work()), Work(matched=merger.n_matched))
        return total

    def subscriptions(self) -> Iterator[Subscription]:
        """Yield all subscriptions as objects, a few thousand at a time."""
        for owner in self._owners():
            slots = counted(owner)
            for start in range(0, len(slots), ROWS_AT_ONCE):
                yield from restore(owner.registry.rows(slots[start : start + ROWS_AT_ONCE]), owner.kind)

    def saved(self) -> Iterator[SavedSubscriptions]:
        """Yield all subscriptions in the form in which they are saved."""
        for owner in self._owners():
            slots, before = counted(owner), None
            if isinstance(owner, Matcher) and len(self.shards) == 1:
                # It may be one of many engines, each of which saves its own replicas.
                slots = owner.registry.taken()
                before = owner.replicas.before(slots)
            yield saved(owner, slots, before)

    def restore(self, subscriptions: SubscriptionBatch, stored: SavedSubscriptions) -> None:
        """Add saved subscriptions with the results that were saved."""
        self.insert(subscriptions, stored.sinces, stored.before if len(self.shards) == 1 else None)
        if stored.results:
            self._set_results(subscriptions, stored.results)

    def _set_results(self, subscriptions: SubscriptionBatch, results_of_rows: Sequence[Results]) -> None:
        """Set the results of subscriptions that were just inserted; row numbers take the place of slots."""
        kind = subscriptions.kind
        for shard in self.shards:
            if (matcher := shard.matchers.get(kind.kind)) is None:
                continue
            slots = matcher.registry.find(subscriptions.ids)
            restored = [results.move(slots) for results in results_of_rows]
            matcher.restore(restored)
            for results in restored if self.router.merges(kind) else ():
                self._merger(kind).fill(shard.number, results)

    def attach(self, folder: EngineFolder, results: dict[str, list[Results]]) -> None:
        """Continue with the arenas of a folder, and with the results that lie outside of them."""
        for shard in self.shards:
            for kind in folder.kinds(shard.number):
                shard.attach(kind, results.get(f"{shard.number}.{kind}", []))
        for shard in self.shards:
            for matcher in shard.matchers.values():
                if self.router.merges(matcher.kind):
                    self._merge_replicas(shard, matcher)
        for replica_planner in self._replica_planners.values():
            replica_planner.resume()

    def _merge_replicas(self, shard: Shard, matcher: Matcher) -> None:
        """Add the replicas of a shard to the merger of their kind."""
        merger, replicas = self._merger(matcher.kind), matcher.registry.taken()
        if not len(replicas):
            return
        subscriptions = SubscriptionBatch(matcher.kind, matcher.registry.rows(replicas), self._scoring)
        slots = merger.registry.find(subscriptions.ids)
        new = np.flatnonzero(slots < 0)
        if len(new):
            slots[new] = merger.allocate(subscriptions.take(new), matcher.registry.sinces(replicas[new]))
        merger.add(shard.number, replicas, slots, subscriptions.footprints.ks, Results.none())
        for results in matcher.held(replicas):
            merger.fill(shard.number, results)

    def close(self) -> None:
        """Stop the worker threads."""
        self._pool.close()


def _make_router(config: EngineConfig) -> Router:
    is_adjusted = config.balance is not None
    has_window = config.window is not None
    return Router(config.partitioner, config.workers, has_window=has_window, is_adjusted=is_adjusted)


def positions(slots: Slots, among: Slots) -> Longs:
    """Return where each slot is among others, all different, which hold it."""
    place = np.zeros(int(among.max(initial=-1)) + 1, np.int64)
    place[among] = np.arange(len(among))
    return place[slots]


def _find(registry: SubscriptionRegistry, ids: IdColumn) -> tuple[npt.NDArray[np.int64], Slots]:
    """Return the rows of the ids that exist, and their slots."""
    slots = registry.find(ids)
    rows = np.flatnonzero(slots >= 0)
    return rows, slots[rows]


def _rows_of(results: Results, ids: IdColumn) -> tuple[Longs, Longs]:
    """Return the messages of results that have some ids: the row of each in the ids, and its seq."""
    rows = results.ids.positions_in(ids)
    here = np.flatnonzero(rows >= 0)
    return rows[here], results.seqs[here]
