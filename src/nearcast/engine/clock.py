"""The clock of a service or a job: the time of the host at the start, from then on a clock that cannot be set.

A jump of the host's clock therefore neither empties windows nor prunes a journal while a process runs. After a
restart the clock continues no earlier than the last recorded time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Literal

ClockName = Literal["wall", "event"]
"""What moves `now`: the clock of the service or the job, or the times of the messages."""
WALL: ClockName = "wall"
CLOCKS: tuple[ClockName, ...] = (WALL, "event")
MAX_AHEAD_S = 300.0
"""How far ahead of the clock messages may be, unless a limit is given; with `event` they may have any time."""
_log = logging.getLogger(__name__)


def elapsed_s() -> float:
    """Return the seconds since some moment; a time in which the machine was suspended counts, where it is known."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Clock:
    """Tells the time in seconds since the epoch, and never goes back."""

    def __init__(
        self, *, wall_s: Callable[[], float] = time.time, elapsed_s: Callable[[], float] = elapsed_s
    ) -> None:
        """Read the clock of the host, `wall_s`, once; `elapsed_s` is a clock that cannot be set."""
        self._elapsed_s = elapsed_s
        self._origin = wall_s() - elapsed_s()

    def now(self) -> float:
        """Return the time."""
        return self._origin + self._elapsed_s()

    def resume(self, recorded: float) -> None:
        """Continue from a recorded time, if it is later than now: the host's clock was set back meanwhile."""
        behind_s = recorded - self.now()
        self._origin += max(behind_s, 0.0)
        if behind_s > 1.0:
            _log.warning("the clock of the host is %.3f s behind the last recorded time, which counts", behind_s)
