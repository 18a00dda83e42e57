"""Backend beside a job on Spark: commands become input files of the job, and its output files are ingested.

    commands ── journal ──► input files of the job                  each written once, across crashes
    committed output files ──► journal: updates, results ──►        each ingested once, in one commit

The journal records which commands go into a file before the file is written, and the name of the file follows from
that. After a crash, or if writing failed, the same file is written again before any other, and Spark, which
identifies files by name, reads it once. The names of ingested output files are committed together with their updates,
and the journal alone decides what is ingested: whatever fails before that is done again.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, takewhile

from nearcast.errors import StateError, UnknownMessage, UnknownSubscription
from nearcast.jobs.client import JobClient, Row, message_row, retracted, subscribed, unsubscribed
from nearcast.jobs.message_rows import REPLACE
from nearcast.model import Subscription, Update, find_kind, to_us
from nearcast.service.api.metrics import Metrics
from nearcast.service.backends.backend import JobOutput, RecoveredState
from nearcast.service.backends.spark_read_model import SparkReadModel
from nearcast.service.commands import Edge
from nearcast.service.json_bodies import Body, message_from
from nearcast.service.store.data_folder import DataFolder
from nearcast.service.store.journal import Journal
from nearcast.service.subscription_key import SubscriptionKey

_EXPORT = "export"
_SHARED_ID = (
    "messages {ids} cannot be retracted or replaced here: a job on Spark knows messages by id, "
    "and another publisher has used the same ids"
)
_NO_EDGES = "the social graph cannot be changed here where a job on Spark computes the results; give the job [edges]"
_log = logging.getLogger(__name__)


class _JobInput:
    """Collects commands as rows of the job's input files; the number of a command orders its operations."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.number = self.n_published = 0
        self.messages: list[Row] = []
        self.operations: list[Row] = []

    @property
    def is_empty(self) -> bool:
        return not (self.messages or self.operations)

    def publish(self, messages: Sequence[Body]) -> list[Update]:
        return self._publish(messages, None)

    def _publish(self, messages: Sequence[Body], op: str | None) -> list[Update]:
        self.messages += [message_row(message_from(body), op=op) for body in messages]
        self.n_published += len(messages)
        return []

    def subscribe(self, subscriptions: Sequence[Subscription]) -> list[Update]:
        self.operations += [subscribed(subscription, order=self.number) for subscription in subscriptions]
        return []

    def retract(self, ids: Sequence[str], seqs: Sequence[int]) -> list[Update]:
        """Retract messages right after the time of the last of them, which may be in the same batch."""
        ats_us = [to_us(body["at"]) for body in self._journal.messages_at(seqs).values()]
        at_us = max(ats_us) + 1 if ats_us else None
        self.messages += [retracted(id_, at_us=at_us) for id_ in ids]
        return []

    def replace(self, messages: Sequence[Body], seqs: Sequence[int]) -> list[Update]:
        return self._publish(messages, REPLACE)

    def add_edges(self, edges: Sequence[Edge]) -> list[Update]:
        raise StateError(_NO_EDGES)

    def remove_edges(self, edges: Sequence[Edge]) -> list[Update]:
        raise StateError(_NO_EDGES)

    def unsubscribe(self, subscriber: str, ids: Sequence[str]) -> None:
        keys = (SubscriptionKey(subscriber, id_).engine_id for id_ in ids)
        self.operations += [unsubscribed(key, order=self.number) for key in keys]

    def advance(self, now: float) -> list[Update]:
        return []  # the job has a clock of its own


class SparkBackend:
    """Validates commands here and passes them on to a job."""

    poll_interval_s: float | None = 0.1
    is_reporting: bool = False
    late_seqs: Sequence[int] | None = None
    returns_updates: bool = False

    def __init__(self, folder: DataFolder, *, metrics: Metrics) -> None:
        self._config, self._journal, self._metrics = folder.config, folder.journal, metrics
        self._job_file = self._config.job_file
        self._job = replace(self._job_file.job(), may_withdraw=True)  # clients may retract messages
        self._client = JobClient(self._job_file)
        self._client.open()
        self._read_model: SparkReadModel | None = None
        self._exported, self._polled_at = 0, float("-inf")
        self._unwritten: tuple[_JobInput, int] | None = None  # recorded in the journal, with the last command
        self._unreported = 0  # messages that the job received and has not reported

    @property
    def view(self) -> SparkReadModel:
        """Read access to the results that the job has reported."""
        assert self._read_model is not None, "recovered first"
        return self._read_model

    def recover(self, *, up_to: int) -> RecoveredState:
        """Continue where the journal ends; the last files are written again, in case that was interrupted."""
        self._client = JobClient(self._job_file)
        self.close()
        self._read_model = SparkReadModel(self._config, self._journal)
        first, last = self._journal.meta(_EXPORT) or (0, 0)
        self._unwritten = self._input(after=first, up_to=last), last
        self._exported, self._unreported = last, 0
        try:
            self._client.remove_unfinished()
            self._read_model.add_reports(self._client.reports.new())
        except OSError:
            _log.exception("the folders of the job are not accessible; reports count later")
        return RecoveredState(self._journal.last_seq(), up_to)

    # -- commands: validated here, passed on to the job once they are on disk -----------------------------------

    def publish(self, messages: Sequence[Body]) -> list[Update]:
        """Validate messages."""
        self.view.publish(messages)
        return []

    def subscribe(self, subscriptions: Sequence[Subscription]) -> list[Update]:
        """Validate subscriptions and delete the unbounded results that they replace."""
        self.check_subscriptions(subscriptions)
        for subscriber, keys in groupby(
            (SubscriptionKey.parse(one.id) for one in subscriptions), key=lambda key: key.subscriber
        ):
            self._journal.delete_results(subscriber, [key.id for key in keys], only_unbounded=True)
        return []

    def unsubscribe(self, subscriber: str, ids: Sequence[str]) -> None:
        """Check that all ids are subscribed and delete their results."""
        known = self._journal.subscribed(subscriber, ids)
        for id_ in ids:
            if id_ not in known:
                raise UnknownSubscription(SubscriptionKey(subscriber, id_).engine_id)
        self._journal.delete_results(subscriber, ids, only_unbounded=False)

    def retract(self, ids: Sequence[str], seqs: Sequence[int]) -> list[Update]:
        """Check that the publisher has messages under all ids, and that no other has."""
        self._check_ids(ids, seqs)
        known = {body["id"] for body in self._journal.messages_at(seqs).values()}
        for id_ in ids:
            if id_ not in known:
                raise UnknownMessage(id_)
        self.view.retract(ids)
        return []

    def replace(self, messages: Sequence[Body], seqs: Sequence[int]) -> list[Update]:
        """Validate messages, and check that no other publisher has messages under their ids."""
        self._check_ids([body["id"] for body in messages], seqs)
        self.view.replace(messages)
        return []

    def _check_ids(self, ids: Sequence[str], seqs: Sequence[int]) -> None:
        """Raise `StateError` if others have published messages under some ids than those with the given seqs."""
        others = set(self._journal.published(None, ids)) - set(seqs)
        if others:
            shared = sorted({body["id"] for body in self._journal.messages_at(sorted(others)).values()})
            raise StateError(_SHARED_ID.format(ids=shared))

    def add_edges(self, edges: Sequence[Edge]) -> list[Update]:
        """Raise `StateError`: the job has the social graph."""
        raise StateError(_NO_EDGES)

    def remove_edges(self, edges: Sequence[Edge]) -> list[Update]:
        """Raise `StateError`: the job has the social graph."""
        raise StateError(_NO_EDGES)

    def advance(self, now: float) -> list[Update]:
        """Do nothing: the job has a clock of its own."""
        return []

    def check_messages(self, messages: Sequence[Body]) -> None:
        """Raise what `publish` would raise."""
        self.view.check_messages(messages)

    def check_subscriptions(self, subscriptions: Sequence[Subscription]) -> None:
        """Raise what `subscribe` would raise."""
        self.view.check(subscriptions, self._job)

    # -- to the job and back ------------------------------------------------------------------------------------

    def poll(self, *, up_to: int) -> JobOutput:
        """Write committed commands for the job and read its new output, at most once per interval."""
        now = time.monotonic()
        if self.poll_interval_s is not None and now - self._polled_at < self.poll_interval_s:
            return JobOutput()
        self._polled_at = now
        try:
            self._export(up_to)
            self._add_reports()
            return JobOutput(*self._client.committed(ingested=self._journal.ingested_files()))
        except (OSError, ValueError):  # a line that is cut off is no JSON
            _log.exception("the folders of the job are not accessible; trying again")
            return JobOutput()

    def _add_reports(self) -> None:
        reports = self._client.reports.new()
        self.view.add_reports(reports)
        self.is_reporting = self.is_reporting or bool(reports)
        firsts = (report for report in reports if report.get("shard") == 0)  # each shard counts all
        n_reported = sum(report["messages"] for report in firsts)
        self._unreported = max(self._unreported - n_reported, 0)
        self._metrics.job_lag.set(self._unreported)

    def _export(self, up_to: int) -> None:
        """Record which commands are next, and write them; what was recorded before is written first."""
        self._write()
        if up_to == self._exported:
            return
        rows = self._input(after=self._exported, up_to=up_to)
        if not rows.is_empty:
            with self._journal.transaction():
                self._journal.set_meta(_EXPORT, [self._exported, up_to])
            self._unwritten = rows, up_to
            self._unreported += rows.n_published
        self._exported = up_to
        self._write()

    def _input(self, *, after: int, up_to: int) -> _JobInput:
        """Return the commands between two numbers as input of the job, the second number included."""
        rows = _JobInput(self._journal)
        for number, _, command in takewhile(lambda row: row[0] <= up_to, self._journal.commands(after=after)):
            rows.number = number
            command.apply(rows)
        return rows

    def _write(self) -> None:
        """Write the input files that are recorded, unless they are written."""
        if self._unwritten is None:
            return
        rows, up_to = self._unwritten
        name = f"{up_to:012d}.json"
        if rows.operations:
            self._client.write_operations(name, rows.operations)
        if rows.messages:
            self._client.write_messages(name, rows.messages)
        self._unwritten = None

    def ingest(self, output: JobOutput) -> list[Update]:
        """Apply updates of current subscriptions to their results and mark the files as ingested."""
        keys = [SubscriptionKey.parse(update.subscription) for update in output.updates]
        ids: dict[str, set[str]] = defaultdict(set)
        for key in keys:
            ids[key.subscriber].add(key.id)
        kinds = {subscriber: self._journal.subscribed(subscriber, own) for subscriber, own in ids.items()}
        current = []
        for key, update in zip(keys, output.updates, strict=True):
            kind = kinds[key.subscriber].get(key.id)
            if kind is not None:
                unbounded = not find_kind(kind).result_policy.is_stateful
                self._journal.apply_update(key, update, unbounded=unbounded)
                current.append(update)
        self._journal.set_ingested_files(output.files)
        return current

    def save(self, number: int) -> None:
        """Do nothing: the job has the state."""

    @property
    def needed(self) -> int:
        """The command before the last files of the job: a restart writes those again, in case it was interrupted."""
        first, _ = self._journal.meta(_EXPORT) or (0, 0)
        return int(first)

    def close(self) -> None:
        """Close the read model."""
        if self._read_model is not None:
            self._read_model.close()
