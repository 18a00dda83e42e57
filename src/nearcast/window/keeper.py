"""What does a kind keep of what it found? The protocol between an index and the results it feeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from nearcast.model import Cohort, Document, Id, IdColumn, Matches, MessageBatch
from nearcast.window.sliding import Steps


class Kept(NamedTuple):
    """A message in a result."""

    seq: int
    message: Id
    score: float


Results = dict[int, list[Kept]]
"""Slot -> its result, best first; who has an empty one need not be there."""


class Changes(NamedTuple):
    """What came into results and went out of them, in the order of the steps."""

    steps: npt.NDArray[np.int64]
    """Which step of the batch."""
    slots: npt.NDArray[np.int32]
    """Whose result."""
    enters: npt.NDArray[np.bool_]
    """True where the message came in."""
    scores: npt.NDArray[np.float64]
    ids: IdColumn
    """Ids of messages."""
    rows: npt.NDArray[np.int64]
    """Which of them each change is about."""
    n_matched: int
    """How many arrivals changed a result."""


Find = Callable[[int, int], Matches]
"""Ask the index about some rows of the batch, as the bars are now."""


class Keeper(Protocol):
    """Keeps the results of the subscriptions of one kind."""

    bars: npt.NDArray[np.float64]
    """Slot -> the score a message must reach to matter (or stay below, where small is good)."""

    def insert(self, slots: npt.NDArray[np.int32], cohort: Cohort) -> Results:
        """Take in subscriptions and return the results they start with."""

    def delete(self, slots: npt.NDArray[np.int32]) -> Results:
        """Forget subscriptions and return the results they had."""

    def restore(self, slot: int, kept: Sequence[Kept]) -> None:
        """Give a subscription just inserted the result it had when it was saved."""

    def publish(self, batch: MessageBatch, steps: Steps, find: Find) -> Changes:
        """Move on by a batch and return what changed: within a step and subscription, leaves before enters."""

    def results(self, slot: int) -> list[Kept]:
        """Return a result, best first."""

    def would_enter(self, slot: int, document: Document, score: float) -> bool:
        """Tell whether a message is in a result or, published now, would come in."""

    def bar(self, slot: int) -> float | None:
        """Return the score of the worst of k results; None if there is room."""
