"""The output of an engine: updates and results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from nearcast.model.identity import Id

Change = Literal["enter", "leave"]
ENTER: Change = "enter"
LEAVE: Change = "leave"


@dataclass(frozen=True, slots=True)
class Update:
    """A message entered or left the result of a subscription.

    `seq` is the step it happened in. `at` is `now` of that step in seconds since the epoch, where messages carry
    times. `score` is the message's score for the subscription; for kind `nearest`, its distance. `body` is that of a
    message that entered, if the engine has bodies. `message_seq` is the step in which the message was published and
    tells messages with the same id apart; 0 if it is not known.
    """

    seq: int
    subscription: Id
    message: Id
    change: Change
    score: float
    at: float | None = field(default=None, repr=False)
    body: str | None = field(default=None, repr=False)
    message_seq: int = field(default=0, repr=False, compare=False)


class Result(NamedTuple):
    """A message in a subscription's result."""

    message: Id
    score: float
