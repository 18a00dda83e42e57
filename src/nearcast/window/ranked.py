"""How are k results kept in order? What both keepers of the best share: a short sorted list a subscription."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from nearcast.model import Document
from nearcast.window.keeper import Kept, KeptChange

Rank = Callable[[Kept], tuple[float, int]]
"""The better, the smaller."""


class Ranked:
    """The k best of each subscription, best first, under one ranking."""

    def __init__(self, rank: Rank, *, open_bar: float) -> None:
        self._rank = rank
        self._open_bar = open_bar  # what every score passes
        self._best: dict[int, list[Kept]] = {}
        self._k: dict[int, int] = {}
        self.bars: npt.NDArray[np.float64] = np.full(16, open_bar)

    def make_room(self, slot: int, k: int) -> None:
        """Begin an empty result."""
        if slot >= len(self.bars):
            grown = np.full(max(slot + 1, 2 * len(self.bars)), self._open_bar)
            grown[: len(self.bars)] = self.bars
            self.bars = grown
        self._k[slot] = k
        self._best[slot] = []
        self.bars[slot] = self._open_bar

    def delete(self, slot: int) -> list[Kept]:
        """Forget a subscription and return the result it had."""
        del self._k[slot]
        self.bars[slot] = self._open_bar
        return self._best.pop(slot)

    def restore(self, slot: int, kept: Sequence[Kept]) -> None:
        """Set a result as it was saved."""
        self.change(0, slot, list(kept))

    def select(self, slot: int, offered: Iterable[Kept]) -> list[Kept]:
        """Return the best k of what is offered."""
        return sorted(offered, key=self._rank)[: self._k[slot]]

    def change(self, step: int, slot: int, best: list[Kept]) -> list[KeptChange]:
        """Set a result and return how it differs from the one before, leaves first."""
        before = self._best[slot]
        self._best[slot] = best
        self.bars[slot] = best[-1].score if len(best) == self._k[slot] else self._open_bar
        old, new = {kept.seq for kept in before}, {kept.seq for kept in best}
        changes = [KeptChange(step, slot, False, kept) for kept in before if kept.seq not in new]
        changes += [KeptChange(step, slot, True, kept) for kept in best if kept.seq not in old]
        return changes

    def compete(self, step: int, slot: int, kept: Kept) -> list[KeptChange]:
        """Let one more message compete and return what changed."""
        if not self._beats(slot, kept):
            return []
        return self.change(step, slot, self.select(slot, [*self._best[slot], kept]))

    def _beats(self, slot: int, kept: Kept) -> bool:
        best = self._best[slot]
        return len(best) < self._k[slot] or self._rank(kept) < self._rank(best[-1])

    def results(self, slot: int) -> list[Kept]:
        """Return a result, best first."""
        return list(self._best[slot])

    def would_enter(self, slot: int, document: Document, score: float) -> bool:
        """Tell whether a message is in a result or, published now, would come in."""
        held = any(kept.seq == document.seq for kept in self._best[slot])
        return held or self._beats(slot, Kept(document.seq, document.id, score))

    def bar(self, slot: int) -> float | None:
        """Return the score of the worst of k results; None if there is room."""
        best = self._best[slot]
        return best[-1].score if len(best) == self._k[slot] else None
