"""What can be asked of the service that changes it? Commands, made of plain JSON as the journal keeps it.

An engine is only ever given objects made from that JSON, the first time and when a journal is applied again, so both
come to the same. Ids are each subscriber's own: the engine knows subscription `s1` of `ann` as `ann/s1`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, ClassVar, Protocol, get_type_hints

from nearcast.engine import Engine
from nearcast.errors import InvalidInput
from nearcast.model import KINDS, LEAVE, Message, Subscription, Update
from nearcast.space import Box

KIND_OF = {kind.kind: kind for kind in KINDS}

Body = dict[str, Any]
"""A message, or a subscription, as JSON."""


class Command(Protocol):
    """Something that changes the engine."""

    kind: ClassVar[str]

    def apply(self, engine: Engine) -> list[Update]:
        """Do it, or raise and change nothing; return what changed in results."""


@dataclass(frozen=True)
class Publish:
    """Messages, in order."""

    kind: ClassVar[str] = "publish"
    messages: Sequence[Body]

    def apply(self, engine: Engine) -> list[Update]:
        """Publish them."""
        return engine.publish([message_of(body) for body in self.messages])


@dataclass(frozen=True)
class Subscribe:
    """Subscriptions of one subscriber, all or none."""

    kind: ClassVar[str] = "subscribe"
    subscriber: str
    subscriptions: Sequence[Body]

    def apply(self, engine: Engine) -> list[Update]:
        """Subscribe them; those that are there are replaced."""
        return engine.subscribe([subscription_of(body, self.subscriber) for body in self.subscriptions])


@dataclass(frozen=True)
class Unsubscribe:
    """Ids of one subscriber, all or none."""

    kind: ClassVar[str] = "unsubscribe"
    subscriber: str
    ids: Sequence[str]

    def apply(self, engine: Engine) -> list[Update]:
        """Forget them."""
        return engine.unsubscribe([engine_id(self.subscriber, id_) for id_ in self.ids])


@dataclass(frozen=True)
class Ingest:
    """Files that a job elsewhere has written; what it tells is journalled with them, and nothing is left to do."""

    kind: ClassVar[str] = "hear"
    files: Sequence[str]

    def apply(self, engine: Engine) -> list[Update]:
        """Do nothing."""
        return []


COMMANDS: tuple[type[Publish] | type[Subscribe] | type[Unsubscribe] | type[Ingest], ...] = (
    Publish,
    Subscribe,
    Unsubscribe,
    Ingest,
)


def joined(commands: Iterable[Publish]) -> Publish:
    """Return several as one: their messages in order."""
    return Publish([message for command in commands for message in command.messages])


def gathered(numbered: Iterable[tuple[int, Command]], *, most: int = 1_000) -> Iterator[tuple[int, Command]]:
    """Yield commands, those that publish and follow each other as one, with the number of the last."""
    run: list[Publish] = []
    last = 0
    for number, command in numbered:
        if run and (not isinstance(command, Publish) or len(run) == most):
            yield last, joined(run)
            run = []
        if isinstance(command, Publish):
            run.append(command)
        else:
            yield number, command
        last = number
    if run:
        yield last, joined(run)


def engine_id(subscriber: str, id_: str) -> str:
    """Return what the engine calls a subscription; a subscriber's name holds no slash."""
    return f"{subscriber}/{id_}"


def message_of(body: Mapping[str, Any]) -> Message:
    """Make a message."""
    return Message(**{**body, "location": tuple(body["location"])})


def subscription_of(body: Mapping[str, Any], subscriber: str) -> Subscription:
    """Make a subscription, as the engine knows it."""
    kind = KIND_OF[body["kind"]]
    given = {name: body[name] for name in fields_of(kind) if name in body}
    given["id"] = engine_id(subscriber, body["id"])
    for name, hint in fields_of(kind).items():
        if hint is Box:
            try:
                given[name] = Box(*given[name])
            except InvalidInput as error:
                raise error.about(f"{name} of subscription {body['id']!r}") from None
    return kind(**given)


def body_of(subscription: Subscription) -> Body:
    """Return a subscription as JSON, under the id it has."""
    given = {name: getattr(subscription, name) for name in fields_of(type(subscription))}
    plain = {
        name: list(v.as_tuple() if isinstance(v, Box) else v) if isinstance(v, Box | tuple) else v
        for name, v in given.items()
    }
    return {"kind": subscription.kind, **plain}


@cache
def fields_of(kind: type[Subscription]) -> dict[str, Any]:
    """Return the fields that a kind is made of, with their types."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind) if field.init}


def in_order(updates: Sequence[Update]) -> list[Update]:
    """Return the updates of a command in the one order in which they get their places.

    Within a step an engine tells them as they come, which is not the same with other workers.
    """
    return sorted(updates, key=lambda u: (u.seq, u.subscription, u.change != LEAVE, u.message))
