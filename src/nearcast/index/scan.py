"""Which subscriptions does a message concern, beyond doubt? Ask every one of them.

    for each message: for each subscription: its reference score

No pruning, no layout, any kind: a new kind is right through this index at once, and every fast one must agree with
it. Cost: messages x subscriptions reference scores.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nearcast.index.base import Work
from nearcast.index.scratch_pool import ScratchPool, Workspace
from nearcast.model import Matches, MessageBatch, Scorer, ScoringContext, SubscriptionBatch


class Scan:
    """The slow index that is always right."""

    def __init__(self, scoring: ScoringContext) -> None:
        self._scratch_pool = ScratchPool(Workspace)
        self._scorers: dict[int, Scorer] = {}

    @property
    def work(self) -> Work:
        """How much was done so far."""
        return self._scratch_pool.work

    def insert(self, slots: npt.NDArray[np.int32], subscription_batch: SubscriptionBatch) -> None:
        """Take in subscriptions."""
        self._scorers.update(zip(slots.tolist(), subscription_batch.scorers, strict=True))

    def delete(self, slots: npt.NDArray[np.int32]) -> None:
        """Forget subscriptions."""
        for slot in slots.tolist():
            del self._scorers[slot]

    def set_thresholds(self, slots: npt.NDArray[np.int32], thresholds: npt.NDArray[np.float64]) -> None:
        """Do nothing: everyone is asked anyway."""

    def match(self, batch: MessageBatch, start: int, stop: int) -> Matches:
        """Score every subscription against every message, whatever its bar."""
        rows: list[int] = []
        slots: list[int] = []
        scores: list[float] = []
        for row in range(start, stop):
            document = batch.documents[row]
            for slot, score_of in self._scorers.items():
                score = score_of(document)
                if score is not None:
                    rows.append(row)
                    slots.append(slot)
                    scores.append(score)
        asked = (stop - start) * len(self._scorers)
        with self._scratch_pool.take() as workspace:
            workspace.count(visited=asked, candidates=asked, verified=asked, matched=len(rows))
        return Matches(np.array(rows, np.int64), np.array(slots, np.int32), np.array(scores, np.float64))
