"""The loads of the shards of one engine: a sampler for each of them, while there is a period."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from nearcast.engine.matcher import Matcher
from nearcast.engine.period_sampler import PeriodSampler
from nearcast.engine.router import Router
from nearcast.engine.shard import Shard
from nearcast.engine.transfer import Placement
from nearcast.model import MessageBatch, ScoringContext
from nearcast.partition import Masks
from nearcast.partition.balance.period_parts import PeriodPart
from nearcast.partition.transition import are_old


class LoadMeter:
    """Measures what shards do in a period."""

    def __init__(self, scoring: ScoringContext) -> None:
        self._scoring = scoring
        self._samplers: list[PeriodSampler] = []

    @property
    def is_running(self) -> bool:
        """True while there is a period."""
        return bool(self._samplers)

    def begin(self, shards: Sequence[Shard], router: Router) -> None:
        """Begin a period, if there is a routing that could be adjusted."""
        if router.sends_all:
            return
        routing = router.routing
        placement = Placement(len(shards), False, router.placements, routing.route, are_old=partial(are_old, routing))
        self._samplers = [
            PeriodSampler(partial(_matchers_of, shard), self._scoring, placement, shard=shard.number)
            for shard in shards
        ]

    def add(self, shard: int, batch: MessageBatch, seen_by: Masks | None) -> None:
        """Add messages that a shard publishes; `seen_by` holds the shards of each, None for all."""
        if self._samplers:
            self._samplers[shard].add(batch, seen_by)

    def end(self) -> list[PeriodPart]:
        """Return what each shard did since the beginning of the period."""
        parts, self._samplers = [sampler.end() for sampler in self._samplers], []
        return parts

    def drop(self) -> None:
        """Forget a period, of other shards, that tells nothing of these."""
        self._samplers = []


def _matchers_of(shard: Shard) -> list[Matcher]:
    return list(shard.matchers.values())
