"""How long does a message stay? Two sliding windows, and what both reduce to.

Each window gives a message a key and, at each step, a horizon; a message has left once its key is at or below it.

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
    """How long messages stay; for one message or a column of them."""

    @property
    def needs_time(self) -> bool:
        """True if a message without a time cannot be placed."""

    def key(self, seq: T, at_us: T) -> T:
        """Return what decides when a message leaves."""

    def horizon(self, seq: T, now_us: T) -> T:
        """Return the greatest key that has left, at the step of message `seq`."""


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
    """The messages of the last so many seconds, by their own times: `now` is the greatest time seen.

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
        """Return the latest time that is too long ago."""
        return now_us - round(self.seconds * 1_000_000)
