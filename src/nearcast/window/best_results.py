"""Base class of the result stores that hold k messages per subscription, ranked by the result policy of the kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from nearcast.model import Document, ResultPolicy, SubscriptionBatch
from nearcast.window.result_store import Results, ScoredMessage
from nearcast.worker_pool import WorkerPool


class BestResults(ABC):
    """The k best messages of each subscription; `ResultPolicy` determines what is better and what enters."""

    policy: ClassVar[ResultPolicy]
    matches_whole_batches: ClassVar[bool] = False

    def use(self, pool: WorkerPool) -> None:
        """Do nothing: one thread has all results."""
        return

    def prepare(self, subscriptions: SubscriptionBatch) -> None:
        """Do nothing: searches need nothing but the window."""
        return

    @abstractmethod
    def held(self, slots: npt.NDArray[np.int32]) -> Results:
        """Return the results of some subscriptions."""

    @abstractmethod
    def result_size(self, slot: int) -> int:
        """Return k of a subscription."""

    def withdraw(self, seqs: npt.NDArray[np.int64]) -> None:
        """Do nothing: messages are those of the window."""
        return

    def held_seqs(self, slots: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Return the seqs of all messages in the results of some subscriptions, ascending."""
        return np.unique(self.held(slots).seqs)

    def holds(self, slots: npt.NDArray[np.int32], seqs: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which of some messages are in the results of some subscriptions."""
        return np.isin(seqs, self.held_seqs(slots))

    def holders(self, slots: npt.NDArray[np.int32], seqs: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Return those of some subscriptions, ascending, whose results hold one of some messages."""
        held = self.held(slots)
        return np.unique(held.slots[np.isin(held.seqs, seqs)])

    def results(self, slot: int) -> list[ScoredMessage]:
        """Return a result, best first."""
        return self.held(np.array([slot], np.int32)).by_slot().get(slot, [])

    def worst(self, slot: int) -> ScoredMessage | None:
        """Return the worst of k results; None if there is room."""
        results = self.results(slot)
        return results[-1] if len(results) == self.result_size(slot) else None

    def would_enter(self, slot: int, document: Document, score: float) -> bool:
        """Return whether a message is in a result or, published now, would enter it."""
        if any(scored.seq == document.seq for scored in self.results(slot)):
            return True
        worst = self.worst(slot)
        return self.policy.would_enter(score, document.seq, None if worst is None else (worst.score, worst.seq))

    def threshold(self, slot: int) -> float | None:
        """Return the score of the worst of k results; None if there is room."""
        worst = self.worst(slot)
        return None if worst is None else worst.score
