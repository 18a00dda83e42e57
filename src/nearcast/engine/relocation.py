"""Subscriptions whose place a new routing changes: those that move, those that stay, and the release."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from nearcast.engine.matcher import Matcher, Slots
from nearcast.engine.state import SavedSubscriptions
from nearcast.engine.transfer import Flags, Longs, Placement, Rerouting
from nearcast.model import ScoringContext, SubscriptionBatch
from nearcast.partition import Masks, Routing, are_empty, before_it, has_shard
from nearcast.partition.balance.changed_area import Area, changed_area
from nearcast.partition.transition import TransitionRouting, may_move, place_added

if TYPE_CHECKING:
    from nearcast.engine.result_merger import ResultMerger

ROWS_AT_ONCE = 10_000
"""Subscriptions that are read from a registry at a time."""
_IDS_AT_ONCE = 200_000


def saved(owner: Matcher | ResultMerger, slots: Slots, before: Masks | None) -> SavedSubscriptions:
    """Return subscriptions with the results that do not follow from the window, given their earlier replicas."""
    results = []
    if owner.kind.result_policy.must_be_saved and len(slots):
        row_of = np.zeros(int(slots.max()) + 1, np.int32)
        row_of[slots] = np.arange(len(slots))
        results = [found.move(row_of) for found in owner.held(slots)]
    return SavedSubscriptions(owner.kind, owner.registry.rows(slots), owner.registry.sinces(slots), before, results)


def moving(
    matchers: Iterable[Matcher], scoring: ScoringContext, change: Rerouting
) -> dict[int, list[SavedSubscriptions]]:
    """Return, for each other shard, the subscriptions that it gets from this one.

    Of several replicas the first passes a subscription on, to the shards that do not have it yet.
    """
    found: dict[int, list[SavedSubscriptions]] = {}
    for matcher in matchers:
        parts: dict[int, list[tuple[Slots, Masks]]] = {}
        for slots, after in _placed(matcher, scoring, change.after, moves=True):
            if change.before.sends_all:  # each lives in one shard, this one
                leave, held = np.flatnonzero(~has_shard(after, change.shard)), None
            else:
                held = change.before.place(_batch(matcher, slots, scoring), matcher.registry.sinces(slots))
                leave = np.flatnonzero(are_empty(before_it(held, change.shard)))
            for to in range(change.after.n_shards) if len(leave) else ():
                goes = has_shard(after[leave], to)
                if held is not None and to < change.before.n_shards:
                    goes &= ~has_shard(held[leave], to)
                rows = leave[goes]
                if len(rows) and to != change.shard:
                    parts.setdefault(to, []).append((slots[rows], before_it(after[rows], to)))
        for to, pieces in parts.items():
            found.setdefault(to, []).append(_joined(matcher, pieces))
    return found


def staying(
    matchers: Iterable[Matcher], scoring: ScoringContext, shard: int, after: Placement
) -> list[SavedSubscriptions]:
    """Return the subscriptions that a shard keeps."""
    kept = []
    for matcher in matchers:
        pieces = []
        for slots, masks in _placed(matcher, scoring, after):
            rows = np.flatnonzero(has_shard(masks, shard))
            pieces.append((slots[rows], before_it(masks[rows], shard)))
        if pieces:
            kept.append(_joined(matcher, pieces))
    return kept


def release_moved(matchers: Iterable[Matcher], scoring: ScoringContext, shard: int, after: Placement) -> None:
    """Remove the subscriptions that a shard does not keep, and set the earlier replicas of the others."""
    for matcher in matchers:
        for slots, masks in _placed(matcher, scoring, after, moves=True):
            stay = has_shard(masks, shard)
            if not stay.all():
                matcher.delete(slots[~stay])
            matcher.replicas.set(slots[stay], before_it(masks[stay], shard))


def _placed(
    matcher: Matcher, scoring: ScoringContext, by: Placement, *, moves: bool = False
) -> Iterator[tuple[Slots, Masks]]:
    """Yield the subscriptions of a matcher with the shards in which a routing places them, in pieces.

    With `moves` those are left out that certainly stay where they are.
    """
    taken = matcher.registry.taken()
    if moves:
        taken = _movable(matcher, taken, scoring, may_move=by.may_move, changed=by.changed)
    at_once = ROWS_AT_ONCE if by.place_ids is None else _IDS_AT_ONCE
    for start in range(0, len(taken), at_once):
        slots = taken[start : start + at_once]
        if by.place_ids is None:
            yield slots, by.place(_batch(matcher, slots, scoring), matcher.registry.sinces(slots))
        else:
            yield slots, by.place_ids(matcher.registry.ids(slots))


def _movable(
    owner: Matcher | ResultMerger,
    slots: Slots,
    scoring: ScoringContext,
    *,
    may_move: Callable[[Longs], Flags] | None,
    changed: Area | None,
) -> Slots:
    """Return subscriptions without those that certainly stay where they are."""
    if may_move is not None:
        slots = slots[may_move(owner.registry.sinces(slots))]
    if changed is None or owner.kind.box_fields is None:
        return slots
    boxes = owner.registry.numbers(slots, owner.kind.box_fields)
    are_plain = boxes[:, 0] <= boxes[:, 2]  # neither missing nor across the antimeridian
    rows = np.flatnonzero(are_plain)
    moved = ~are_plain
    moved[rows] = changed(scoring.space.clipped(boxes[rows]))
    return slots[moved]


def _batch(matcher: Matcher, slots: Slots, scoring: ScoringContext) -> SubscriptionBatch:
    return SubscriptionBatch(matcher.kind, matcher.registry.rows(slots), scoring)


def _joined(matcher: Matcher, pieces: Sequence[tuple[Slots, Masks]]) -> SavedSubscriptions:
    slots, before = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    return saved(matcher, slots, before)


def counted(owner: Matcher | ResultMerger) -> Slots:
    """Return the slots that an owner counts: of replicas of a stateless kind, only the first counts."""
    slots = owner.registry.taken()
    return slots[owner.replicas.are_first(slots)] if isinstance(owner, Matcher) else slots


def misplaced(
    owners: Iterable[Matcher | ResultMerger], scoring: ScoringContext, before: Routing, after: Routing
) -> Iterator[tuple[SubscriptionBatch, SavedSubscriptions]]:
    """Yield the subscriptions that another routing of the same shards places in other ones."""
    may_move, changed = _may_move(before, after), changed_area(before, after)
    for owner in owners:
        own = _movable(owner, counted(owner), scoring, may_move=may_move, changed=changed)
        for start in range(0, len(own), ROWS_AT_ONCE):
            slots = own[start : start + ROWS_AT_ONCE]
            subscriptions = SubscriptionBatch(owner.kind, owner.registry.rows(slots), scoring)
            footprints, sinces = subscriptions.routing_footprints, owner.registry.sinces(slots)
            held, wanted = (place_added(routing, footprints, sinces) for routing in (before, after))
            rows = np.flatnonzero((held != wanted).any(axis=1))
            if len(rows):
                yield subscriptions.take(rows), saved(owner, slots[rows], None)


def _may_move(before: Routing, after: Routing) -> Callable[[Longs], Flags] | None:
    """Return what says which subscriptions may move from one routing to the next; None if all."""
    if isinstance(after, TransitionRouting):
        return may_move(begins=True, since=after.since)
    if isinstance(before, TransitionRouting) and before.new is after:
        return may_move(begins=False, since=before.since)
    return None
