"""Who owns the engine and the journal? One thread, the steward; everyone else leaves an order and waits.

    order ── queue ──► take all that wait ──► apply in order ──► one commit, on disk ──► tell, answer

A command is applied before it is written: the engine itself is the judge of what is valid, and what it refuses is
never written. Nobody hears of anything before it is on disk. Should writing fail, the engine is ahead of the journal;
then it is made anew from the journal, as after a crash, and those who waited are told to try again.
"""

from __future__ import annotations

import asyncio
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
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Literal

from filelock import FileLock, Timeout

from nearcast.engine import Engine
from nearcast.errors import NearcastError, StateError
from nearcast.model import Update
from nearcast.service.commands import Command, Publish, Subscribe, engine_id, gathered, in_order, joined
from nearcast.service.hub import Hub
from nearcast.service.journal import Cursor, Journal, Reader, Told, told
from nearcast.service.meters import Meters
from nearcast.service.problem import Problem, busy, invalid, not_ready
from nearcast.service.snapshots import Snapshots
from nearcast.service.world import World

Answer = dict[str, Any]
State = Literal["recovering", "serving", "failed", "stopped"]

_MOST_AT_ONCE = 1_000  # orders of one commit
_RECOVERING = "the service reads its journal; try again in a moment"
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
class _Order:
    """A command, or a question to the engine, and who waits for the answer."""

    ask: Command | Callable[[Engine], Any]
    answer: asyncio.Future[Any]
    subscriber: str = ""
    key: str | None = None


@dataclass(frozen=True)
class _Done:
    """What a batch of orders comes to."""

    commands: list[Command] = field(default_factory=list)
    updates: list[Told] = field(default_factory=list)


class Steward:
    """Carries out orders, durably."""

    def __init__(
        self, data: Path, world: World | None, *, hub: Hub, meters: Meters, keeping: Keeping | None = None
    ) -> None:
        """Open a data folder, or make it; without a world it must have one."""
        self.state: State = "recovering"
        self.why = _RECOVERING
        self._hub, self._meters, self._keeping = hub, meters, keeping or Keeping()
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
        self._engine: Engine
        self._position = Cursor(0, 0)
        self._seq = self._saved = self._next_save = 0
        self._orders: SimpleQueue[_Order | None] = SimpleQueue()
        self._waiting = 0
        self._room, self._settled = asyncio.Event(), asyncio.Event()
        self._thread: Thread | None = None

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

    # -- on the event loop --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Let the thread run; the loop that is running now gets its answers."""
        self._loop = asyncio.get_running_loop()
        self._thread = Thread(target=self._run, name="steward")
        self._thread.start()

    def _become(self, state: State, why: str) -> None:
        self.state, self.why = state, why
        if state == "recovering":
            self._settled.clear()
        else:
            self._settled.set()

    def check_ready(self) -> None:
        """Raise the problem of a service that is not up."""
        if self.state != "serving":
            raise not_ready(self.why)

    async def settled(self) -> State:
        """Wait until the service has recovered, or cannot; return which."""
        await self._settled.wait()
        return self.state

    async def stop(self) -> None:
        """Carry out what waits, save the engine and close everything."""
        if self._thread is not None:
            self._orders.put(None)
            await asyncio.to_thread(self._thread.join)
        self.reader.close()
        self._journal.close()
        self._lock.release()

    async def carry_out(
        self, command: Command, *, subscriber: str, key: str | None = None, patient: bool = False
    ) -> Answer:
        """Do something and return what came of it; then it is on disk.

        Under a key the same command is carried out once, and answered alike again. Where too much waits it is
        refused, unless the caller is patient.
        """
        while patient and self._is_full():
            self._room.clear()
            await self._room.wait()
        return await self._order(command, subscriber, key)  # type: ignore[no-any-return]

    async def ask(self, question: Callable[[Engine], Any]) -> Any:
        """Return what the engine has to say between two commands."""
        return await self._order(question, "", None)

    def _is_full(self) -> bool:
        return self._waiting >= self._keeping.most_waiting

    async def _order(self, ask: Command | Callable[[Engine], Any], subscriber: str, key: str | None) -> Any:
        self.check_ready()
        if self._is_full():
            raise busy(self._keeping.most_waiting)
        order = _Order(ask, self._loop.create_future(), subscriber, key)
        self._waiting += 1
        self._meters.waiting.set(self._waiting)
        self._orders.put(order)
        return await order.answer

    def _deliver(
        self, updates: Sequence[Told], position: Cursor | None, answers: Sequence[tuple[_Order, Any]]
    ) -> None:
        if position is not None:
            self._hub.tell(updates, position)
        for order, answer in answers:
            if order.answer.done():  # nobody waits any more
                continue
            if isinstance(answer, BaseException):
                order.answer.set_exception(answer)
            else:
                order.answer.set_result(answer)
        self._waiting -= len(answers)
        self._meters.waiting.set(self._waiting)
        self._room.set()

    # -- in the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._recover()
            while (orders := self._take()) is not None:
                self._settle(orders)
                if self._position.command >= self._next_save:
                    self._save()
            if self._position.command > self._saved:
                self._save()
            self._engine.close()
            self._loop.call_soon_threadsafe(self._become, "stopped", "the service stops")
        except Exception as error:
            _log.exception("the service cannot go on")
            self._loop.call_soon_threadsafe(self._become, "failed", f"the service cannot go on: {error}")
        finally:
            self._loop.call_soon_threadsafe(self._turn_away)

    def _take(self) -> list[_Order] | None:
        """Return all orders that wait, when there are some; None to stop."""
        first = self._orders.get()
        if first is None:
            return None
        taken = [first]
        try:
            while len(taken) < _MOST_AT_ONCE:
                order = self._orders.get_nowait()
                if order is None:
                    self._orders.put(None)  # after these
                    break
                taken.append(order)
        except Empty:
            pass
        return taken

    def _settle(self, orders: Sequence[_Order]) -> None:
        """Carry out orders and answer them, all in one commit."""
        done = _Done()
        try:
            with self._journal.transaction():
                answers = list(self._answers(orders, done))
                with self._meters.commit_seconds.time():
                    self._journal.commit()
        except Exception as error:
            _log.exception("nothing was written; the engine is made anew from the journal")
            failed = not_ready(f"the service could not do this, and recovers: {error}")
            self._loop.call_soon_threadsafe(self._become, "recovering", _RECOVERING)
            self._loop.call_soon_threadsafe(self._deliver, (), None, [(order, failed) for order in orders])
            self._engine.close()
            self._recover()
            return
        self._loop.call_soon_threadsafe(self._deliver, done.updates, self._position, answers)
        self._meters.updates.inc(len(done.updates))
        for command in done.commands:
            self._meters.commands.labels(command.kind).inc()
            self._meters.messages.inc(len(command.messages) if isinstance(command, Publish) else 0)

    def _answers(self, orders: Sequence[_Order], done: _Done) -> Iterator[tuple[_Order, Any]]:
        for run in self._runs(orders):
            together = self._publish_together(run) if len(run) > 1 else None
            for i, order in enumerate(run):
                yield order, self._answer(order, done, None if together is None else together[i])

    def _runs(self, orders: Sequence[_Order]) -> Iterator[list[_Order]]:
        """Yield orders, those together that publish, follow each other and were not carried out before."""
        run: list[_Order] = []
        keys: set[tuple[str, str]] = set()
        for order in orders:
            key = None if order.key is None else (order.subscriber, order.key)
            is_new = key is None or (key not in keys and self._journal.reply(*key, now=time.time()) is None)
            if not (is_new and isinstance(order.ask, Publish)):
                if run:
                    yield run
                yield [order]
                run, keys = [], set()
            else:
                run.append(order)
                keys |= set() if key is None else {key}
        if run:
            yield run

    def _publish_together(self, run: Sequence[_Order]) -> list[list[Update]] | None:
        """Publish the messages of several orders at once, and return what each changed.

        A call for one message takes twenty times as long as a message among many. None if something is wrong with
        one of them: then nothing has happened, and each is to be tried for itself.
        """
        commands = [order.ask for order in run if isinstance(order.ask, Publish)]
        try:
            with self._meters.apply_seconds.time():
                changed = in_order(joined(commands).apply(self._engine))
        except NearcastError:
            return None
        seqs = [update.seq for update in changed]
        ends = accumulate((len(command.messages) for command in commands), initial=self._seq)
        cuts = [bisect_right(seqs, end) for end in ends]
        return [changed[start:stop] for start, stop in pairwise(cuts)]

    def _answer(self, order: _Order, done: _Done, changed: list[Update] | None) -> Any:
        """Return what comes of an order, or the error that it is at fault for."""
        try:
            if callable(order.ask):
                return _asked(order.ask, self._engine)
            return self._once(order.ask, order, done, changed)
        except (NearcastError, Problem) as error:
            self._meters.refused.inc()
            return error

    def _once(self, command: Command, order: _Order, done: _Done, changed: list[Update] | None) -> Answer:
        """Carry out a command, unless that was done under its key."""
        now = time.time()
        if order.key is None:
            return self._apply(command, done, changed, now=now)
        request, kept = _fingerprint(command), self._journal.reply(order.subscriber, order.key, now=now)
        if kept is None:
            answer = self._apply(command, done, changed, now=now)
            self._journal.keep_reply(order.subscriber, order.key, request, answer, at=now)
            return answer
        if kept[0] != request:
            raise invalid("Idempotency-Key", "must not be used again for another request", order.key)
        return kept[1]  # type: ignore[no-any-return]

    def _apply(self, command: Command, done: _Done, changed: list[Update] | None, *, now: float) -> Answer:
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

    def _recover(self) -> None:
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
        self._engine = engine
        self._next_save = self._saved + self._keeping.snapshot_every
        self._seq = engine.stats().messages
        self._loop.call_soon_threadsafe(self._hub.tell, (), self._position)
        self._loop.call_soon_threadsafe(self._become, "serving", "")

    def _save(self) -> None:
        """Save the engine, and forget what is not needed any more; if that fails, the journal is longer meanwhile."""
        now, keeping = time.time(), self._keeping
        self._next_save = self._position.command + keeping.snapshot_every
        try:
            with self._meters.snapshot_seconds.time():
                needed = self._snapshots.save(self._engine, self._position.command)
            self._saved = self._position.command
            self._journal.prune(upto=needed, before=now - keeping.seconds, most_updates=keeping.updates, now=now)
        except (OSError, sqlite3.Error):
            _log.exception("no snapshot was made; it is tried again after %d commands", keeping.snapshot_every)

    def _turn_away(self) -> None:
        """Answer those who came too late; on the event loop, where orders come from."""
        left: list[tuple[_Order, Any]] = []
        while not self._orders.empty():
            if (order := self._orders.get()) is not None:
                left.append((order, not_ready(self.why)))
        self._deliver((), None, left)


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
