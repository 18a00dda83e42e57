"""What are the k best since a subscription came? No window ends them, so each arrival only has to compete."""

from __future__ import annotations

from nearcast.model import Scorer
from nearcast.window.ranked import Change, Found, RankedResults
from nearcast.window.result_store import ScoredMessage
from nearcast.window.sliding import Step


class CumulativeResults(RankedResults):
    """Keeps the k smallest scores since the subscription came; the older message wins a tie."""

    thresholds_hold = True  # results only get better

    def __init__(self) -> None:
        super().__init__(lambda kept: (kept.score, kept.seq))

    def begin(self, slot: int, score: Scorer) -> list[ScoredMessage]:
        """Start with nothing."""
        return []

    def step(self, step: Step, found: Found) -> list[Change]:
        """Let the coming message compete."""
        coming, changes = step.coming, list[Change]()
        if coming is not None:
            for slot, score in found:
                changes += self.compete(slot, ScoredMessage(coming.seq, coming.id, score))
        return changes
