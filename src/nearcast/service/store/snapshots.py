"""Snapshots: saved engines, each named by the number of its last command. A start resumes from the newest intact one.

snapshots/
  000000012000/     the engine after command 12,000
  000000013000/     the newest; its predecessor stays in case this one is unreadable
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from nearcast.engine import Engine
from nearcast.engine.archive import MANIFEST
from nearcast.errors import FormatError

_RETAINED = 2
_log = logging.getLogger(__name__)


class Snapshots:
    """A folder of saved engines."""

    def __init__(self, folder: Path, engine_class: type[Engine] = Engine) -> None:
        self._folder, self._engine_class = folder, engine_class
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            if path.name.isdigit() and not (path / MANIFEST).exists():
                _log.warning("removing %s: the process ended while it was saved", path)
                shutil.rmtree(path)  # it would count as one of the retained

    def numbers(self) -> list[int]:
        """Return the number of the last command of each snapshot, oldest first."""
        return sorted(int(path.name) for path in self._folder.iterdir() if path.name.isdigit())

    def newest(self, *, up_to: int) -> tuple[int, Engine] | None:
        """Load the newest intact engine up to a command; return it after the number of its last command."""
        for number in reversed([number for number in self.numbers() if number <= up_to]):
            try:
                return number, self._engine_class.load(self._path(number))
            except FormatError as error:
                _log.warning("%s; trying the previous snapshot", error)
        return None

    def save(self, engine: Engine, number: int) -> None:
        """Save an engine. The snapshot is on disk before older ones are deleted."""
        path = self._path(number)
        try:
            engine.save(path)
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)  # half a snapshot must not count as one
            raise
        for earlier in self.numbers()[:-_RETAINED]:
            shutil.rmtree(self._path(earlier))

    @property
    def needed(self) -> int:
        """The command from which on the journal is still needed: the newest snapshot may be unreadable."""
        return ([0] * _RETAINED + self.numbers())[-_RETAINED]

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:012d}"
