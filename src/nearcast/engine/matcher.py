"""How does one kind meet a stream? An index finds, a keeper keeps, and this joins the two.

    batch ─ index.match ─ slots, scores ─ keeper.publish ─ changes
                 ▲                              │
                 └───────────── bars ───────────┘

Ids stay outside: index and keeper know slots, small dense integers that are used again once free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.engine.names import Names
from nearcast.index import Index, Work
from nearcast.model import (
    Cohort,
    Document,
    Explanation,
    Id,
    Keeps,
    Meaning,
    MessageBatch,
    Scorer,
    Subscription,
)
from nearcast.window import Changes, Keeper, Kept, Steps


class Member(NamedTuple):
    """A subscription that is in, and since when."""

    subscription: Subscription
    score: Scorer
    since: int
    """The last message published before it came."""


class Matcher:
    """The subscriptions of one kind in one shard."""

    def __init__(self, keeps: Keeps, index: Index, keeper: Keeper, meaning: Meaning) -> None:
        self.keeps = keeps
        self.names = Names()
        self._index = index
        self._keeper = keeper
        self._meaning = meaning
        self._slots: dict[Id, int] = {}
        self._members: list[Member | None] = []
        self._free: list[int] = []
        self._matched = 0

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def work(self) -> Work:
        """How much was done so far; a match is an arrival that changed a result."""
        return replace(self._index.work, matched=self._matched)

    def members(self) -> Iterator[Member]:
        """Yield every member."""
        return (member for member in self._members if member is not None)

    def insert(self, subscriptions: Sequence[Subscription], sinces: Sequence[int]) -> list[list[Kept]]:
        """Take in subscriptions that are not there yet and return the results they start with."""
        cohort = Cohort(subscriptions, self._meaning)
        slots = self._allot(len(subscriptions))
        started = []
        for slot, subscription, score, since in zip(
            slots.tolist(), subscriptions, cohort.scorers, sinces, strict=True
        ):
            self._members[slot] = Member(subscription, score, since)
            self._slots[subscription.id] = slot
            started.append(self._keeper.insert(slot, getattr(subscription, "k", 0), score))
        self._index.insert(slots, cohort)
        self.names.put(slots, [subscription.id for subscription in subscriptions])
        return started

    def _allot(self, n: int) -> npt.NDArray[np.int32]:
        used_again = [self._free.pop() for _ in range(min(n, len(self._free)))]
        fresh = range(len(self._members), len(self._members) + n - len(used_again))
        self._members.extend([None] * len(fresh))
        return np.array([*used_again, *fresh], dtype=np.int32)

    def delete(self, ids: Sequence[Id]) -> list[list[Kept]]:
        """Forget subscriptions and return the results they had."""
        slots = [self._slots.pop(id_) for id_ in ids]
        for slot in slots:
            self._members[slot] = None
        self._free += slots
        self._index.delete(np.array(slots, dtype=np.int32))
        return [self._keeper.delete(slot) for slot in slots]

    def restore(self, id_: Id, kept: Sequence[Kept]) -> None:
        """Give a subscription the result it had when it was saved."""
        self._keeper.restore(self._slots[id_], kept)

    def publish(self, batch: MessageBatch, steps: Steps) -> Changes:
        """Move on by a batch and return what changed."""
        keeper, index = self._keeper, self._index
        changes = keeper.publish(batch, steps, lambda start, stop: index.match(batch, start, stop, keeper.bars))
        self._matched += changes.n_matched
        return changes

    def id_of(self, slot: int) -> Id:
        """Return the id of the subscription in a slot."""
        member = self._members[slot]
        assert member is not None, f"slot {slot} is free but was reported"
        return member.subscription.id

    def results(self, id_: Id, live: Iterable[Document]) -> list[Kept]:
        """Return a result, best first; what only grows is looked up among the messages of the window."""
        member = self._member(id_)
        if self.keeps is not Keeps.MATCHES:
            return self._keeper.results(self._slots[id_])
        scored = ((d, member.score(d)) for d in live if d.seq > member.since)
        found = [Kept(d.seq, d.id, score) for d, score in scored if score is not None]
        return sorted(found, key=lambda kept: (-kept.score, -kept.seq))

    def explain(self, id_: Id, document: Document) -> Explanation:
        """Say how a message fares for a subscription, given what else is in its result."""
        member, slot = self._member(id_), self._slots[id_]
        subscription = member.subscription
        explained = subscription.explain(document, self._meaning)
        if self.keeps is not Keeps.BEST_IN_WINDOW and document.seq <= member.since:
            return replace(explained, passes=False, reason="no match, it was published before the subscription")
        if self.keeps is Keeps.MATCHES or explained.score is None:
            return explained
        passes, bar = self._keeper.would_enter(slot, document, explained.score), self._keeper.bar(slot)
        if bar is None:
            reason = f"in the result, which is not full: k is {subscription.k}"  # type: ignore[attr-defined]
        elif passes:
            reason = "in the result"
        else:
            reason = f"not among the {subscription.k} best"  # type: ignore[attr-defined]
        return replace(explained, passes=passes, bar=bar, reason=reason)

    def _member(self, id_: Id) -> Member:
        member = self._members[self._slots[id_]]
        assert member is not None
        return member
