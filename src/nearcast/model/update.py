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

    `seq` is the step it happened in. `at` is the time of that step in seconds since the epoch, where messages carry
    times. `score` is the message's score for the subscription; for kind `nearest`, its distance.
    """

    seq: int
    subscription: Id
    message: Id
    change: Change
    score: float
    at: float | None = field(default=None, repr=False)


class Result(NamedTuple):
    """A message in a subscription's result."""

    message: Id
    score: float
