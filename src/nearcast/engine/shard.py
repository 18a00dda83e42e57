"""What does one worker own? A part of the subscriptions, of every kind, and a window over what it sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from nearcast.engine.matcher import Matcher, Member
from nearcast.engine.told import Part
from nearcast.errors import StateError
from nearcast.index import INDEXES, IndexEntry, Work
from nearcast.model import Document, Explanation, Id, Keeps, Meaning, MessageBatch, Subscription
from nearcast.window import KEEPERS, Kept, SlidingWindow, Steps, Ticks, WindowPolicy


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

    def insert(self, subscriptions: Sequence[Subscription], sinces: Sequence[int]) -> dict[Id, list[Kept]]:
        """Take in subscriptions whose ids are free; return the results they start with."""
        started: dict[Id, list[Kept]] = {}
        for kind in dict.fromkeys(type(subscription) for subscription in subscriptions):
            chosen = [(s, since) for s, since in zip(subscriptions, sinces, strict=True) if type(s) is kind]
            ids = [subscription.id for subscription, _ in chosen]
            kept = self._matcher(kind).insert([s for s, _ in chosen], [since for _, since in chosen])
            started |= zip(ids, kept, strict=True)
            self._kind_of |= dict.fromkeys(ids, kind.kind)
        return started

    def delete(self, ids: Sequence[Id]) -> dict[Id, list[Kept]]:
        """Forget subscriptions; return the results they had."""
        of_kind: dict[str, list[Id]] = {}
        for id_ in ids:
            of_kind.setdefault(self._kind_of.pop(id_), []).append(id_)
        had: dict[Id, list[Kept]] = {}
        for kind, chosen in of_kind.items():
            had |= zip(chosen, self._matchers[kind].delete(chosen), strict=True)
        return had

    def restore(self, id_: Id, kept: list[Kept]) -> None:
        """Give a subscription the result it had when it was saved."""
        self._matchers[self._kind_of[id_]].restore(id_, kept)

    def _matcher(self, kind: type[Subscription]) -> Matcher:
        """Return the matcher of a kind, made when the first subscription of that kind comes."""
        if kind.kind not in self._matchers:
            index = choose_index(self._index, kind.kind).make(self._meaning)
            keeper = KEEPERS[kind.keeps](self._window.live.values())
            self._matchers[kind.kind] = Matcher(kind.keeps, index, keeper, self._meaning)
        return self._matchers[kind.kind]

    def publish(self, batch: MessageBatch, ticks: Ticks) -> list[Part]:
        """Move on by some steps, seeing the messages of the batch; return what changed, kind by kind."""
        return self._move(batch, self._window.admit(batch, ticks))

    def advance(self, seq: int, now_us: int) -> list[Part]:
        """Let time pass without a message."""
        return self._move(MessageBatch.empty(), self._window.advance(seq, now_us))

    def _move(self, batch: MessageBatch, steps: Steps) -> list[Part]:
        return [(matcher, matcher.publish(batch, steps)) for matcher in self._matchers.values()]

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
