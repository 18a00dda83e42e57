"""Match-all index: compares every message with every subscription.

    for each message: for each subscription: its reference score

It has no layout and prunes nothing, so it serves every kind. A new kind is correct through this index from the start,
and every fast index must agree with it. Cost: messages x subscriptions reference scores.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nearcast.index.base import Work
from nearcast.index.scratch_pool import ScratchPool, Workspace
from nearcast.model import Matches, MessageBatch, Scorer, ScoringContext, SubscriptionBatch


class Scan:
    """The reference index: slow, and correct by construction."""

    def __init__(self, scoring: ScoringContext) -> None:
        self._scratch_pool = ScratchPool(Workspace)
        self._scorers: dict[int, Scorer] = {}

    @property
    def work(self) -> Work:
        """Work done so far."""
        return self._scratch_pool.work

    def insert(self, slots: npt.NDArray[np.int32], subscriptions: SubscriptionBatch) -> None:
        """Insert subscriptions."""
        self._scorers.update(zip(slots.tolist(), subscriptions.scorers, strict=True))

    def delete(self, slots: npt.NDArray[np.int32]) -> None:
        """Delete subscriptions."""
        for slot in slots.tolist():
            del self._scorers[slot]

    def set_thresholds(self, slots: npt.NDArray[np.int32], thresholds: npt.NDArray[np.float64]) -> None:
        """Do nothing: every subscription is scored in any case."""

    def match(self, batch: MessageBatch, start: int, stop: int) -> Matches:
        """Score every subscription against every message, whatever its threshold."""
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
        n_pairs = (stop - start) * len(self._scorers)
        with self._scratch_pool.take() as workspace:
            workspace.count(visited=n_pairs, candidates=n_pairs, verified=n_pairs, matched=len(rows))
        return Matches(np.array(rows, np.int64), np.array(slots, np.int32), np.array(scores, np.float64))
