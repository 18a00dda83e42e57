"""The command loop: the one thread that owns the durable store. All requests reach it through a queue.

    request ── queue ──► take all that wait ──► execute them in one commit ──► hand updates to the hub, answer

Nothing is answered or pushed before it is on disk. The event loop submits requests, receives answers and sees the
state of the loop. If execution fails, the waiting requests are answered with 503, and the store recovers. Of the
queue each subscriber has a share at most.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Literal, NamedTuple, Protocol

from nearcast.engine.clock import Clock
from nearcast.service.api.metrics import Metrics
from nearcast.service.api.problems import not_ready, queue_full
from nearcast.service.backends.backend import Backend, Query
from nearcast.service.backends.engine_backend import EngineBackend
from nearcast.service.backends.spark_backend import SparkBackend
from nearcast.service.commands import Command
from nearcast.service.config import ServiceConfig
from nearcast.service.push.hub import Hub
from nearcast.service.store.cursor import Cursor
from nearcast.service.store.data_folder import DataFolder
from nearcast.service.store.durable_store import (
    Answer,
    BatchResult,
    CommandRequest,
    DurableStore,
    ReadRequest,
    Request,
)
from nearcast.service.store.journal import JournaledUpdate
from nearcast.service.store.limits import ServiceLimits

State = Literal["recovering", "serving", "failed", "stopped"]

_MAX_BATCH = 1_000  # requests per commit
_RECOVERING = "the service is reading its journal; try again in a moment"
_log = logging.getLogger(__name__)


class _PendingRequest(NamedTuple):
    """A request and the future of its answer."""

    request: Request
    answer: asyncio.Future[Any]
    subscriber: str


class Preparation(Protocol):
    """What a service does before it reads its journal."""

    def __call__(self, config: ServiceConfig, report: Callable[[str], None], is_stopping: Callable[[], bool]) -> None:
        """Prepare, reporting what is under way, and return early if the service is stopping."""


class CommandLoop:
    """Executes requests, one batch after the other."""

    def __init__(
        self,
        data: Path,
        config: ServiceConfig | None,
        *,
        hub: Hub,
        metrics: Metrics,
        limits: ServiceLimits | None = None,
        prepare: Preparation | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Open or create a data folder; without a configuration it must have recorded one.

        `prepare` is called before anything else, in the thread, while requests are answered with its progress.
        """
        self.state: State = "recovering"
        self.state_detail = _RECOVERING
        self._hub, self._metrics, self._prepare = hub, metrics, prepare
        self._is_stopping = False
        limits = limits or ServiceLimits()
        folder = DataFolder(data, config)
        backend = _backend_of(folder, metrics)
        self._store = DurableStore(folder, backend, metrics=metrics, limits=limits, clock=clock)
        self.config, self.reader = self._store.config, self._store.reader
        self._max_waiting, self._n_waiting = limits.max_waiting, 0
        self._max_waiting_each, self._waiting = limits.max_waiting_each, Counter[str]()
        self._queue: SimpleQueue[_PendingRequest | None] = SimpleQueue()
        self._has_room, self._is_settled = asyncio.Event(), asyncio.Event()
        self._thread: Thread | None = None

    # -- on the event loop --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread; the running event loop receives its answers."""
        self._event_loop = asyncio.get_running_loop()
        self._thread = Thread(target=self._run, name="command-loop")
        self._thread.start()

    def _set_state(self, state: State, detail: str) -> None:
        self.state, self.state_detail = state, detail
        if state == "recovering":
            self._is_settled.clear()
        else:
            self._is_settled.set()

    def check_ready(self) -> None:
        """Raise a `Problem` unless the service is ready."""
        if self.state != "serving":
            raise not_ready(self.state_detail)

    @property
    def is_disk_full(self) -> bool:
        """True if the service only reads, for lack of space."""
        return self._store.is_disk_full

    @property
    def is_reporting(self) -> bool:
        """False until the job behind the service has reported a batch."""
        return self._store.is_reporting

    async def wait_recovered(self) -> State:
        """Wait until recovery has succeeded or failed, and return the state."""
        await self._is_settled.wait()
        return self.state

    async def stop(self) -> None:
        """Execute the waiting requests, save the backend and close everything."""
        self._is_stopping = True
        if self._thread is not None:
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)
        self._store.close()

    async def execute(
        self, command: Command, *, subscriber: str, key: str | None = None, wait_for_room: bool = False
    ) -> Answer:
        """Execute a command and return its answer once it is on disk.

        Under a key the same command is executed once, and repeats get the same answer. If the queue is full, the
        command is rejected, or waits with `wait_for_room`.
        """
        while wait_for_room and self._limit_reached(subscriber):
            self._has_room.clear()
            await self._has_room.wait()
        request = CommandRequest.of(command, subscriber=subscriber, key=key)
        return await self._submit(request, subscriber)  # type: ignore[no-any-return]

    async def read(self, query: Query, *, subscriber: str = "") -> Any:
        """Run a query on the backend between two commands and return its value; by default for the service itself."""
        return await self._submit(ReadRequest(query), subscriber)

    def _limit_reached(self, subscriber: str) -> int | None:
        """Return the limit that leaves no room in the queue, if one does."""
        if self._waiting[subscriber] >= self._max_waiting_each:
            return self._max_waiting_each
        return self._max_waiting if self._n_waiting >= self._max_waiting else None

    async def _submit(self, request: Request, subscriber: str) -> Any:
        self.check_ready()
        if (limit := self._limit_reached(subscriber)) is not None:
            raise queue_full(limit)
        pending = _PendingRequest(request, self._event_loop.create_future(), subscriber)
        self._n_waiting += 1
        self._waiting[subscriber] += 1
        self._metrics.waiting.set(self._n_waiting)
        self._queue.put(pending)
        return await pending.answer

    def _deliver(
        self,
        updates: Sequence[JournaledUpdate],
        position: Cursor | None,
        answers: Sequence[tuple[_PendingRequest, Any]],
    ) -> None:
        """Hand committed updates to the hub and answer requests."""
        if position is not None:
            self._hub.publish(updates, position)
        for pending, answer in answers:
            if pending.answer.done():  # cancelled
                continue
            if isinstance(answer, BaseException):
                pending.answer.set_exception(answer)
            else:
                pending.answer.set_result(answer)
        self._n_waiting -= len(answers)
        self._waiting -= Counter(pending.subscriber for pending, _ in answers)  # drops those that have none left
        self._metrics.waiting.set(self._n_waiting)
        self._has_room.set()

    def _reject_waiting(self) -> None:
        """Reject the requests that came too late; on the event loop, which submits them."""
        late: list[tuple[_PendingRequest, Any]] = []
        while not self._queue.empty():
            if (pending := self._queue.get()) is not None:
                late.append((pending, not_ready(self.state_detail)))
        self._deliver((), None, late)

    # -- in the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            if self._prepare is not None:
                self._prepare(self.config, self._report_progress, lambda: self._is_stopping)
            if not self._is_stopping:
                self._serve()
            self._event_loop.call_soon_threadsafe(self._set_state, "stopped", "the service is stopping")
        except Exception as error:
            _log.exception("the service cannot continue")
            detail = f"the service cannot continue: {error}"
            self._event_loop.call_soon_threadsafe(self._set_state, "failed", detail)
        finally:
            self._event_loop.call_soon_threadsafe(self._reject_waiting)

    def _report_progress(self, detail: str) -> None:
        self._event_loop.call_soon_threadsafe(self._set_state, "recovering", detail)

    def _serve(self) -> None:
        """Execute requests until a request to stop."""
        self._recover()
        while (batch := self._take_batch()) is not None:
            if batch:
                self._execute_batch(batch)
            self._attempt(lambda: self._store.advance(self._hand_over), [])
            self._poll()
            self._store.save_if_due()
        self._store.save()

    def _recover(self) -> None:
        self._store.recover()
        self._event_loop.call_soon_threadsafe(self._hub.publish, (), self._store.position)
        self._store.finish(self._hand_over)
        self._event_loop.call_soon_threadsafe(self._set_state, "serving", "")

    def _take_batch(self) -> list[_PendingRequest] | None:
        """Wait for requests and return all that wait, or none when other work is due; None to stop."""
        try:
            first = self._queue.get(timeout=self._store.idle_s)
        except Empty:
            return []
        if first is None:
            return None
        batch = [first]
        try:
            while len(batch) < _MAX_BATCH:
                pending = self._queue.get_nowait()
                if pending is None:
                    self._queue.put(None)  # stop after this batch
                    break
                batch.append(pending)
        except Empty:
            pass
        return batch

    def _execute_batch(self, batch: Sequence[_PendingRequest]) -> None:
        """Execute requests and answer them."""
        unanswered = list(batch)

        def deliver(result: BatchResult) -> None:
            n = len(result.answers)
            answered, unanswered[:] = unanswered[:n], unanswered[n:]
            self._hand_over(result, answered)

        self._attempt(lambda: self._store.execute([pending.request for pending in batch], deliver), unanswered)

    def _hand_over(self, result: BatchResult, answered: Sequence[_PendingRequest] = ()) -> None:
        """Hand the outcome of a commit to the event loop."""
        answers = list(zip(answered, result.answers, strict=True))
        position = self._store.position if result.commands or answers else None
        self._event_loop.call_soon_threadsafe(self._deliver, result.updates, position, answers)

    def _poll(self) -> None:
        """Deliver updates that a job elsewhere has computed."""
        self._attempt(lambda: self._store.poll(self._hand_over), [])

    def _attempt(self, write: Callable[[], None], unanswered: Sequence[_PendingRequest]) -> None:
        """Write something; if that fails, answer the requests that are left with 503 and recover."""
        try:
            write()
        except Exception as error:
            _log.exception("what was not committed is undone; restoring the backend from the journal")
            failure = not_ready(f"the request failed and the service is recovering: {error}")
            failed = [(pending, failure) for pending in unanswered]
            self._event_loop.call_soon_threadsafe(self._set_state, "recovering", _RECOVERING)
            self._event_loop.call_soon_threadsafe(self._deliver, (), None, failed)
            self._recover()


def _backend_of(folder: DataFolder, metrics: Metrics) -> Backend:
    if folder.config.job is None:
        return EngineBackend(folder)
    return SparkBackend(folder, metrics=metrics)
