"""The embedded engine."""

from nearcast.engine.engine import Engine
from nearcast.engine.groups import group, ungroup
from nearcast.engine.stream_slice import StreamSlice
from nearcast.engine.stats import Stats

__all__ = ["Engine", "StreamSlice", "Stats", "group", "ungroup"]
