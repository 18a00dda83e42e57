"""What are the k best of the window, beyond doubt? When one of them leaves, look at the whole window again.

    arrival: compete with the worst of k
    expiry:  score every live message anew, for each subscription that lost one

The slow keeper that is always right; faster ones must agree with it. Cost: subscriptions that lose a result x window.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from nearcast.model import Document, Scorer
from nearcast.window.ranked import Change, Found, RankedResults
from nearcast.window.result_store import ScoredMessage
from nearcast.window.sliding import Step


class RecomputedResults(RankedResults):
    """Keeps the k greatest scores of the window; the newer message wins a tie."""

    thresholds_hold = False  # an expiry lowers them

    def __init__(self, live: Iterable[Document] = ()) -> None:
        super().__init__(lambda kept: (-kept.score, -kept.seq))
        self._live = {document.seq: document for document in live}
        self._scorers: dict[int, Scorer] = {}
        self._holders: defaultdict[int, set[int]] = defaultdict(set)  # seq -> slots whose result holds it

    def begin(self, slot: int, score: Scorer) -> list[ScoredMessage]:
        """Start with the best of the window."""
        self._scorers[slot] = score
        self.change(slot, self._best_of_window(slot))
        return self.results(slot)

    def end(self, slot: int) -> list[ScoredMessage]:
        """Forget a subscription and who holds what."""
        del self._scorers[slot]
        had = super().end(slot)
        for kept in had:
            self._holders[kept.seq].discard(slot)
        return had

    def change(self, slot: int, best: list[ScoredMessage]) -> list[Change]:
        """Set a result, and remember who holds what."""
        changes = super().change(slot, best)
        for change in changes:
            holders = self._holders[change.kept.seq]
            if change.enter:
                holders.add(slot)
            else:
                holders.discard(slot)
        return changes

    def step(self, step: Step, found: Found) -> list[Change]:
        """Let go who leaves, let who comes compete, and refill whoever lost a result."""
        changes: list[Change] = []
        lost = self._expire(step.leaving)
        coming = step.coming
        if coming is not None:
            self._live[coming.seq] = coming
            for slot, score in found:
                if slot not in lost:
                    changes += self.compete(slot, ScoredMessage(coming.seq, coming.id, score))
        for slot in lost:
            changes += self.change(slot, self._best_of_window(slot))
        for document in step.leaving:
            self._holders.pop(document.seq, None)
        return changes

    def _expire(self, leaving: Iterable[Document]) -> set[int]:
        lost: set[int] = set()
        for document in leaving:
            del self._live[document.seq]
            lost |= self._holders.get(document.seq, set())
        return lost

    def _best_of_window(self, slot: int) -> list[ScoredMessage]:
        score_of = self._scorers[slot]
        scored = ((document, score_of(document)) for document in self._live.values())
        return self.select(slot, [ScoredMessage(d.seq, d.id, score) for d, score in scored if score is not None])
