"""What does one worker own? A part of the subscriptions, of every kind, and a window over what it sees."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from nearcast.engine.matcher import Matcher, Slots
from nearcast.engine.told import Part
from nearcast.errors import StateError
from nearcast.index import IndexEntry, find_index
from nearcast.model import Cohort, Document, Keeps, Meaning, MessageBatch, Subscription
from nearcast.window import KEEPERS, Kept, Results, SlidingWindow, Steps, Ticks, WindowPolicy


class Shard:
    """A part of the subscriptions, alone with the stream."""

    def __init__(
        self, meaning: Meaning, policy: WindowPolicy | None, *, index: str, live: Iterable[Document] = ()
    ) -> None:
        self.window = SlidingWindow(policy, live)
        self.matchers: dict[str, Matcher] = {}
        self._meaning = meaning
        self._index = index

    def __len__(self) -> int:
        return sum(len(matcher.roster) for matcher in self.matchers.values())

    def insert(self, cohort: Cohort, sinces: npt.NDArray[np.int64]) -> tuple[Slots, Results]:
        """Take in subscriptions of one kind; return their slots and the results they start with."""
        return self._matcher(cohort.kind).insert(cohort, sinces)

    def _matcher(self, kind: type[Subscription]) -> Matcher:
        """Return the matcher of a kind, made when the first subscription of that kind comes."""
        if kind.kind not in self.matchers:
            index = choose_index(self._index, kind.kind).make(self._meaning)
            keeper = KEEPERS[kind.keeps](self.window.live.values())
            self.matchers[kind.kind] = Matcher(kind, index, keeper, self._meaning)
        return self.matchers[kind.kind]

    def publish(self, batch: MessageBatch, ticks: Ticks, *, for_table: bool) -> list[Part]:
        """Move on by some steps, seeing the messages of the batch; return what changed, kind by kind."""
        return self._move(batch, self.window.admit(batch, ticks), for_table)

    def advance(self, seq: int, now_us: int) -> list[Part]:
        """Let time pass without a message."""
        return self._move(MessageBatch.empty(), self.window.advance(seq, now_us), False)

    def _move(self, batch: MessageBatch, steps: Steps, for_table: bool) -> list[Part]:
        parts = []
        for matcher in self.matchers.values():
            changes = matcher.publish(batch, steps)
            parts.append(Part(matcher.roster, changes, matcher.names.of(changes.slots) if for_table else None))
        return parts

    def results(self, kind: str, slot: int) -> list[Kept]:
        """Return a result, best first."""
        matcher = self.matchers[kind]
        if matcher.kind.keeps is Keeps.MATCHES and self.window.policy is None:
            raise StateError(f"matches of kind {kind!r} are looked up in the window, and this engine has none")
        return matcher.results(slot, self.window.live.values())


def choose_index(name: str, kind: str) -> IndexEntry:
    """Return the index of that name, which has to serve a kind."""
    entry = find_index(name, kind)
    if entry is None:
        raise StateError(f"index {name!r} does not serve kind {kind!r}")
    return entry
