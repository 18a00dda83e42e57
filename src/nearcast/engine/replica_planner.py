"""Placement of replicas by threshold: a subscription with k results needs only the terms that can bring a better one.

    terms by falling weight          jazz 0.7   tonight 0.3   free 0.1
    best score from this term on     1.0        0.6           0.5          of a message that holds no term before it
    threshold, the worst of k        0.55       needed: jazz, tonight; left out: free, floor 0.5

This is the loose prefix of DSkype (definition 12); the lower the threshold, the longer the prefix. A threshold falls
when results leave the window. The messages that leave during a batch are known before the batch, and so is a lower
bound of each threshold: the worst of the k best that stay. Where that bound does not exceed the floor, replicas are
added before the batch, in shards whose windows hold all that they need. As in the paper, replicas are never removed
again; a subscription that is replaced starts with the prefix that it needs then.

Cost: 24 bytes per subscription, for up to 64 shards; a batch visits the subscriptions that lose a result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nearcast.engine.result_merger import ResultMerger
from nearcast.engine.router import Router
from nearcast.engine.shard import Shard
from nearcast.model import ScoringContext, SubscriptionBatch
from nearcast.partition import Masks, no_shards, rows_of_shards
from nearcast.partition.masks import add_shard

Slots = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

_NEVER = np.iinfo(np.int64).max
_NONE = np.zeros(0, np.int64)


class ReplicaPlanner:
    """The replicas of one kind."""

    def __init__(
        self, merger: ResultMerger, shards: Sequence[Shard], router: Router, scoring: ScoringContext
    ) -> None:
        self._merger, self._shards, self._router, self._scoring = merger, shards, router, scoring
        self._masks = no_shards(0, len(shards))
        self._floors: Floats = np.zeros(0)
        """The best score of a message that no replica sees."""
        self._oldest: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        """The threshold exceeds the floor as long as this message stays."""

    def narrow(self, subscriptions: SubscriptionBatch, slots: Slots, masks: Masks) -> None:
        """Remove the replicas that new subscriptions do not need, after they were placed with all terms."""
        self._make_room(slots)
        thresholds, oldest = self._merger.survivors(slots, _NONE)
        footprints = subscriptions.routing_footprints
        needed, floors = footprints.narrowed(footprints.needed(thresholds))
        left = self._router.place(needed)
        for shard, rows in zip(self._shards, rows_of_shards(masks & ~left, len(self._shards)), strict=True):
            if len(rows):
                matcher = shard.matcher(subscriptions.kind)
                results = matcher.delete(matcher.registry.find(subscriptions.ids.take(rows)))
                self._merger.drain(shard.number, slots[rows], results)
        self._store(slots, left, floors, oldest)

    def widen(self, leaving: npt.NDArray[np.int64]) -> None:
        """Add the replicas that subscriptions need once messages have left."""
        if not len(leaving):
            return
        slots = np.flatnonzero(self._oldest <= leaving[-1]).astype(np.int32)
        thresholds, oldest = self._merger.survivors(slots, leaving)
        self._oldest[slots] = oldest
        weak = np.flatnonzero(~(thresholds > self._floors[slots]))
        if len(weak):
            self._add(slots[weak], thresholds[weak], oldest[weak])

    def _add(self, slots: Slots, thresholds: Floats, oldest: npt.NDArray[np.int64]) -> None:
        registry = self._merger.registry
        subscriptions = SubscriptionBatch(self._merger.kind, registry.rows(slots), self._scoring)
        footprints = subscriptions.routing_footprints
        needed, floors = footprints.narrowed(footprints.needed(thresholds))
        masks = self._masks[slots] | self._router.place(needed)
        added = rows_of_shards(masks & ~self._masks[slots], len(self._shards))
        for shard, rows in zip(self._shards, added, strict=True):
            if len(rows):
                own = subscriptions.take(rows)
                matcher = shard.matcher(subscriptions.kind)
                replicas, results = matcher.insert(own, registry.sinces(slots[rows]), None)
                self._merger.add(shard.number, replicas, slots[rows], own.footprints.ks, results)
        self._store(slots, masks, floors, oldest)

    def _store(self, slots: Slots, masks: Masks, floors: Floats, oldest: npt.NDArray[np.int64]) -> None:
        self._masks[slots], self._floors[slots] = masks, floors
        self._oldest[slots] = np.where(floors == -np.inf, _NEVER, oldest)

    def resume(self) -> None:
        """Continue with existing replicas, and add all others that the subscriptions may need."""
        slots = self._merger.registry.taken()
        self._make_room(slots)
        ids = self._merger.registry.ids(slots)
        self._masks[slots] = 0
        for shard in self._shards:
            here = shard.matcher(self._merger.kind).registry.find(ids) >= 0
            add_shard(self._masks, slots[here], shard.number)
        self._add(slots, np.full(len(slots), -np.inf), np.full(len(slots), _NEVER))

    def forget(self, slots: Slots) -> None:
        """Remove subscriptions."""
        self._oldest[slots] = _NEVER

    def _make_room(self, slots: Slots) -> None:
        more = int(slots.max(initial=-1)) + 1 - len(self._masks)
        if more > 0:
            more += len(self._masks)
            self._masks = np.concatenate([self._masks, no_shards(more, len(self._shards))])
            self._floors = np.concatenate([self._floors, np.full(more, -np.inf)])
            self._oldest = np.concatenate([self._oldest, np.full(more, _NEVER)])
