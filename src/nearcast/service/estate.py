"""What is owned? An engine and the journal that it can always be made from again.

    requests ──► apply in order ──► write with what they changed ──► one commit, on disk ──► answers, updates

A command is applied before it is written: the engine itself is the judge of what is valid, and what it refuses is
never written. Should writing fail, the engine is ahead of the journal; it is then to be recovered, as after a crash.
One thread at a time.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from nearcast.engine import Engine
from nearcast.errors import NearcastError, StateError
from nearcast.model import Update
from nearcast.service.commands import Command, Publish, Subscribe, engine_id, gathered, in_order, joined
from nearcast.service.journal import Cursor, Journal, Reader, Told, told
from nearcast.service.meters import Meters
from nearcast.service.problem import Problem, invalid
from nearcast.service.snapshots import Snapshots
from nearcast.service.world import World

Answer = dict[str, Any]
Question = Callable[[Engine], Any]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Keeping:
    """How much waits, and how much is kept."""

    most_waiting: int = 1_000
    """Orders; more are refused."""
    snapshot_every: int = 10_000
    """Commands."""
    seconds: float = 7 * 24 * 3600.0
    """How long updates can be asked for again, unless there are too many."""
    updates: int = 10_000_000
    """How many updates can be asked for again."""


@dataclass(frozen=True)
class Request:
    """A command, or a question to the engine; under a key a command is carried out once."""

    ask: Command | Question
    subscriber: str = ""
    key: str | None = None


@dataclass(frozen=True)
class Done:
    """What requests came to."""

    answers: list[Any] = field(default_factory=list)
    """One each, in order; for those at fault, the error."""
    commands: list[Command] = field(default_factory=list)
    updates: list[Told] = field(default_factory=list)


class Estate:
    """Carries out requests, durably."""

    def __init__(self, data: Path, world: World | None, *, meters: Meters, keeping: Keeping) -> None:
        """Open a data folder, or make it; without a world it must have one."""
        self._meters, self._keeping = meters, keeping
        if world is not None:
            world.engine().close()  # or say what is wrong with it, before it is noted
        data.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(data / "lock")
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise StateError(f"{data} is in use by another service") from None
        with ExitStack() as undo:
            undo.callback(self._lock.release)
            self._journal = Journal(data / "journal.sqlite")
            undo.callback(self._journal.close)
            self.world = self._same_world(world, data)
            self._snapshots = Snapshots(data / "snapshots")
            self.reader = Reader(data / "journal.sqlite")
            undo.pop_all()
        self._engine = self.world.engine()
        self._position = Cursor(0, 0)
        self._seq = self._saved = self._next_save = 0

    def _same_world(self, world: World | None, data: Path) -> World:
        noted = self._journal.meta("world")
        if noted is None:
            if world is None:
                raise StateError(f"{data} is new: say which world it is for, by bounds or a city")
            with self._journal.transaction():
                self._journal.note("world", world.noted())
            return world
        if world is not None:
            world.check_same(noted)
        return World.read(noted)

    @property
    def position(self) -> Cursor:
        """The cursor behind everything that was carried out."""
        return self._position

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
        self._next_save = self._saved + self._keeping.snapshot_every
        self._seq = engine.stats().messages

    def settle(self, requests: Sequence[Request]) -> Done:
        """Carry out requests, all in one commit; if that raises, nothing has happened and `recover` is needed."""
        done = Done()
        with self._journal.transaction():
            for run in self._runs(requests):
                together = self._publish_together(run) if len(run) > 1 else None
                for i, request in enumerate(run):
                    done.answers.append(self._answer(request, done, None if together is None else together[i]))
            with self._meters.commit_seconds.time():
                self._journal.commit()
        self._meters.updates.inc(len(done.updates))
        for command in done.commands:
            self._meters.commands.labels(command.kind).inc()
            self._meters.messages.inc(len(command.messages) if isinstance(command, Publish) else 0)
        return done

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
                changed = in_order(joined(commands).apply(self._engine))
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
                return _asked(request.ask, self._engine)
            return self._once(request.ask, request, done, changed)
        except (NearcastError, Problem) as error:
            self._meters.refused.inc()
            return error

    def _once(self, command: Command, request: Request, done: Done, changed: list[Update] | None) -> Answer:
        """Carry out a command, unless that was done under its key."""
        now = time.time()
        if request.key is None:
            return self._apply(command, done, changed, now=now)
        fingerprint, kept = _fingerprint(command), self._journal.reply(request.subscriber, request.key, now=now)
        if kept is None:
            answer = self._apply(command, done, changed, now=now)
            self._journal.keep_reply(request.subscriber, request.key, fingerprint, answer, at=now)
            return answer
        if kept[0] != fingerprint:
            raise invalid("Idempotency-Key", "must not be used again for another request", request.key)
        return kept[1]  # type: ignore[no-any-return]

    def _apply(self, command: Command, done: Done, changed: list[Update] | None, *, now: float) -> Answer:
        """Apply a command, unless it was together with others, and write it down."""
        existing = self._existing(command)
        if changed is None:
            with self._meters.apply_seconds.time():
                changed = in_order(command.apply(self._engine))
        number = self._position.command + 1
        updates = told(number, changed)
        self._journal.append(number, command, updates, first_seq=self._seq + 1, at=now)
        self._position = Cursor(number, len(updates))
        done.commands.append(command)
        done.updates.extend(updates)
        answer: Answer = {"command": number, "updates": len(updates)}
        if isinstance(command, Publish):
            self._seq += len(command.messages)
            answer |= {"messages": len(command.messages), "seq": self._seq}
        elif isinstance(command, Subscribe):
            ids = dict.fromkeys(body["id"] for body in command.subscriptions)
            answer |= {
                "created": [i for i in ids if i not in existing],
                "replaced": [i for i in ids if i in existing],
            }
        return answer

    def _existing(self, command: Command) -> set[str]:
        if not isinstance(command, Subscribe):
            return set()
        ids = (body["id"] for body in command.subscriptions)
        return {id_ for id_ in ids if engine_id(command.subscriber, id_) in self._engine}

    def save_if_due(self) -> None:
        """Save the engine if many commands came since."""
        if self._position.command >= self._next_save:
            self.save()

    def save(self) -> None:
        """Save the engine, and forget what is not needed any more; if that fails, the journal is longer meanwhile."""
        if self._position.command == self._saved:
            return
        now, keeping = time.time(), self._keeping
        self._next_save = self._position.command + keeping.snapshot_every
        try:
            with self._meters.snapshot_seconds.time():
                needed = self._snapshots.save(self._engine, self._position.command)
            self._saved = self._position.command
            self._journal.prune(upto=needed, before=now - keeping.seconds, most_updates=keeping.updates, now=now)
        except (OSError, sqlite3.Error):
            _log.exception("no snapshot was made; it is tried again after %d commands", keeping.snapshot_every)

    def close(self) -> None:
        """Close everything; no readers must be left."""
        self._engine.close()
        self.reader.close()
        self._journal.close()
        self._lock.release()


def _asked(question: Callable[[Engine], Any], engine: Engine) -> Any:
    """Return what an engine says, or the error; a question changes nothing, so whatever it is it stays here."""
    try:
        return question(engine)
    except NearcastError:
        raise
    except Exception as error:
        return error


def _fingerprint(command: Command) -> str:
    """Return what tells a command from others."""
    text = json.dumps([command.kind, asdict(command)], sort_keys=True)  # type: ignore[call-overload]
    return hashlib.sha256(text.encode()).hexdigest()
