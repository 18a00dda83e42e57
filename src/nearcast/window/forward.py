"""What is kept of matches that only grow? Nothing: each one is passed on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nearcast.model import Document, Scorer
from nearcast.window.keeper import Found, Kept, KeptChange
from nearcast.window.sliding import Step


class Forward:
    """Passes every match on."""

    bars_hold = True

    def __init__(self) -> None:
        self.bars = np.zeros(0)

    def insert(self, slot: int, k: int, score: Scorer) -> list[Kept]:
        """Start with nothing."""
        return []

    def delete(self, slot: int) -> list[Kept]:
        """End with nothing."""
        return []

    def restore(self, slot: int, kept: Sequence[Kept]) -> None:
        """Have nothing to restore."""

    def step(self, step: Step, found: Found) -> list[KeptChange]:
        """Report each match as an enter."""
        coming = step.coming
        if coming is None:
            return []
        return [KeptChange(step.number, slot, True, Kept(coming.seq, coming.id, score)) for slot, score in found]

    def results(self, slot: int) -> list[Kept]:
        """Know of no result: what matched has been passed on."""
        return []

    def would_enter(self, slot: int, document: Document, score: float) -> bool:
        """Let in everything that scores."""
        return True

    def bar(self, slot: int) -> float | None:
        """Have no bar."""
        return None
