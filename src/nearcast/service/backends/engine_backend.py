"""Backend with an engine in this process: restored from the newest snapshot and the commands after it."""

from __future__ import annotations

from collections.abc import Sequence

from nearcast.engine import Engine
from nearcast.errors import NearcastError, StateError
from nearcast.model import Subscription, Update
from nearcast.service.backends.backend import JobOutput, RecoveredState
from nearcast.service.commands import Edge, merge_adjacent
from nearcast.service.json_bodies import Body, message_from
from nearcast.service.store.data_folder import DataFolder
from nearcast.service.store.snapshots import Snapshots
from nearcast.service.subscription_key import SubscriptionKey


class EngineTarget:
    """Applies commands to an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def publish(self, messages: Sequence[Body]) -> list[Update]:
        """Publish messages and return the updates."""
        return self._engine.publish([message_from(body) for body in messages])

    def subscribe(self, subscriptions: Sequence[Subscription]) -> list[Update]:
        """Insert or replace subscriptions and return the updates."""
        return self._engine.subscribe(subscriptions)

    def unsubscribe(self, subscriber: str, ids: Sequence[str]) -> None:
        """Delete subscriptions."""
        self._engine.unsubscribe([SubscriptionKey(subscriber, id_).engine_id for id_ in ids])

    def retract(self, ids: Sequence[str], seqs: Sequence[int]) -> list[Update]:
        """Withdraw messages and return the updates."""
        return self._engine.retract(ids, only=seqs)

    def replace(self, messages: Sequence[Body], seqs: Sequence[int]) -> list[Update]:
        """Publish messages in place of others and return the updates."""
        return self._engine.replace([message_from(body) for body in messages], only=seqs)

    def add_edges(self, edges: Sequence[Edge]) -> list[Update]:
        """Add edges and return the updates."""
        return self._engine.add_edges(edges)

    def remove_edges(self, edges: Sequence[Edge]) -> list[Update]:
        """Remove edges and return the updates."""
        return self._engine.remove_edges(edges)

    def advance(self, now: float) -> list[Update]:
        """Advance the clock and return the updates of what expires."""
        return self._engine.advance(now)

    def check_messages(self, messages: Sequence[Body]) -> None:
        """Raise what `publish` would raise."""
        self._engine.check_messages([message_from(body) for body in messages])

    def check_subscriptions(self, subscriptions: Sequence[Subscription]) -> None:
        """Raise what `subscribe` would raise."""
        self._engine.check(subscriptions)


class EngineBackend(EngineTarget):
    """An engine with its snapshots."""

    poll_interval_s: float | None = None
    is_reporting: bool = True
    returns_updates: bool = True

    def __init__(self, folder: DataFolder) -> None:
        super().__init__(folder.config.engine())
        self._config, self._journal = folder.config, folder.journal
        self._snapshots = Snapshots(folder.path / "snapshots", folder.config.engine_class)

    @property
    def late_seqs(self) -> Sequence[int]:
        """The seq of each message of the last publish that had expired on arrival."""
        return self._engine.late_seqs

    @property
    def view(self) -> Engine:
        """The engine."""
        return self._engine

    def recover(self, *, up_to: int) -> RecoveredState:
        """Load the newest snapshot and replay the commands after it."""
        saved, engine = self._snapshots.newest(up_to=up_to) or (0, self._config.engine())
        pruned = self._journal.pruned()
        if saved < pruned:
            raise StateError(f"no snapshot from command {pruned} on is readable, and the journal starts there")
        target = EngineTarget(engine)
        advances = self._config.advances
        for number, at, command in merge_adjacent(self._journal.commands(after=saved), same_time=advances):
            try:
                command.replay(target, at=at) if advances else command.apply(target)
            except NearcastError as error:
                raise StateError(f"replaying command {number} of the journal failed: {error}") from error
        self._engine.close()
        self._engine = engine
        return RecoveredState(engine.stats().messages, saved)

    def save(self, number: int) -> None:
        """Save a snapshot."""
        self._snapshots.save(self._engine, number)

    @property
    def needed(self) -> int:
        """The command from which on the journal is still needed."""
        return self._snapshots.needed

    def poll(self, *, up_to: int) -> JobOutput:
        """Return nothing: there is no job."""
        return JobOutput()

    def ingest(self, output: JobOutput) -> list[Update]:
        """Return nothing: there is no job."""
        return []

    def close(self) -> None:
        """Close the engine."""
        self._engine.close()
