"""Backend beside a job on Spark: commands become input files of the job, and its output files are ingested.

    commands ── journal ──► input files of the job                  each written once, across crashes
    committed output files ──► journal: updates, results ──►        each ingested once, in one commit

The journal records which commands go into a file before the file is written, and the name of the file follows from
that. After a crash the same file is written again, and Spark, which identifies files by name, reads it once. The
names of ingested output files are committed together with their updates.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import takewhile

from nearcast.errors import UnknownSubscription
from nearcast.jobs.client import JobClient, Row, subscribed, unsubscribed
from nearcast.model import Update, find_kind
from nearcast.service.api.metrics import Metrics
from nearcast.service.backends.backend import JobOutput, RecoveredState
from nearcast.service.backends.spark_read_model import SparkReadModel
from nearcast.service.json_bodies import Body, message_from, subscription_from
from nearcast.service.store.data_folder import DataFolder
from nearcast.service.subscription_key import SubscriptionKey

_EXPORT = "export"
_log = logging.getLogger(__name__)


class _JobInput:
    """Collects commands as rows of the job's input files; the number of a command orders its operations."""

    def __init__(self) -> None:
        self.number = 0
        self.messages: list[Body] = []
        self.operations: list[Row] = []

    @property
    def is_empty(self) -> bool:
        return not (self.messages or self.operations)

    def publish(self, messages: Sequence[Body]) -> list[Update]:
        self.messages += messages
        return []

    def subscribe(self, subscriber: str, subscriptions: Sequence[Body]) -> list[Update]:
        made = (subscription_from(body, subscriber) for body in subscriptions)
        self.operations += [subscribed(subscription, order=self.number) for subscription in made]
        return []

    def unsubscribe(self, subscriber: str, ids: Sequence[str]) -> None:
        keys = (SubscriptionKey(subscriber, id_).engine_id for id_ in ids)
        self.operations += [unsubscribed(key, order=self.number) for key in keys]


class SparkBackend:
    """Validates commands here and passes them on to a job."""

    poll_interval_s: float | None = 0.1
    returns_updates: bool = False

    def __init__(self, folder: DataFolder, *, metrics: Metrics) -> None:
        self._config, self._journal, self._metrics = folder.config, folder.journal, metrics
        self._job_file = self._config.job_file
        self._job = self._job_file.job()
        self._client = JobClient(self._job_file)
        self._client.open()
        self._read_model: SparkReadModel | None = None
        self._exported, self._polled_at = 0, float("-inf")
        self._unreported = 0  # messages that the job received and has not reported

    @property
    def view(self) -> SparkReadModel:
        """Read access to the results that the job has reported."""
        assert self._read_model is not None, "recovered first"
        return self._read_model

    def recover(self, *, up_to: int) -> RecoveredState:
        """Continue where the journal ends; write files again whose writing may have been interrupted."""
        self._client = JobClient(self._job_file, seen=self._journal.ingested_files())
        self.close()
        self._read_model = SparkReadModel(self._config, self._journal)
        self._read_model.add_reports(self._client.reports.new())
        first, last = self._journal.meta(_EXPORT) or (0, 0)
        self._write(self._input(after=first, up_to=last), last)
        self._exported, self._unreported = last, 0
        return RecoveredState(self._journal.last_seq(), up_to)

    # -- commands: validated here, passed on to the job once they are on disk -----------------------------------

    def publish(self, messages: Sequence[Body]) -> list[Update]:
        """Validate messages."""
        self.view.publish(messages)
        return []

    def subscribe(self, subscriber: str, subscriptions: Sequence[Body]) -> list[Update]:
        """Validate subscriptions and delete the unbounded results that they replace."""
        self.view.check(subscriptions, subscriber, self._job)
        ids = [body["id"] for body in subscriptions]
        self._journal.delete_results(subscriber, ids, only_unbounded=True)
        return []

    def unsubscribe(self, subscriber: str, ids: Sequence[str]) -> None:
        """Check that all ids are subscribed and delete their results."""
        known = self._journal.subscribed(subscriber, ids)
        for id_ in ids:
            if id_ not in known:
                raise UnknownSubscription(SubscriptionKey(subscriber, id_).engine_id)
        self._journal.delete_results(subscriber, ids, only_unbounded=False)

    # -- to the job and back ------------------------------------------------------------------------------------

    def poll(self, *, up_to: int) -> JobOutput:
        """Write committed commands for the job and read its new output, at most once per interval."""
        now = time.monotonic()
        if self.poll_interval_s is not None and now - self._polled_at < self.poll_interval_s:
            return JobOutput()
        self._polled_at = now
        try:
            self._export(up_to)
            reports = self._client.reports.new()
            files, updates = self._client.committed()
        except OSError:
            _log.exception("the folders of the job are not accessible; trying again")
            self._client = JobClient(self._job_file, seen=self._journal.ingested_files())  # reads skipped files again
            return JobOutput()
        self.view.add_reports(reports)
        n_reported = sum(report["messages"] for report in reports if report["shard"] == 0)  # each shard counts all
        self._unreported = max(self._unreported - n_reported, 0)
        self._metrics.job_lag.set(self._unreported)
        return JobOutput(files, updates)

    def _export(self, up_to: int) -> None:
        if up_to == self._exported:
            return
        rows = self._input(after=self._exported, up_to=up_to)
        if not rows.is_empty:
            with self._journal.transaction():
                self._journal.set_meta(_EXPORT, [self._exported, up_to])
            self._write(rows, up_to)
        self._exported = up_to

    def _input(self, *, after: int, up_to: int) -> _JobInput:
        """Return the commands between two numbers as input of the job, the second number included."""
        rows = _JobInput()
        for number, command in takewhile(lambda row: row[0] <= up_to, self._journal.commands(after=after)):
            rows.number = number
            command.apply(rows)
        return rows

    def _write(self, rows: _JobInput, up_to: int) -> None:
        """Write the input files that end with a command."""
        name = f"{up_to:012d}.json"
        if rows.operations:
            self._client.write_operations(name, rows.operations)
        if rows.messages:
            self._client.write_messages(name, map(message_from, rows.messages))
            self._unreported += len(rows.messages)

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
        self._journal.add_ingested_files(output.files)
        return current

    def save(self, number: int) -> int:
        """Return the last command that the job received: there is nothing to save here."""
        return self._exported

    def close(self) -> None:
        """Close the read model."""
        if self._read_model is not None:
            self._read_model.close()
