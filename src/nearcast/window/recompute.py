"""Recomputed results: the k best of the window, by scoring the whole window again when one of them expires.

    arrival: compete with the worst of k
    expiry:  score every live message again, for each subscription that lost one

The slow reference; faster stores must agree with it. Cost: subscriptions that lose a message x messages of the
window.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from nearcast.model import BEST_IN_WINDOW, Document, Scorer
from nearcast.window.ranked import Change, Found, RankedResults
from nearcast.window.result_store import ScoredMessage
from nearcast.window.sliding import Step


class RecomputedResults(RankedResults):
    """Stores the k greatest scores of the window; the newer message wins a tie."""

    policy = BEST_IN_WINDOW
    thresholds_hold = False  # an expiry lowers them

    def __init__(self, live: Iterable[Document] = ()) -> None:
        super().__init__()
        self._live = {document.seq: document for document in live}
        self._scorers: dict[int, Scorer] = {}
        self._holders: defaultdict[int, set[int]] = defaultdict(set)  # seq -> slots whose result holds it

    def begin(self, slot: int, score: Scorer) -> list[ScoredMessage]:
        """Start with the best of the window."""
        self._scorers[slot] = score
        self.change(slot, self._best_of_window(slot))
        return self.results(slot)

    def end(self, slot: int) -> list[ScoredMessage]:
        """Delete one subscription and return its last result."""
        del self._scorers[slot]
        result = super().end(slot)
        for scored in result:
            self._holders[scored.seq].discard(slot)
        return result

    def change(self, slot: int, best: list[ScoredMessage]) -> list[Change]:
        """Set a result, and record which results hold each message."""
        changes = super().change(slot, best)
        for change in changes:
            holders = self._holders[change.scored.seq]
            if change.enter:
                holders.add(slot)
            else:
                holders.discard(slot)
        return changes

    def step(self, step: Step, found: Found) -> list[Change]:
        """Remove expired messages, insert the arrival, and recompute each result that lost a message."""
        changes: list[Change] = []
        lost = self._expire(step.leaving)
        arrival = step.arrival
        if arrival is not None:
            self._live[arrival.seq] = arrival
            for slot, score in found:
                if slot not in lost:
                    changes += self.compete(slot, ScoredMessage(arrival.seq, arrival.id, score))
        for slot in lost:
            changes += self.change(slot, self._best_of_window(slot))
        for document in step.leaving:
            self._holders.pop(document.seq, None)
        return changes

    def withdraw(self, seqs: npt.NDArray[np.int64]) -> None:
        """Remove messages from the window."""
        for seq in seqs.tolist():
            self._live.pop(seq, None)
            self._holders.pop(seq, None)

    def _expire(self, leaving: Iterable[Document]) -> set[int]:
        """Remove messages from the window; return the slots whose results hold one of them."""
        lost: set[int] = set()
        for document in leaving:
            del self._live[document.seq]
            lost |= self._holders.get(document.seq, set())
        return lost

    def _best_of_window(self, slot: int) -> list[ScoredMessage]:
        score_of = self._scorers[slot]
        scored = ((document, score_of(document)) for document in self._live.values())
        return self.select(slot, [ScoredMessage(d.seq, d.id, score) for d, score in scored if score is not None])
