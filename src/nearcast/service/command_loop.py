"""Who carries out what clients ask? One thread, the steward, which has the estate; everyone else leaves an order.

    order ── queue ──► take all that wait ──► settle them with one commit ──► tell the hub, answer

Nobody hears of anything before it is on disk. What others see of the steward happens on the event loop: orders and
answers, and the state it is in. If settling fails, those who waited are told to try again, and the estate recovers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Literal, NamedTuple

from nearcast.service.commands import Command
from nearcast.service.config import ServiceConfig
from nearcast.service.durable_store import Answer, Done, DurableStore, Question, Request, RetentionConfig
from nearcast.service.engine_backend import EngineBackend
from nearcast.service.folder import DataFolder
from nearcast.service.hub import Hub
from nearcast.service.journal import Cursor, JournaledUpdate
from nearcast.service.meters import Meters
from nearcast.service.problem import busy, not_ready
from nearcast.service.spark_backend import SparkBackend

State = Literal["recovering", "serving", "failed", "stopped"]

_MOST_AT_ONCE = 1_000  # orders of one commit
_RECOVERING = "the service reads its journal; try again in a moment"
_log = logging.getLogger(__name__)


class _Order(NamedTuple):
    """A request, and who waits for the answer."""

    request: Request
    answer: asyncio.Future[Any]


class CommandLoop:
    """Carries out orders, one batch after the other."""

    def __init__(
        self,
        data: Path,
        world: ServiceConfig | None,
        *,
        hub: Hub,
        meters: Meters,
        retention: RetentionConfig | None = None,
    ) -> None:
        """Take over a data folder, or make it; without a world it must have one."""
        self.state: State = "recovering"
        self.why = _RECOVERING
        self._hub, self._meters = hub, meters
        retention = retention or RetentionConfig()
        folder = DataFolder(data, world)
        kind = EngineBackend if folder.world.job is None else SparkBackend
        self._store: DurableStore = kind(folder, meters=meters, retention=retention)
        self.world, self.reader = self._store.world, self._store.reader
        self._most_waiting, self._waiting = retention.most_waiting, 0
        self._orders: SimpleQueue[_Order | None] = SimpleQueue()
        self._room, self._settled = asyncio.Event(), asyncio.Event()
        self._thread: Thread | None = None

    # -- on the event loop --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Let the thread run; the loop that is running now gets its answers."""
        self._loop = asyncio.get_running_loop()
        self._thread = Thread(target=self._run, name="command_loop")
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

    async def freezing_gc(self) -> State:
        """Wait until the service has recovered, or cannot; return which."""
        await self._settled.wait()
        return self.state

    async def stop(self) -> None:
        """Carry out what waits, save the engine and close everything."""
        if self._thread is not None:
            self._orders.put(None)
            await asyncio.to_thread(self._thread.join)
        self._store.close()

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
        return await self._order(Request.under(key, command, subscriber))  # type: ignore[no-any-return]

    async def ask(self, question: Question) -> Any:
        """Return what the engine has to say between two commands."""
        return await self._order(Request(question))

    def _is_full(self) -> bool:
        return self._waiting >= self._most_waiting

    async def _order(self, request: Request) -> Any:
        self.check_ready()
        if self._is_full():
            raise busy(self._most_waiting)
        order = _Order(request, self._loop.create_future())
        self._waiting += 1
        self._meters.waiting.set(self._waiting)
        self._orders.put(order)
        return await order.answer

    def _deliver(
        self, updates: Sequence[JournaledUpdate], position: Cursor | None, answers: Sequence[tuple[_Order, Any]]
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

    def _turn_away(self) -> None:
        """Answer those who came too late; on the event loop, where orders come from."""
        left: list[tuple[_Order, Any]] = []
        while not self._orders.empty():
            if (order := self._orders.get()) is not None:
                left.append((order, not_ready(self.why)))
        self._deliver((), None, left)

    # -- in the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._recover()
            while (orders := self._take()) is not None:
                if orders:
                    self._settle(orders)
                self._listen()
                self._store.save_if_due()
            self._store.save()
            self._loop.call_soon_threadsafe(self._become, "stopped", "the service stops")
        except Exception as error:
            _log.exception("the service cannot go on")
            self._loop.call_soon_threadsafe(self._become, "failed", f"the service cannot go on: {error}")
        finally:
            self._loop.call_soon_threadsafe(self._turn_away)

    def _recover(self) -> None:
        self._store.recover()
        self._loop.call_soon_threadsafe(self._hub.tell, (), self._store.position)
        self._loop.call_soon_threadsafe(self._become, "serving", "")

    def _take(self) -> list[_Order] | None:
        """Return all orders that wait, when there are some, or none when it is time to listen; None to stop."""
        try:
            first = self._orders.get(timeout=self._store.listens_every)
        except Empty:
            return []
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
        """Carry out orders and answer them."""
        done = self._do(lambda: self._store.settle([order.request for order in orders]), orders)
        if done is not None:
            answered = list(zip(orders, done.answers, strict=True))
            self._loop.call_soon_threadsafe(self._deliver, done.updates, self._store.position, answered)

    def _listen(self) -> None:
        """Pass on what happened elsewhere."""
        done = self._do(self._store.listen, ())
        if done is not None and done.commands:
            self._loop.call_soon_threadsafe(self._deliver, done.updates, self._store.position, ())

    def _do(self, work: Callable[[], Done], orders: Sequence[_Order]) -> Done | None:
        """Do something that is to be written, and return what came of it; if that fails, recover."""
        try:
            return work()
        except Exception as error:
            _log.exception("nothing was written; the engine is made anew from the journal")
            failed = not_ready(f"the service could not do this, and recovers: {error}")
            self._loop.call_soon_threadsafe(self._become, "recovering", _RECOVERING)
            self._loop.call_soon_threadsafe(self._deliver, (), None, [(order, failed) for order in orders])
            self._recover()
            return None
