"""A matcher: the index and the result store of one kind in one shard.

    batch ─ index.match ─ slots, scores ─ result_store.publish ─ changes
                 ▲                                 │
                 └─────────── thresholds ──────────┘

Index and result store work with slots, small dense integers that are reused once free; the registry maps them to ids.
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
        """Number of messages that changed a result on arrival."""
        self._index = index
        self._result_store = result_store
        self._scoring = scoring

    @property
    def work(self) -> Work:
        """Work done so far; a match is an arrival that changed a result."""
        return replace(self._index.work, matched=self.n_matched)

    def insert(
        self, subscriptions: SubscriptionBatch, sinces: npt.NDArray[np.int64], before: Masks
    ) -> tuple[Slots, Results]:
        """Add subscriptions and return slots and initial results; `before` holds earlier shards with a replica."""
        slots = self.registry.allocate(subscriptions, sinces)
        if not self.kind.result_policy.is_stateful:
            self.replicas.set(slots, before)
        self._index.insert(slots, subscriptions)
        results = self._result_store.insert(slots, subscriptions)
        self._set_thresholds()
        return slots, results

    def delete(self, slots: Slots) -> Results:
        """Remove subscriptions and return their results."""
        self.registry.free(slots)
        self._index.delete(slots)
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
        self._set_thresholds()
        return before, after

    def attach(self, results: Sequence[Results], *, has_index: bool, has_results: bool) -> None:
        """Rebuild from the registry what the arena does not hold, and set the given results."""
        if has_index and has_results:
            return
        slots = self.registry.taken()
        if not len(slots):
            return
        subscriptions = SubscriptionBatch(self.kind, self.registry.rows(slots), self._scoring)
        if not has_index:
            self._index.insert(slots, subscriptions)
        if not has_results:
            self._result_store.insert(slots, subscriptions)
            if results:
                self._result_store.restore(results)
        self._set_thresholds()

    def restore(self, results: Sequence[Results]) -> None:
        """Set the results that were saved."""
        self._result_store.restore(results)
        self._set_thresholds()

    def held(self, slots: Slots) -> list[Results]:
        """Return the stored results of some slots, in pieces short enough for a column of strings."""
        return [self._result_store.held(slots[i : i + _PIECE]) for i in range(0, len(slots), _PIECE)]

    def publish(self, batch: MessageBatch, seen_by: Masks, steps: Steps, ticks: Ticks, *, form: Form) -> UpdateBatch:
        """Match a batch and return the updates; stateless kinds may do so on several threads at once.

        `seen_by` holds the shards that see each message.
        """
        return write_updates(self.registry, self.changes(batch, seen_by, steps), ticks, form)

    def changes(self, batch: MessageBatch, seen_by: Masks, steps: Steps) -> Changes:
        """Match a batch and return the changes of results."""

        def find(start: int, stop: int) -> Matches:
            self._set_thresholds()  # those that moved since the last call
            return self.replicas.report(self._index.match(batch, start, stop), seen_by)

        changes = self._result_store.publish(batch, steps, find)
        self._set_thresholds()
        return changes

    def _set_thresholds(self) -> None:
        moved = self._result_store.take_threshold_changes()
        if len(moved.slots):
            self._index.set_thresholds(*moved)

    def results(self, slot: int, live: Callable[[], Iterable[Document]]) -> list[ScoredMessage]:
        """Return a result, best first; matches of stateless kinds are looked up in the window."""
        if self.kind.result_policy.is_stateful:
            return self._result_store.results(slot)
        since, score_of = self.registry.since(slot), self.registry.subscription(slot).bind(self._scoring)
        pairs = ((d, score_of(d)) for d in live() if d.seq > since)
        found = [ScoredMessage(d.seq, d.id, score) for d, score in pairs if score is not None]
        return sorted(found, key=lambda scored: self.kind.result_policy.rank(scored.score, scored.seq))

    def explain(self, slot: int, document: Document) -> Explanation:
        """Explain the score of a message for a subscription, given the other messages of its result."""
        return explain(self.registry, slot, document, self._scoring, self._result_store)
