"""Where does a service go on from? The newest saved engine that is whole, with the number of its last command.

snapshots/
  000000012000/     an engine as it was after command 12,000
  000000013000/     the newest; the one before stays, should this one be unreadable
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

from nearcast.engine import Engine
from nearcast.engine.archive import sync
from nearcast.errors import FormatError

_KEPT = 2
_log = logging.getLogger(__name__)


class Snapshots:
    """A folder of saved engines."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def numbers(self) -> list[int]:
        """Return the last command of each, oldest first."""
        return sorted(int(path.name) for path in self._folder.iterdir() if path.name.isdigit())

    def newest(self, *, upto: int) -> tuple[int, Engine] | None:
        """Return the newest engine that is whole, up to a command, and its last command."""
        for number in reversed([number for number in self.numbers() if number <= upto]):
            try:
                return number, Engine.load(self._path(number))
            except FormatError as error:
                _log.warning("%s; trying the snapshot before", error)
        return None

    def save(self, engine: Engine, number: int) -> int:
        """Save an engine, and return the command from which on the journal is still needed.

        It is on disk before older ones go.
        """
        path = self._path(number)
        engine.save(path)
        for file in _with_parents(path):
            sync(file)
        *old, needed, _ = [0] * _KEPT + self.numbers()
        for earlier in filter(None, old):
            shutil.rmtree(self._path(earlier))
        return needed

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:012d}"


def _with_parents(path: Path) -> Iterator[Path]:
    yield from path.iterdir()
    yield path
    yield path.parent
