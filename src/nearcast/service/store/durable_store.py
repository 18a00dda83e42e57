"""The durable store: a journal, and a backend whose state the journal can always restore.

    requests ──► apply in order ──► write with their updates ──► one commit, on disk ──► answers, updates

A command is applied before it is written: the backend alone decides what is valid, and a rejected command is never
written. If writing fails, the backend is ahead of the journal and everything is recovered as after a crash. One
thread at a time.

A commit holds a limited number of updates. A request with more is checked as a whole and then applied and written in
parts, each a command of its own. The first commit also records the whole request: if the process ends before the last
one, the next process finishes it. Only the updates of a single message or subscription are never divided.

With `clock="wall"` the store advances the engine by the clock of the service, see `EngineClock`.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from nearcast.engine.clock import MAX_AHEAD_S, Clock
from nearcast.errors import InvalidInput, NearcastError, is_finite
from nearcast.model import Update
from nearcast.service.api.metrics import Metrics
from nearcast.service.backends.backend import Backend, Query, View
from nearcast.service.commands import (
    COMMANDS,
    Advance,
    Command,
    Ingest,
    Unsubscribe,
    canonical_order,
    merge,
)
from nearcast.service.store.cursor import START, Cursor
from nearcast.service.store.data_folder import DataFolder
from nearcast.service.store.disk import DiskFull, free_bytes
from nearcast.service.store.engine_clock import EngineClock
from nearcast.service.store.journal import JournaledUpdate, assign_cursors
from nearcast.service.store.limits import ServiceLimits
from nearcast.service.store.quotas import Quotas

Answer = dict[str, Any]

_UNFINISHED, _PROGRESS = "unfinished", "progress"
_MAX_AT_ONCE = 10_000  # messages
_MAX_CALL_UPDATES = 4_000_000  # that one call of a backend may return, at two for each message and subscription
_PRUNE_EVERY_S = 60.0  # while the disk is full
_SAVES_PER_JOURNAL = 4  # snapshots while the journal grows by what it may hold
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


class AppliedCommand(NamedTuple):
    """The outcome of a command that the backend has applied."""

    updates: list[Update]
    n_late: int | None
    """How many of its messages had expired on arrival; None if only a job knows."""


@dataclass(frozen=True)
class RequestProgress:
    """How much of a request is written, and what is known about its answer."""

    n_items: int = 0
    n_updates: int = 0
    n_late: int | None = 0

    def after(self, n_items: int, applied: AppliedCommand) -> RequestProgress:
        """Return the progress after more items."""
        late = None if self.n_late is None or applied.n_late is None else self.n_late + applied.n_late
        return RequestProgress(self.n_items + n_items, self.n_updates + len(applied.updates), late)


@dataclass(frozen=True)
class BatchResult:
    """The outcome of one commit."""

    answers: list[Any] = field(default_factory=list)
    """One per request that ended with the commit, in order; the error, if a request was rejected."""
    commands: list[Command] = field(default_factory=list)
    updates: list[JournaledUpdate] = field(default_factory=list)


Deliver = Callable[[BatchResult], None]


def _ignore(result: BatchResult) -> None:
    """Deliver nothing."""


class DurableStore:
    """Executes requests durably."""

    def __init__(
        self,
        folder: DataFolder,
        backend: Backend,
        *,
        metrics: Metrics,
        limits: ServiceLimits,
        clock: Clock | None = None,
    ) -> None:
        self._folder, self._journal, self._backend = folder, folder.journal, backend
        self.config, self.reader = folder.config, folder.reader
        self._metrics, self._limits = metrics, limits
        self._clock = clock or Clock()
        config = self.config
        self._engine_clock = EngineClock(self._clock, is_driven=config.advances, window_s=config.window_seconds)
        usual = MAX_AHEAD_S if config.clock == "wall" else float("inf")
        self._max_ahead_s = usual if limits.max_ahead_s is None else limits.max_ahead_s
        self._quotas = Quotas(
            max_subscriptions=limits.max_subscriptions,
            max_results=limits.max_results,
            max_bytes=limits.max_subscription_bytes,
        )
        self._result = BatchResult()
        self._deliver: Deliver = _ignore
        self._is_unfinished = False  # whether the journal has recorded the rest of a request
        self._position = START
        self._seq = self._saved = self._next_save = self._next_save_bytes = 0
        self._last_time_us = 0
        self._next_save_time = self._next_prune_time = float("-inf")
        self._reusable_bytes = 0
        self._next_end: float | None = None  # when the next subscription expires

    @property
    def position(self) -> Cursor:
        """The cursor after the last command."""
        return self._position

    @property
    def view(self) -> View:
        """Read access to the current results."""
        return self._backend.view

    @property
    def idle_s(self) -> float | None:
        """How long to wait for requests before calling `poll` and `advance`; None if any time."""
        waits = (self._backend.poll_interval_s, self._engine_clock.wait_s)
        return min((wait for wait in waits if wait is not None), default=None)

    @property
    def is_reporting(self) -> bool:
        """False until the job behind the backend has reported a batch."""
        return self._backend.is_reporting

    def recover(self) -> None:
        """Restore the backend from the journal."""
        self._position = self._journal.position()
        self._engine_clock.reset(self._journal.last_time())
        self._seq, self._saved = self._backend.recover(up_to=self._position.command)
        self._quotas.load(self._journal)
        self._next_end = self._journal.next_end()
        self._is_unfinished = self._journal.meta(_UNFINISHED) is not None
        self._next_save = self._saved + self._limits.snapshot_every
        self._next_save_bytes = min(self._journal.used_bytes() + self._save_bytes, self._limits.max_bytes)

    # -- requests -----------------------------------------------------------------------------------------------

    def execute(self, requests: Sequence[Request], deliver: Deliver) -> None:
        """Execute requests in order; `deliver` gets the outcome of each commit.

        If that raises, nothing has happened that was not delivered, and `recover` must follow.
        """
        if self.is_disk_full:
            self._prune_if_due()
            deliver(BatchResult([self._refuse_write(request) for request in requests]))
            return
        self.finish(deliver)
        with self._committing(deliver):
            if self._engine_clock.is_behind:
                self._advance()
            for group in self._groups(requests):
                merged = self._apply_merged(group) if len(group) > 1 else None
                for i, request in enumerate(group):
                    answer = self._answer(request, None if merged is None else merged[i])
                    self._result.answers.append(answer)

    def finish(self, deliver: Deliver) -> None:
        """Finish the request that the last process has left unfinished, if there is one and the disk has room."""
        if not self._is_unfinished or self.is_disk_full:
            return
        name, payload, subscriber, key, fingerprint, replaced = self._journal.meta(_UNFINISHED)
        request = CommandRequest(COMMANDS[name](**payload), subscriber, key, fingerprint)
        progress = RequestProgress(*self._journal.meta(_PROGRESS))
        with self._committing(deliver):
            self._execute(request, set(replaced), progress, None, now=self._now())

    @contextmanager
    def _committing(self, deliver: Deliver) -> Iterator[None]:
        """Commit what the block writes, at the latest when it ends."""
        self._result, self._deliver = BatchResult(), deliver
        with self._journal.transaction():
            yield
            self._commit()

    def _commit(self) -> None:
        with self._metrics.commit_seconds.time():
            self._journal.commit()
        result, self._result = self._result, BatchResult()
        self._count(result)
        self._deliver(result)

    @property
    def is_disk_full(self) -> bool:
        """True if so little space is left that the service only reads. Any thread may ask."""
        return self._writable_bytes < self._limits.min_free_bytes

    @property
    def _writable_bytes(self) -> int:
        """The free space of the disk, and what pruning has freed within the journal."""
        return free_bytes(self._folder.path) + self._reusable_bytes

    def _refuse_write(self, request: Request) -> Any:
        if isinstance(request, ReadRequest):
            return request.answer(self.view)
        free, needed = self._writable_bytes, self._limits.min_free_bytes
        return DiskFull(f"the disk is full: {free:,} bytes are free, and the service writes only if {needed:,} are")

    def advance(self, deliver: Deliver) -> None:
        """Advance the engine by the clock, if it is time to; `deliver` gets the updates of what expires."""
        if not self._engine_clock.is_due:
            return
        if self.is_disk_full:
            self._engine_clock.postpone()
            return
        with self._committing(deliver):
            self._advance()

    def _advance(self) -> None:
        """Advance the engine to the time of the clock; each step that has updates is a command of its own."""
        for now in self._engine_clock.advance(1 + 2 * self._quotas.n_results // self._limits.max_commit_updates):
            updates, _ = self._apply(Advance(now))
            if updates:
                if self._is_full(len(updates)):
                    self._commit()
                    self._journal.begin()
                self._append(Advance(now), updates, at=self._now())
        self._forget_expired()
        self._engine_clock.may_expire = self.view.may_expire

    def _forget_expired(self) -> None:
        """Delete the subscriptions that have expired, as the engine does."""
        now = self._now() if self.config.job is not None else self.view.now
        if self._next_end is None or now is None or self._next_end > now:
            return
        for key in self._journal.expired(now):
            ended = Unsubscribe(key.subscriber, [key.id])
            self._quotas.add(ended.growth(self._journal))
            ended.record(self._journal, number=self._position.command, first_seq=0)
        self._next_end = self._journal.next_end()

    def poll(self, deliver: Deliver) -> None:
        """Exchange data with the job of the backend, if it is time to."""
        if self.is_disk_full:
            self._prune_if_due()
            return
        output = self._backend.poll(up_to=self._position.command)
        if output.files:
            with self._committing(deliver):
                updates = self._backend.ingest(output)
                if updates:
                    self._append(Ingest(output.files), updates, at=self._now())

    def _count(self, result: BatchResult) -> None:
        self._metrics.updates.inc(len(result.updates))
        for command in result.commands:
            self._metrics.commands.labels(command.name).inc()
            self._metrics.messages.inc(len(command.bodies()))

    def _groups(self, requests: Sequence[Request]) -> Iterator[list[Request]]:
        """Yield adjacent mergeable commands that were not executed before as one group, all other requests alone."""
        group: list[Request] = []
        room, keys = self._n_at_once, set[tuple[str, str]]()
        for request in map(self._with_times, requests):
            merges = isinstance(request, CommandRequest) and request.command.is_mergeable
            n = request.command.n_items if isinstance(request, CommandRequest) else 0
            if group and (not merges or n > room):
                yield group
                group, room, keys = [], self._n_at_once, set()
            if isinstance(request, CommandRequest) and merges and n <= room and self._is_new(request, keys):
                group.append(request)
                room -= n
                continue
            if group:
                yield group
                group, room, keys = [], self._n_at_once, set()
            yield [request]
        if group:
            yield group

    @property
    def _n_at_once(self) -> int:
        """The number of messages that the backend gets in one call, so that their updates fit into memory."""
        return min(max(_MAX_CALL_UPDATES // (2 * self._quotas.n_subscriptions + 1), 1), _MAX_AT_ONCE)

    def _is_new(self, request: CommandRequest, keys: set[tuple[str, str]]) -> bool:
        """Return whether a request was not executed under its key, nor is among `keys`; add its key to them."""
        if request.key is None:
            return True
        key = (request.subscriber, request.key)
        if key in keys or self._journal.reply(*key, now=self._now()) is not None:
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
        self._last_time_us = max(self._last_time_us + 1, int(self._clock.now() * 1e6))
        return self._last_time_us / 1e6

    def _now(self) -> float:
        """Return the current time, no earlier than that of any message which got its time here."""
        return max(self._clock.now(), self._last_time_us / 1e6)

    def _check_times(self, command: Command) -> None:
        """Raise `InvalidInput` for a message too far ahead of the clock: one wrong clock must not fill the window."""
        now = self._now()
        for body in command.bodies() if self._max_ahead_s < float("inf") else ():
            if is_finite(at := body.get("at")) and at - now > self._max_ahead_s:
                rule = f"must be at most {self._max_ahead_s:g} s ahead of the clock of the service, {now:.3f}"
                raise InvalidInput("at", rule, at, subject=f"message {body['id']!r}")

    def _apply(self, command: Command) -> AppliedCommand:
        with self._metrics.apply_seconds.time():
            updates = canonical_order(command.apply(self._backend))
        late = self._backend.late_seqs
        return AppliedCommand(updates, None if late is None else len(late))

    def _apply_merged(self, group: Sequence[Request]) -> list[AppliedCommand] | None:
        """Publish the messages of several requests in one call and return the outcome of each.

        A call for one message takes twenty times as long as one message of a large call. Return None if any message
        is invalid: then nothing has happened, and each request must be applied on its own.
        """
        commands = [request.command for request in group if isinstance(request, CommandRequest)]
        merged = merge(commands)
        try:
            self._check_times(merged)
            updates, _ = self._apply(merged)
        except NearcastError:
            return None
        ends = list(accumulate((len(command.bodies()) for command in commands), initial=self._seq))
        late, seqs = self._backend.late_seqs, [update.seq for update in updates]
        cuts = [bisect_right(seqs, end) for end in ends]
        n_late = (
            [None] * len(group)
            if late is None
            else [bisect_right(late, stop) - bisect_right(late, start) for start, stop in pairwise(ends)]
        )
        return [
            AppliedCommand(updates[start:stop], n) for (start, stop), n in zip(pairwise(cuts), n_late, strict=True)
        ]

    def _answer(self, request: Request, applied: AppliedCommand | None) -> Any:
        """Return the answer to a request, or the error if it is rejected."""
        if isinstance(request, ReadRequest):
            answer = request.answer(self.view)
            self._metrics.rejected.inc(isinstance(answer, NearcastError))
            return answer
        try:
            return self._execute_once(request, applied)
        except NearcastError as error:
            self._metrics.rejected.inc()
            return error

    def _execute_once(self, request: CommandRequest, applied: AppliedCommand | None) -> Answer:
        """Execute a command, unless it was executed under its key; return its answer."""
        now = self._now()
        stored = None if request.key is None else self._journal.reply(request.subscriber, request.key, now=now)
        if stored is None:
            request = replace(request, command=request.command.resolved(self._journal))
            if applied is None:
                self._check_times(request.command)
            replaced = request.command.replaced_ids(self._journal)
            if (growth := request.command.growth(self._journal)) is not None:
                self._quotas.check(growth)
            return self._execute(request, replaced, RequestProgress(), applied, now=now)
        fingerprint, answer = stored
        if fingerprint != request.fingerprint:
            raise InvalidInput("Idempotency-Key", "must not be reused for a different request", request.key)
        return answer  # type: ignore[no-any-return]

    def _execute(
        self,
        request: CommandRequest,
        replaced: set[str],
        progress: RequestProgress,
        applied: AppliedCommand | None,
        *,
        now: float,
    ) -> Answer:
        """Apply the rest of a command, unless it was applied with others, and write it; return the answer."""
        command, was_checked = request.command, progress.n_items > 0
        at = self._engine_clock.advanced_to if self.config.advances else now
        ends = self._ends_of_parts(command, progress.n_items) if applied is None else iter([command.n_items])
        for stop in ends:
            start = progress.n_items
            if stop - start < command.n_items and not was_checked:
                command.check(self._backend)
                was_checked = True
            part = command if stop - start == command.n_items else command.part(start, stop)
            for piece, outcome in self._divide(part, applied or self._apply(part)):
                if self._is_full(len(outcome.updates)):
                    if progress.n_items:
                        self._record(request, replaced, progress)
                    self._commit()
                    self._journal.begin()
                self._append(piece, outcome.updates, at=at)
                progress = progress.after(piece.n_items, outcome)
        if self._is_unfinished:
            self._journal.delete_meta(_UNFINISHED, _PROGRESS)
            self._is_unfinished = False
        n_updates = progress.n_updates if self._backend.returns_updates else None
        answer: Answer = {"command": self._position.command, "updates": n_updates}
        answer |= command.reply(replaced=replaced, last_seq=self._seq, n_late=progress.n_late)
        if request.key is not None:
            self._journal.store_reply(request.subscriber, request.key, request.fingerprint, answer, at=now)
        return answer

    def _is_full(self, n: int) -> bool:
        """Return whether the open transaction has no room for `n` more updates."""
        n_written = len(self._result.updates)
        return n_written > 0 and n_written + n > self._limits.max_commit_updates

    def _ends_of_parts(self, command: Command, start: int) -> Iterator[int]:
        """Yield the items before which to divide a command whose updates may be too many for one call."""
        n = command.n_items
        most = command.most_updates(self._journal) if self._backend.returns_updates else None
        sums = None if most is None else list(accumulate(most, initial=0))
        while start < n:
            if sums is not None:
                fits = bisect_right(sums, sums[start] + self._limits.max_commit_updates) - 1
                start = min(max(start + 1, fits), n)
            else:
                start = min(start + self._n_at_once, n) if self._backend.returns_updates else n
            yield start

    def _divide(self, part: Command, applied: AppliedCommand) -> Iterator[tuple[Command, AppliedCommand]]:
        """Yield a part in pieces that fit into one commit each; a piece has at least one message."""
        updates, n = applied.updates, part.n_items
        if len(updates) <= self._limits.max_commit_updates or not part.bodies():
            yield part, applied
            return
        first_seq, seqs, start, begin = self._seq + 1, [update.seq for update in updates], 0, 0
        while start < n:
            last = begin + self._limits.max_commit_updates  # the first update that does not fit
            stop = n if last >= len(seqs) else max(start + 1, seqs[last] - first_seq)
            end = bisect_right(seqs, first_seq + stop - 1)
            n_late = applied.n_late if stop == n else 0
            yield part.part(start, stop), AppliedCommand(updates[begin:end], n_late)
            start, begin = stop, end

    def _record(self, request: CommandRequest, replaced: set[str], progress: RequestProgress) -> None:
        """Write what another process needs to finish a request."""
        if not self._is_unfinished:
            command = request.command
            about = [command.name, asdict(command), request.subscriber, request.key, request.fingerprint]
            self._journal.set_meta(_UNFINISHED, [*about, sorted(replaced)])
            self._is_unfinished = True
        self._journal.set_meta(_PROGRESS, astuple(progress))

    def _append(self, command: Command, updates: Sequence[Update], *, at: float) -> None:
        """Write a command and its updates."""
        number = self._position.command + 1
        journaled = assign_cursors(number, updates)
        if (growth := command.growth(self._journal)) is not None:
            self._quotas.add(growth)
        self._journal.append(number, command, journaled, first_seq=self._seq + 1, at=at)
        self._position = Cursor(number, len(journaled))
        self._seq += len(command.bodies())
        if growth is not None:
            self._next_end = self._journal.next_end()
        self._forget_expired()
        self._engine_clock.may_expire = self._engine_clock.may_expire or self.view.may_expire
        self._result.commands.append(command)
        self._result.updates.extend(journaled)

    # -- saving -------------------------------------------------------------------------------------------------

    def save_if_due(self) -> None:
        """Save if enough came since the last time, and saving takes no more than its share of the time."""
        is_due = (
            self._position.command >= self._next_save or self._journal.used_bytes() >= self._next_save_bytes
        )  # the journal keeps what came since the last but one, so a large one needs them more often
        if is_due and time.monotonic() >= self._next_save_time:
            self.save()

    @property
    def _save_bytes(self) -> int:
        """The growth of the journal after which a snapshot is due."""
        return self._limits.max_bytes // _SAVES_PER_JOURNAL

    def save(self) -> None:
        """Save the backend and prune the journal; if one of them fails, the journal only grows longer meanwhile."""
        if self._position.command == self._saved:
            return
        limits, number = self._limits, self._position.command
        self._next_save = number + limits.snapshot_every
        start = time.monotonic()
        try:
            if self.config.advances:
                with self._journal.transaction():
                    self._journal.set_now(self._engine_clock.advanced_to)
            with self._metrics.snapshot_seconds.time():
                self._backend.save(number)
            self._saved = number
        except Exception:
            self._metrics.failed_snapshots.inc()
            _log.exception("saving failed; trying again after %d commands", limits.snapshot_every)
        self._next_save_time = start + (time.monotonic() - start) / limits.snapshot_share
        self._prune()

    def _prune(self) -> None:
        """Delete what the journal no longer needs, also if there is no new snapshot."""
        now, limits = self._now(), self._limits
        try:
            self._journal.prune(
                up_to=self._backend.needed,
                before=now - limits.max_age_s,
                max_updates=limits.max_updates,
                max_bytes=limits.max_bytes - self._save_bytes,  # it grows until the next time
                now=now,
            )
            self._reusable_bytes, used = self._journal.reusable_bytes(), self._journal.used_bytes()
            self._next_save_bytes = used + self._save_bytes
            if used > limits.max_bytes:
                text = "the journal takes %d bytes, of %d that it may take: no more can be deleted yet"
                _log.warning(text, used, limits.max_bytes)
        except (OSError, sqlite3.Error):
            _log.exception("pruning the journal failed")
        self._next_prune_time = time.monotonic() + _PRUNE_EVERY_S

    def _prune_if_due(self) -> None:
        if time.monotonic() >= self._next_prune_time:
            self._prune()

    def close(self) -> None:
        """Close the backend and all files; no readers may be left."""
        self._backend.close()
        self._folder.close()
