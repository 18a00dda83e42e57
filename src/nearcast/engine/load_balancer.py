"""Load adjustment of an engine with several workers: it measures its shards now and then, and decides.

    publish ── every so many messages, a period ── adjust ── a routing, and the decision that led to it

Between two periods it costs an addition per call. A decision looks at a sample, see `period_sampler`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nearcast.partition.balance.adjust import Adjusted
from nearcast.partition.balance.period_parts import period_of
from nearcast.partition.balance.policy import Balance
from nearcast.partition.balance.refit import decide
from nearcast.partition.base import Routing, Sample

if TYPE_CHECKING:
    from nearcast.engine.shard_set import ShardSet


class LoadBalancer:
    """Decides when the routing of some shards is adjusted, and how."""

    def __init__(self, policy: Balance, shards: ShardSet, fit: Callable[[Sample], Routing]) -> None:
        self._policy, self._shards, self._fit = policy, shards, fit
        self._n_messages = 0
        """Messages since the last period."""
        self.n_periods = 0
        """Periods so far, which goes on when the shards are built again."""

    def begin(self) -> None:
        """Begin a period if it is time, before messages are published."""
        policy = self._policy
        if self._n_messages >= (policy.every - 1) * policy.messages and not self._shards.load_meter.is_running:
            self._shards.load_meter.begin(self._shards.shards, self._shards.router)

    def end(self, n_messages: int, *, seq: int) -> Adjusted | None:
        """Count messages that were published; decide if a period is over, and return the new routing, if any.

        `seq` is the number of messages of the stream so far.
        """
        self._n_messages += n_messages
        policy = self._policy
        if not self._shards.load_meter.is_running or self._n_messages < policy.every * policy.messages:
            return None
        self._n_messages = 0
        self.n_periods += 1
        period = period_of(self._shards.load_meter.end(), counts_pairs=policy.load == "pairs")
        fit = self._fit if policy.tries_fresh(self.n_periods) else None
        return decide(self._shards.router.routing, period, policy, fit=fit, since=seq)
