"""The cache of shard engines on a host: a folder per shard that any Python worker of the host can map.

    <local>/<query>/<settings>/<shard>/       the engine, sealed with the stamp of its state, its index and threads
    <local>/<query>/<settings>/<shard>.lock   held by the worker that uses it

The shard manifest and its files (see `shard_state`) are authoritative; the cache may be lost at any time. An engine
is opened by the stamp that it must have. The first change breaks the seal, so an engine whose batch failed is never
opened again. A worker that used the engine last continues with its mapping. A task that finds the lock taken, by an
abandoned task that still runs, uses an engine in memory. An engine that is damaged, or that another version of the
package made, is rebuilt. The engines of queries that have ended are removed after a week, see `remove_unused`.

An engine here has the greatest limits: messages and subscriptions were checked before they became frames. A job that
continues with smaller limits can therefore apply the frames that it wrote before.
"""

from __future__ import annotations

import logging
import shutil
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

from filelock import FileLock, Timeout

from nearcast.engine import EngineConfig
from nearcast.errors import StateError
from nearcast.model import Limits

UNUSED_S = 7 * 24 * 3600.0
"""How long an engine stays that no batch uses."""

_MAPPED: dict[Path, Any] = {}
"""Engines that this process has mapped, by folder."""
_log = logging.getLogger(__name__)


class Cached(Protocol):
    """What lies in a folder between batches: the engine of a shard, or a partition of the merge stage."""

    @classmethod
    def create(cls, config: EngineConfig, *, folder: str | PathLike[str] | None = None) -> Self:
        """Return an empty one."""

    @classmethod
    def load(
        cls, path: str | PathLike[str], *, config: EngineConfig, folder: str | PathLike[str] | None = None
    ) -> Self:
        """Return a saved one."""

    @classmethod
    def attach(cls, folder: str | PathLike[str], mark: str, config: EngineConfig) -> Self:
        """Return the one that was sealed with a mark."""

    def save(self, path: str | PathLike[str]) -> None:
        """Write all that is needed to load it."""

    def seal(self, mark: str) -> None:
        """Leave it to the process that attaches it next."""

    def is_sealed(self, mark: str) -> bool:
        """Return whether it is as it was when it was sealed with a mark."""


C = TypeVar("C", bound=Cached)


class LocalEngineCache(Generic[C]):
    """The engine of one shard on this host, or whatever else is cached as one."""

    def __init__(self, folder: Path, config: EngineConfig, engine: type[C]) -> None:
        self._folder, self._config, self._engine = folder, replace(config, limits=Limits.greatest()), engine
        self._lock = FileLock(_lock_file(folder), blocking=False)

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

    def open(self, stamp: str) -> C | None:
        """Return the engine that was sealed with a stamp; None if there is none that can be used."""
        if self._place is None:
            return None
        engine: C | None = _MAPPED.pop(self._folder, None)
        mark = self._mark(stamp)
        if engine is not None and engine.is_sealed(mark):
            return engine
        try:
            return self._engine.attach(self._folder, mark, self._config)
        except StateError:  # it has another stamp, or none
            return None
        except Exception as error:  # whatever damage leads to: the engine can be rebuilt
            _log.warning("the engine in %s is damaged and will be rebuilt: %r", self._folder, error)
            return None

    def new(self) -> C:
        """Return an engine without subscriptions."""
        return self._engine.create(self._config, folder=self._place)

    def load(self, saved: Path) -> C:
        """Return a saved engine."""
        return self._engine.load(saved, config=self._config, folder=self._place)

    def seal(self, engine: C, stamp: str) -> None:
        """Seal the engine of a batch that succeeded, for the next batch."""
        if self._place is not None:
            engine.seal(self._mark(stamp))
            _MAPPED[self._folder] = engine

    def _mark(self, stamp: str) -> str:
        """Return the mark of a stamp: another index has other arrays, and so have other numbers of threads."""
        return f"{stamp} {self._config.index} {self._config.workers}"


def remove_unused(root: Path, *, before: float) -> None:
    """Remove the engines below a folder that were last sealed before a time, unless a worker uses one.

    A query that was only idle rebuilds its engines.
    """
    for folder in root.glob("*/*/*"):
        with suppress(OSError, Timeout):
            if folder.is_dir() and folder.stat().st_mtime < before:
                with FileLock(_lock_file(folder), blocking=False):
                    shutil.rmtree(folder)
                    _lock_file(folder).unlink()
                for above in folder.parents[:2]:
                    above.rmdir()  # if nothing is left there


def _lock_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")
