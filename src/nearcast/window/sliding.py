"""Which messages are in the window, and which leave at each step?

    live   seq -> message          in the order they came
    ending heap of (key, seq)      the next to leave on top

Times need not come in order: a message that came late leaves early. Cost: one heap operation a message.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nearcast.model import Document, MessageBatch
from nearcast.window.policy import WindowPolicy


class Step(NamedTuple):
    """What happens at one step: first these leave, then that one comes (none, if just time has passed)."""

    row: int
    """Row of the message in its batch."""
    leaving: tuple[Document, ...]
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

    def admit(self, batch: MessageBatch, nows_us: Sequence[int]) -> list[Step]:
        """Move on by a batch; `nows_us` is the greatest time seen up to and with each message."""
        steps = []
        for row, (document, now_us) in enumerate(zip(batch.documents, nows_us, strict=True)):
            leaving = self.expire(document.seq, now_us)
            self._add(document)
            steps.append(Step(row, leaving, document))
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
