"""The router of an engine: a routing, given or fitted to the first subscriptions.

    before the fit    every message goes to every shard; there are no subscriptions yet
    the fit           the sample is the first subscriptions and the newest messages of the window
    afterwards        the routing decides

Where messages go to some shards only, a subscription may live in several, and a `ResultMerger` merges the results of
its replicas. With a window such a routing stays fixed, so that the windows of a subscription's shards hold every
message that a later subscription needs. So does one that is adjusted: an adjustment looks at cells, and not at what
was placed in them.

Where a routing sends every message to all shards, threads need none: they share one index and divide the messages.
Such a routing is for processes; in an engine there is one shard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from nearcast.model import Footprints, MessageBatch, Subscription, SubscriptionBatch
from nearcast.partition import Masks, Routing, Sample, ShardArea, are_empty, mask_of, rows_of_shards
from nearcast.partition.balance.cells import has_cells
from nearcast.partition.fitting import fit
from nearcast.partition.serialization import pack, unpack
from nearcast.partition.transition import place_added
from nearcast.space import Box

Rows = npt.NDArray[np.int64]


class Router:
    """Places subscriptions in shards and routes messages to them."""

    def __init__(
        self, partitioner: str | Routing, n_shards: int, *, has_window: bool, is_adjusted: bool = False
    ) -> None:
        self._partitioner, self._n_shards, self._has_window = partitioner, n_shards, has_window
        self._is_adjusted = is_adjusted
        self._routing: Routing | None = None

    @property
    def sends_all(self) -> bool:
        """True if every message goes to every shard, so that there is one."""
        return self._routing is None or self._routing.sends_all

    def merges(self, kind: type[Subscription]) -> bool:
        """Return whether the results of a kind are merged from several replicas."""
        return not self.sends_all and kind.result_policy.is_stateful

    def prepare(self, batches: Sequence[SubscriptionBatch], recent: Callable[[], MessageBatch]) -> None:
        """Fit the routing to the first subscriptions; later calls do nothing."""
        if not batches or self._n_shards == 1 or self._routing is not None:
            return
        footprints = Footprints.joined([batch.routing_footprints for batch in batches])
        routing = fit(self._partitioner, Sample(footprints, recent().for_routing), n_shards=self._n_shards)
        is_fixed = self._is_adjusted or (self._has_window and not routing.sends_all)
        routing = routing.fixed() if is_fixed else routing
        if self._is_adjusted and routing.narrows and has_cells(routing):
            routing = routing.reassigned(routing.cell_shards)  # which places by all terms
        self._routing = routing

    @property
    def is_fitted(self) -> bool:
        """True once there is a routing; a single shard never needs one."""
        return self._routing is not None

    @property
    def routing(self) -> Routing:
        """The routing, once it is fitted."""
        assert self._routing is not None
        return self._routing

    def replace(self, routing: Routing) -> None:
        """Continue with another routing; the caller moves what it places elsewhere."""
        self._routing = routing

    def shard_areas(self, bounds: Box) -> list[ShardArea]:
        """Return the part of space that belongs to each shard; empty before the fit."""
        return [] if self._routing is None else self._routing.shard_areas(bounds)

    def packed(self) -> bytes | None:
        """Return the routing as bytes, or None before the fit."""
        return None if self._routing is None else pack(self._routing)

    def resume(self, packed: bytes) -> None:
        """Continue with a routing from `packed`."""
        self._routing = unpack(packed)

    @property
    def narrows(self) -> bool:
        """True if the placement of a subscription depends on the threshold of its result."""
        return self._routing is not None and self._routing.narrows

    def placements(self, subscriptions: SubscriptionBatch, sinces: Rows) -> Masks:
        """Return the shards of subscriptions, given the step at which each was added."""
        if self.sends_all:
            return mask_of(np.zeros(len(subscriptions), np.int64), self._n_shards)
        assert self._routing is not None
        return place_added(self._routing, subscriptions.routing_footprints, sinces)

    def place(self, footprints: Footprints) -> Masks:
        """Return the shards of subscriptions, by footprint."""
        assert self._routing is not None
        return self._routing.place(footprints)

    def route(self, batch: MessageBatch) -> tuple[Masks | None, list[Rows]]:
        """Return the shards of each message, None if there is one shard, and the rows that each shard sees."""
        if self.sends_all:
            rows = np.arange(len(batch), dtype=np.int64)
            return None, [rows]
        assert self._routing is not None
        masks = self._routing.route(batch.for_routing)
        if self._has_window:  # the window also holds messages that touch no subscription
            masks[:, 0] |= are_empty(masks).astype(np.uint64)
        return masks, rows_of_shards(masks, self._n_shards)
