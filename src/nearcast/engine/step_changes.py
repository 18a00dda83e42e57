"""The changes of one step, collected from its parts: what expires, what is withdrawn, what arrives.

Each part is exact on its own. A message that a result gains in one part and loses in another was in it neither before
the step nor after it, so both changes are left out. The seq identifies a message: several may have one id.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nearcast.model import ENTER, LEAVE, Change, Id, Update
from nearcast.window import ScoredMessage

if TYPE_CHECKING:
    from nearcast.engine.message_bodies import MessageBodies
    from nearcast.engine.registry import SubscriptionRegistry


class StepChange(NamedTuple):
    """A message that entered or left the result of a subscription."""

    subscription: Id
    scored: ScoredMessage
    change: Change


def difference(id_: Id, before: Iterable[ScoredMessage], after: Iterable[ScoredMessage]) -> list[StepChange]:
    """Return how two results of a subscription differ, leaves first."""
    before, after = list(before), list(after)
    old, new = {scored.seq for scored in before}, {scored.seq for scored in after}
    leaves = [StepChange(id_, scored, LEAVE) for scored in before if scored.seq not in new]
    return leaves + [StepChange(id_, scored, ENTER) for scored in after if scored.seq not in old]


def differences(results: Iterable[tuple[SubscriptionRegistry, Any, Any]]) -> list[StepChange]:
    """Return the changes that follow from results by slot, before and after."""
    changes: list[StepChange] = []
    for registry, before, after in results:
        slots = np.fromiter(dict.fromkeys([*before, *after]), np.int32)
        for slot, id_ in zip(slots.tolist(), registry.ids(slots), strict=True):
            changes += difference(id_, before.get(slot, []), after.get(slot, []))
    return changes


def net_changes(changes: Sequence[StepChange]) -> list[StepChange]:
    """Return the net effect of the parts of a step; changes of one subscription are adjacent, leaves first.

    >>> m1, m2 = ScoredMessage(1, "m1", 0.5), ScoredMessage(2, "m2", 0.4)
    >>> changes = [StepChange("s", m2, ENTER), StepChange("s", m2, LEAVE), StepChange("s", m1, LEAVE)]
    >>> [(scored.message, change) for _, scored, change in net_changes(changes)]
    [('m1', 'leave')]
    """
    last: dict[tuple[Id, int], StepChange] = {}
    for change in changes:
        key = change.subscription, change.scored.seq
        if last.pop(key, None) is None:
            last[key] = change
    rank = {id_: i for i, id_ in enumerate(dict.fromkeys(change.subscription for change in changes))}
    return sorted(last.values(), key=lambda change: (rank[change.subscription], change.change != LEAVE))


def to_updates(
    changes: Sequence[StepChange], *, seq: int, at: float | None, bodies: MessageBodies | None
) -> list[Update]:
    """Return the changes of a step as updates."""
    carried: list[str | None] = [None] * len(changes)
    if bodies is not None and changes:
        seqs = np.array([scored.seq if change == ENTER else 0 for _, scored, change in changes], np.int64)
        carried = bodies.of(seqs).to_pylist()
    return [
        Update(seq, id_, scored.message, change, scored.score, at, body, scored.seq)
        for (id_, scored, change), body in zip(changes, carried, strict=True)
    ]
