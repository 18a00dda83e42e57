"""The two interfaces of a backend: what the durable store drives, and what read requests see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from nearcast.engine.stats import Stats
from nearcast.model import Explanation, Id, Message, Preview, Result, Subscription, Update
from nearcast.partition import ShardArea
from nearcast.partition.balance.adjustment import Adjustment
from nearcast.service.commands import CommandChecks, CommandTarget
from nearcast.window import ScoredMessage


class View(Protocol):
    """Read access between two commands; an engine is one."""

    def results(self, subscription: Id) -> list[Result]:
        """Return the result of a subscription, best first."""

    def scored_messages(self, subscription: Id) -> list[ScoredMessage]:
        """Return the same with the seq of each message; 0 if it is not retained."""

    def explain(self, subscription: Id, message: Message | Id) -> Explanation:
        """Return the score of a message for a subscription, part by part."""

    def preview(self, subscription: Subscription) -> Preview:
        """Return the result that a new subscription would have among the newest messages."""

    def stats(self) -> Stats:
        """Return counts."""

    @property
    def now(self) -> float | None:
        """The time of the engine; None if it is not known."""

    @property
    def may_expire(self) -> bool:
        """True if time alone can change a result, or end a subscription."""

    def shard_areas(self) -> list[ShardArea]:
        """Return the parts of space and the shards that own them."""

    @property
    def adjustments(self) -> Sequence[Adjustment]:
        """The decisions with which the routing was adjusted to the load, as far as they are known."""


Query = Callable[[View], Any]
"""A read request."""


class RecoveredState(NamedTuple):
    """Where a backend resumes."""

    last_seq: int
    """The seq of the last message."""
    saved: int
    """The last command that needs no replay."""


@dataclass(frozen=True)
class JobOutput:
    """Output files of a job that are not ingested yet, and their updates in order."""

    files: list[str] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)


class Backend(CommandTarget, CommandChecks, Protocol):
    """Computes the results of subscriptions. Only the thread of the durable store calls it."""

    poll_interval_s: float | None
    """How often `poll` should be called; None if never."""
    is_reporting: bool
    """False until the job behind it has reported a batch; an engine always reports."""
    returns_updates: bool
    """True if applying a command returns its updates; False if they come later, as output of a job."""

    @property
    def late_seqs(self) -> Sequence[int] | None:
        """The seq of each message of the last publish that had expired on arrival; None if only a job knows."""

    @property
    def view(self) -> View:
        """Read access to the current results."""

    def recover(self, *, up_to: int) -> RecoveredState:
        """Restore the state after a command, the last one of the journal."""

    def save(self, number: int) -> None:
        """Save the state after a command."""

    @property
    def needed(self) -> int:
        """The command from which on the journal is still needed."""

    def poll(self, *, up_to: int) -> JobOutput:
        """Pass commands up to a number on to the job, and return the new output of the job."""

    def ingest(self, output: JobOutput) -> list[Update]:
        """Store the output of the job within the current transaction; return updates of current subscriptions."""

    def close(self) -> None:
        """Release everything."""
