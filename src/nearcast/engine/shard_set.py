"""How do all shards of an engine answer as one?

    subscriptions ── place ──┬─ shard 0 ─┐
    messages ─────── route ──┤    ...    ├── one after the other, or merged ── who has what to tell
                             └─ shard n ─┘

Who lives in one shard is spoken for by the matcher there, and so is who keeps nothing: of its replicas one answers.
Who keeps results and may live in several is spoken for by the `merger` of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.engine.matcher import Matcher, Slots
from nearcast.engine.router import Router
from nearcast.engine.shard import Job, Shard
from nearcast.engine.state import EngineConfig, SavedSubscriptions
from nearcast.engine.stats import add_work
from nearcast.engine.updates import Form, UpdateBatch, write_updates
from nearcast.errors import UnknownMessage
from nearcast.index import Work
from nearcast.model import (
    Document,
    Id,
    IdColumn,
    MessageBatch,
    ScoringContext,
    Subscription,
    SubscriptionBatch,
)
from nearcast.partition import Masks, before_it, has_shard
from nearcast.window import Changes, Results, ScoredMessage, Ticks

if TYPE_CHECKING:
    from nearcast.engine.folder import EngineFolder
    from nearcast.engine.registry import SubscriptionRegistry
    from nearcast.engine.replica_planner import ReplicaPlanner
    from nearcast.engine.result_merger import ResultMerger

_SAMPLE = 100_000  # messages that a partitioner learns from


class ShardSet:
    """The shards of an engine."""

    def __init__(
        self, config: EngineConfig, scoring: ScoringContext, live: pa.Table | None, folder: EngineFolder | None
    ) -> None:
        self.router = Router(config.partitioner, config.workers, has_window=config.window is not None)
        self._config, self._scoring = config, scoring
        self.shards = [
            Shard(
                scoring,
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

    def prepare(self, subscription_batches: Sequence[SubscriptionBatch]) -> None:
        """Decide how the work is shared, when the first subscriptions come."""
        self.router.prepare(subscription_batches, self._recent)

    def insert(
        self, subscription_batch: SubscriptionBatch, sinces: npt.NDArray[np.int64], before: Masks | None = None
    ) -> list[tuple[SubscriptionRegistry, Results]]:
        """Place subscriptions of one kind; return the results they start with, and who knows their names.

        A lone shard may be one of many elsewhere: `before` says which of these hold a subscription too.
        """
        if not len(subscription_batch):
            return []
        masks = self.router.home(subscription_batch)

        def insert(part: tuple[Shard, npt.NDArray[np.int64]]) -> tuple[Slots, Results]:
            shard, rows = part
            own = subscription_batch if len(rows) == len(subscription_batch) else subscription_batch.take(rows)
            others = before_it(masks[rows], shard.number) if before is None else before[rows]
            return shard.matcher(subscription_batch.kind).insert(own, sinces[rows], others)

        placements = [(shard, np.flatnonzero(has_shard(masks, number))) for number, shard in enumerate(self.shards)]
        placements = [(shard, rows) for shard, rows in placements if len(rows)]
        started = list(self._run(insert, placements))
        if not self.router.merges(subscription_batch.kind):
            each = zip(placements, started, strict=True)
            return [(shard.matcher(subscription_batch.kind).registry, results) for (shard, _), (_, results) in each]
        merger = self._merger(subscription_batch.kind)
        slots, ks = merger.allocate(subscription_batch, sinces), subscription_batch.footprints.ks
        for (shard, rows), (replicas, results) in zip(placements, started, strict=True):
            merger.add(shard.number, replicas, slots[rows], ks[rows], results)
        if self.router.narrows:
            self._replica_planners[subscription_batch.kind.kind].narrow(subscription_batch, slots, masks)
        return [(merger.registry, results) for results in merger.held(slots)]

    def _merger(self, kind: type[Subscription]) -> ResultMerger:
        if kind.kind not in self._mergers:
            from nearcast.engine.result_merger import (
                ResultMerger,  # with the first that is merged, not before, come the kernels
            )

            merger = self._mergers[kind.kind] = ResultMerger(kind, self._scoring, len(self.shards))
            if self.router.narrows:
                from nearcast.engine.replica_planner import ReplicaPlanner

                self._replica_planners[kind.kind] = ReplicaPlanner(merger, self.shards, self.router, self._scoring)
        return self._mergers[kind.kind]

    def remove(self, ids: IdColumn) -> dict[Id, list[ScoredMessage]]:
        """Forget those subscriptions that are there; return the results that are not empty."""
        had: dict[Id, list[ScoredMessage]] = {}

        def note(results: Results, rows: npt.NDArray[np.int64], slots: Slots) -> None:
            row_of = dict(zip(slots.tolist(), rows.tolist(), strict=True))
            had.update({ids[row_of[slot]]: held for slot, held in results.by_slot().items()})

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
        return had

    def _matchers(self) -> Iterator[Matcher]:
        return (matcher for shard in self.shards for matcher in shard.matchers.values())

    def _owners(self) -> Iterator[Matcher | ResultMerger]:
        """Yield who speaks for subscriptions."""
        yield from (matcher for matcher in self._matchers() if matcher.kind.kind not in self._mergers)
        yield from self._mergers.values()

    def allocate(self, id_: Id) -> tuple[Matcher | ResultMerger, int] | None:
        """Return who speaks for a subscription, and its slot there; None if it is not here."""
        for owner in self._owners():
            slot = int(owner.registry.find(IdColumn.of([id_]))[0])
            if slot >= 0:
                return owner, slot
        return None

    def missing(self, ids: IdColumn) -> npt.NDArray[np.bool_]:
        """Tell which ids are not here."""
        missing = np.ones(len(ids), np.bool_)
        for owner in self._owners():
            missing &= owner.registry.find(ids) < 0
        return missing

    def follow(
        self, users: Collection[Id], seq: int
    ) -> Iterator[tuple[SubscriptionRegistry, dict[int, Any], dict[int, Any]]]:
        """Look again for users whose friends changed; yield names, and what results had and have by slot."""
        for kind in dict.fromkeys(matcher.kind for matcher in self._matchers()):
            told = [
                (shard.number, shard.matchers[kind.kind].follow(users))
                for shard in self.shards
                if kind.kind in shard.matchers
            ]
            if (merger := self._mergers.get(kind.kind)) is None:
                for number, (before, after) in told:
                    yield self.shards[number].matchers[kind.kind].registry, before.by_slot(), after.by_slot()
                continue
            deltas = [(number, _turn(before, after)) for number, (before, after) in told]
            moment = np.array([seq], np.int64)
            changes = merger.merge(deltas, Ticks(moment, moment, moment))
            yield merger.registry, _by_slot(changes, enters=False), _by_slot(changes, enters=True)

    # -- messages -----------------------------------------------------------------------------------------------

    def publish(
        self, batch: MessageBatch, ticks: Ticks, form: Form, seen_by: Masks | None = None
    ) -> list[UpdateBatch]:
        """Move on by a batch; return what all have to tell. `seen_by` says who else sees messages of a lone shard."""
        self._widen(ticks)
        jobs: list[tuple[int, Job]] = []
        masks, shares = self.router.route(batch)
        masks = masks if seen_by is None else seen_by
        for shard, rows in zip(self.shards, shares, strict=True):
            part = batch if len(rows) == len(batch) else batch.take(rows)
            cuts, tells = self._cuts(len(part)), self.router.sends_all
            made = shard.publish(part, masks[rows], ticks, form=form, cuts=cuts, tells=tells)
            jobs += [(shard.number, job) for job in made]
        return self._hand_out(jobs, ticks, form)

    def advance(self, seq: int, ticks: Ticks) -> list[UpdateBatch]:
        """Let time pass without a message."""
        self._widen(ticks)
        tells = self.router.sends_all
        jobs = [(shard.number, job) for shard in self.shards for job in shard.advance(seq, ticks, tells=tells)]
        return self._hand_out(jobs, ticks, Form.OBJECTS)

    def _widen(self, ticks: Ticks) -> None:
        """See that subscriptions live where they must when messages leave at some steps."""
        if self._replica_planners:
            leaving = np.unique(np.concatenate([shard.window.leaving(ticks) for shard in self.shards]))
            for replica_planner in self._replica_planners.values():
                replica_planner.widen(leaving)

    def _cuts(self, n_messages: int) -> Sequence[int]:
        """Return where messages are parted among threads, if any of these may have any of them."""
        n_parts = len(self.shards) if self.router.sends_all else 1
        return [n_messages * i // n_parts for i in range(n_parts + 1)]

    def _hand_out(self, jobs: Sequence[tuple[int, Job]], ticks: Ticks, form: Form) -> list[UpdateBatch]:
        """Have the work done, and return what all have to tell."""
        parts: list[UpdateBatch] = []
        deltas: dict[str, list[tuple[int, Changes]]] = {}
        for number, told in self._run(lambda job: (job[0], job[1]()), jobs):
            for matcher, part in told:
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

    # -- the window, each of whose messages several shards may have -----------------------------------------------

    def documents(self, newest: int | None = None) -> Iterable[Document]:
        """Return the messages of the window, or at least so many of the newest."""
        shards = self.shards[:1] if self.router.sends_all else self.shards
        found = (document for shard in shards for document in shard.window.documents(newest))
        return {document.seq: document for document in found}.values()

    def find(self, id_: Id) -> Document:
        """Return the newest message of an id."""
        found = [document for shard in self.shards if (document := shard.window.find(id_)) is not None]
        if not found:
            raise UnknownMessage(id_)
        return max(found, key=lambda document: document.seq)

    def _recent(self) -> MessageBatch:
        """Return the newest messages of the window, as every shard has them before the work is parted."""
        return self.shards[0].window.newest(_SAMPLE, self._scoring.vocabulary)

    def n_live(self) -> int:
        """Return how many messages the window holds."""
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
        """Return how many subscriptions there are of each kind."""
        counts: dict[str, int] = {}
        for owner in self._owners():
            counts[owner.kind.kind] = counts.get(owner.kind.kind, 0) + len(_own(owner))
        return counts

    def work(self) -> dict[str, Work]:
        """Return how much was done so far, kind by kind."""
        total: dict[str, Work] = {}
        for matcher in self._matchers():
            total[matcher.kind.kind] = add_work(total.get(matcher.kind.kind, Work()), matcher.work)
        for kind, merger in self._mergers.items():
            total[kind] = add_work(total.get(kind, Work()), Work(matched=merger.n_matched))
        return total

    def subscription_batches(self) -> Iterator[SavedSubscriptions]:
        """Yield all subscriptions, as they are saved."""
        for owner in self._owners():
            slots = _own(owner)
            kept = []
            if owner.kind.result_policy.must_be_saved and len(slots):  # others follow from the window
                row_of = np.zeros(int(slots.max()) + 1, np.int32)
                row_of[slots] = np.arange(len(slots))
                kept = [results.move(row_of) for results in owner.held(slots)]
            registry = owner.registry
            yield SavedSubscriptions(owner.kind, registry.rows(slots), registry.sinces(slots), kept)

    def restore(self, subscription_batch: SubscriptionBatch, saved: SavedSubscriptions) -> None:
        """Take in subscriptions that were saved, with the results they had."""
        self.insert(subscription_batch, saved.sinces)
        if not saved.kept:
            return
        for shard in self.shards:
            if (matcher := shard.matchers.get(subscription_batch.kind.kind)) is None:
                continue
            kept = [results.move(matcher.registry.find(subscription_batch.ids)) for results in saved.kept]
            matcher.restore(kept)
            for results in kept if self.router.merges(subscription_batch.kind) else ():
                self._merger(subscription_batch.kind).fill(shard.number, results)

    def attach(self, folder: EngineFolder, kept: dict[str, list[Results]]) -> None:
        """Go on with what lies in a folder, and with results that do not."""
        for shard in self.shards:
            for kind in folder.kinds(shard.number):
                shard.attach(kind, kept.get(f"{shard.number}.{kind}", []))
        for shard in self.shards:
            for matcher in shard.matchers.values():
                if self.router.merges(matcher.kind):
                    self._reunite(shard, matcher)
        for replica_planner in self._replica_planners.values():
            replica_planner.resume()

    def _reunite(self, shard: Shard, matcher: Matcher) -> None:
        """Tell a union what the replicas of a shard hold."""
        merger, replicas = self._merger(matcher.kind), matcher.registry.taken()
        if not len(replicas):
            return
        subscription_batch = SubscriptionBatch(matcher.kind, matcher.registry.rows(replicas), self._scoring)
        slots = merger.registry.find(subscription_batch.ids)
        new = np.flatnonzero(slots < 0)
        if len(new):
            slots[new] = merger.allocate(subscription_batch.take(new), matcher.registry.sinces(replicas[new]))
        merger.add(shard.number, replicas, slots, subscription_batch.footprints.ks, Results.none())
        for results in matcher.held(replicas):
            merger.fill(shard.number, results)

    def close(self) -> None:
        """Stop the threads."""
        if self._pool is not None:
            self._pool.shutdown()


def _find(registry: SubscriptionRegistry, ids: IdColumn) -> tuple[npt.NDArray[np.int64], Slots]:
    """Return which ids are here, and their slots."""
    slots = registry.find(ids)
    rows = np.flatnonzero(slots >= 0)
    return rows, slots[rows]


def _own(owner: Matcher | ResultMerger) -> Slots:
    """Return the slots of those whom nobody else speaks for: of replicas that keep nothing the first does."""
    slots = owner.registry.taken()
    return slots[owner.replicas.are_first(slots)] if isinstance(owner, Matcher) else slots


def _turn(before: Results, after: Results) -> Changes:
    """Return what has to change so that results become others."""
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
    """Return slot -> messages that came, or that went."""
    found: dict[int, list[ScoredMessage]] = {}
    for row in np.flatnonzero(changes.enters == enters).tolist():
        at = row if changes.rows is None else int(changes.rows[row])
        kept = ScoredMessage(int(changes.seqs[at]), changes.ids[at], float(changes.scores[row]))
        found.setdefault(int(changes.slots[row]), []).append(kept)
    return found
