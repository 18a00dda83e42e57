"""How does one kind meet a stream? An index finds, a keeper keeps, and this joins the two.

    batch ─ index.match ─ slots, scores ─ keeper.publish ─ changes
                 ▲                              │
                 └───────────── bars ───────────┘

Index and keeper know slots, small dense integers that are used again once free; the roster knows who sits there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.engine.explain import explain
from nearcast.engine.updates import Form, UpdateBatch, write_updates
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
from nearcast.window import Changes, Results, ResultStore, ScoredMessage, Steps, Ticks

if TYPE_CHECKING:
    from nearcast.engine.registry import SubscriptionRegistry
    from nearcast.engine.replicas import Replicas
    from nearcast.partition import Masks

Slots = npt.NDArray[np.int32]

_PIECE = 1 << 18


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
    ) -> None:
        self.kind = kind
        self.registry = registry
        self.replicas = replicas
        self.n_matched = 0
        """Arrivals that changed a result, so far."""
        self._index = index
        self._result_store = result_store
        self._scoring = scoring

    @property
    def work(self) -> Work:
        """How much was done so far; a match is an arrival that changed a result."""
        return replace(self._index.work, matched=self.n_matched)

    def insert(
        self, subscription_batch: SubscriptionBatch, sinces: npt.NDArray[np.int64], before: Masks
    ) -> tuple[Slots, Results]:
        """Take in subscriptions, some of which shards before this one hold too; return slots, and first results."""
        slots = self.registry.allocate(subscription_batch, sinces)
        if not self.kind.result_policy.is_stateful:
            self.replicas.allocate(slots, before)
        self._index.insert(slots, subscription_batch)
        results = self._result_store.insert(slots, subscription_batch)
        self._set_thresholds()
        return slots, results

    def delete(self, slots: Slots) -> Results:
        """Forget subscriptions and return the results they had."""
        self.registry.leave(slots)
        self._index.delete(slots)
        return self._result_store.delete(slots)

    def follow(self, users: Collection[Id]) -> tuple[Results, Results]:
        """Look again for subscriptions of users whose friends changed; return the results they had and have."""
        if not self.kind.depends_on_users():
            return Results.none(), Results.none()
        slots = self.registry.taken()
        stored = self.registry.rows(slots)
        chosen = np.flatnonzero([user in users for user in join(stored, "user")])
        if not len(chosen):
            return Results.none(), Results.none()
        subscription_batch = SubscriptionBatch(self.kind, stored.take(pa.array(chosen)), self._scoring)
        before = self._result_store.delete(slots[chosen])
        after = self._result_store.insert(slots[chosen], subscription_batch)
        self._set_thresholds()
        return before, after

    def go_on(self, kept: Sequence[Results], *, is_indexed: bool, is_kept: bool) -> None:
        """Make what lies in no arena of what the roster knows, and set the results that were kept."""
        if is_indexed and is_kept:
            return
        slots = self.registry.taken()
        if not len(slots):
            return
        subscription_batch = SubscriptionBatch(self.kind, self.registry.rows(slots), self._scoring)
        if not is_indexed:
            self._index.insert(slots, subscription_batch)
        if not is_kept:
            self._result_store.insert(slots, subscription_batch)
            if kept:
                self._result_store.restore(kept)
        self._set_thresholds()

    def restore(self, kept: Sequence[Results]) -> None:
        """Give subscriptions the results they had when they were saved."""
        self._result_store.restore(kept)
        self._set_thresholds()

    def held(self, slots: Slots) -> list[Results]:
        """Return the results that are kept of some slots, so many at a time that no column is too long."""
        return [self._result_store.held(slots[i : i + _PIECE]) for i in range(0, len(slots), _PIECE)]

    def publish(self, batch: MessageBatch, seen_by: Masks, steps: Steps, ticks: Ticks, *, form: Form) -> UpdateBatch:
        """Move on by a batch and tell what changed; where nothing is kept, on several threads at once.

        `seen_by` says for each message which shards have it.
        """
        return write_updates(self.registry, self.changes(batch, seen_by, steps), ticks, form)

    def changes(self, batch: MessageBatch, seen_by: Masks, steps: Steps) -> Changes:
        """Move on by a batch and return what changed."""

        def find(start: int, stop: int) -> Matches:
            self._set_thresholds()  # that moved since the keeper asked the last time
            return self.replicas.own(self._index.match(batch, start, stop), seen_by)

        changes = self._result_store.publish(batch, steps, find)
        self._set_thresholds()
        return changes

    def _set_thresholds(self) -> None:
        moved = self._result_store.moved()
        if len(moved.slots):
            self._index.set_thresholds(*moved)

    def results(self, slot: int, live: Callable[[], Iterable[Document]]) -> list[ScoredMessage]:
        """Return a result, best first; what only grows is looked up among the messages of the window."""
        if self.kind.result_policy.is_stateful:
            return self._result_store.results(slot)
        since, score_of = self.registry.since(slot), self.registry.subscription(slot).bind(self._scoring)
        scored = ((d, score_of(d)) for d in live() if d.seq > since)
        found = [ScoredMessage(d.seq, d.id, score) for d, score in scored if score is not None]
        return sorted(found, key=lambda kept: self.kind.result_policy.rank(kept.score, kept.seq))

    def explain(self, slot: int, document: Document) -> Explanation:
        """Say how a message fares for a subscription, given what else is in its result."""
        return explain(self.registry, slot, document, self._scoring, self._result_store)
