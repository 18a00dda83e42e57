"""A host whose clock the tests move, and set."""

from nearcast.engine.clock import Clock

START_S = 1_800_000_000.0
DAY = 86_400.0


class SimulatedHost:
    """A clock that can be set, and one that only passes."""

    def __init__(self, wall_s=START_S):
        self.wall_s, self.elapsed_s = wall_s, 5_000.0

    def sleep(self, seconds):
        """Let time pass."""
        self.wall_s += seconds
        self.elapsed_s += seconds

    def set_clock(self, seconds):
        """Set the clock forwards, or backwards with a negative number."""
        self.wall_s += seconds

    def clock(self):
        """Return the clock of a service that starts now."""
        return Clock(wall_s=lambda: self.wall_s, elapsed_s=lambda: self.elapsed_s)
