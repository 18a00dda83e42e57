"""Which messages are in the window, and which leave at each step?

    live   seq -> message          in the order they came
    ending heap of (key, seq)      the next to leave on top

Times need not come in order: a message that came late leaves early. Cost: one heap operation a message.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import NamedTuple

from nearcast.model import Document, MessageBatch
from nearcast.window.policy import WindowPolicy


class Ticks(NamedTuple):
    """The steps of a batch, also those whose message a shard does not see: windows move on at all of them."""

    seqs: list[int]
    ats_us: list[int]
    nows_us: list[int]
    """The greatest time seen up to and with each step."""


class Step(NamedTuple):
    """What happens at one step: first these leave, then that one comes."""

    number: int
    """Which step of its batch."""
    leaving: tuple[Document, ...]
    row: int
    """Row of the coming message among those the shard sees; -1 if it sees none at this step."""
    coming: Document | None


class SlidingWindow:
    """The messages that are in the window; without a policy, none ever is."""

    def __init__(self, policy: WindowPolicy | None, live: Iterable[Document] = ()) -> None:
        self.policy = policy
        self.live: dict[int, Document] = {}
        self._ending: list[tuple[int, int]] = []
        for document in live:
            self._add(document)

    def __len__(self) -> int:
        return len(self.live)

    def admit(self, batch: MessageBatch, ticks: Ticks) -> list[Step]:
        """Move on by the steps of `ticks`, at some of which a message of the batch comes."""
        coming = dict(zip(batch.seqs.tolist(), range(len(batch)), strict=True))
        steps = []
        for index, (seq, now_us) in enumerate(zip(ticks.seqs, ticks.nows_us, strict=True)):
            leaving = self.expire(seq, now_us)
            row = coming.get(seq, -1)
            document = batch.documents[row] if row >= 0 else None
            if document is not None:
                self._add(document)
            steps.append(Step(index, leaving, row, document))
        return steps

    def expire(self, seq: int, now_us: int) -> tuple[Document, ...]:
        """Let go what has left by then, the first to leave first."""
        if self.policy is None:
            return ()
        horizon = self.policy.horizon(seq, now_us)
        gone = []
        while self._ending and self._ending[0][0] <= horizon:
            _, leaving = heapq.heappop(self._ending)
            gone.append(self.live.pop(leaving))
        return tuple(gone)

    def _add(self, document: Document) -> None:
        if self.policy is not None:
            self.live[document.seq] = document
            heapq.heappush(self._ending, (self.policy.key(document.seq, document.at_us), document.seq))
