"""Commands: the requests that change a service. One class per command, looked up by name.

A command consists of plain JSON, as the journal stores it. It applies itself to a target (an engine, or the input
files of a job), records itself in the tables of the journal, and restores itself from there.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol, Self

from nearcast.model import LEAVE, Update
from nearcast.service.json_bodies import Body, subscription_from

MAX_MERGED = 1_000
"""Commands that a replay merges into one at most."""


class CommandTarget(Protocol):
    """What commands are applied to. Each method either succeeds or raises and changes nothing."""

    def publish(self, messages: Sequence[Body]) -> list[Update]:
        """Publish messages in order and return the updates, if they are known yet."""

    def subscribe(self, subscriber: str, subscriptions: Sequence[Body]) -> list[Update]:
        """Insert or replace subscriptions and return the updates, if they are known yet."""

    def unsubscribe(self, subscriber: str, ids: Sequence[str]) -> None:
        """Delete subscriptions, which produces no updates."""


class CommandTables(Protocol):
    """The tables of the journal that commands change."""

    def insert_messages(self, bodies: Sequence[Body], *, command: int, first_seq: int) -> None:
        """Insert the messages of a command."""

    def put_subscriptions(self, subscriber: str, bodies: Sequence[Body]) -> None:
        """Insert or replace subscriptions."""

    def delete_subscriptions(self, subscriber: str, ids: Sequence[str]) -> None:
        """Delete subscriptions."""

    def subscribed(self, subscriber: str, ids: Iterable[str]) -> dict[str, str]:
        """Return the kind of each id that is subscribed."""


@dataclass(frozen=True)
class Command(ABC):
    """A request that changes the service."""

    name: ClassVar[str]
    is_mergeable: ClassVar[bool] = False
    """True if adjacent commands can be applied as one, see `merge`."""

    @abstractmethod
    def apply(self, target: CommandTarget) -> list[Update]:
        """Apply the command and return the updates, or raise and change nothing."""

    def payload(self) -> Body | None:
        """Return the JSON that the journal stores with the command; None if its tables hold everything."""
        return asdict(self)

    @classmethod
    def restore(cls, payload: Body, read_messages: Callable[[], list[Body]]) -> Self:
        """Return the command of a journal row; `read_messages` reads its messages."""
        return cls(**payload)

    def record(self, tables: CommandTables, *, number: int, first_seq: int) -> None:
        """Change the tables of the journal as the command does; its messages are numbered from `first_seq` on."""
        return

    def bodies(self) -> Sequence[Body]:
        """Return the messages that the command publishes, in order."""
        return ()

    def replaced_ids(self, tables: CommandTables) -> set[str]:
        """Return the subscriptions that the command replaces, if it is applied now."""
        return set()

    def reply(self, *, replaced: set[str], last_seq: int) -> dict[str, Any]:
        """Return what the answer holds besides the number of the command and of its updates."""
        return {}

    def with_times(self, next_time: Callable[[], float]) -> Command:
        """Return the command with a time for each message that lacks one."""
        return self

    def fingerprint(self) -> str:
        """Return a hash that distinguishes the command from all others."""
        text = json.dumps([self.name, asdict(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Publish(Command):
    """Publishes messages in order, all or none."""

    name: ClassVar[str] = "publish"
    is_mergeable: ClassVar[bool] = True
    messages: Sequence[Body]

    def apply(self, target: CommandTarget) -> list[Update]:
        """Publish the messages."""
        return target.publish(self.messages)

    def payload(self) -> None:
        """Return None: the messages have a table of their own."""

    @classmethod
    def restore(cls, payload: Body, read_messages: Callable[[], list[Body]]) -> Self:
        """Return the command with its messages."""
        return cls(read_messages())

    def record(self, tables: CommandTables, *, number: int, first_seq: int) -> None:
        """Insert the messages."""
        tables.insert_messages(self.messages, command=number, first_seq=first_seq)

    def bodies(self) -> Sequence[Body]:
        """Return the messages."""
        return self.messages

    def reply(self, *, replaced: set[str], last_seq: int) -> dict[str, Any]:
        """Return the number of messages and the seq of the last one."""
        return {"messages": len(self.messages), "seq": last_seq}

    def with_times(self, next_time: Callable[[], float]) -> Publish:
        """Return the command with a time for each message that lacks one."""
        if all("at" in body for body in self.messages):
            return self
        return Publish([body if "at" in body else {**body, "at": next_time()} for body in self.messages])


@dataclass(frozen=True)
class Subscribe(Command):
    """Inserts or replaces subscriptions of one subscriber, all or none."""

    name: ClassVar[str] = "subscribe"
    subscriber: str
    subscriptions: Sequence[Body]

    def apply(self, target: CommandTarget) -> list[Update]:
        """Insert or replace the subscriptions."""
        return target.subscribe(self.subscriber, self.subscriptions)

    def record(self, tables: CommandTables, *, number: int, first_seq: int) -> None:
        """Insert or replace the subscriptions."""
        tables.put_subscriptions(self.subscriber, self.subscriptions)

    def replaced_ids(self, tables: CommandTables) -> set[str]:
        """Return the ids that are subscribed already."""
        return set(tables.subscribed(self.subscriber, self._ids))

    def reply(self, *, replaced: set[str], last_seq: int) -> dict[str, Any]:
        """Return which ids were created and which were replaced, and hints on their meaning."""
        subscriptions = [subscription_from(body, self.subscriber) for body in self.subscriptions]
        hints = {body["id"]: list(one.hints()) for body, one in zip(self.subscriptions, subscriptions, strict=True)}
        return {
            "hints": {id_: given for id_, given in hints.items() if given},
            "created": [id_ for id_ in self._ids if id_ not in replaced],
            "replaced": [id_ for id_ in self._ids if id_ in replaced],
        }

    @property
    def _ids(self) -> list[str]:
        return list(dict.fromkeys(body["id"] for body in self.subscriptions))


@dataclass(frozen=True)
class Unsubscribe(Command):
    """Deletes subscriptions of one subscriber, all or none."""

    name: ClassVar[str] = "unsubscribe"
    subscriber: str
    ids: Sequence[str]

    def apply(self, target: CommandTarget) -> list[Update]:
        """Delete the subscriptions."""
        target.unsubscribe(self.subscriber, self.ids)
        return []

    def record(self, tables: CommandTables, *, number: int, first_seq: int) -> None:
        """Delete the subscriptions."""
        tables.delete_subscriptions(self.subscriber, self.ids)


@dataclass(frozen=True)
class Ingest(Command):
    """Marks output files of a job as ingested. Their updates are journaled with it, so there is nothing to apply."""

    name: ClassVar[str] = "ingest"
    files: Sequence[str]

    def apply(self, target: CommandTarget) -> list[Update]:
        """Do nothing."""
        return []


COMMANDS: dict[str, type[Command]] = {command.name: command for command in (Publish, Subscribe, Unsubscribe, Ingest)}


def merge(commands: Iterable[Command]) -> Publish:
    """Return mergeable commands as one, which publishes all their messages in order."""
    return Publish([body for command in commands for body in command.bodies()])


def merge_adjacent(
    numbered: Iterable[tuple[int, Command]], *, limit: int = MAX_MERGED
) -> Iterator[tuple[int, Command]]:
    """Yield numbered commands, adjacent mergeable ones as one command with the number of the last."""
    run: list[Command] = []
    last = 0
    for number, command in numbered:
        if run and (not command.is_mergeable or len(run) == limit):
            yield last, merge(run)
            run = []
        if command.is_mergeable:
            run.append(command)
        else:
            yield number, command
        last = number
    if run:
        yield last, merge(run)


def canonical_order(updates: Sequence[Update]) -> list[Update]:
    """Return the updates of a command in the one order in which the journal numbers them.

    The order of an engine within one step depends on its number of workers; this one does not.
    """
    return sorted(updates, key=lambda u: (u.seq, u.subscription, u.change != LEAVE, u.message))
