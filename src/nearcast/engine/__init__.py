"""The embedded engine."""

from nearcast.engine.engine import Engine
from nearcast.engine.groups import group, ungroup
from nearcast.engine.share import Share
from nearcast.engine.stats import Stats

__all__ = ["Engine", "Share", "Stats", "group", "ungroup"]
