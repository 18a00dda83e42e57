"""How does one kind meet a stream? An index finds, a keeper keeps, and this joins the two.

    batch ─ index.match ─ (slot, score) ─ keeper.step ─ changes
                 ▲                            │
                 └──────────── bars ──────────┘

Ids stay outside: index and keeper know slots, small dense integers that are used again once free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from nearcast.index import Index, Work
from nearcast.model import Document, Explanation, Id, Keeps, Meaning, MessageBatch, Scorer, Subscription
from nearcast.window import Found, Keeper, Kept, KeptChange, Step


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

    def insert(self, subscription: Subscription, since: int) -> list[Kept]:
        """Take in a subscription that is not there yet and return the result it starts with."""
        score = subscription.bind(self._meaning)
        slot = self._free.pop() if self._free else len(self._members)
        if slot == len(self._members):
            self._members.append(None)
        self._members[slot] = Member(subscription, score, since)
        self._slots[subscription.id] = slot
        self._index.insert(slot, subscription, score)
        return self._keeper.insert(slot, getattr(subscription, "k", 0), score)

    def delete(self, id_: Id) -> list[Kept]:
        """Forget a subscription and return the result it had."""
        slot = self._slots.pop(id_)
        self._members[slot] = None
        self._free.append(slot)
        self._index.delete(slot)
        return self._keeper.delete(slot)

    def restore(self, id_: Id, kept: Sequence[Kept]) -> None:
        """Give a subscription the result it had when it was saved."""
        self._keeper.restore(self._slots[id_], kept)

    def publish(self, batch: MessageBatch, steps: Sequence[Step]) -> Iterator[tuple[Id, KeptChange]]:
        """Move on by a batch and yield what changed, step by step."""
        if not self._slots:
            # Nobody asks, but the window moves on.
            for step in steps:
                self._keeper.step(step, ())
            return
        together = self._find(batch, 0, len(batch)) if self._keeper.bars_hold else None
        for step in steps:
            found: Found = ()
            if step.row >= 0:
                found = (together or self._find(batch, step.row, step.row + 1)).get(step.row, ())
            for change in self._keeper.step(step, found):
                if change.enter and step.coming is not None and change.kept.seq == step.coming.seq:
                    self._matched += 1
                yield self._id(change.slot), change

    def _find(self, batch: MessageBatch, start: int, stop: int) -> dict[int, list[tuple[int, float]]]:
        matches = self._index.match(batch, start, stop, self._keeper.bars)
        found: dict[int, list[tuple[int, float]]] = {row: [] for row in range(start, stop)}
        for row, slot, score in zip(*(column.tolist() for column in matches), strict=True):
            found[row].append((slot, score))
        return found

    def _id(self, slot: int) -> Id:
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
