"""What does a kind keep of what it found? The protocol between an index and the results it feeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from nearcast.model import Document, Id, Scorer
from nearcast.window.sliding import Step


class Kept(NamedTuple):
    """A message in a result."""

    seq: int
    message: Id
    score: float


class KeptChange(NamedTuple):
    """A message that came into a subscription's result or went out of it."""

    step: int
    """Which step of its batch."""
    slot: int
    enter: bool
    kept: Kept


Found = Sequence[tuple[int, float]]
"""What an index found for one message: slots and scores."""


class Keeper(Protocol):
    """Keeps the results of the subscriptions of one kind."""

    bars: npt.NDArray[np.float64]
    """Slot -> the score a message must reach to matter (or stay below, where small is good)."""

    bars_hold: bool
    """True if bars only ever get harder to pass, so that many messages may be matched against the same ones."""

    def insert(self, slot: int, k: int, score: Scorer) -> list[Kept]:
        """Take in a subscription and return the result it starts with."""

    def delete(self, slot: int) -> list[Kept]:
        """Forget a subscription and return the result it had."""

    def restore(self, slot: int, kept: Sequence[Kept]) -> None:
        """Give a subscription just inserted the result it had when it was saved."""

    def step(self, step: Step, found: Found) -> list[KeptChange]:
        """Move on by one message and return what changed: for each subscription, leaves before enters."""

    def results(self, slot: int) -> list[Kept]:
        """Return a result, best first."""

    def would_enter(self, slot: int, document: Document, score: float) -> bool:
        """Tell whether a message is in a result or, published now, would come in."""

    def bar(self, slot: int) -> float | None:
        """Return the score of the worst of k results; None if there is room."""
