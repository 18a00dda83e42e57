"""Results of kinds that only grow: nothing is stored, and each match is passed through, a batch at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from nearcast.model import Document, MessageBatch, SubscriptionBatch
from nearcast.window.result_store import Changes, Find, Results, ScoredMessage, ThresholdChanges
from nearcast.window.sliding import Steps
from nearcast.worker_pool import WorkerPool


class PassThrough:
    """Reports every match and stores nothing."""

    matches_whole_batches: ClassVar[bool] = True

    def use(self, pool: WorkerPool) -> None:
        """Do nothing: there are no results to divide."""

    def prepare(self, subscriptions: SubscriptionBatch) -> None:
        """Do nothing: no window is searched."""

    def insert(self, slots: npt.NDArray[np.int32], subscriptions: SubscriptionBatch) -> Results:
        """Return empty results."""
        return Results.none()

    def delete(self, slots: npt.NDArray[np.int32]) -> Results:
        """Return empty results."""
        return Results.none()

    def restore(self, saved: Sequence[Results]) -> None:
        """Do nothing."""

    def withdraw(self, seqs: npt.NDArray[np.int64]) -> None:
        """Do nothing."""

    def publish(self, batch: MessageBatch, steps: Steps, find: Find) -> list[Changes]:
        """Report each match as an enter."""
        rows, slots, scores = find(0, len(batch))
        enters = np.broadcast_to(True, len(rows))
        return [Changes(steps.row_steps[rows], slots, enters, scores, batch.ids, batch.seqs, rows, len(rows))]

    def take_threshold_changes(self) -> ThresholdChanges:
        """Return no changes: there are no thresholds."""
        return ThresholdChanges(np.zeros(0, np.int32), np.zeros(0))

    def held(self, slots: npt.NDArray[np.int32]) -> Results:
        """Return empty results."""
        return Results.none()

    def held_seqs(self, slots: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Return no messages."""
        return np.zeros(0, np.int64)

    def holds(self, slots: npt.NDArray[np.int32], seqs: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return that no message is held."""
        return np.zeros(len(seqs), np.bool_)

    def holders(self, slots: npt.NDArray[np.int32], seqs: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Return no subscriptions."""
        return np.zeros(0, np.int32)

    def results(self, slot: int) -> list[ScoredMessage]:
        """Return an empty result: matches were reported and not stored."""
        return []

    def would_enter(self, slot: int, document: Document, score: float) -> bool:
        """Return True: every message that has a score enters."""
        return True

    def threshold(self, slot: int) -> float | None:
        """Return None: there is no threshold."""
        return None
