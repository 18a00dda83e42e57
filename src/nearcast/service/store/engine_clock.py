"""The clock of an engine, moved by the clock of the service: when it advances, in which steps, and what is recorded.

    no traffic   once per second while something can expire; a command only if something leaves a result
    requests     at most once per second; each command is written with the time at which it was applied

Whatever depends on the time of the engine is written with that time: a replay reaches the same results, and an idle
service writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from nearcast.engine.clock import Clock

_INTERVAL_S = 1.0


class EngineClock:
    """The time to which an engine was advanced, and the time of the service that it follows."""

    def __init__(self, clock: Clock, *, is_driven: bool, window_s: float | None) -> None:
        """Follow a clock, unless the messages move that of the engine; `window_s` is the length of the window."""
        self._clock, self._is_driven, self._window_s = clock, is_driven, window_s
        self.advanced_to = 0.0
        """The time to which the engine was advanced; after a recovery, the last recorded time."""
        self._is_known = False  # whether the engine was advanced since it was recovered
        self._next = float("-inf")
        self.may_expire = True
        """False if nothing can expire; true after a recovery, until the clock is advanced."""

    def reset(self, recorded: float) -> None:
        """Continue with an engine that was recovered; the last time that the journal holds is `recorded`."""
        self._clock.resume(recorded)
        self.advanced_to = recorded
        self._is_known = False
        self.may_expire = True

    @property
    def is_due(self) -> bool:
        """True if the engine should be advanced although there are no requests."""
        return self._is_driven and self._clock.now() >= self._next

    @property
    def is_behind(self) -> bool:
        """True if the engine must be advanced before a request is executed."""
        return self.is_due or (self._is_driven and not self._is_known)

    @property
    def wait_s(self) -> float | None:
        """The time until an idle engine should be advanced; None if nothing can expire."""
        if not (self._is_driven and self.may_expire):
            return None
        return max(self._next - self._clock.now(), 0.0)

    def postpone(self) -> None:
        """Try again after an interval."""
        self._next = self._clock.now() + _INTERVAL_S

    def advance(self, n_steps: int) -> Iterator[float]:
        """Yield the times to advance the engine to, up to now: few, and `n_steps` at most after a long pause.

        In one step everything could expire at once; the steps divide the time in which the window passes.
        """
        self.postpone()
        start, now = self.advanced_to, self._clock.now()
        span = min(now - start, self._window_s or 0.0)
        n_steps = min(n_steps, int(span / _INTERVAL_S))
        for time in [*(start + span * step / n_steps for step in range(1, n_steps)), now]:
            self.advanced_to = time
            yield time
        self._is_known = True
