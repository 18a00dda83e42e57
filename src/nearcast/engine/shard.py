"""What does one worker own? A part of the subscriptions, of every kind, and a window over what it sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from nearcast.engine.matcher import Matcher, Member
from nearcast.errors import StateError
from nearcast.index import INDEXES, IndexEntry, Work
from nearcast.model import Document, Explanation, Id, Keeps, Meaning, MessageBatch, Subscription
from nearcast.window import KEEPERS, Kept, SlidingWindow, Step, Ticks, WindowPolicy


class ShardChange(NamedTuple):
    """A message that came into a subscription's result or went out of it, in one shard."""

    step: int
    subscription: Id
    enter: bool
    kept: Kept


class Shard:
    """A part of the subscriptions, alone with the stream."""

    def __init__(
        self, meaning: Meaning, policy: WindowPolicy | None, *, index: str, live: Iterable[Document] = ()
    ) -> None:
        self._meaning = meaning
        self._index = index
        self._window = SlidingWindow(policy, live)
        self._matchers: dict[str, Matcher] = {}
        self._kind_of: dict[Id, str] = {}

    def __len__(self) -> int:
        return len(self._kind_of)

    @property
    def window(self) -> SlidingWindow:
        """The messages that this shard has in its window."""
        return self._window

    def insert(self, subscription: Subscription, since: int) -> list[Kept]:
        """Take in a subscription whose id is free; return the result it starts with."""
        self._kind_of[subscription.id] = subscription.kind
        return self._matcher(type(subscription)).insert(subscription, since)

    def delete(self, id_: Id) -> list[Kept]:
        """Forget a subscription; return the result it had."""
        return self._matchers[self._kind_of.pop(id_)].delete(id_)

    def restore(self, id_: Id, kept: list[Kept]) -> None:
        """Give a subscription the result it had when it was saved."""
        self._matchers[self._kind_of[id_]].restore(id_, kept)

    def _matcher(self, kind: type[Subscription]) -> Matcher:
        """Return the matcher of a kind, made when the first subscription of that kind comes."""
        if kind.kind not in self._matchers:
            keeper = KEEPERS[kind.keeps](self._window.live.values())
            self._matchers[kind.kind] = Matcher(
                kind.keeps, choose_index(self._index, kind.kind).make(), keeper, self._meaning
            )
        return self._matchers[kind.kind]

    def publish(self, batch: MessageBatch, ticks: Ticks) -> list[ShardChange]:
        """Move on by some steps, seeing the messages of the batch; return what changed."""
        return self._move(batch, self._window.admit(batch, ticks))

    def advance(self, seq: int, now_us: int) -> list[ShardChange]:
        """Let time pass without a message."""
        return self._move(MessageBatch.empty(), [Step(0, self._window.expire(seq, now_us), -1, None)])

    def _move(self, batch: MessageBatch, steps: list[Step]) -> list[ShardChange]:
        return [
            ShardChange(change.step, id_, change.enter, change.kept)
            for matcher in self._matchers.values()
            for id_, change in matcher.publish(batch, steps)
        ]

    def results(self, id_: Id) -> list[Kept]:
        """Return a result, best first."""
        matcher = self._matchers[self._kind_of[id_]]
        if matcher.keeps is Keeps.MATCHES and self._window.policy is None:
            raise StateError(f"matches of subscription {id_!r} are looked up in the window, and this engine has none")
        return matcher.results(id_, self._window.live.values())

    def explain(self, id_: Id, document: Document) -> Explanation:
        """Say how a message fares for a subscription."""
        return self._matchers[self._kind_of[id_]].explain(id_, document)

    def members(self) -> Iterator[Member]:
        """Yield every subscription with what belongs to it."""
        for matcher in self._matchers.values():
            yield from matcher.members()

    def work(self) -> dict[str, Work]:
        """Return the work done so far for each kind."""
        return {kind: matcher.work for kind, matcher in self._matchers.items()}

    def counts(self) -> Counter[str]:
        """Return the number of subscriptions of each kind."""
        return Counter({kind: len(matcher) for kind, matcher in self._matchers.items()})


def choose_index(name: str, kind: str) -> IndexEntry:
    """Return the index of that name for a kind; "auto" is the fastest there is."""
    serving = [entry for entry in INDEXES if kind in entry.kinds and name in ("auto", entry.name)]
    if not serving:
        raise StateError(f"index {name!r} does not serve kind {kind!r}")
    return serving[-1]
