"""Where must a subscription still live, now that it has k results? With the terms that can bring a better one.

    terms, the weightiest first     jazz 0.7   tonight 0.3   free 0.1
    most that can be scored from    1.0        0.6           0.5          by a message that holds none before
    bar, the worst of k             0.55       needed: jazz, tonight; left out: free, floor 0.5

The loose prefix of DSkype (definition 12), which reaches further the lower the bar is. A bar falls when results leave
the window. Who leaves in a batch is known before it comes, and so is how low bars can fall meanwhile: to the worst of
the k best that stay. Where that does not pass the floor, replicas are added before the batch, whose shards have seen
all they need. As in the paper, nobody moves back; who is subscribed anew starts with what it needs then.

Cost: 24 bytes a subscription; a batch looks at those of whose results one leaves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nearcast.engine.result_merger import ResultMerger
from nearcast.engine.router import Router
from nearcast.engine.shard import Shard
from nearcast.model import ScoringContext, SubscriptionBatch
from nearcast.partition import Masks, has_shard

Slots = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

_NEVER = np.iinfo(np.int64).max
_NOBODY = np.zeros(0, np.int64)


def _alone(subscription_batch: SubscriptionBatch) -> Masks:
    """Return that nobody before has subscriptions: what replicas keep is merged, so all of them answer."""
    return np.zeros(len(subscription_batch), np.uint64)


class ReplicaPlanner:
    """The replicas of one kind."""

    def __init__(
        self, merger: ResultMerger, shards: Sequence[Shard], router: Router, scoring: ScoringContext
    ) -> None:
        self._merger, self._shards, self._router, self._scoring = merger, shards, router, scoring
        self._masks: Masks = np.zeros(0, np.uint64)
        self._floors: Floats = np.zeros(0)
        """What messages can score at most of which a subscription hears nothing."""
        self._oldest: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        """As long as this message stays, the bar is above the floor."""

    def narrow(self, subscription_batch: SubscriptionBatch, slots: Slots, masks: Masks) -> None:
        """Remove replicas that are not needed, of subscriptions that were just placed with all they could need."""
        self._make_room(slots)
        thresholds, oldest = self._merger.survivors(slots, _NOBODY)
        needed, floors = subscription_batch.footprints.narrowed(subscription_batch.footprints.needed(thresholds))
        left = self._router.place(needed)
        for shard in self._shards:
            rows = np.flatnonzero(has_shard(masks & ~left, shard.number))
            if len(rows):
                matcher = shard.matcher(subscription_batch.kind)
                results = matcher.delete(matcher.registry.find(subscription_batch.ids.take(rows)))
                self._merger.drain(shard.number, slots[rows], results)
        self._note(slots, left, floors, oldest)

    def widen(self, leaving: npt.NDArray[np.int64]) -> None:
        """Add the replicas that will be needed when messages have left."""
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
        subscription_batch = SubscriptionBatch(self._merger.kind, registry.rows(slots), self._scoring)
        needed, floors = subscription_batch.footprints.narrowed(subscription_batch.footprints.needed(thresholds))
        masks = self._masks[slots] | self._router.place(needed)
        for shard in self._shards:
            rows = np.flatnonzero(has_shard(masks & ~self._masks[slots], shard.number))
            if len(rows):
                own = subscription_batch.take(rows)
                replicas, results = shard.matcher(subscription_batch.kind).insert(
                    own, registry.sinces(slots[rows]), _alone(own)
                )
                self._merger.add(shard.number, replicas, slots[rows], own.footprints.ks, results)
        self._note(slots, masks, floors, oldest)

    def _note(self, slots: Slots, masks: Masks, floors: Floats, oldest: npt.NDArray[np.int64]) -> None:
        self._masks[slots], self._floors[slots] = masks, floors
        self._oldest[slots] = np.where(floors == -np.inf, _NEVER, oldest)

    def resume(self) -> None:
        """Go on with replicas that are there, of all subscriptions: they get the others that they could need."""
        slots = self._merger.registry.taken()
        self._make_room(slots)
        ids = self._merger.registry.ids(slots)
        self._masks[slots] = 0
        for shard in self._shards:
            here = shard.matcher(self._merger.kind).registry.find(ids) >= 0
            self._masks[slots[here]] |= np.uint64(1 << shard.number)
        self._add(slots, np.full(len(slots), -np.inf), np.full(len(slots), _NEVER))

    def forget(self, slots: Slots) -> None:
        """Forget subscriptions."""
        self._oldest[slots] = _NEVER

    def _make_room(self, slots: Slots) -> None:
        more = int(slots.max(initial=-1)) + 1 - len(self._masks)
        if more > 0:
            more += len(self._masks)
            self._masks = np.concatenate([self._masks, np.zeros(more, np.uint64)])
            self._floors = np.concatenate([self._floors, np.full(more, -np.inf)])
            self._oldest = np.concatenate([self._oldest, np.full(more, _NEVER)])
