"""All shards of an engine behind one interface.

    subscriptions ── place ──┬─ shard 0 ─┐
    messages ─────── route ──┤    ...    ├── concatenated or merged ── updates
                             └─ shard n ─┘

The result of a subscription has one owner. A subscription that lives in one shard belongs to the matcher there, and
so does one of a stateless kind: only one of its replicas reports a match. A stateful subscription that may live in
several shards belongs to the `ResultMerger` of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.engine.config import EngineConfig
from nearcast.engine.matcher import Matcher, Slots
from nearcast.engine.router import Router
from nearcast.engine.shard import Shard, ShardTask
from nearcast.engine.state import SavedSubscriptions
from nearcast.engine.stats import add_work
from nearcast.engine.updates import Form, UpdateBatch, write_updates
from nearcast.errors import UnknownMessage
from nearcast.index import Work
from nearcast.model import Document, Id, IdColumn, MessageBatch, Subscription, SubscriptionBatch
from nearcast.model.subscription_rows import restore
from nearcast.partition import Masks, before_it, has_shard
from nearcast.window import Changes, Results, ScoredMessage, Ticks

if TYPE_CHECKING:
    from nearcast.engine.folder import EngineFolder
    from nearcast.engine.registry import SubscriptionRegistry
    from nearcast.engine.replica_planner import ReplicaPlanner
    from nearcast.engine.result_merger import ResultMerger

_ROWS_AT_ONCE = 10_000  # subscriptions that become objects at a time
_SAMPLE = 100_000  # messages that a partitioner is fitted to


class ShardSet:
    """The shards of an engine."""

    def __init__(self, config: EngineConfig, live: pa.Table | None, folder: EngineFolder | None) -> None:
        self.router = Router(config.partitioner, config.workers, has_window=config.window is not None)
        self._config, self._scoring = config, config.scoring
        self.shards = [
            Shard(
                config.scoring,
                config.window,
                index=config.index,
                number=number,
                live=live,
                arena=None if folder is None else partial(folder.arena, number),
            )
            for number in range(config.workers)
        ]
        self._mergers: dict[str, ResultMerger] = {}
        self._replica_planners: dict[str, ReplicaPlanner] = {}
        self._pool = ThreadPoolExecutor(config.workers, "nearcast") if config.workers > 1 else None

    # -- subscriptions ------------------------------------------------------------------------------------------

    def prepare(self, batches: Sequence[SubscriptionBatch]) -> None:
        """Fit the routing to the first subscriptions."""
        self.router.prepare(batches, self._recent)

    def insert(
        self, subscriptions: SubscriptionBatch, sinces: npt.NDArray[np.int64], before: Masks | None = None
    ) -> list[tuple[SubscriptionRegistry, Results]]:
        """Place subscriptions of one kind; return their initial results, each with the registry of its slots.

        A single shard may be one of many in other processes: `before` holds those that have a subscription too.
        """
        if not len(subscriptions):
            return []
        kind = subscriptions.kind
        masks = self.router.placements(subscriptions)

        def insert(part: tuple[Shard, npt.NDArray[np.int64]]) -> tuple[Slots, Results]:
            shard, rows = part
            own = subscriptions if len(rows) == len(subscriptions) else subscriptions.take(rows)
            others = before_it(masks[rows], shard.number) if before is None else before[rows]
            return shard.matcher(kind).insert(own, sinces[rows], others)

        placed = [(shard, np.flatnonzero(has_shard(masks, number))) for number, shard in enumerate(self.shards)]
        placed = [(shard, rows) for shard, rows in placed if len(rows)]
        inserted = list(self._run(insert, placed))
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

    def remove(self, ids: IdColumn) -> dict[Id, list[ScoredMessage]]:
        """Remove those of the given subscriptions that exist; return their non-empty results."""
        removed: dict[Id, list[ScoredMessage]] = {}

        def note(results: Results, rows: npt.NDArray[np.int64], slots: Slots) -> None:
            row_of = dict(zip(slots.tolist(), rows.tolist(), strict=True))
            removed.update({ids[row_of[slot]]: found for slot, found in results.by_slot().items()})

        for matcher in self._matchers():
            rows, slots = _find(matcher.registry, ids)
            results = matcher.delete(slots) if len(slots) else Results.none()
            if matcher.kind.kind not in self._mergers:
                note(results, rows, slots)
        for merger in self._mergers.values():
            rows, slots = _find(merger.registry, ids)
            note(merger.forget(slots), rows, slots)
            if (replica_planner := self._replica_planners.get(merger.kind.kind)) is not None:
                replica_planner.forget(slots)
        return removed

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
        for kind in dict.fromkeys(matcher.kind for matcher in self._matchers()):
            refreshed = [
                (shard.number, shard.matchers[kind.kind].refresh_users(users))
                for shard in self.shards
                if kind.kind in shard.matchers
            ]
            if (merger := self._mergers.get(kind.kind)) is None:
                for number, (before, after) in refreshed:
                    yield self.shards[number].matchers[kind.kind].registry, before.by_slot(), after.by_slot()
                continue
            deltas = [(number, _difference(before, after)) for number, (before, after) in refreshed]
            now = np.array([seq], np.int64)
            changes = merger.merge(deltas, Ticks(now, now, now))
            yield merger.registry, _by_slot(changes, enters=False), _by_slot(changes, enters=True)

    # -- messages -----------------------------------------------------------------------------------------------

    def publish(
        self, batch: MessageBatch, ticks: Ticks, form: Form, seen_by: Masks | None = None
    ) -> list[UpdateBatch]:
        """Publish a batch to all shards and return their updates.

        `seen_by` holds the shards that see each message, for a single shard that is one of many.
        """
        self._widen(ticks)
        jobs: list[tuple[int, ShardTask]] = []
        masks, rows_of = self.router.route(batch)
        masks = masks if seen_by is None else seen_by
        for shard, rows in zip(self.shards, rows_of, strict=True):
            part = batch if len(rows) == len(batch) else batch.take(rows)
            cuts, writes = self._cuts(len(part)), self.router.sends_all
            made = shard.publish(part, masks[rows], ticks, form=form, cuts=cuts, writes_updates=writes)
            jobs += [(shard.number, job) for job in made]
        return self._execute(jobs, ticks, form)

    def advance(self, seq: int, ticks: Ticks) -> list[UpdateBatch]:
        """Advance the clock without a message."""
        self._widen(ticks)
        writes = self.router.sends_all
        jobs = [
            (shard.number, job) for shard in self.shards for job in shard.advance(seq, ticks, writes_updates=writes)
        ]
        return self._execute(jobs, ticks, Form.OBJECTS)

    def _widen(self, ticks: Ticks) -> None:
        """Add the replicas that subscriptions need when messages leave at these steps."""
        if self._replica_planners:
            leaving = np.unique(np.concatenate([shard.window.leaving(ticks) for shard in self.shards]))
            for replica_planner in self._replica_planners.values():
                replica_planner.widen(leaving)

    def _cuts(self, n_messages: int) -> Sequence[int]:
        """Return where messages are divided among threads, if any thread may match any message."""
        n_parts = len(self.shards) if self.router.sends_all else 1
        return [n_messages * i // n_parts for i in range(n_parts + 1)]

    def _execute(self, jobs: Sequence[tuple[int, ShardTask]], ticks: Ticks, form: Form) -> list[UpdateBatch]:
        """Run jobs on the worker threads and return all updates."""
        parts: list[UpdateBatch] = []
        deltas: dict[str, list[tuple[int, Changes]]] = {}
        for number, done in self._run(lambda job: (job[0], job[1]()), jobs):
            for matcher, part in done:
                if isinstance(part, Changes):
                    deltas.setdefault(matcher.kind.kind, []).append((number, part))
                else:
                    matcher.n_matched += part.n_matched
                    parts.append(part)
        for kind, replicas in deltas.items():
            merger = self._mergers[kind]
            changes = merger.merge(replicas, ticks)
            merger.n_matched += changes.n_matched
            parts.append(write_updates(merger.registry, changes, ticks, form))
        return parts

    def _run(self, work: Callable[[Any], Any], pieces: Sequence[Any]) -> Iterable[Any]:
        return (map if self._pool is None or len(pieces) == 1 else self._pool.map)(work, pieces)

    # -- the window; several shards may hold the same message -------------------------------------------------------

    def documents(self, newest: int | None = None) -> Iterable[Document]:
        """Return the messages of the window, or at least the given number of the newest."""
        shards = self.shards[:1] if self.router.sends_all else self.shards
        found = (document for shard in shards for document in shard.window.documents(newest))
        return {document.seq: document for document in found}.values()

    def find(self, id_: Id) -> Document:
        """Return the newest message with an id."""
        found = [document for shard in self.shards if (document := shard.window.find(id_)) is not None]
        if not found:
            raise UnknownMessage(id_)
        return max(found, key=lambda document: document.seq)

    def _recent(self) -> MessageBatch:
        """Return the newest messages of the window; before the routing is fitted, every shard has them all."""
        return self.shards[0].window.newest(_SAMPLE, self._scoring.vocabulary)

    def n_live(self) -> int:
        """Return the number of messages in the window."""
        windows = [shard.window for shard in self.shards]
        if self.router.sends_all or self._config.window is None:
            return len(windows[0])
        return len(np.unique(np.concatenate([window.store.of("seqs", window.numbers) for window in windows])))

    def live(self) -> pa.Table | None:
        """Return the messages of the window, in order."""
        tables = [table for shard in self.shards if (table := shard.window.table()) is not None]
        if not tables or self.router.sends_all:
            return tables[0] if tables else None
        table = pa.concat_tables(tables)
        _, rows = np.unique(table["seq"].to_numpy(), return_index=True)
        return table.take(pa.array(rows))

    # -- counts, saving -------------------------------------------------------------------------------------------

    def kinds(self) -> dict[str, int]:
        """Return the number of subscriptions of each kind."""
        counts: dict[str, int] = {}
        for owner in self._owners():
            counts[owner.kind.kind] = counts.get(owner.kind.kind, 0) + len(_own(owner))
        return counts

    def work(self) -> dict[str, Work]:
        """Return the work done so far, by kind."""
        total: dict[str, Work] = {}
        for matcher in self._matchers():
            total[matcher.kind.kind] = add_work(total.get(matcher.kind.kind, Work()), matcher.work)
        for kind, merger in self._mergers.items():
            total[kind] = add_work(total.get(kind, Work()), Work(matched=merger.n_matched))
        return total

    def subscriptions(self) -> Iterator[Subscription]:
        """Yield all subscriptions as objects, a few thousand at a time."""
        for owner in self._owners():
            slots = _own(owner)
            for start in range(0, len(slots), _ROWS_AT_ONCE):
                yield from restore(owner.registry.rows(slots[start : start + _ROWS_AT_ONCE]), owner.kind)

    def saved(self) -> Iterator[SavedSubscriptions]:
        """Yield all subscriptions in the form in which they are saved."""
        for owner in self._owners():
            slots = _own(owner)
            saved = []
            if owner.kind.result_policy.must_be_saved and len(slots):
                row_of = np.zeros(int(slots.max()) + 1, np.int32)
                row_of[slots] = np.arange(len(slots))
                saved = [results.move(row_of) for results in owner.held(slots)]
            registry = owner.registry
            yield SavedSubscriptions(owner.kind, registry.rows(slots), registry.sinces(slots), saved)

    def restore(self, subscriptions: SubscriptionBatch, saved: SavedSubscriptions) -> None:
        """Add saved subscriptions with the results that were saved."""
        self.insert(subscriptions, saved.sinces)
        if not saved.results:
            return
        kind = subscriptions.kind
        for shard in self.shards:
            if (matcher := shard.matchers.get(kind.kind)) is None:
                continue
            slots = matcher.registry.find(subscriptions.ids)
            restored = [results.move(slots) for results in saved.results]
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
        if self._pool is not None:
            self._pool.shutdown()


def _find(registry: SubscriptionRegistry, ids: IdColumn) -> tuple[npt.NDArray[np.int64], Slots]:
    """Return the rows of the ids that exist, and their slots."""
    slots = registry.find(ids)
    rows = np.flatnonzero(slots >= 0)
    return rows, slots[rows]


def _own(owner: Matcher | ResultMerger) -> Slots:
    """Return the slots that an owner counts: of replicas of a stateless kind, only the first counts."""
    slots = owner.registry.taken()
    return slots[owner.replicas.are_first(slots)] if isinstance(owner, Matcher) else slots


def _difference(before: Results, after: Results) -> Changes:
    """Return the changes that turn one set of results into another."""
    n_before, n_after = len(before.slots), len(after.slots)
    return Changes(
        np.zeros(n_before + n_after, np.int64),
        np.concatenate([before.slots, after.slots]),
        np.repeat([False, True], [n_before, n_after]),
        np.concatenate([before.scores, after.scores]),
        IdColumn.joined([before.ids, after.ids]),
        np.concatenate([before.seqs, after.seqs]),
        None,
        0,
    )


def _by_slot(changes: Changes, *, enters: bool) -> dict[int, list[ScoredMessage]]:
    """Return the messages that entered, or that left, by slot."""
    found: dict[int, list[ScoredMessage]] = {}
    for row in np.flatnonzero(changes.enters == enters).tolist():
        at = row if changes.rows is None else int(changes.rows[row])
        scored = ScoredMessage(int(changes.seqs[at]), changes.ids[at], float(changes.scores[row]))
        found.setdefault(int(changes.slots[row]), []).append(scored)
    return found
