"""Who keeps the answers, in one process? An engine: the newest snapshot of it, and the commands since."""

from __future__ import annotations

from nearcast.engine import Engine
from nearcast.errors import NearcastError, StateError
from nearcast.model import Update
from nearcast.service.commands import Command, gathered, in_order
from nearcast.service.durable_store import DurableStore, RetentionConfig
from nearcast.service.folder import DataFolder
from nearcast.service.meters import Meters
from nearcast.service.snapshots import Snapshots


class EngineBackend(DurableStore):
    """An engine of this process, and its journal."""

    def __init__(self, folder: DataFolder, *, meters: Meters, retention: RetentionConfig) -> None:
        super().__init__(folder, meters=meters, retention=retention)
        self._snapshots = Snapshots(folder.path / "snapshots")
        self._engine = self.world.engine()

    @property
    def view(self) -> Engine:
        """The engine."""
        return self._engine

    def recover(self) -> None:
        """Make the engine that the journal tells of: the newest snapshot, and the commands since."""
        self._position = self._journal.position()
        self._saved, engine = self._snapshots.newest(upto=self._position.command) or (0, self.world.engine())
        pruned = self._journal.meta("pruned") or 0
        if self._saved < pruned:
            raise StateError(f"no snapshot from command {pruned} on can be read, and the journal begins there")
        for number, command in gathered(self._journal.commands(after=self._saved)):
            try:
                command.apply(engine)
            except NearcastError as error:
                raise StateError(f"command {number} of the journal cannot be applied again: {error}") from error
        self._engine.close()
        self._engine = engine
        self._next_save = self._saved + self._retention.snapshot_every
        self._seq = engine.stats().messages

    def _carry_out(self, command: Command) -> list[Update]:
        return in_order(command.apply(self._engine))

    def _save(self) -> int:
        return self._snapshots.save(self._engine, self._position.command)

    def close(self) -> None:
        """Close everything; no readers must be left."""
        self._engine.close()
        super().close()
