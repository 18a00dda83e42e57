"""Read access to the results of a job on Spark: what the job has reported, with scores computed here.

Results are the sum of the updates that the journal holds. Scores come from an engine without subscriptions, which
holds the newest messages and validates all input by the rules of the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from nearcast.engine.explain import with_rank
from nearcast.engine.stats import Stats
from nearcast.errors import UnknownMessage, UnknownSubscription, require
from nearcast.index import Work
from nearcast.jobs.epochs import EpochLog
from nearcast.jobs.job import Job
from nearcast.model import Explanation, Id, Message, Preview, Result, Subscription
from nearcast.partition import ShardArea
from nearcast.partition.balance.adjustment import Adjustment
from nearcast.partition.serialization import unpack
from nearcast.service.config import ServiceConfig
from nearcast.service.json_bodies import Body, message_from, subscription_from
from nearcast.service.store.journal import JournalQueries, StoredResult
from nearcast.service.subscription_key import SubscriptionKey
from nearcast.window import ScoredMessage

_PREVIEWED = 20_000  # messages that previews cover after a restart


class SparkReadModel:
    """Answers read requests and validates the input of the job."""

    def __init__(self, config: ServiceConfig, journal: JournalQueries) -> None:
        self._config, self._journal = config, journal
        self._engine = config.engine()
        self._seq, self._now = journal.last_seq(), float("-inf")
        self._insert(journal.newest_messages(_PREVIEWED))
        self._shards: dict[int, int] = dict.fromkeys(range(config.workers), 0)
        self._epoch = 0
        self._log = EpochLog(config.job_file.state_folder)
        self._work = Work()

    def close(self) -> None:
        """Close the engine."""
        self._engine.close()

    # -- input of the job ---------------------------------------------------------------------------------------

    def publish(self, bodies: Sequence[Body]) -> None:
        """Insert messages, or raise and change nothing."""
        _check_texts(bodies)
        self._insert(bodies)
        self._seq += len(bodies)

    def retract(self, ids: Sequence[str]) -> None:
        """Withdraw the messages under some ids, as far as they are here."""
        for id_ in ids:
            with suppress(UnknownMessage):
                self._engine.retract([id_])

    def replace(self, bodies: Sequence[Body]) -> None:
        """Insert messages in place of those under their ids, or raise and change nothing."""
        self.check_messages(bodies)
        self.retract([body["id"] for body in bodies])
        self.publish(bodies)

    def _insert(self, bodies: Sequence[Body]) -> None:
        self._engine.publish([message_from(body) for body in bodies])
        self._now = max([self._now, *(body["at"] for body in bodies)])

    def check_messages(self, bodies: Sequence[Body]) -> None:
        """Raise what `publish` would raise."""
        _check_texts(bodies)
        self._engine.check_messages([message_from(body) for body in bodies])

    def check(self, subscriptions: Sequence[Subscription], job: Job) -> None:
        """Raise `InvalidInput` for subscriptions that the job cannot take."""
        for one in subscriptions:
            for name, type_ in one.all_field_types().items():
                if type_.form == "text":
                    _check_string(name, getattr(one, name), one.subject)
            job.check_kind(type(one), one.subject)
        self._engine.check(subscriptions)

    def add_reports(self, reports: Iterable[Mapping[str, Any]]) -> None:
        """Add reports of the shards to the counts."""
        for report in (report for report in reports if "shard" in report):
            epoch = report.get("epoch", 0)
            if epoch > self._epoch:  # shards may have retired; the others report again
                self._epoch, self._shards = epoch, {}
            if epoch == self._epoch:
                self._shards[report["shard"]] = report["subscriptions"]
            counts = {name: report.get(name, 0) for name in ("visited", "candidates", "verified")}
            self._work = Work(**{name: getattr(self._work, name) + n for name, n in counts.items()})

    # -- read requests ------------------------------------------------------------------------------------------

    def results(self, subscription: Id) -> list[Result]:
        """Return the result of a subscription as far as the job has reported it, best first."""
        return [Result(scored.message, scored.score) for scored in self.scored_messages(subscription)]

    def scored_messages(self, subscription: Id) -> list[ScoredMessage]:
        """Return the same with the seq of each message; a job knows messages by id, so the newest one is meant."""
        found = self._results(self._subscription(subscription))
        return [ScoredMessage(row.seq, row.message, row.score) for row in found]

    def explain(self, subscription: Id, message: Message | Id) -> Explanation:
        """Return the score of a message for a subscription, ranked among the reported result."""
        known = self._subscription(subscription)
        explained_message = message if isinstance(message, Message) else self._message(message)
        explained = self._engine.score(known, explained_message)
        policy = known.result_policy
        if not policy.is_stateful or explained.score is None:
            return explained
        results = self._results(known)
        worst = results[-1] if len(results) >= (known.n_results or 0) else None
        threshold = None if worst is None else worst.score
        is_in_result = any(row.message == explained_message.id for row in results)
        would_enter = policy.would_enter(explained.score, self._seq + 1, worst and (worst.score, worst.seq))
        passes = is_in_result or (isinstance(message, Message) and would_enter)
        if not passes and threshold is None:
            return replace(explained, passes=False, reason="not in the result, as far as the job has reported")
        return with_rank(explained, passes, threshold)

    def preview(self, subscription: Subscription) -> Preview:
        """Return the result that a new subscription would have among the newest messages."""
        return self._engine.preview(subscription)

    def stats(self) -> Stats:
        """Return the counts of messages here, and of everything else as the shards reported it."""
        shards = tuple(self._shards[shard] for shard in sorted(self._shards))
        own = replace(self._engine.stats(), messages=self._seq)
        return replace(own, subscriptions=sum(shards), shards=shards, work={"all": self._work})

    @property
    def now(self) -> float | None:
        """None: the job has the clock."""
        return None

    @property
    def may_expire(self) -> bool:
        """False: the job reports what expires."""
        return False

    def shard_areas(self) -> list[ShardArea]:
        """Return the parts of space and the shards that own them, if the job has learned its routing."""
        epoch = self._log.newest()
        if epoch is None or epoch.routing is None:
            return []
        return unpack(epoch.routing).shard_areas(self._config.space.bounds)

    @property
    def adjustments(self) -> Sequence[Adjustment]:
        """The decisions that led to the routing which the shards report."""
        found = self._log.adjustments()
        return [found[number] for number in sorted(found) if number <= self._epoch]

    def _subscription(self, engine_id: Id) -> Subscription:
        key = SubscriptionKey.parse(engine_id)
        body = self._journal.subscription(key)
        if body is None:
            raise UnknownSubscription(engine_id)
        return subscription_from(body, key.subscriber)

    def _message(self, id_: Id) -> Message:
        body = self._journal.message(str(id_))
        if body is None:
            raise UnknownMessage(id_)
        return message_from(body)

    def _results(self, subscription: Subscription) -> list[StoredResult]:
        """Return the result of a subscription, best first; of an unbounded one, the part in the window."""
        results = self._journal.results(SubscriptionKey.parse(subscription.id))
        policy = subscription.result_policy
        if not policy.is_stateful:
            results = [row for row in results if self._is_in_window(row)]
        return sorted(results, key=lambda row: policy.rank(row.score, row.seq))

    def _is_in_window(self, row: StoredResult) -> bool:
        config = self._config
        if row.seq == 0:
            return False
        if config.window_count is not None:
            return row.seq > self._seq - config.window_count
        if config.window_seconds is None or row.at is None:
            return True
        return row.at > self._now - config.window_seconds


def _check_texts(bodies: Sequence[Body]) -> None:
    for body in bodies:
        _check_string("text", body["text"], f"message {body['id']!r}")


def _check_string(field: str, value: Any, subject: str) -> None:
    """Raise `InvalidInput` for a list of terms: a row of a job has one string, or none."""
    rule = "must be a string where a job on Spark reads it"
    require(value is None or isinstance(value, str), field, rule, value, subject=subject)
