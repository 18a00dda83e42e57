"""What can be said about answers that a job elsewhere keeps? What it has told so far, and what messages are worth.

Results are those that its updates add up to, as the journal holds them. Scores are this process's own: an engine
without subscriptions has the newest messages and judges everything that comes in, by the rules that the job goes by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nearcast.engine.explain import ranked
from nearcast.engine.stats import Stats
from nearcast.errors import UnknownMessage, UnknownSubscription, require
from nearcast.index import Work
from nearcast.model import Explanation, Id, Message, Result, ResultPolicy, Subscription
from nearcast.partition import Region
from nearcast.partition.serialization import unpack
from nearcast.service.commands import Body, engine_id, message_of, subscription_of
from nearcast.service.config import ServiceConfig
from nearcast.service.journal import Reading, StoredResult
from nearcast.spark.folder import Folder
from nearcast.spark.job import Job

_KNOWN = 20_000  # messages that a preview looks at, after a restart


class SparkReadModel:
    """Answers questions, and judges what is to be told to the job."""

    def __init__(self, world: ServiceConfig, reading: Reading) -> None:
        self._world, self._reading = world, reading
        self._engine = world.engine()
        self._seq, self._now = reading.last_seq(), float("-inf")
        self._take_in(reading.newest(_KNOWN))
        self._shards: dict[int, int] = dict.fromkeys(range(world.workers), 0)
        self._work = Work()

    def close(self) -> None:
        """Let the engine go."""
        self._engine.close()

    # -- judging ------------------------------------------------------------------------------------------------

    def publish(self, bodies: Iterable[Body]) -> None:
        """Take in messages, or raise what is wrong with them."""
        listed = list(bodies)
        for body in listed:
            _check_written("text", body, f"message {body['id']!r}")
        self._take_in(listed)
        self._seq += len(listed)

    def _take_in(self, bodies: Sequence[Body]) -> None:
        self._engine.publish([message_of(body) for body in bodies])
        self._now = max([self._now, *(body["at"] for body in bodies)])

    def check(self, subscriptions: Iterable[Body], subscriber: str, job: Job) -> None:
        """Raise what is wrong with subscriptions."""
        made = []
        for body in subscriptions:
            subject = f"subscription {engine_id(subscriber, body['id'])!r}"
            _check_written("keywords", body, subject)
            made.append(subscription_of(body, subscriber))
            job.check_kind(type(made[-1]), subject)
        self._engine.check(made)

    def take(self, reports: Iterable[Mapping[str, Any]]) -> None:
        """Note how shards fare."""
        for report in reports:
            self._shards[report["shard"]] = report["subscriptions"]
            done = {name: report.get(name, 0) for name in ("visited", "candidates", "verified")}
            self._work = Work(**{name: getattr(self._work, name) + n for name, n in done.items()})

    # -- questions ----------------------------------------------------------------------------------------------

    def results(self, subscription: Id) -> list[Result]:
        """Return what the result of a subscription holds, as far as the job has told, best first."""
        return [Result(held.message, held.score) for held in self._held(self._known(subscription))]

    def explain(self, subscription: Id, message: Message | Id) -> Explanation:
        """Say how a message fares for a subscription, and among what its result holds."""
        asked = self._known(subscription)
        said = message if isinstance(message, Message) else self._message(message)
        explained = self._engine.weigh(asked, said)
        if asked.keeps is ResultPolicy.MATCHES or explained.score is None:
            return explained
        held, k = self._held(asked), getattr(asked, "k", 0)
        threshold = held[-1].score if len(held) >= k else None
        is_there = any(one.message == said.id for one in held)
        beats = threshold is None or (
            explained.score < threshold if asked.keeps is ResultPolicy.BEST_EVER else explained.score >= threshold
        )
        passes = is_there or (isinstance(message, Message) and beats)
        return ranked(explained, passes, threshold) if passes or threshold is not None else _not_in(explained)

    def preview(self, subscription: Subscription) -> list[Explanation]:
        """Say what a subscription would hold among the newest messages."""
        return self._engine.preview(subscription)

    def stats(self) -> Stats:
        """Return what the engine here knows of messages, and the job's shards have reported of the rest."""
        shards = tuple(self._shards[shard] for shard in sorted(self._shards))
        here = replace(self._engine.stats(), messages=self._seq)
        return replace(here, subscriptions=sum(shards), shards=shards, work={"all": self._work})

    def regions(self) -> list[Region]:
        """Return which part of space belongs to which shard, if the job has learned that."""
        plan = self._world.plan
        folder = Folder(f"{plan.place(plan.run.checkpoint)}/state")
        name = f"{plan.match.partitioner}-{plan.match.shards}.routing"
        if folder.size(name) is None:
            return []
        return unpack(folder.read(name)).regions(self._world.space.bounds)

    def _known(self, name: Id) -> Subscription:
        subscriber, _, id_ = str(name).partition("/")
        body = self._reading.subscription(subscriber, id_)
        if body is None:
            raise UnknownSubscription(name)
        return subscription_of(body, subscriber)

    def _message(self, id_: Id) -> Message:
        body = self._reading.message(str(id_))
        if body is None:
            raise UnknownMessage(id_)
        return message_of(body)

    def _held(self, subscription: Subscription) -> list[StoredResult]:
        """Return what is held, best first; of what only grows, what is still in the window."""
        subscriber, _, id_ = str(subscription.id).partition("/")
        held = self._reading.held(subscriber, id_)
        if subscription.keeps is ResultPolicy.BEST_EVER:
            return sorted(held, key=lambda one: (one.score, one.seq))
        if subscription.keeps is ResultPolicy.MATCHES:
            held = [one for one in held if self._is_in_window(one)]
        return sorted(held, key=lambda one: (-one.score, -one.seq))

    def _is_in_window(self, held: StoredResult) -> bool:
        world = self._world
        if held.seq == 0:
            return False
        if world.window_count is not None:
            return held.seq > self._seq - world.window_count
        if world.window_seconds is None or held.at is None:
            return True
        return held.at > self._now - world.window_seconds


def _not_in(explained: Explanation) -> Explanation:
    return replace(explained, passes=False, reason="not in the result, as far as the job has told")


def _check_written(field: str, body: Mapping[str, Any], subject: str) -> None:
    """Raise `InvalidInput` for words that a row of a job cannot hold."""
    value = body[field]
    rule = "must be a string where a job on Spark reads it"
    require(isinstance(value, str), field, rule, value, subject=subject)
