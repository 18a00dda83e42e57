"""The data folder of a service: locked by one process, with a journal and the recorded configuration."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from filelock import FileLock, Timeout

from nearcast.errors import FormatError, InvalidInput, StateError
from nearcast.service.config import ServiceConfig
from nearcast.service.store.journal import Journal, JournalReader, opening

_CONFIG = "config"


class DataFolder:
    """The folder of one service."""

    def __init__(self, path: Path, config: ServiceConfig | None) -> None:
        """Open or create a folder; without a configuration it must have recorded one."""
        self.path = path
        if config is not None:
            config.check()  # before it is recorded
        path.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(path / "lock", thread_local=False)  # another thread may close the folder
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise StateError(f"{path} is in use by another service") from None
        with ExitStack() as undo:
            undo.callback(self._lock.release)
            self.journal = Journal(path / "journal.sqlite")
            undo.callback(self.journal.close)
            with opening(path / "journal.sqlite"):
                self.config = self._recorded_config(config)
            self.journal.space = self.config.space
            self.reader = JournalReader(path / "journal.sqlite")
            undo.pop_all()

    def _recorded_config(self, config: ServiceConfig | None) -> ServiceConfig:
        try:
            recorded = self.journal.meta(_CONFIG)
        except ValueError as error:
            raise FormatError(f"{self.path} has recorded no valid configuration: {error}") from error
        if recorded is None:
            if config is None:
                raise StateError(f"{self.path} is new: it needs a configuration, given by bounds, a city or a job")
            config = config.with_new_key()
            with self.journal.transaction():
                self.journal.set_meta(_CONFIG, config.to_json())
            return config
        if config is not None:
            config.check_same(recorded)
        try:
            return ServiceConfig.from_json(recorded)
        except (InvalidInput, KeyError, TypeError, AttributeError) as error:
            raise FormatError(f"{self.path} has recorded no valid configuration: {error}") from error

    def close(self) -> None:
        """Close all files; no readers may be left."""
        self.reader.close()
        self.journal.close()
        self._lock.release()
