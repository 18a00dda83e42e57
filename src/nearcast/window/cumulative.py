"""Cumulative results: the k best since a subscription; without expiry, each arrival only competes with the worst."""

from __future__ import annotations

from nearcast.model import BEST_EVER, Scorer
from nearcast.window.ranked import Change, Found, RankedResults
from nearcast.window.result_store import ScoredMessage
from nearcast.window.sliding import Step


class CumulativeResults(RankedResults):
    """Stores the k smallest scores since the subscription; the older message wins a tie."""

    policy = BEST_EVER
    thresholds_hold = True  # results only get better

    def begin(self, slot: int, score: Scorer) -> list[ScoredMessage]:
        """Start with an empty result."""
        return []

    def step(self, step: Step, found: Found) -> list[Change]:
        """Insert the arrival where it is good enough."""
        arrival, changes = step.arrival, list[Change]()
        if arrival is not None:
            for slot, score in found:
                changes += self.compete(slot, ScoredMessage(arrival.seq, arrival.id, score))
        return changes
