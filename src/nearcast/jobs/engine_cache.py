"""The cache of shard engines on a host: a folder per shard that any Python worker of the host can map.

    <local>/<query>/<settings>/<shard>/  the engine, sealed with the stamp of its state
    <local>/<query>/<settings>/<shard>.lock held by the worker that uses it

The shard manifest and its files (see `shard_state`) are authoritative; the cache may be lost at any time. An engine
is opened by the stamp that it must have. The first change breaks the seal, so an engine whose batch failed is never
opened again. A worker that used the engine last continues with its mapping. A task that finds the lock taken, by an
abandoned task that still runs, uses an engine in memory.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Self

from filelock import FileLock, Timeout

from nearcast.engine import EngineConfig
from nearcast.engine.shard_engine import ShardEngine
from nearcast.errors import StateError

_MAPPED: dict[Path, ShardEngine] = {}
"""Engines that this process has mapped, by folder."""


class LocalEngineCache:
    """The engine of one shard on this host."""

    def __init__(self, folder: Path, config: EngineConfig) -> None:
        self._folder, self._config = folder, config
        self._lock = FileLock(f"{folder}.lock", blocking=False)

    def __enter__(self) -> Self:
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        with suppress(Timeout):
            self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    @property
    def _place(self) -> Path | None:
        """The folder for an engine, or None for memory."""
        return self._folder if self._lock.is_locked else None

    def open(self, stamp: str) -> ShardEngine | None:
        """Return the engine that was sealed with a stamp, or None."""
        if self._place is None:
            return None
        engine = _MAPPED.pop(self._folder, None)
        if engine is not None and engine.is_sealed(stamp):
            return engine
        try:
            return ShardEngine.attach(self._folder, stamp, self._config)
        except StateError:
            return None

    def new(self) -> ShardEngine:
        """Return an engine without subscriptions."""
        return ShardEngine.create(self._config, folder=self._place)

    def load(self, saved: Path) -> ShardEngine:
        """Return a saved engine."""
        return ShardEngine.load(saved, folder=self._place)

    def seal(self, engine: ShardEngine, stamp: str) -> None:
        """Seal the engine of a batch that succeeded, for the next batch."""
        if self._place is not None:
            engine.seal(stamp)
            _MAPPED[self._folder] = engine
