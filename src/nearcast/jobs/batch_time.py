"""The time of a micro-batch of a job with `clock="wall"`: `now`, and how far ahead of it messages may be.

    source "clock" ── a row with the time ── a frame for every shard ── advance, then apply the batch

Spark records the position of every source with the batch, and the position of the clock is the time. So all shards
have the same time, and a replayed batch has it again. The frame also holds the latest time that a message may have:
a shard that is rebuilt from its frames decides as it did, whatever the limit is now. A batch that begins before the
clock has moved on continues with the time of the one before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from nearcast.jobs.frame import Frame, epoch_of

CLOCK = "clock"
_ANY_TIME = (1 << 63) - 1


class BatchTime(NamedTuple):
    """The time of a batch in microseconds.

    >>> BatchTime.of(1_000_000, max_ahead_s=300)
    BatchTime(now_us=1000000, latest_us=301000000)
    """

    now_us: int
    latest_us: int = _ANY_TIME
    """The latest time that a message may have."""

    @classmethod
    def of(cls, now_us: int, *, max_ahead_s: float) -> BatchTime:
        """Return a time with a limit; an infinite one allows any time."""
        ahead_us = min(max_ahead_s * 1_000_000, float(_ANY_TIME // 2))
        return cls(now_us, min(now_us + int(ahead_us), _ANY_TIME))

    def packed(self) -> bytes:
        """Return the times as a frame carries them."""
        return np.array(self, "<i8").tobytes()


def time_of(frames: Iterable[Frame]) -> BatchTime | None:
    """Return the time of a batch; None if its frames have none."""
    times = [BatchTime(*np.frombuffer(frame.payload, "<i8").tolist()) for frame in frames if frame.source == CLOCK]
    return max(times, default=None)


def with_time(frames: list[Frame], now_us: int, *, max_ahead_s: float) -> list[Frame]:
    """Return the frames of a batch with one that holds its time: that of the engine, if the clock has not moved."""
    if time_of(frames) is not None:
        return frames
    payload = BatchTime.of(max(now_us, 0), max_ahead_s=max_ahead_s).packed()
    return [*frames, Frame(CLOCK, 0, 0, 1, None, payload, epoch=epoch_of(frames))]
