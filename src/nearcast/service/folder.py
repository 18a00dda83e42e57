"""What is there on disk? A folder that is ours alone, with a journal, and the world that it is for."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from filelock import FileLock, Timeout

from nearcast.errors import StateError
from nearcast.service.config import ServiceConfig
from nearcast.service.journal import Journal, Reader


class DataFolder:
    """The folder of one service."""

    def __init__(self, path: Path, world: ServiceConfig | None) -> None:
        """Take a folder, or make it; without a world it must have one."""
        self.path = path
        if world is not None:
            world.check()  # or say what is wrong with it, before it is noted
        path.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(path / "lock", thread_local=False)  # whoever closes it
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise StateError(f"{path} is in use by another service") from None
        with ExitStack() as undo:
            undo.callback(self._lock.release)
            self.journal = Journal(path / "journal.sqlite")
            undo.callback(self.journal.close)
            self.world = self._same_config(world)
            self.reader = Reader(path / "journal.sqlite")
            undo.pop_all()

    def _same_config(self, world: ServiceConfig | None) -> ServiceConfig:
        noted = self.journal.meta("world")
        if noted is None:
            if world is None:
                raise StateError(f"{self.path} is new: say which world it is for, by bounds, a city or a job")
            with self.journal.transaction():
                self.journal.note("world", world.noted())
            return world
        if world is not None:
            world.check_same(noted)
        return ServiceConfig.read(noted)

    def close(self) -> None:
        """Close everything; no readers must be left."""
        self.reader.close()
        self.journal.close()
        self._lock.release()
