"""How long does a message stay? Two sliding windows, and what both reduce to.

Each window gives a message a key and, at each step, a horizon; a message has left once its key is at or below it.

    CountWindow(n)      key: its seq        horizon: seq of the step - n
    TimeWindow(s)       key: its time       horizon: greatest time seen - s
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from nearcast.errors import InvalidInput, is_finite, require
from nearcast.model.moment import NO_TIME


class WindowPolicy(Protocol):
    """How long messages stay."""

    def key(self, seq: int, at_us: int) -> int:
        """Return what decides when a message leaves."""

    def horizon(self, seq: int, now_us: int) -> int:
        """Return the greatest key that has left, at the step of message `seq`."""

    def check_time(self, at_us: int, subject: str) -> None:
        """Raise `InvalidInput` if a message without a time cannot be placed."""


@dataclass(frozen=True)
class CountWindow:
    """The last n messages.

    >>> CountWindow(0)
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: n must be an integer of 1 or more; got 0 (window)
    """

    n: int

    def __post_init__(self) -> None:
        ok = isinstance(self.n, int) and not isinstance(self.n, bool) and self.n >= 1
        require(ok, "n", "must be an integer of 1 or more", self.n, subject="window")

    def key(self, seq: int, at_us: int) -> int:
        """Return the seq."""
        return seq

    def horizon(self, seq: int, now_us: int) -> int:
        """Return the seq of the newest message that is too old."""
        return seq - self.n

    def check_time(self, at_us: int, subject: str) -> None:
        """Take messages with or without a time."""


@dataclass(frozen=True)
class TimeWindow:
    """The messages of the last so many seconds, by their own times: `now` is the greatest time seen.

    >>> TimeWindow(seconds=3600)
    TimeWindow(seconds=3600)
    """

    seconds: float

    def __post_init__(self) -> None:
        ok = is_finite(self.seconds) and self.seconds >= 1e-6
        require(ok, "seconds", "must be a finite number of one microsecond or more", self.seconds, subject="window")

    def key(self, seq: int, at_us: int) -> int:
        """Return the time."""
        return at_us

    def horizon(self, seq: int, now_us: int) -> int:
        """Return the latest time that is too long ago."""
        return now_us - round(self.seconds * 1_000_000)

    def check_time(self, at_us: int, subject: str) -> None:
        """Refuse a message that has no time."""
        if at_us == NO_TIME:
            raise InvalidInput("at", "must be given where the window is a TimeWindow", None, subject=subject)
