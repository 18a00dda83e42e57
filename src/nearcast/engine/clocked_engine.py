"""Engines whose clock only `advance` moves: with `clock="wall"`, the times of messages do not."""

from __future__ import annotations

from nearcast.engine.engine import Engine
from nearcast.engine.shard_engine import ShardEngine


class ClockedEngine(Engine):
    """Keeps messages by the time that it was advanced to; before that its clock stands at the epoch.

    So a message that is ahead of the clock, within what is accepted, expires no other message early.

    >>> from nearcast import Box, Message, Space, TimeWindow
    >>> engine = ClockedEngine(space=Space(Box(0, 0, 1, 1)), window=TimeWindow(60))
    >>> engine.advance(1_000)
    []
    >>> engine.publish([Message("m1", (0.2, 0.3), "jazz", at=999), Message("m2", (0.2, 0.3), "jazz", at=1_299)])
    []
    >>> engine.stats().window
    2
    """

    _is_clocked = True


class ClockedShardEngine(ClockedEngine, ShardEngine):
    """The engine of one shard of a job whose clock moves `now`."""
