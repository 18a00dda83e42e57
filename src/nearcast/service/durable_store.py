"""What is owned? A journal, and whoever keeps the answers that it can always be made from again.

    requests ──► apply in order ──► write with what they changed ──► one commit, on disk ──► answers, updates

Who keeps the answers differs: an engine in this process (`embedded`), or a job on Spark (`relay`). In both a command
is applied before it is written, so that one judge says what is valid, and what it refuses is never written. Should
writing fail, the judge is ahead of the journal, and everything is recovered as after a crash. One thread at a time.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
import time
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any, Protocol

from nearcast.engine.stats import Stats
from nearcast.errors import NearcastError
from nearcast.model import Explanation, Id, Message, Result, Subscription, Update
from nearcast.partition import Region
from nearcast.service.commands import Command, Publish, Subscribe, joined
from nearcast.service.folder import DataFolder
from nearcast.service.journal import Cursor, JournaledUpdate, told
from nearcast.service.meters import Meters
from nearcast.service.problem import Problem, invalid

Answer = dict[str, Any]

_log = logging.getLogger(__name__)


class View(Protocol):
    """Who can be asked, between two commands; an engine can."""

    def results(self, subscription: Id) -> list[Result]:
        """Return what a result holds, best first."""

    def explain(self, subscription: Id, message: Message | Id) -> Explanation:
        """Say how a message fares for a subscription."""

    def preview(self, subscription: Subscription) -> list[Explanation]:
        """Say what a subscription would hold."""

    def stats(self) -> Stats:
        """Return counts."""

    def regions(self) -> list[Region]:
        """Return which part of space belongs to whom."""


Question = Callable[[View], Any]


@dataclass(frozen=True)
class RetentionConfig:
    """How much waits, and how much is kept."""

    most_waiting: int = 1_000
    """Orders; more are refused."""
    snapshot_every: int = 10_000
    """Commands, at least."""
    snapshot_share: float = 0.05
    """How much of the time may go into snapshots, during which commands wait."""
    seconds: float = 7 * 24 * 3600.0
    """How long updates can be asked for again, unless there are too many."""
    updates: int = 10_000_000
    """How many updates can be asked for again."""


@dataclass(frozen=True)
class Request:
    """A command, or a question; under a key a command is carried out once."""

    ask: Command | Question
    subscriber: str = ""
    key: str | None = None
    fingerprint: str = ""
    """What tells a command with a key from others."""

    @classmethod
    def under(cls, key: str | None, command: Command, subscriber: str) -> Request:
        """Return a request to carry out a command."""
        return cls(command, subscriber, key, "" if key is None else _fingerprint(command))


@dataclass(frozen=True)
class Done:
    """What requests came to."""

    answers: list[Any] = field(default_factory=list)
    """One each, in order; for those at fault, the error."""
    commands: list[Command] = field(default_factory=list)
    updates: list[JournaledUpdate] = field(default_factory=list)


class DurableStore(ABC):
    """Carries out requests, durably."""

    listens_every: float | None = None
    """Seconds after which there may be something to `listen` to; None if there never is."""

    def __init__(self, folder: DataFolder, *, meters: Meters, retention: RetentionConfig) -> None:
        self._folder, self._journal = folder, folder.journal
        self.world, self.reader = folder.world, folder.reader
        self._meters, self._retention = meters, retention
        self._position = Cursor(0, 0)
        self._seq = self._saved = self._next_save = 0
        self._stamp_us = 0
        self._rests_until = float("-inf")

    @property
    def position(self) -> Cursor:
        """The cursor behind everything that was carried out."""
        return self._position

    # -- what differs -------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def view(self) -> View:
        """Who answers questions."""

    @abstractmethod
    def recover(self) -> None:
        """Go on from what the journal tells."""

    @abstractmethod
    def _carry_out(self, command: Command) -> list[Update]:
        """Do something, or raise and change nothing; return what changed, in order."""

    @abstractmethod
    def _save(self) -> int:
        """Save what cannot be told from the journal quickly; return the command from which on that is needed."""

    def listen(self) -> Done:
        """Take in what happened elsewhere."""
        return Done()

    # -- requests -----------------------------------------------------------------------------------------------

    def settle(self, requests: Sequence[Request]) -> Done:
        """Carry out requests, all in one commit; if that raises, nothing has happened and `recover` is needed."""
        done = Done()
        with self._journal.transaction():
            for run in self._runs([self._stamped(request) for request in requests]):
                together = self._publish_together(run) if len(run) > 1 else None
                for i, request in enumerate(run):
                    done.answers.append(self._answer(request, done, None if together is None else together[i]))
            with self._meters.commit_seconds.time():
                self._journal.commit()
        self._count(done)
        return done

    def _count(self, done: Done) -> None:
        self._meters.updates.inc(len(done.updates))
        for command in done.commands:
            self._meters.commands.labels(command.kind).inc()
            self._meters.messages.inc(len(command.messages) if isinstance(command, Publish) else 0)

    def _stamped(self, request: Request) -> Request:
        """Return a request whose messages have a time, where each needs one: the moment they came."""
        command = request.ask
        if not (self.world.needs_time and isinstance(command, Publish)):
            return request
        if all("at" in body for body in command.messages):
            return request
        messages = []
        for body in command.messages:
            if "at" not in body:
                self._stamp_us = max(self._stamp_us + 1, time.time_ns() // 1_000)
                body = {**body, "at": self._stamp_us / 1e6}
            messages.append(body)
        return replace(request, ask=Publish(messages))

    def _runs(self, requests: Sequence[Request]) -> Iterator[list[Request]]:
        """Yield requests, those together that publish, follow each other and were not carried out before."""
        run: list[Request] = []
        keys: set[tuple[str, str]] = set()
        for request in requests:
            key = None if request.key is None else (request.subscriber, request.key)
            is_new = key is None or (key not in keys and self._journal.reply(*key, now=time.time()) is None)
            if not (is_new and isinstance(request.ask, Publish)):
                if run:
                    yield run
                yield [request]
                run, keys = [], set()
            else:
                run.append(request)
                keys |= set() if key is None else {key}
        if run:
            yield run

    def _publish_together(self, run: Sequence[Request]) -> list[list[Update]] | None:
        """Publish the messages of several requests at once, and return what each changed.

        A call for one message takes twenty times as long as a message among many. None if something is wrong with
        one of them: then nothing has happened, and each is to be tried for itself.
        """
        commands = [request.ask for request in run if isinstance(request.ask, Publish)]
        try:
            with self._meters.apply_seconds.time():
                changed = self._carry_out(joined(commands))
        except NearcastError:
            return None
        seqs = [update.seq for update in changed]
        ends = accumulate((len(command.messages) for command in commands), initial=self._seq)
        cuts = [bisect_right(seqs, end) for end in ends]
        return [changed[start:stop] for start, stop in pairwise(cuts)]

    def _answer(self, request: Request, done: Done, changed: list[Update] | None) -> Any:
        """Return what comes of an request, or the error that it is at fault for."""
        try:
            if callable(request.ask):
                return _asked(request.ask, self.view)
            return self._once(request.ask, request, done, changed)
        except (NearcastError, Problem) as error:
            self._meters.refused.inc()
            return error

    def _once(self, command: Command, request: Request, done: Done, changed: list[Update] | None) -> Answer:
        """Carry out a command, unless that was done under its key."""
        now = time.time()
        if request.key is None:
            return self._apply(command, done, changed, now=now)
        kept = self._journal.reply(request.subscriber, request.key, now=now)
        if kept is None:
            answer = self._apply(command, done, changed, now=now)
            self._journal.keep_reply(request.subscriber, request.key, request.fingerprint, answer, at=now)
            return answer
        if kept[0] != request.fingerprint:
            raise invalid("Idempotency-Key", "must not be used again for another request", request.key)
        return kept[1]  # type: ignore[no-any-return]

    def _apply(self, command: Command, done: Done, changed: list[Update] | None, *, now: float) -> Answer:
        """Apply a command, unless it was together with others, and write it down."""
        ids = [body["id"] for body in command.subscriptions] if isinstance(command, Subscribe) else []
        existing = self._journal.subscribed(command.subscriber, ids) if isinstance(command, Subscribe) else set()
        if changed is None:
            with self._meters.apply_seconds.time():
                changed = self._carry_out(command)
        self._append(command, changed, done, now=now)
        answer: Answer = {"command": self._position.command, "updates": self._told(changed)}
        if isinstance(command, Publish):
            answer |= {"messages": len(command.messages), "seq": self._seq}
        elif isinstance(command, Subscribe):
            answer |= {
                "created": [i for i in dict.fromkeys(ids) if i not in existing],
                "replaced": [i for i in dict.fromkeys(ids) if i in existing],
            }
        return answer

    def _told(self, changed: Sequence[Update]) -> int | None:
        """Return how many updates an answer speaks of; None if nobody knows yet."""
        return len(changed)

    def _append(self, command: Command, changed: Sequence[Update], done: Done, *, now: float) -> None:
        """Write down a command and what it changed."""
        number = self._position.command + 1
        updates = told(number, changed)
        self._journal.append(number, command, updates, first_seq=self._seq + 1, at=now)
        self._position = Cursor(number, len(updates))
        self._seq += len(command.messages) if isinstance(command, Publish) else 0
        done.commands.append(command)
        done.updates.extend(updates)

    # -- keeping ------------------------------------------------------------------------------------------------

    def save_if_due(self) -> None:
        """Save if many commands came since, and saving does not take too much of the time."""
        if self._position.command >= self._next_save and time.monotonic() >= self._rests_until:
            self.save()

    def save(self) -> None:
        """Save, and forget what is not needed any more; if that fails, the journal is longer meanwhile."""
        if self._position.command == self._saved:
            return
        now, retention = time.time(), self._retention
        self._next_save = self._position.command + retention.snapshot_every
        started = time.monotonic()
        try:
            with self._meters.snapshot_seconds.time():
                needed = self._save()
            took = time.monotonic() - started
            self._rests_until = started + took / retention.snapshot_share
            self._saved = self._position.command
            self._journal.prune(upto=needed, before=now - retention.seconds, most_updates=retention.updates, now=now)
        except (OSError, sqlite3.Error):
            _log.exception("nothing was saved; it is tried again after %d commands", retention.snapshot_every)

    def close(self) -> None:
        """Close everything; no readers must be left."""
        self._folder.close()


def _asked(question: Question, view: View) -> Any:
    """Return what is said to a question, or the error; it changes nothing, so whatever it is it stays here."""
    try:
        return question(view)
    except NearcastError:
        raise
    except Exception as error:
        return error


def _fingerprint(command: Command) -> str:
    """Return what tells a command from others."""
    text = json.dumps([command.kind, asdict(command)], sort_keys=True)  # type: ignore[call-overload]
    return hashlib.sha256(text.encode()).hexdigest()
