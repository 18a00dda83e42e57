"""Snapshots: saved engines, each named by the number of its last command. A start resumes from the newest intact one.

snapshots/
  000000012000/     the engine after command 12,000
  000000013000/     the newest; its predecessor stays in case this one is unreadable
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

from nearcast.engine import Engine
from nearcast.engine.archive import sync
from nearcast.errors import FormatError

_RETAINED = 2
_log = logging.getLogger(__name__)


class Snapshots:
    """A folder of saved engines."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def numbers(self) -> list[int]:
        """Return the number of the last command of each snapshot, oldest first."""
        return sorted(int(path.name) for path in self._folder.iterdir() if path.name.isdigit())

    def newest(self, *, up_to: int) -> tuple[int, Engine] | None:
        """Load the newest intact engine up to a command; return it after the number of its last command."""
        for number in reversed([number for number in self.numbers() if number <= up_to]):
            try:
                return number, Engine.load(self._path(number))
            except FormatError as error:
                _log.warning("%s; trying the previous snapshot", error)
        return None

    def save(self, engine: Engine, number: int) -> int:
        """Save an engine and return the command from which on the journal is still needed.

        The snapshot is on disk before older ones are deleted.
        """
        path = self._path(number)
        engine.save(path)
        for file in _with_parents(path):
            sync(file)
        *old, needed, _ = [0] * _RETAINED + self.numbers()
        for earlier in filter(None, old):
            shutil.rmtree(self._path(earlier))
        return needed

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:012d}"


def _with_parents(path: Path) -> Iterator[Path]:
    yield from path.iterdir()
    yield path
    yield path.parent
