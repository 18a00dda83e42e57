"""The embedded engine."""

from nearcast.engine.config import EngineConfig
from nearcast.engine.engine import Engine
from nearcast.engine.groups import group, ungroup
from nearcast.engine.stats import Stats
from nearcast.engine.stream_slice import StreamSlice

__all__ = ["Engine", "EngineConfig", "Stats", "StreamSlice", "group", "ungroup"]
