"""Which messages are in the window, and which leave at each step?

    live   seq -> message          in the order they came
    ending heap of (key, seq)      the next to leave on top

Times need not come in order: a message that came late leaves early. Cost: one heap operation a message.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.model import Document, MessageBatch
from nearcast.window.policy import WindowPolicy


class Ticks(NamedTuple):
    """The steps of a batch, also those whose message a shard does not see: windows move on at all of them."""

    seqs: npt.NDArray[np.int64]
    ats_us: npt.NDArray[np.int64]
    nows_us: npt.NDArray[np.int64]
    """The greatest time seen up to and with each step."""


class Step(NamedTuple):
    """What happens at one step: first these leave, then that one comes."""

    number: int
    """Which step of its batch."""
    leaving: tuple[Document, ...]
    row: int
    """Row of the coming message among those the shard sees; -1 if it sees none at this step."""
    coming: Document | None


class Steps(NamedTuple):
    """The steps of a batch as one shard sees them."""

    n_steps: int
    of_rows: npt.NDArray[np.int64]
    """The step at which each row of the batch comes."""
    leaving: dict[int, tuple[Document, ...]]
    """Step -> the messages that leave at it, the first to leave first; steps at which none leaves are not there."""

    def slice(self, start: int, stop: int) -> Steps:
        """Return the steps as those see them who are given some of the rows and keep nothing."""
        return self._replace(of_rows=self.of_rows[start:stop])

    def walk(self, batch: MessageBatch) -> Iterator[Step]:
        """Yield the steps one by one."""
        row_of = dict(zip(self.of_rows.tolist(), range(len(batch)), strict=True))
        for number in range(self.n_steps):
            row = row_of.get(number, -1)
            yield Step(number, self.leaving.get(number, ()), row, batch.documents[row] if row >= 0 else None)


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

    def admit(self, batch: MessageBatch, ticks: Ticks) -> Steps:
        """Move on by the steps of `ticks`, at some of which a message of the batch comes."""
        steps = Steps(len(ticks.seqs), np.searchsorted(ticks.seqs, batch.seqs).astype(np.int64), {})
        if self.policy is not None:
            coming = dict(zip(steps.of_rows.tolist(), batch.documents, strict=True))
            for number, (seq, now_us) in enumerate(zip(ticks.seqs.tolist(), ticks.nows_us.tolist(), strict=True)):
                if gone := self._expire(seq, now_us):
                    steps.leaving[number] = gone
                if number in coming:
                    self._add(coming[number])
        return steps

    def advance(self, seq: int, now_us: int) -> Steps:
        """Let time pass without a message: one step at which nobody comes."""
        gone = self._expire(seq, now_us)
        return Steps(1, np.zeros(0, dtype=np.int64), {0: gone} if gone else {})

    def _expire(self, seq: int, now_us: int) -> tuple[Document, ...]:
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
