"""What is an index? The protocol, and how its work is counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from nearcast.model import Matches, MessageBatch, SubscriptionBatch

__all__ = ["Index", "Matches", "Work"]


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

    A bar is the score that a message has to reach to matter to a subscription (to stay below, where small is good);
    it is open until `set_thresholds` says otherwise. An index may report more than that, but never less; it may ignore
    bars altogether.

    `match` may run on several threads at once, of one batch or of several; nothing else may meanwhile.
    """

    @property
    def work(self) -> Work:
        """How much was done so far."""

    def insert(self, slots: npt.NDArray[np.int32], subscription_batch: SubscriptionBatch) -> None:
        """Take in subscriptions under slots that are free."""

    def delete(self, slots: npt.NDArray[np.int32]) -> None:
        """Forget the subscriptions of some slots."""

    def set_thresholds(self, slots: npt.NDArray[np.int32], thresholds: npt.NDArray[np.float64]) -> None:
        """Say which bars some slots have from now on."""

    def match(self, batch: MessageBatch, start: int, stop: int) -> Matches:
        """Return what the messages of some rows concern, in arrays that are the caller's."""
