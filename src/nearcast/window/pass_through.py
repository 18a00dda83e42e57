"""What is kept of matches that only grow? Nothing: each one is passed on, a batch at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nearcast.model import Document, MessageBatch, SubscriptionBatch
from nearcast.window.result_store import Changes, Find, Moved, Results, ScoredMessage
from nearcast.window.sliding import Steps


class PassThrough:
    """Passes every match on."""

    def insert(self, slots: npt.NDArray[np.int32], subscription_batch: SubscriptionBatch) -> Results:
        """Start with nothing."""
        return Results.none()

    def delete(self, slots: npt.NDArray[np.int32]) -> Results:
        """End with nothing."""
        return Results.none()

    def restore(self, kept: Sequence[Results]) -> None:
        """Have nothing to restore."""

    def publish(self, batch: MessageBatch, steps: Steps, find: Find) -> Changes:
        """Report each match as an enter."""
        rows, slots, scores = find(0, len(batch))
        enters = np.broadcast_to(True, len(rows))
        return Changes(steps.of_rows[rows], slots, enters, scores, batch.ids, batch.seqs, rows, len(rows))

    def moved(self) -> Moved:
        """Have no bars."""
        return Moved(np.zeros(0, np.int32), np.zeros(0))

    def held(self, slots: npt.NDArray[np.int32]) -> Results:
        """Hold nothing."""
        return Results.none()

    def results(self, slot: int) -> list[ScoredMessage]:
        """Know of no result: what matched has been passed on."""
        return []

    def would_enter(self, slot: int, document: Document, score: float) -> bool:
        """Let in everything that scores."""
        return True

    def threshold(self, slot: int) -> float | None:
        """Have no bar."""
        return None
