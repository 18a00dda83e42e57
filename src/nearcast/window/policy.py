"""Window policies: two sliding windows, and the keys and horizons that both reduce to.

Each policy gives a message a key and each step a horizon; a message has expired once its key is at or below the
horizon.

    CountWindow(n)      key: its seq        horizon: seq of the step - n
    TimeWindow(s)       key: its time       horizon: greatest time seen - s
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from nearcast.errors import is_finite, require

T = TypeVar("T", int, npt.NDArray[np.int64])


class WindowPolicy(Protocol):
    """When messages expire; the methods take one message or a column of messages."""

    @property
    def needs_time(self) -> bool:
        """True if every message must have a time."""

    def key(self, seq: T, at_us: T) -> T:
        """Return the key that determines when a message expires."""

    def horizon(self, seq: T, now_us: T) -> T:
        """Return the greatest key that has expired at the step of message `seq`."""


@dataclass(frozen=True)
class CountWindow:
    """The last n messages.

    >>> CountWindow(0)
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: n must be an integer of 1 or more; got 0 (window)
    """

    n: int
    needs_time: ClassVar[bool] = False

    def __post_init__(self) -> None:
        ok = isinstance(self.n, int) and not isinstance(self.n, bool) and self.n >= 1
        require(ok, "n", "must be an integer of 1 or more", self.n, subject="window")

    def key(self, seq: T, at_us: T) -> T:
        """Return the seq."""
        return seq

    def horizon(self, seq: T, now_us: T) -> T:
        """Return the seq of the newest message that is too old."""
        return seq - self.n


@dataclass(frozen=True)
class TimeWindow:
    """The messages of the last seconds, by their own times: `now` is the greatest time seen.

    >>> TimeWindow(seconds=3600)
    TimeWindow(seconds=3600)
    """

    seconds: float
    needs_time: ClassVar[bool] = True

    def __post_init__(self) -> None:
        ok = is_finite(self.seconds) and self.seconds >= 1e-6
        require(ok, "seconds", "must be a finite number of one microsecond or more", self.seconds, subject="window")

    def key(self, seq: T, at_us: T) -> T:
        """Return the time."""
        return at_us

    def horizon(self, seq: T, now_us: T) -> T:
        """Return the latest time that is too old."""
        return now_us - round(self.seconds * 1_000_000)
