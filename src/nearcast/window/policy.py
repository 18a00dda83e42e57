"""Window policies: two sliding windows, and the keys and horizons that both reduce to.

Each policy gives a message a key and each step a horizon; a message has expired once its key is at or below the
horizon.

    CountWindow(n)      key: its seq        horizon: seq of the step - n
    TimeWindow(s)       key: its time       horizon: greatest time seen - s

A message may expire by a time of its own. In a window of seconds that is a matter of its key: a message that expires
at time e has at most the key e - s. In a window of n messages no key can say so, and such messages are withdrawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from nearcast.errors import is_finite, require

T = TypeVar("T", int, npt.NDArray[np.int64])

_LARGEST_COUNT = 1 << 62
_LONGEST_SECONDS = 1e11  # three thousand years; the earliest time less this is still a 64-bit number of microseconds


class WindowPolicy(Protocol):
    """When messages expire; the methods take one message or a column of messages."""

    @property
    def needs_time(self) -> bool:
        """True if every message must have a time: keys are times, and cover a time of a message's own."""

    def key(self, seq: T, at_us: T, expires_us: T | None = None) -> T:
        """Return the key that determines when a message expires; `expires_us` is a time of its own, if it has one."""

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
        require(self.n <= _LARGEST_COUNT, "n", f"must be at most {_LARGEST_COUNT}", self.n, subject="window")

    def key(self, seq: T, at_us: T, expires_us: T | None = None) -> T:
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
        is_short = self.seconds <= _LONGEST_SECONDS
        require(is_short, "seconds", f"must be at most {_LONGEST_SECONDS:g}", self.seconds, subject="window")

    def key(self, seq: T, at_us: T, expires_us: T | None = None) -> T:
        """Return the time, or that of a message that leaves the window when this one expires, if it is earlier."""
        return at_us if expires_us is None else np.minimum(at_us, self.horizon(seq, expires_us))

    def horizon(self, seq: T, now_us: T) -> T:
        """Return the latest time that is too old."""
        return now_us - round(self.seconds * 1_000_000)
