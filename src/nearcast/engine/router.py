"""How do the shards of an engine share the work? By a routing, given or fitted to the first subscriptions.

    before the fit    every message to every shard; there is nobody yet whom it could concern
    the fit           the first subscriptions and the newest messages of the window are the sample
    after             as the routing says

Where messages go to some shards only, a subscription may live in several; what its replicas keep is merged (`merger`).
With a window the routing is a fixed one: who comes later finds in the windows of its shards what it would have seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from nearcast.model import Footprints, MessageBatch, Subscription, SubscriptionBatch
from nearcast.partition import Masks, Region, Routing, Sample, all_shards, has_shard, place_by_key
from nearcast.partition.fitting import fit
from nearcast.partition.serialization import pack, unpack
from nearcast.space import Box

Rows = npt.NDArray[np.int64]


class Router:
    """Who gets what."""

    def __init__(self, partitioner: str | Routing, n_shards: int, *, has_window: bool) -> None:
        self._partitioner, self._n_shards, self._has_window = partitioner, n_shards, has_window
        self._routing: Routing | None = None

    @property
    def sends_all(self) -> bool:
        """Whether every message goes to every shard."""
        return self._routing is None or self._routing.sends_all

    def merges(self, kind: type[Subscription]) -> bool:
        """Whether results of a kind are merged from those of replicas."""
        return not self.sends_all and kind.result_policy.is_stateful

    def prepare(self, subscription_batches: Sequence[SubscriptionBatch], recent: Callable[[], MessageBatch]) -> None:
        """Fit the routing to the first subscriptions that come."""
        if not subscription_batches or self._n_shards == 1 or self._routing is not None:
            return
        footprints = Footprints.joined([subscription_batch.footprints for subscription_batch in subscription_batches])
        routing = fit(self._partitioner, Sample(footprints, recent()), n_shards=self._n_shards)
        self._routing = routing.fixed() if self._has_window else routing

    def regions(self, bounds: Box) -> list[Region]:
        """Return which part of space belongs to whom; none before that is decided."""
        return [] if self._routing is None else self._routing.regions(bounds)

    def packed(self) -> bytes | None:
        """Return the routing as bytes, for an engine that goes on elsewhere; None if it was not fitted yet."""
        return None if self._routing is None else pack(self._routing)

    def resume(self, packed: bytes) -> None:
        """Go on with a routing."""
        self._routing = unpack(packed)

    @property
    def narrows(self) -> bool:
        """Whether subscriptions are placed by what can still bring a result."""
        return self._routing is not None and self._routing.narrows

    def home(self, subscription_batch: SubscriptionBatch) -> Masks:
        """Return the homes of subscriptions; all share one where threads part the messages instead."""
        if self._n_shards == 1 or (self.sends_all and not subscription_batch.kind.result_policy.is_stateful):
            return np.ones(len(subscription_batch), np.uint64)
        assert self._routing is not None
        if self._routing.by_key:
            return place_by_key(subscription_batch.ids.keys, self._n_shards)
        return self.place(subscription_batch.footprints)

    def place(self, footprints: Footprints) -> Masks:
        """Return the homes of subscriptions of which this is known."""
        assert self._routing is not None
        return self._routing.place(footprints)

    def route(self, batch: MessageBatch) -> tuple[Masks, list[Rows]]:
        """Return who sees each message, and which each shard sees."""
        if self.sends_all:
            rows = np.arange(len(batch), dtype=np.int64)
            return np.full(len(batch), all_shards(self._n_shards)), [rows] * self._n_shards
        assert self._routing is not None
        masks = self._routing.route(batch)
        if self._has_window:  # which also holds what concerns nobody
            masks = np.where(masks == 0, np.uint64(1), masks)
        return masks, [np.flatnonzero(has_shard(masks, shard)) for shard in range(self._n_shards)]
