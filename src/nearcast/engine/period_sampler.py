"""Samples of what a shard does in a period, for load adjustment; see `nearcast.partition.balance.period_parts`.

    begin ── the subscriptions that are stored ──┐
    add   ── messages, as they are published ────┼── end ── a part of a period
             the subscriptions afterwards ───────┘

Cost: a few nanoseconds for every subscription and message, and a microsecond for each that is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.engine.matcher import Matcher, Slots
from nearcast.engine.transfer import Placement
from nearcast.model import Footprints, MessageBatch, ScoringContext, SubscriptionBatch
from nearcast.partition import Masks, are_empty, before_it, has_shard
from nearcast.partition.balance.period_parts import (
    Hashes,
    PeriodPart,
    SampledMessages,
    are_chosen,
    hashes_of,
    level_for,
)

SUBSCRIPTIONS, MESSAGES = 100_000, 20_000
"""The most subscriptions and messages of a period, in all shards together; more make it hardly more exact."""

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class _Stored(NamedTuple):
    """The sampled subscriptions of one matcher."""

    slots: Slots
    hashes: Hashes
    footprints: Footprints
    are_old: Flags


class PeriodSampler:
    """Samples the messages that a shard publishes, and its subscriptions before and after."""

    def __init__(
        self,
        matchers: Callable[[], Sequence[Matcher]],
        scoring: ScoringContext,
        placement: Placement,
        *,
        shard: int,
    ) -> None:
        """Begin a period; `matchers` returns those of the shard as they are at the time."""
        self._matchers, self._scoring, self._placement, self._shard = matchers, scoring, placement, shard
        self._most = max(1, SUBSCRIPTIONS // placement.n_shards)
        self._most_messages = max(1, MESSAGES // placement.n_shards)
        self._messages = SampledMessages.joined([], level=0)
        self._n_messages = 0
        self._level = self._level_now()
        self._sinces = {matcher.kind.kind: _sinces(matcher).copy() for matcher in matchers()}
        self._before = {matcher.kind.kind: self._stored(matcher, self._level) for matcher in matchers()}

    def add(self, batch: MessageBatch, seen_by: Masks | None) -> None:
        """Take some of the messages that the shard publishes; `seen_by` holds the shards of each, None for all."""
        if seen_by is None and self._shard > 0:
            return  # all shards see them, and the first one takes them
        hashes = hashes_of(np.arange(self._n_messages, self._n_messages + len(batch)))
        self._n_messages += len(batch)
        chosen = are_chosen(hashes, self._messages.level)
        if seen_by is not None:
            chosen &= are_empty(before_it(seen_by, self._shard))
        rows = np.flatnonzero(chosen)
        level = self._messages.level
        own = SampledMessages.of(batch.for_routing, rows, hashes[rows], level=level)
        level += level_for(len(self._messages) + len(own), most=self._most_messages)
        self._messages = SampledMessages.joined([self._messages, own], level=level)

    def end(self) -> PeriodPart:
        """Return the part of the period that the shard saw."""
        level = self._level_now()
        stored, are_new, gone, gone_hashes = [], [np.zeros(0, np.bool_)], [], [np.zeros(0, np.uint64)]
        hashes, are_old = [np.zeros(0, np.uint64)], [np.zeros(0, np.bool_)]
        for matcher in self._matchers():
            name, now = matcher.kind.kind, _sinces(matcher)
            found, before = self._stored(matcher, level), self._sinces.get(matcher.kind.kind, now[:0])
            stored.append(found.footprints)
            hashes.append(found.hashes)
            are_old.append(found.are_old)
            were = np.full(len(found.slots), -1, np.int64)
            old = np.flatnonzero(found.slots < len(before))
            were[old] = before[found.slots[old]]
            are_new.append(were != now[found.slots])
            if name in self._before:
                slots = self._before[name].slots
                rows = np.flatnonzero(now[slots] != before[slots])
                gone.append(self._before[name].footprints.take(rows))
                gone_hashes.append(self._before[name].hashes[rows])
        top = max(level, self._level)
        return PeriodPart(
            self._messages,
            top,
            np.concatenate(hashes),
            Footprints.joined(stored),
            np.concatenate(are_new),
            np.concatenate(are_old),
            np.concatenate(gone_hashes),
            Footprints.joined(gone),
        )

    def _level_now(self) -> int:
        return level_for(sum(len(matcher.registry) for matcher in self._matchers()), most=self._most)

    def _stored(self, matcher: Matcher, level: int) -> _Stored:
        """Return those subscriptions of a level of which this shard is the first."""
        slots = matcher.registry.taken()
        hashes = hashes_of(slots)
        chosen = np.flatnonzero(are_chosen(hashes, level))
        slots, hashes = slots[chosen], hashes[chosen]
        subscriptions = SubscriptionBatch(matcher.kind, matcher.registry.rows(slots), self._scoring)
        sinces = matcher.registry.sinces(slots)
        masks = self._placement.place(subscriptions, sinces)
        own = np.flatnonzero(has_shard(masks, self._shard) & are_empty(before_it(masks, self._shard)))
        footprints = subscriptions.take(own).routing_footprints
        return _Stored(slots[own], hashes[own], footprints, self._placement.are_old(sinces[own]))


def _sinces(matcher: Matcher) -> Longs:
    """Return, for every slot, when its subscription came; a negative number for a free one."""
    return matcher.registry.sinces(np.arange(matcher.registry.n_slots, dtype=np.int32))
