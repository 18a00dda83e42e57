"""A job: everything that stays the same from the first row of a run to the last, sent to every worker once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.engine import Engine, EngineConfig
from nearcast.engine.admission import Admission
from nearcast.engine.clock import CLOCKS, MAX_AHEAD_S, WALL, ClockName
from nearcast.engine.clocked_engine import ClockedShardEngine
from nearcast.engine.shard_engine import ShardEngine
from nearcast.engine.transfer import Flags, Longs, Placement
from nearcast.errors import require
from nearcast.jobs.epochs import Epoch
from nearcast.jobs.message_rows import attribute_columns
from nearcast.jobs.plugins import register_plugins
from nearcast.model import MessageBatch, ScoringContext, Subscription, SubscriptionBatch
from nearcast.model.columns import messages_from_table
from nearcast.partition import MAX_SHARDS, Routing, Sample, place_by_key
from nearcast.partition.balance.changed_area import changed_area
from nearcast.partition.balance.policy import Balance
from nearcast.partition.balance.steps import Refit, Retire
from nearcast.partition.fitting import check_partitioner, fit
from nearcast.partition.serialization import unpack
from nearcast.partition.transition import TransitionRouting, are_old, may_move, place_added
from nearcast.social import SocialGraph

GIVEN = "given"
"""What stands for the name of the partitioner where a fitted routing was given."""


@dataclass(frozen=True)
class Job:
    """The configuration of the shards' engines, and how shards share the work.

    >>> from nearcast import Box, Space
    >>> Job(EngineConfig(space=Space(Box(0, 0, 1, 1))), shards=0)
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: shards must be an integer of 1 or more; got 0 (job)
    """

    config: EngineConfig
    """The options that the engines of all shards have."""
    partitioner: str = "hash"
    shards: int = 1
    threads: int = 1
    """The number of threads of each shard, which share its window and its indexes."""
    tasks: int | None = None
    """The number of Spark tasks that shards are divided among; None for one task per shard."""
    state: str | None = None
    """The folder of the state of a stream, with its epochs; None for static frames."""
    local: str | None = None
    """A folder on each host for engines between batches; by default one that Spark removes with the application."""
    batches_per_snapshot: int = 50
    """The most batches between two snapshots of a shard, which a restart may have to replay."""
    fitted: bytes | None = None
    """The routing, see `nearcast.partition.serialization`; None for a partitioner that needs no sample."""
    plugins: bytes | None = None
    """Registered kinds and partitioners; a process that unpickles the job registers them."""
    clock: ClockName = "event"
    """What moves `now`: the times of messages, or the clock of the job, see `batch_time`."""
    max_ahead_s: float | None = None
    """How far ahead of the clock of the job messages may be; None is 300 with `wall`, and no limit with `event`."""

    has_edges: bool = False
    """True if edges are a source, which may make users known."""
    may_withdraw: bool = False
    """True if messages may be retracted, replaced, or expire by a time of their own."""
    balance: Balance | None = None
    """When the routing of a stream is adjusted to its load; None for never."""
    since: int = 0
    """The step that divides old from new subscriptions in the epoch, see `QueryEpochs.since`."""
    action: str = ""
    """What led to the epoch, see `Epoch.action`."""
    before: bytes | None = None
    """The routing of the epoch before, None if it is unknown: then all subscriptions may move."""

    def __post_init__(self) -> None:
        for name in ("shards", "threads", "batches_per_snapshot"):
            value = getattr(self, name)
            ok = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            require(ok, name, "must be an integer of 1 or more", value, subject="job")
        if self.tasks is not None:
            ok = isinstance(self.tasks, int) and not isinstance(self.tasks, bool) and self.tasks >= 1
            require(ok, "max_shards", "must be an integer of 1 or more", self.tasks, subject="job")
        require(self.shards <= MAX_SHARDS, "shards", f"must be at most {MAX_SHARDS}", self.shards, subject="job")
        require(self.threads <= MAX_SHARDS, "threads", f"must be at most {MAX_SHARDS}", self.threads, subject="job")
        require(self.clock in CLOCKS, "clock", f"must be one of {sorted(CLOCKS)}", self.clock, subject="job")
        ahead = self.max_ahead_s
        if ahead is not None:
            rule = "must be left out unless the clock is 'wall': with 'event' time may be simulated"
            require(self.is_clocked, "max_ahead", rule, ahead, subject="job")
            ok = isinstance(ahead, (int, float)) and not isinstance(ahead, bool) and ahead >= 0
            require(ok, "max_ahead", "must be a number of seconds, 0 or more", ahead, subject="job")
        if self.fitted is None:
            check_partitioner(self.partitioner, n_shards=self.shards, subject="job")

    @property
    def scoring(self) -> ScoringContext:
        """The context in which scores are defined."""
        return self.config.scoring

    @cached_property
    def admission(self) -> Admission:
        """The checks of subscriptions."""
        return Admission(self.config)

    def admit(self, subscriptions: pa.Table) -> list[SubscriptionBatch]:
        """Check subscriptions; whether their users are known is left to the shards if edges are a source."""
        if not self.has_edges or "user" not in subscriptions.column_names:
            return self.admission.admit(subscriptions)
        users = pc.drop_null(pc.unique(subscriptions["user"])).to_pylist()
        return Admission(replace(self.config, social=SocialGraph(users=users))).admit(subscriptions)

    def read_messages(self, rows: pa.Table) -> MessageBatch:
        """Return rows of messages, none of which retracts one, as a batch."""
        names = attribute_columns(self.config.attributes)
        return messages_from_table(
            rows.rename_columns([names.get(name, name) for name in rows.column_names]),
            vocabulary=self.scoring.vocabulary,
            limits=self.config.limits,
            first_seq=1,
            attributes=self.config.attributes,
        )

    @cached_property
    def routing(self) -> Routing:
        """The placement of subscriptions and the routing of messages."""
        if self.fitted is not None:
            found = unpack(self.fitted)
            return found.beginning(self.since) if isinstance(found, TransitionRouting) else found
        return fit(self.partitioner, Sample.none(), n_shards=self.shards, in_threads=False).fixed()

    @cached_property
    def _by_epoch(self) -> dict[tuple[int, int], Job]:
        return {}

    def at(self, epoch: Epoch, *, since: int = 0, before: Epoch | None = None) -> Job:
        """Return the job with the shards and the routing of an epoch; the same object every time.

        Shards need the step by which a transition decides which subscriptions are old, and the epoch before.
        """
        known = epoch.number, since
        if known not in self._by_epoch:
            self._by_epoch[known] = replace(
                self,
                shards=epoch.shards,
                fitted=epoch.routing,
                since=since,
                action=epoch.action,
                before=None if before is None else before.routing,
            )
        return self._by_epoch[known]

    @property
    def n_tasks(self) -> int:
        """The number of Spark tasks that shards are divided among."""
        return self.shards if self.tasks is None else self.tasks

    @cached_property
    def placement(self) -> Placement:
        """Where the routing places subscriptions and sends messages."""
        routing, shards, hash_key = self.routing, self.shards, self.scoring.hash_key
        if routing.by_key:
            return Placement(
                shards,
                routing.sends_all,
                lambda subscriptions, _: place_by_key(subscriptions.keys, shards),
                lambda messages: routing.route(messages.for_routing),
                lambda ids: place_by_key(ids.keys(hash_key), shards),
            )
        return Placement(
            shards,
            routing.sends_all,
            lambda subscriptions, sinces: place_added(routing, subscriptions.routing_footprints, sinces),
            lambda messages: routing.route(messages.for_routing),
            are_old=partial(are_old, routing),
            may_move=self._may_move,
            changed=None if self.before is None else changed_area(unpack(self.before), routing),
        )

    @property
    def _may_move(self) -> Callable[[Longs], Flags] | None:
        if self.action not in (Refit.name, Retire.name):
            return None
        return may_move(begins=self.action == Refit.name, since=self.since)

    @property
    def moves(self) -> bool:
        """True if a replaced subscription of a stateful kind may move to another shard."""
        return self.routing.sends_all and not self.routing.by_key

    @property
    def merges(self) -> bool:
        """True if a subscription may live in several shards, so that results of its replicas have to be merged."""
        return not self.routing.sends_all

    def check_kind(self, kind: type[Subscription], subject: str) -> None:
        """Raise `InvalidInput` for a kind whose merged results could not be filled up after a retraction."""
        ok = not (self.merges and self.may_withdraw and kind.result_policy.must_be_saved)
        rule = (
            f"must send every message to all shards for kind {kind.kind!r} where messages may be retracted, replaced "
            "or expire by a time of their own: have no columns 'op' and 'expires_at', and no packed messages"
        )
        require(ok, "partitioner", rule, self.partitioner, subject=subject)

    @property
    def is_clocked(self) -> bool:
        """True if the clock of the job moves `now`, and messages do not."""
        return self.clock == WALL

    @property
    def ahead_s(self) -> float:
        """How far ahead of the clock messages may be."""
        return MAX_AHEAD_S if self.max_ahead_s is None else self.max_ahead_s

    @property
    def shard_engine(self) -> type[ShardEngine]:
        """The class of the engine of a shard."""
        return ClockedShardEngine if self.is_clocked else ShardEngine

    def new_engine(self) -> Engine:
        """Return an engine without subscriptions, for checks."""
        return Engine.from_config(self.config)

    @property
    def shard_config(self) -> EngineConfig:
        """The options of the engine of a shard, whose threads all see what the shard sees."""
        return replace(self.config, workers=self.threads, partitioner="hash")

    def new_shard_engine(self) -> ShardEngine:
        """Return the engine of a shard before its first batch, in memory."""
        return self.shard_engine.create(self.shard_config)

    @cached_property
    def fixed_settings(self) -> dict[str, Any]:
        """The values that must not change when a stopped run continues, by name.

        The number of shards and the routing may change, see `epochs`. So may `threads`, `index` and `limits`: all
        indexes find the same results, and limits apply to rows that arrive, not to those that shards have; see
        `engine_cache`.
        """
        vocabulary, edges = self.scoring.vocabulary, sorted(map(repr, self.scoring.social.edges()))
        weights = (vocabulary.ids.tobytes(), vocabulary.idfs.tobytes(), repr(vocabulary.default).encode())
        return {
            "tasks": self.n_tasks,
            "partitioner": self.partitioner,
            "space": repr(self.config.space),
            "window": repr(self.config.window),
            "clock": self.clock,
            "text_similarity": self.config.text_similarity,
            "analyzer": self.config.analyzer,
            "bodies": self.config.bodies,
            "attributes": repr(self.config.attributes.to_json()),
            "vocabulary": _digest(*weights),
            "hash_key": _digest(self.scoring.hash_key),
            "social": _digest(*(edge.encode() for edge in edges)),
        }

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the fixed settings."""
        return _digest(repr(self.fixed_settings).encode())

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name in self.__dataclass_fields__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.plugins is not None:
            register_plugins(self.plugins)


def _digest(*parts: bytes) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()
