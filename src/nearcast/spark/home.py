"""Where is a shard's engine between batches? In the memory of the Python worker that had it last.

It is a cache of the truth (see `state`) and may be lost at any time. An engine is handed out by the stamp of the
state that it must be in, and is gone from here while someone works with it; so one whose batch failed never comes
back. One with another stamp is out of date and is let go.
"""

from __future__ import annotations

from nearcast.engine import Engine

_ENGINES: dict[tuple[str, str, int], tuple[str, Engine]] = {}


class Home:
    """The place of one shard's engine on this worker; `terms` names what the query was started with."""

    def __init__(self, query: str, terms: str, shard: int) -> None:
        self._key = (query, terms, shard)

    def open(self, stamp: str) -> Engine | None:
        """Hand out the engine that was sealed with a stamp, if it is here; it is not here any more then."""
        sealed, engine = _ENGINES.pop(self._key, (None, None))
        return engine if sealed == stamp else None

    def seal(self, engine: Engine, stamp: str) -> None:
        """Keep an engine whose batch went well."""
        _ENGINES[self._key] = (stamp, engine)
