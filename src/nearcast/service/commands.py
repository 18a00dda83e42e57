"""Commands: the requests that change a service. One class per command, looked up by name.

A command consists of plain JSON, as the journal stores it. It applies itself to a target (an engine, or the input
files of a job), records itself in the tables of the journal, and restores itself from there.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol, Self

from nearcast.model import LEAVE, Subscription, Update
from nearcast.service.json_bodies import Body, subscription_from
from nearcast.service.subscription_key import SubscriptionKey

Edge = tuple[str, str]
"""A user and a place of the social graph."""
MAX_MERGED = 1_000
"""Commands that a replay merges into one at most."""


class CommandTarget(Protocol):
    """What commands are applied to. Each method either succeeds or raises and changes nothing."""

    def publish(self, messages: Sequence[Body]) -> list[Update]:
        """Publish messages in order and return the updates, if they are known yet."""

    def subscribe(self, subscriptions: Sequence[Subscription]) -> list[Update]:
        """Insert or replace subscriptions and return the updates, if they are known yet."""

    def unsubscribe(self, subscriber: str, ids: Sequence[str]) -> None:
        """Delete subscriptions, which produces no updates."""

    def retract(self, ids: Sequence[str], seqs: Sequence[int]) -> list[Update]:
        """Withdraw those of the messages with some ids that have one of the seqs."""

    def replace(self, messages: Sequence[Body], seqs: Sequence[int]) -> list[Update]:
        """Publish messages in place of those under their ids that have one of the seqs."""

    def add_edges(self, edges: Sequence[Edge]) -> list[Update]:
        """Add edges to the social graph and return the updates."""

    def remove_edges(self, edges: Sequence[Edge]) -> list[Update]:
        """Remove edges, all of which must exist, and return the updates."""

    def advance(self, now: float) -> list[Update]:
        """Advance the clock to a time and return the updates of what expires."""


class CommandChecks(Protocol):
    """What checks commands before they are applied in parts."""

    def check_messages(self, messages: Sequence[Body]) -> None:
        """Raise what `publish` would raise, and change nothing."""

    def check_subscriptions(self, subscriptions: Sequence[Subscription]) -> None:
        """Raise what `subscribe` would raise, and change nothing."""


class CommandTables(Protocol):
    """The tables of the journal that commands change."""

    def insert_messages(self, bodies: Sequence[Body], *, publisher: str, command: int, first_seq: int) -> None:
        """Insert the messages of a command."""

    def retract_messages(self, seqs: Sequence[int]) -> None:
        """Mark messages as withdrawn."""

    def published(self, publisher: str, ids: Sequence[str]) -> list[int]:
        """Return the seqs of the messages of a publisher that have some ids, are retained and not withdrawn."""

    def put_subscriptions(self, subscriber: str, bodies: Sequence[Body]) -> None:
        """Insert or replace subscriptions."""

    def delete_subscriptions(self, subscriber: str, ids: Sequence[str]) -> None:
        """Delete subscriptions."""

    def subscribed(self, subscriber: str, ids: Iterable[str]) -> dict[str, str]:
        """Return the kind of each id that is subscribed."""

    def sizes(self, subscriber: str, ids: Iterable[str]) -> dict[str, SubscriptionSize]:
        """Return the size of each id that is subscribed."""


class SubscriptionSize(NamedTuple):
    """What a subscription may take."""

    results: int
    """The messages that its result can hold, 0 if there is no such limit."""
    n_bytes: int
    """Bytes of its JSON, as the journal stores it."""

    @classmethod
    def of(cls, body: Body) -> SubscriptionSize:
        """Return the size of a subscription."""
        return cls(int(body.get("k") or 0), len(json.dumps(body)))


class Growth(NamedTuple):
    """By how much a command changes what a subscriber has."""

    subscriber: str
    subscriptions: int
    results: int
    """The messages that results can hold."""
    n_bytes: int
    """Bytes of subscriptions as JSON."""

    @classmethod
    def between(
        cls, subscriber: str, before: Collection[SubscriptionSize], after: Collection[SubscriptionSize]
    ) -> Growth:
        """Return the growth from the sizes of some subscriptions to those of others."""
        results, n_bytes = (
            sum(getattr(size, name) for size in after) - sum(getattr(size, name) for size in before)
            for name in SubscriptionSize._fields
        )
        return cls(subscriber, len(after) - len(before), results, n_bytes)


@dataclass(frozen=True)
class Command(ABC):
    """A request that changes the service."""

    name: ClassVar[str]
    is_mergeable: ClassVar[bool] = False
    """True if adjacent commands can be applied as one, see `merge`."""

    @abstractmethod
    def apply(self, target: CommandTarget) -> list[Update]:
        """Apply the command and return the updates, or raise and change nothing."""

    def replay(self, target: CommandTarget, *, at: float) -> list[Update]:
        """Apply the command again, to a target that a clock advances: at the time at which it was applied first."""
        return [*target.advance(at), *self.apply(target)]

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

    def resolved(self, tables: CommandTables) -> Command:
        """Return the command with what it depends on, as the tables have it now; a replay must not look again."""
        return self

    def growth(self, tables: CommandTables) -> Growth | None:
        """Return by how much the command changes what a subscriber has, if it is applied now."""
        return None

    @property
    def n_items(self) -> int:
        """The number of items that can be applied one after the other with the same effect."""
        return 1

    def part(self, start: int, stop: int) -> Command:
        """Return a command of some of the items."""
        return self

    def most_updates(self, tables: CommandTables) -> list[int] | None:
        """Return the most updates that each item can have, if that is known beforehand."""
        return None

    def check(self, checks: CommandChecks) -> None:
        """Raise what `apply` would raise, and change nothing."""
        return

    def reply(self, *, replaced: set[str], last_seq: int, n_late: int | None) -> dict[str, Any]:
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
    publisher: str = ""

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
        tables.insert_messages(self.messages, publisher=self.publisher, command=number, first_seq=first_seq)

    def bodies(self) -> Sequence[Body]:
        """Return the messages."""
        return self.messages

    @property
    def n_items(self) -> int:
        """The number of messages."""
        return len(self.messages)

    def part(self, start: int, stop: int) -> Publish:
        """Return a command of some of the messages."""
        return Publish(self.messages[start:stop], self.publisher)

    def check(self, checks: CommandChecks) -> None:
        """Raise what publishing would raise."""
        checks.check_messages(self.messages)

    def reply(self, *, replaced: set[str], last_seq: int, n_late: int | None) -> dict[str, Any]:
        """Return the number of messages, how many of them were late, and the seq of the last one."""
        return {"messages": len(self.messages), "late": n_late, "seq": last_seq}

    def with_times(self, next_time: Callable[[], float]) -> Publish:
        """Return the command with a time for each message that lacks one."""
        if all("at" in body for body in self.messages):
            return self
        timed = [body if "at" in body else {**body, "at": next_time()} for body in self.messages]
        return replace(self, messages=timed)


@dataclass(frozen=True)
class Replace(Publish):
    """Publishes messages, each in place of those that its publisher has published under the same id."""

    name: ClassVar[str] = "replace"
    is_mergeable: ClassVar[bool] = False
    seqs: Sequence[int] = ()
    """The messages that may be replaced."""

    def resolved(self, tables: CommandTables) -> Replace:
        """Return the command with the messages that the publisher has under these ids."""
        return replace(self, seqs=tables.published(self.publisher, [body["id"] for body in self.messages]))

    def apply(self, target: CommandTarget) -> list[Update]:
        """Replace the messages."""
        return target.replace(self.messages, self.seqs)

    def payload(self) -> Body:  # type: ignore[override]
        """Return what the table of messages does not hold."""
        return {"publisher": self.publisher, "seqs": list(self.seqs)}

    @classmethod
    def restore(cls, payload: Body, read_messages: Callable[[], list[Body]]) -> Self:
        """Return the command with its messages."""
        return cls(read_messages(), **payload)

    def record(self, tables: CommandTables, *, number: int, first_seq: int) -> None:
        """Mark the messages that are replaced, and insert the new ones."""
        tables.retract_messages(self.seqs)
        super().record(tables, number=number, first_seq=first_seq)

    @property
    def n_items(self) -> int:
        """1: the messages are applied in one call."""
        return 1

    def part(self, start: int, stop: int) -> Replace:
        """Return the command."""
        return self


@dataclass(frozen=True)
class Retract(Command):
    """Withdraws messages of one publisher, all or none."""

    name: ClassVar[str] = "retract"
    publisher: str
    ids: Sequence[str]
    seqs: Sequence[int] = ()
    """The messages of the publisher that have these ids."""

    def resolved(self, tables: CommandTables) -> Retract:
        """Return the command with the messages that the publisher has under these ids."""
        return replace(self, seqs=tables.published(self.publisher, self.ids))

    def apply(self, target: CommandTarget) -> list[Update]:
        """Withdraw the messages."""
        return target.retract(self.ids, self.seqs)

    def record(self, tables: CommandTables, *, number: int, first_seq: int) -> None:
        """Mark the messages as withdrawn."""
        tables.retract_messages(self.seqs)


@dataclass(frozen=True)
class Subscribe(Command):
    """Inserts or replaces subscriptions of one subscriber, all or none."""

    name: ClassVar[str] = "subscribe"
    subscriber: str
    subscriptions: Sequence[Body]

    def apply(self, target: CommandTarget) -> list[Update]:
        """Insert or replace the subscriptions."""
        return target.subscribe(self._made)

    def record(self, tables: CommandTables, *, number: int, first_seq: int) -> None:
        """Insert or replace the subscriptions."""
        tables.put_subscriptions(self.subscriber, self.subscriptions)

    def replaced_ids(self, tables: CommandTables) -> set[str]:
        """Return the ids that are subscribed already."""
        return set(tables.subscribed(self.subscriber, self._ids))

    def growth(self, tables: CommandTables) -> Growth:
        """Return what is added; of an id given twice the last one counts."""
        before = tables.sizes(self.subscriber, self._ids)
        return Growth.between(self.subscriber, before.values(), list(map(SubscriptionSize.of, self._last)))

    @property
    def n_items(self) -> int:
        """The number of subscriptions with different ids."""
        return len(self._last)

    def part(self, start: int, stop: int) -> Subscribe:
        """Return a command of some of the subscriptions, in the order in which the journal numbers their updates."""
        return Subscribe(self.subscriber, self._in_order[start:stop])

    def most_updates(self, tables: CommandTables) -> list[int]:
        """Return for each subscription the size of its result, and of the one that it replaces."""
        before = {id_: size.results for id_, size in tables.sizes(self.subscriber, self._ids).items()}
        return [SubscriptionSize.of(body).results + before.get(body["id"], 0) for body in self._in_order]

    def check(self, checks: CommandChecks) -> None:
        """Raise what subscribing would raise."""
        checks.check_subscriptions(self._made)

    def reply(self, *, replaced: set[str], last_seq: int, n_late: int | None) -> dict[str, Any]:
        """Return which ids were created and which were replaced, and hints on their meaning."""
        hints = {body["id"]: list(one.hints()) for body, one in zip(self.subscriptions, self._made, strict=True)}
        return {
            "hints": {id_: given for id_, given in hints.items() if given},
            "created": [id_ for id_ in self._ids if id_ not in replaced],
            "replaced": [id_ for id_ in self._ids if id_ in replaced],
        }

    @property
    def _ids(self) -> list[str]:
        return [body["id"] for body in self._last]

    @cached_property
    def _made(self) -> list[Subscription]:
        """The subscriptions as objects, made once: large regions take time."""
        return [subscription_from(body, self.subscriber) for body in self.subscriptions]

    @cached_property
    def _last(self) -> list[Body]:
        """The subscriptions; of those with the same id the last one."""
        return list({body["id"]: body for body in self.subscriptions}.values())

    @cached_property
    def _in_order(self) -> list[Body]:
        """The same in canonical order."""
        return sorted(self._last, key=lambda body: SubscriptionKey(self.subscriber, body["id"]).engine_id)


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

    def growth(self, tables: CommandTables) -> Growth:
        """Return what is removed, as negative numbers."""
        return Growth.between(self.subscriber, tables.sizes(self.subscriber, self.ids).values(), ())


@dataclass(frozen=True)
class AddEdges(Command):
    """Adds edges to the social graph, all or none; results of kinds that depend on it follow at once."""

    name: ClassVar[str] = "add_edges"
    edges: Sequence[Sequence[str]]
    """Each a user and a place."""

    def apply(self, target: CommandTarget) -> list[Update]:
        """Add the edges."""
        return target.add_edges([(user, place) for user, place in self.edges])


@dataclass(frozen=True)
class RemoveEdges(Command):
    """Removes edges from the social graph, all or none; a user stays known without edges."""

    name: ClassVar[str] = "remove_edges"
    edges: Sequence[Sequence[str]]
    """Each a user and a place."""

    def apply(self, target: CommandTarget) -> list[Update]:
        """Remove the edges."""
        return target.remove_edges([(user, place) for user, place in self.edges])


@dataclass(frozen=True)
class Advance(Command):
    """Advances the clock of the engine to a time; messages that have expired by then leave their results."""

    name: ClassVar[str] = "advance"
    now: float

    def apply(self, target: CommandTarget) -> list[Update]:
        """Advance the clock."""
        return target.advance(self.now)

    def replay(self, target: CommandTarget, *, at: float) -> list[Update]:
        """Advance the clock to the same time as before, whenever that was."""
        return self.apply(target)


@dataclass(frozen=True)
class Ingest(Command):
    """Marks output files of a job as ingested. Their updates are journaled with it, so there is nothing to apply."""

    name: ClassVar[str] = "ingest"
    files: Sequence[str]

    def apply(self, target: CommandTarget) -> list[Update]:
        """Do nothing."""
        return []


COMMANDS: dict[str, type[Command]] = {
    command.name: command
    for command in (Publish, Replace, Retract, Subscribe, Unsubscribe, AddEdges, RemoveEdges, Advance, Ingest)
}


def merge(commands: Iterable[Command]) -> Publish:
    """Return mergeable commands as one, which publishes all their messages in order."""
    return Publish([body for command in commands for body in command.bodies()])


class RecordedCommand(NamedTuple):
    """A command of the journal."""

    number: int
    at: float
    """When it was written; where a clock advances the engine, the time of the engine when it was applied."""
    command: Command


def merge_adjacent(
    recorded: Iterable[RecordedCommand], *, same_time: bool = False, limit: int = MAX_MERGED
) -> Iterator[RecordedCommand]:
    """Yield commands, adjacent mergeable ones, with `same_time` those of one time, as one with the last number."""
    run: list[RecordedCommand] = []

    def merged() -> RecordedCommand:
        return run[-1]._replace(command=merge(one.command for one in run))

    for one in recorded:
        fits = one.command.is_mergeable and len(run) < limit and not (same_time and run and run[-1].at != one.at)
        if run and not fits:
            yield merged()
            run = []
        if one.command.is_mergeable:
            run.append(one)
        else:
            yield one
    if run:
        yield merged()


def canonical_order(updates: Sequence[Update]) -> list[Update]:
    """Return the updates of a command in the one order in which the journal numbers them.

    The order of an engine within one step depends on its number of workers; this one does not.
    """
    return sorted(updates, key=lambda u: (u.seq, u.subscription, u.change != LEAVE, u.message, u.message_seq))
