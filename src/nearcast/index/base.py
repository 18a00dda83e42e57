"""The index protocol, and the counters of an index's work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from nearcast.model import Matches, MessageBatch, SubscriptionBatch

__all__ = ["Index", "Matches", "Work"]


@dataclass
class Work:
    """Work of an index, step by step; where pruning is effective, each count is far below the one before."""

    visited: int = 0
    """Entries of the index that were read."""
    candidates: int = 0
    """Subscriptions that no bound ruled out."""
    verified: int = 0
    """Subscriptions whose score was computed."""
    matched: int = 0
    """Pairs of message and subscription reported."""


class Index(Protocol):
    """Finds the subscriptions of one kind that match a message.

    The threshold of a subscription is the score that a message must reach to matter to it (must stay below, where
    small is good). It is open until `set_thresholds` changes it. An index may report pairs that miss the threshold,
    but it never omits one that reaches it; it may ignore thresholds altogether.

    `match` may run on several threads at once, for one batch or for several. No other method may run meanwhile.
    """

    @property
    def work(self) -> Work:
        """Work done so far."""

    def insert(self, slots: npt.NDArray[np.int32], subscriptions: SubscriptionBatch) -> None:
        """Insert subscriptions under free slots."""

    def delete(self, slots: npt.NDArray[np.int32]) -> None:
        """Delete the subscriptions of some slots."""

    def set_thresholds(self, slots: npt.NDArray[np.int32], thresholds: npt.NDArray[np.float64]) -> None:
        """Set the thresholds of some slots."""

    def match(self, batch: MessageBatch, start: int, stop: int) -> Matches:
        """Return the matches of rows `start` to `stop`, in arrays that the caller owns."""
