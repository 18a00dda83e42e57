"""Who keeps the answers, on a cluster? A job on Spark: commands are passed on to it, and what it tells is taken in.

    commands ── journal ──► files that the job reads                 each written once, whatever crashes
    files that it has committed ──► journal: updates, results ──►    each taken in once, in one commit

Which commands go into a file is noted before it is written, and its name follows from that: after a crash the same
file is written again, and Spark, which goes by names, takes it once. Which of the job's files were taken in is
committed with what they tell.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence

from nearcast.errors import UnknownSubscription
from nearcast.model import ResultPolicy, Update
from nearcast.service.commands import (
    KIND_OF,
    Command,
    Ingest,
    Publish,
    Subscribe,
    Unsubscribe,
    engine_id,
    message_of,
    subscription_of,
)
from nearcast.service.durable_store import Done, DurableStore, RetentionConfig
from nearcast.service.folder import DataFolder
from nearcast.service.meters import Meters
from nearcast.service.spark_read_model import SparkReadModel
from nearcast.spark.job_client import JobClient, Row, subscribed, unsubscribed

_EXPORT = "export"
_log = logging.getLogger(__name__)


class SparkBackend(DurableStore):
    """A journal, and the way to a job and back."""

    listens_every = 0.1

    def __init__(self, folder: DataFolder, *, meters: Meters, retention: RetentionConfig) -> None:
        super().__init__(folder, meters=meters, retention=retention)
        self._plan = self.world.plan
        self._job = self._plan.job()
        self._link = JobClient(self._plan)
        self._link.open()
        self._read_model: SparkReadModel | None = None
        self._exported, self._listened = 0, float("-inf")
        self._behind = 0  # messages that were passed on and not reported

    @property
    def view(self) -> SparkReadModel:
        """What is known of the job's answers."""
        assert self._read_model is not None, "recovered first"
        return self._read_model

    def recover(self) -> None:
        """Go on where the journal ends; files that were being written are written again."""
        self._position = self._journal.position()
        self._seq = self._journal.last_seq()
        self._saved = self._position.command
        self._next_save = self._saved + self._retention.snapshot_every
        self._link = JobClient(self._plan, seen=self._journal.heard())
        if self._read_model is not None:
            self._read_model.close()
        self._read_model = SparkReadModel(self.world, self._journal)
        self._read_model.take(self._link.reports.new())
        after, upto = self._journal.meta(_EXPORT) or (0, 0)
        self._write(after, upto)
        self._exported, self._behind = upto, 0

    def _carry_out(self, command: Command) -> list[Update]:
        """Judge a command, and note what it changes here; the job hears of it when it is on disk."""
        if isinstance(command, Publish):
            self.view.publish(command.messages)
        elif isinstance(command, Subscribe):
            self.view.check(command.subscriptions, command.subscriber, self._job)
            self._journal.let_go(command.subscriber, _ids(command), only_growing=True)
        elif isinstance(command, Unsubscribe):
            here = self._journal.subscribed(command.subscriber, command.ids)
            for id_ in command.ids:
                if id_ not in here:
                    raise UnknownSubscription(engine_id(command.subscriber, id_))
            self._journal.let_go(command.subscriber, command.ids, only_growing=False)
        return []

    def _told(self, changed: Sequence[Update]) -> None:
        """Nobody knows what a command changes before the job has seen it."""

    # -- to the job and back ------------------------------------------------------------------------------------

    def listen(self) -> Done:
        """Pass on what was committed, and take in what the job has told, if it is time to."""
        done, now = Done(), time.monotonic()
        if now - self._listened < self.listens_every:
            return done
        self._listened = now
        try:
            self._pass_on()
            reports = self._link.reports.new()
            files, updates = self._link.heard()
        except OSError:
            _log.exception("the job's folders cannot be used; it is tried again")
            self._link = JobClient(self._plan, seen=self._journal.heard())  # which has not seen what was not taken in
            return done
        self.view.take(reports)
        done_by = [report["messages"] for report in reports if report["shard"] == 0]  # each counts all of them
        self._behind = max(self._behind - sum(done_by), 0)
        self._meters.behind.set(self._behind)
        if files:
            with self._journal.transaction():
                self._take_in(files, updates, done)
            self._count(done)
        return done

    def _pass_on(self) -> None:
        upto = self._position.command
        if upto == self._exported:
            return
        if any(not isinstance(command, Ingest) for _, command in self._journal.commands(after=self._exported)):
            with self._journal.transaction():
                self._journal.note(_EXPORT, [self._exported, upto])
            self._write(self._exported, upto)
        self._exported = upto

    def _write(self, after: int, upto: int) -> None:
        """Write the commands between two numbers for the job, the later one included."""
        commands = [(n, command) for n, command in self._journal.commands(after=after) if n <= upto]
        messages = [m for _, command in commands if isinstance(command, Publish) for m in command.messages]
        operations = [row for number, command in commands for row in _operations(number, command)]
        name = f"{upto:012d}.json"
        if operations:
            self._link.tell_operations(name, operations)
        if messages:
            self._link.tell_messages(name, map(message_of, messages))
            self._behind += len(messages)

    def _take_in(self, files: Sequence[str], updates: Sequence[Update], done: Done) -> None:
        """Write down what the job tells of subscriptions that are still here."""
        asked: dict[str, set[str]] = defaultdict(set)
        for update in updates:
            subscriber, _, id_ = str(update.subscription).partition("/")
            asked[subscriber].add(id_)
        here = {subscriber: self._journal.subscribed(subscriber, ids) for subscriber, ids in asked.items()}
        heard = []
        for update in updates:
            subscriber, _, id_ = str(update.subscription).partition("/")
            kind = here[subscriber].get(id_)
            if kind is not None:
                grows = KIND_OF[kind].keeps is ResultPolicy.MATCHES
                self._journal.hold(subscriber, id_, update, grows=grows)
                heard.append(update)
        self._journal.hear(files)
        if heard:
            self._append(Ingest(list(files)), heard, done, now=time.time())

    def _save(self) -> int:
        return self._exported

    def close(self) -> None:
        """Close everything; no readers must be left."""
        if self._read_model is not None:
            self._read_model.close()
        super().close()


def _ids(command: Subscribe) -> list[str]:
    return [body["id"] for body in command.subscriptions]


def _operations(number: int, command: Command) -> Iterator[Row]:
    """Yield the rows that a command is for the job, which puts them in order by the command's number."""
    if isinstance(command, Subscribe):
        for body in command.subscriptions:
            yield subscribed(subscription_of(body, command.subscriber), order=number)
    elif isinstance(command, Unsubscribe):
        for id_ in command.ids:
            yield unsubscribed(engine_id(command.subscriber, id_), order=number)
