"""What does an index answer? For each message, the subscriptions it concerns and their exact scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from nearcast.model import MessageBatch, Scorer, Subscription


class Matches(NamedTuple):
    """Pairs of message and subscription, in the order of the messages."""

    rows: npt.NDArray[np.int64]
    """Row of the message in its batch, ascending."""
    slots: npt.NDArray[np.int32]
    """Slot of the subscription."""
    scores: npt.NDArray[np.float64]
    """The exact score, as the kind defines it."""


@dataclass
class Work:
    """How much an index did: each step holds no more than the one before, if pruning is any good."""

    visited: int = 0
    """Entries looked at."""
    candidates: int = 0
    """Subscriptions that no bound ruled out."""
    verified: int = 0
    """Subscriptions whose score was computed."""
    matched: int = 0
    """Pairs of message and subscription reported."""


class Index(Protocol):
    """Finds the subscriptions of one kind that a message concerns.

    `bars[slot]` is the score a message has to reach to matter to that subscription (to stay below, where small is
    good). An index may report more than that, but never less; it may ignore the bars altogether.
    """

    work: Work

    def insert(self, slot: int, subscription: Subscription, score: Scorer) -> None:
        """Take in a subscription under a slot that is free."""

    def delete(self, slot: int) -> None:
        """Forget the subscription of a slot."""

    def match(self, batch: MessageBatch, start: int, stop: int, bars: npt.NDArray[np.float64]) -> Matches:
        """Return what the messages of some rows concern."""
