"""The durable store: a journal, and a backend whose state the journal can always restore.

    requests ──► apply in order ──► write with their updates ──► one commit, on disk ──► answers, updates

A command is applied before it is written: the backend alone decides what is valid, and a rejected command is never
written. If writing fails, the backend is ahead of the journal and everything is recovered as after a crash. One
thread at a time.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any

from nearcast.errors import InvalidInput, NearcastError
from nearcast.model import Update
from nearcast.service.api.metrics import Metrics
from nearcast.service.backends.backend import Backend, Query, View
from nearcast.service.commands import Command, Ingest, canonical_order, merge
from nearcast.service.store.cursor import START, Cursor
from nearcast.service.store.data_folder import DataFolder
from nearcast.service.store.journal import JournaledUpdate, assign_cursors
from nearcast.service.store.retention import RetentionConfig

Answer = dict[str, Any]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CommandRequest:
    """A request to execute a command; under a key it is executed once."""

    command: Command
    subscriber: str = ""
    key: str | None = None
    fingerprint: str = ""
    """Distinguishes the requests of one key."""

    @classmethod
    def of(cls, command: Command, *, subscriber: str, key: str | None = None) -> CommandRequest:
        """Return the request of a command."""
        return cls(command, subscriber, key, "" if key is None else command.fingerprint())


@dataclass(frozen=True)
class ReadRequest:
    """A request that reads and changes nothing."""

    query: Query

    def answer(self, view: View) -> Any:
        """Return the answer, or the error of a query that failed: it changed nothing, so the store goes on."""
        try:
            return self.query(view)
        except Exception as error:
            return error


Request = CommandRequest | ReadRequest


@dataclass(frozen=True)
class BatchResult:
    """The outcome of a batch of requests."""

    answers: list[Any] = field(default_factory=list)
    """One per request, in order; the error, if a request was rejected."""
    commands: list[Command] = field(default_factory=list)
    updates: list[JournaledUpdate] = field(default_factory=list)


class DurableStore:
    """Executes requests durably."""

    def __init__(self, folder: DataFolder, backend: Backend, *, metrics: Metrics, retention: RetentionConfig) -> None:
        self._folder, self._journal, self._backend = folder, folder.journal, backend
        self.config, self.reader = folder.config, folder.reader
        self._metrics, self._retention = metrics, retention
        self._position = START
        self._seq = self._saved = self._next_save = 0
        self._last_time_us = 0
        self._next_save_time = float("-inf")

    @property
    def position(self) -> Cursor:
        """The cursor after the last command."""
        return self._position

    @property
    def view(self) -> View:
        """Read access to the current results."""
        return self._backend.view

    @property
    def poll_interval_s(self) -> float | None:
        """How often to call `poll`; None if never."""
        return self._backend.poll_interval_s

    def recover(self) -> None:
        """Restore the backend from the journal."""
        self._position = self._journal.position()
        self._seq, self._saved = self._backend.recover(up_to=self._position.command)
        self._next_save = self._saved + self._retention.snapshot_every

    # -- requests -----------------------------------------------------------------------------------------------

    def execute(self, requests: Sequence[Request]) -> BatchResult:
        """Execute requests in one commit; if that raises, nothing has happened and `recover` must follow."""
        result = BatchResult()
        with self._journal.transaction():
            for group in self._groups(requests):
                merged = self._apply_merged(group) if len(group) > 1 else None
                for i, request in enumerate(group):
                    result.answers.append(self._answer(request, result, None if merged is None else merged[i]))
            with self._metrics.commit_seconds.time():
                self._journal.commit()
        self._count(result)
        return result

    def poll(self) -> BatchResult:
        """Exchange data with the job of the backend, if it is time to."""
        result = BatchResult()
        output = self._backend.poll(up_to=self._position.command)
        if output.files:
            with self._journal.transaction():
                updates = self._backend.ingest(output)
                if updates:
                    self._append(Ingest(output.files), updates, result, now=time.time())
            self._count(result)
        return result

    def _count(self, result: BatchResult) -> None:
        self._metrics.updates.inc(len(result.updates))
        for command in result.commands:
            self._metrics.commands.labels(command.name).inc()
            self._metrics.messages.inc(len(command.bodies()))

    def _groups(self, requests: Sequence[Request]) -> Iterator[list[Request]]:
        """Yield adjacent mergeable commands that were not executed before as one group, all other requests alone."""
        group: list[Request] = []
        keys: set[tuple[str, str]] = set()
        for request in map(self._with_times, requests):
            if isinstance(request, CommandRequest) and request.command.is_mergeable and self._is_new(request, keys):
                group.append(request)
                continue
            if group:
                yield group
            yield [request]
            group, keys = [], set()
        if group:
            yield group

    def _is_new(self, request: CommandRequest, keys: set[tuple[str, str]]) -> bool:
        """Return whether a request was not executed under its key, nor is among `keys`; add its key to them."""
        if request.key is None:
            return True
        key = (request.subscriber, request.key)
        if key in keys or self._journal.reply(*key, now=time.time()) is not None:
            return False
        keys.add(key)
        return True

    def _with_times(self, request: Request) -> Request:
        """Return a request whose messages have a time, if each needs one: the time of their arrival."""
        if not (self.config.needs_time and isinstance(request, CommandRequest)):
            return request
        return replace(request, command=request.command.with_times(self._next_time))

    def _next_time(self) -> float:
        """Return the current time, later than any before."""
        self._last_time_us = max(self._last_time_us + 1, time.time_ns() // 1_000)
        return self._last_time_us / 1e6

    def _apply_merged(self, group: Sequence[Request]) -> list[list[Update]] | None:
        """Publish the messages of several requests in one call and return the updates of each.

        A call for one message takes twenty times as long as one message of a large call. Return None if any message
        is invalid: then nothing has happened, and each request must be applied on its own.
        """
        commands = [request.command for request in group if isinstance(request, CommandRequest)]
        try:
            with self._metrics.apply_seconds.time():
                updates = canonical_order(merge(commands).apply(self._backend))
        except NearcastError:
            return None
        seqs = [update.seq for update in updates]
        ends = accumulate((len(command.bodies()) for command in commands), initial=self._seq)
        cuts = [bisect_right(seqs, end) for end in ends]
        return [updates[start:stop] for start, stop in pairwise(cuts)]

    def _answer(self, request: Request, result: BatchResult, updates: list[Update] | None) -> Any:
        """Return the answer to a request, or the error if it is rejected."""
        if isinstance(request, ReadRequest):
            answer = request.answer(self.view)
            self._metrics.rejected.inc(isinstance(answer, NearcastError))
            return answer
        try:
            return self._execute_once(request, result, updates)
        except NearcastError as error:
            self._metrics.rejected.inc()
            return error

    def _execute_once(self, request: CommandRequest, result: BatchResult, updates: list[Update] | None) -> Answer:
        """Execute a command, unless it was executed under its key; return its answer."""
        now = time.time()
        if request.key is None:
            return self._execute(request.command, result, updates, now=now)
        stored = self._journal.reply(request.subscriber, request.key, now=now)
        if stored is None:
            answer = self._execute(request.command, result, updates, now=now)
            self._journal.store_reply(request.subscriber, request.key, request.fingerprint, answer, at=now)
            return answer
        fingerprint, stored_answer = stored
        if fingerprint != request.fingerprint:
            raise InvalidInput("Idempotency-Key", "must not be reused for a different request", request.key)
        return stored_answer  # type: ignore[no-any-return]

    def _execute(self, command: Command, result: BatchResult, updates: list[Update] | None, *, now: float) -> Answer:
        """Apply a command, unless `updates` of a merged call are given, and write it."""
        replaced = command.replaced_ids(self._journal)
        if updates is None:
            with self._metrics.apply_seconds.time():
                updates = canonical_order(command.apply(self._backend))
        self._append(command, updates, result, now=now)
        n_updates = len(updates) if self._backend.returns_updates else None
        answer: Answer = {"command": self._position.command, "updates": n_updates}
        return answer | command.reply(replaced=replaced, last_seq=self._seq)

    def _append(self, command: Command, updates: Sequence[Update], result: BatchResult, *, now: float) -> None:
        """Write a command and its updates."""
        number = self._position.command + 1
        journaled = assign_cursors(number, updates)
        self._journal.append(number, command, journaled, first_seq=self._seq + 1, at=now)
        self._position = Cursor(number, len(journaled))
        self._seq += len(command.bodies())
        result.commands.append(command)
        result.updates.extend(journaled)

    # -- saving -------------------------------------------------------------------------------------------------

    def save_if_due(self) -> None:
        """Save if enough commands came since the last time and saving takes no more than its share of the time."""
        if self._position.command >= self._next_save and time.monotonic() >= self._next_save_time:
            self.save()

    def save(self) -> None:
        """Save the backend and prune the journal; if that fails, the journal only grows longer meanwhile."""
        if self._position.command == self._saved:
            return
        now, retention = time.time(), self._retention
        self._next_save = self._position.command + retention.snapshot_every
        start = time.monotonic()
        try:
            with self._metrics.snapshot_seconds.time():
                needed = self._backend.save(self._position.command)
            duration = time.monotonic() - start
            self._next_save_time = start + duration / retention.snapshot_share
            self._saved = self._position.command
            self._journal.prune(
                up_to=needed, before=now - retention.max_age_s, max_updates=retention.max_updates, now=now
            )
        except (OSError, sqlite3.Error):
            _log.exception("saving failed; trying again after %d commands", retention.snapshot_every)

    def close(self) -> None:
        """Close the backend and all files; no readers may be left."""
        self._backend.close()
        self._folder.close()
