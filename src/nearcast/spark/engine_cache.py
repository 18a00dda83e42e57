"""Where is a shard's engine between batches? In a folder of this host that any of its Python workers can map.

    <local>/<query>/<terms>/<shard>/     the engine, under a seal whose mark is the stamp of the state it is in
    <local>/<query>/<terms>/<shard>.lock held by the worker that has it

It is a cache of the truth (see `state`) and may be lost at any time. An engine is opened by the stamp that it must
have; the first change breaks the seal, so one whose batch failed is never opened again. A worker that had the engine
last, and nobody since, goes on with what it has mapped. A task that finds the lock taken, by one that was given up
but still runs, makes do with an engine in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout

from nearcast.engine import Engine
from nearcast.errors import StateError

_MAPPED: dict[Path, Engine] = {}
"""Engines that this process has had, by folder."""


class LocalEngineCache:
    """The place of one shard's engine on this host; `options` are what engines are made with."""

    def __init__(self, folder: Path, options: Mapping[str, Any]) -> None:
        self._folder, self._options = folder, options
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
        """Where an engine may live now; None for memory."""
        return self._folder if self._lock.is_locked else None

    def open(self, stamp: str) -> Engine | None:
        """Return the engine that was sealed with a stamp, if it is here."""
        if self._place is None:
            return None
        engine = _MAPPED.pop(self._folder, None)
        if engine is not None and engine.holds(stamp):
            return engine
        try:
            return Engine.attach(self._folder, stamp, **self._options)
        except StateError:
            return None

    def new(self) -> Engine:
        """Return an engine before anything happened."""
        return Engine(**self._options, folder=self._place)

    def load(self, saved: Path) -> Engine:
        """Return an engine that was saved."""
        return Engine.load(saved, folder=self._place)

    def seal(self, engine: Engine, stamp: str) -> None:
        """Leave an engine whose batch went well to the next one."""
        if self._place is not None:
            engine.seal(stamp)
            _MAPPED[self._folder] = engine
