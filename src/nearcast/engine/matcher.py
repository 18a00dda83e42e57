"""A matcher: the index and the result store of one kind in one shard.

    batch ─ index.match ─ slots, scores ─ result_store.publish ─ changes
                 ▲                                 │
                 └─────────── thresholds ──────────┘

Index and result store work with slots, small dense integers that are reused once free; the registry maps them to ids.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.engine.explain import explain
from nearcast.engine.lifetimes import Lifetimes
from nearcast.engine.updates import UpdateBatch, UpdateWriter
from nearcast.engine.window_lookup import Touching, WindowLookup
from nearcast.index import Index, Work
from nearcast.model import (
    Document,
    Explanation,
    Id,
    Matches,
    MessageBatch,
    ScoringContext,
    Subscription,
    SubscriptionBatch,
)
from nearcast.model.split_columns import join
from nearcast.window import Changes, Results, ResultStore, ScoredMessage, SlidingWindow, Steps
from nearcast.worker_pool import SERIAL, WorkerPool, WorkMeter

if TYPE_CHECKING:
    from nearcast.engine.registry import SubscriptionRegistry
    from nearcast.engine.replicas import Replicas
    from nearcast.model.facets import Facets
    from nearcast.model.filters import Filters
    from nearcast.partition import Masks

Slots = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


class Withdrawal(NamedTuple):
    """What the messages that are withdrawn have changed so far."""

    slots: Slots
    """The subscriptions whose results were deleted."""
    before: Results
    """Their results."""
    kept: Results
    """The part of these from which the new results are made, beside the window."""


_PIECE = 1 << 18
_WRITE_S = 5e-8  # seconds to write a change as an update


class Matcher:
    """The subscriptions of one kind in one shard."""

    def __init__(
        self,
        kind: type[Subscription],
        registry: SubscriptionRegistry,
        index: Index,
        result_store: ResultStore,
        scoring: ScoringContext,
        replicas: Replicas,
        filters: Filters,
        facets: Facets,
        lookup: WindowLookup,
    ) -> None:
        self.kind = kind
        self.registry = registry
        self.replicas = replicas
        self.lifetimes = Lifetimes()
        """The messages for which some subscriptions are in force, see `interleaved`; mostly empty."""
        self.n_matched = 0
        """Number of messages that changed a result on arrival."""
        self._pool, self._meter = SERIAL, WorkMeter()
        self._index = index
        self._result_store = result_store
        self._scoring = scoring
        self._filters = filters
        self._facets = facets
        self._lookup = lookup

    def use(self, pool: WorkerPool) -> None:
        """Use the threads of a pool from now on."""
        self._pool = pool
        self._result_store.use(pool)

    @property
    def work(self) -> Work:
        """Work done so far; a match is an arrival that changed a result."""
        return replace(self._index.work, matched=self.n_matched)

    def prepare(self, subscriptions: SubscriptionBatch) -> None:
        """Make what subscriptions need of the window, before they are added."""
        self._result_store.prepare(subscriptions)

    def insert(
        self, subscriptions: SubscriptionBatch, sinces: npt.NDArray[np.int64], before: Masks | None
    ) -> tuple[Slots, Results]:
        """Add subscriptions and return slots and initial results; `before` holds earlier shards with a replica."""
        slots = self.registry.allocate(subscriptions, sinces)
        self.replicas.set(slots, before)
        self._filters.insert(slots, subscriptions.programs)
        self._list(slots, subscriptions)
        results = self._result_store.insert(slots, subscriptions)
        self.set_thresholds()
        return slots, results

    def _list(self, slots: Slots, subscriptions: SubscriptionBatch) -> None:
        """Insert subscriptions into the index, under facets where it takes them."""
        self._index.insert(slots, self._facets.choose(subscriptions))

    def delete(self, slots: Slots) -> Results:
        """Remove subscriptions and return their results."""
        self.registry.free(slots)
        self._index.delete(slots)
        self._filters.delete(slots)
        return self._result_store.delete(slots)

    def refresh_users(self, users: Collection[Id]) -> tuple[Results, Results]:
        """Compute the results of users again whose edges changed; return results before and after."""
        if not self.kind.depends_on_users():
            return Results.none(), Results.none()
        slots = self.registry.taken()
        stored = self.registry.rows(slots)
        chosen = np.flatnonzero([user in users for user in join(stored, "user")])
        if not len(chosen):
            return Results.none(), Results.none()
        subscriptions = SubscriptionBatch(self.kind, stored.take(pa.array(chosen)), self._scoring)
        before = self._result_store.delete(slots[chosen])
        after = self._result_store.insert(slots[chosen], subscriptions)
        self.set_thresholds()
        return before, after

    def matches(self, batch: MessageBatch, seen_by: Masks | None) -> Results:
        """Return the matches of messages that came after the subscriptions of a stateless kind."""
        rows, slots, scores = self.replicas.report(self._match(batch), seen_by)
        came_after = self.registry.sinces(slots) < batch.seqs[rows]
        rows, slots, scores = rows[came_after], slots[came_after], scores[came_after]
        return Results(slots, batch.seqs[rows], scores, batch.ids.take(rows))

    def holders(self, batch: MessageBatch, seqs: Longs, step: int) -> Slots:
        """Return the subscriptions in force at a step whose results may hold some messages.

        `batch` has those of the messages that are in the window.
        """
        if self.kind.result_policy.must_be_saved:  # results do not follow from the window, so look for the messages
            slots = self._result_store.holders(self.registry.taken(), seqs)
        else:
            slots = np.unique(self._match(batch).slots)
        return slots[~self.lifetimes.are_over(slots, step)]

    def begin_withdrawal(self, slots: Slots) -> Withdrawal:
        """Delete the results of subscriptions from which messages are withdrawn."""
        if not len(slots):
            return Withdrawal(slots, Results.none(), Results.none())
        self._index.delete(slots)  # thresholds of some kinds only ever fall, so these subscriptions begin anew
        before = self._result_store.delete(slots)
        return Withdrawal(slots, before, before)

    def end_withdrawal(self, withdrawal: Withdrawal, seqs: Longs, window: SlidingWindow) -> Results:
        """Fill up results from the window, which has the messages no more; return them."""
        self._result_store.withdraw(seqs)
        slots = withdrawal.slots
        if not len(slots):
            return Results.none()
        subscriptions = SubscriptionBatch(self.kind, self.registry.rows(slots), self._scoring)
        self._list(slots, subscriptions)
        after = self._result_store.insert(slots, subscriptions)
        if self.kind.result_policy.must_be_saved:
            after = self._refilled(withdrawal, seqs, subscriptions, window)
            self._result_store.restore([after])
        self.set_thresholds()
        return after

    def _refilled(
        self, withdrawal: Withdrawal, seqs: Longs, subscriptions: SubscriptionBatch, window: SlidingWindow
    ) -> Results:
        """Return the best of what results keep and of the window since each subscription."""
        kept, gone, rank = withdrawal.kept.by_slot(), set(seqs.tolist()), self.kind.result_policy.rank
        filled = {}
        scorers, footprints = subscriptions.scorers, subscriptions.footprints
        rows = zip(withdrawal.slots.tolist(), subscriptions.subscriptions, scorers, footprints, strict=True)
        for slot, subscription, score_of, footprint in rows:
            found = {scored.seq: scored for scored in kept.get(slot, []) if scored.seq not in gone}
            for document in window.touching(footprint, after=self.registry.since(slot)):
                score = score_of(document)
                if score is not None:
                    found[document.seq] = ScoredMessage(document.seq, document.id, score)
            best = sorted(found.values(), key=lambda scored: rank(scored.score, scored.seq))
            filled[slot] = best[: subscription.n_results]
        return Results.of(filled)

    def _match(self, batch: MessageBatch) -> Matches:
        self.set_thresholds()
        return self._find(batch, 0, len(batch))

    def _find(self, batch: MessageBatch, start: int, stop: int) -> Matches:
        """Return the matches of some rows that pass the filters."""
        if self._filters.have_phrases:
            batch.prepare_order()  # before the terms alone are encoded
        n_rows = self._facets.n_rows
        found = self._index.match(self._facets.rows_of(batch), start * n_rows, stop * n_rows)
        return self._filters.passing(self._facets.of_messages(found), batch)

    def attach(self, results: Sequence[Results], *, has_index: bool, has_results: bool) -> None:
        """Rebuild from the registry what the arena does not hold, and set the given results."""
        if has_index and has_results:
            return
        slots = self.registry.taken()
        if not len(slots):
            return
        subscriptions = SubscriptionBatch(self.kind, self.registry.rows(slots), self._scoring)
        if not has_index:  # the arena holds the filters in any case
            self._list(slots, subscriptions)
        if not has_results:
            self._result_store.insert(slots, subscriptions)
            if results:
                self._result_store.restore(results)
        self.set_thresholds()

    def restore(self, results: Sequence[Results]) -> None:
        """Set the results that were saved."""
        self._result_store.restore(results)
        self.set_thresholds()

    def held(self, slots: Slots) -> list[Results]:
        """Return the stored results of some slots, in pieces short enough for a column of strings."""
        return [self._result_store.held(slots[i : i + _PIECE]) for i in range(0, len(slots), _PIECE)]

    def holds(self, seqs: Longs) -> npt.NDArray[np.bool_]:
        """Return which messages some result holds."""
        return self._result_store.holds(self.registry.taken(), seqs)

    def held_seqs(self) -> Longs:
        """Return the seqs of all messages that results hold, ascending."""
        return self._result_store.held_seqs(self.registry.taken())

    def publish(self, batch: MessageBatch, seen_by: Masks | None, steps: Steps, writer: UpdateWriter) -> UpdateBatch:
        """Match messages and return the updates of a stateless kind; several threads may do so at once.

        `seen_by` holds the shards that see each message; None if all do.
        """

        def find(start: int, stop: int) -> Matches:
            found = self.replicas.report(self._find(batch, start, stop), seen_by)
            return self.lifetimes.report(found, batch.seqs)

        return writer.write(self.registry, Changes.merged(self._result_store.publish(batch, steps, find)))

    @property
    def matches_whole_batches(self) -> bool:
        """True if a batch is matched at once, against the thresholds that there are before it."""
        return self._result_store.matches_whole_batches

    def match(self, batch: MessageBatch) -> Matches:
        """Return the matches of messages for results, against the present thresholds; several threads may do so."""
        return self.lifetimes.report(self._find(batch, 0, len(batch)), batch.seqs)

    def changes(self, batch: MessageBatch, steps: Steps, found: Matches | None = None) -> list[Changes]:
        """Publish a batch, whose matches may be known, and return the changes of results, see `ResultStore.publish`.

        Every replica has to be up to date, so it does not matter which shards see a message. The index does not have
        the new thresholds yet.
        """

        def find(start: int, stop: int) -> Matches:
            if found is not None:
                return found
            self.set_thresholds()  # those that moved since the last call
            n_rows = stop - start
            cuts = [start + cut for cut in self._pool.cuts(n_rows, self._meter.estimate(n_rows))]
            parts = [batch] if n_rows == len(batch) and len(cuts) == 2 else map(batch.slice, cuts, cuts[1:])
            with self._meter.measure(n_rows, min(len(cuts) - 1, self._pool.n_threads)):
                return joined_matches(self._pool.map(self.match, parts), cuts)

        return self._result_store.publish(batch, steps, find)

    def divided(self, changes: Sequence[Changes]) -> list[list[Changes]]:
        """Return changes in pieces of consecutive steps, each of which a thread may write; none is very large."""
        n_changes = sum(len(part.steps) for part in changes)
        n_pieces = self._pool.for_work(_WRITE_S * n_changes).n_threads
        return Changes.divided(changes, max(n_pieces, n_changes // _PIECE))

    def set_thresholds(self) -> None:
        """Give the index the thresholds that have moved."""
        moved = self._result_store.take_threshold_changes()
        if len(moved.slots):
            self._index.set_thresholds(*moved)

    def results(self, slot: int, touching: Touching) -> list[ScoredMessage]:
        """Return a result, best first; matches of stateless kinds are looked up in the window."""
        if self.kind.result_policy.is_stateful:
            return self._result_store.results(slot)
        rows = self.registry.rows(np.array([slot], np.int32))
        subscription = SubscriptionBatch(self.kind, rows, self._scoring)
        found = self._lookup.find(subscription, touching, after=self.registry.since(slot))
        return sorted(found, key=lambda scored: self.kind.result_policy.rank(scored.score, scored.seq))

    def explain(self, slot: int, document: Document) -> Explanation:
        """Explain the score of a message for a subscription, given the other messages of its result."""
        return explain(self.registry, slot, document, self._scoring, self._result_store)


def joined_matches(parts: Sequence[Matches], starts: Sequence[int]) -> Matches:
    """Return the matches of consecutive ranges of rows, given where each begins, as those of all rows."""
    if len(parts) == 1 and starts[0] == 0:
        return parts[0]
    rows = np.concatenate([part.rows + start for part, start in zip(parts, starts, strict=False)])
    return Matches(rows, *(np.concatenate([part[i] for part in parts]) for i in (1, 2)))
