"""The embedded engine: subscribe, publish, query, explain, save.

    messages ── check, number, weigh ── route ──┬─ shard 0 ─┐
    subscriptions ── check ── place ────────────┤    ...    ├── merge ── updates
                                                └─ shard n ─┘

The engine checks everything in a call before it changes anything, so a batch is all or nothing. Worker threads divide
the work in one of two ways. Subscriptions of stateful kinds are partitioned: each shard advances its own
subscriptions through the messages that it sees. Subscriptions of stateless kinds live in the first shard, and each
thread matches some of the messages, unless the partitioner sends messages to some shards only. Updates come in the
order of the messages; within a step those of one subscription are adjacent, leaves first. An engine has one caller at
a time: it does not lock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.engine import archive
from nearcast.engine.admission import Admission
from nearcast.engine.config import EngineConfig, EngineOptions
from nearcast.engine.message_stream import MessageStream, SeenBy
from nearcast.engine.shard_set import ShardSet
from nearcast.engine.state import EngineState
from nearcast.engine.stats import Stats, add_work, resident_bytes
from nearcast.engine.step_changes import StepChange, difference, differences, to_updates
from nearcast.engine.updates import Form, UpdateBatch, UpdateWriter, count, joined, net
from nearcast.errors import StateError, UnknownMessage, UnknownSubscription, require
from nearcast.index import Work
from nearcast.model import (
    Explanation,
    Id,
    IdColumn,
    Message,
    MessageBatch,
    Preview,
    Result,
    Subscription,
    SubscriptionBatch,
    Timestamp,
    Update,
    check_sizes,
    is_id,
    plain_id,
    to_seconds,
    to_us,
)
from nearcast.model.attributes import NULL
from nearcast.model.columns import (
    EDGE_COLUMNS,
    ID_COLUMNS,
    ArrowTable,
    edges_from_table,
    ids_from_table,
    message_columns,
    messages_from_table,
    subscription_columns,
    updates_to_table,
)
from nearcast.model.inputs import as_table, edges_of, ids_of, messages_of, subscriptions_of
from nearcast.partition.fitting import fit
from nearcast.partition.serialization import pack
from nearcast.text import TermRows
from nearcast.window import ScoredMessage, Ticks

if TYPE_CHECKING:
    from nearcast.engine.folder import EngineFolder
    from nearcast.engine.load_balancer import LoadBalancer
    from nearcast.engine.matcher import Matcher
    from nearcast.engine.result_merger import ResultMerger
    from nearcast.partition import Masks, ShardArea
    from nearcast.partition.balance.adjust import Adjusted
    from nearcast.partition.balance.adjustment import Adjustment


_PREVIEWED = 20_000  # messages that a preview considers
_NONE = np.zeros(0, np.int64)

Longs = npt.NDArray[np.int64]


class Engine:
    """Keeps the result of every subscription exact while messages stream past.

    Options: `space` (required), `vocabulary`, `window`, `social`, `text_similarity`, `analyzer`, `bodies`,
    `attributes`, `workers`, `partitioner`, `balance`, `index`, `limits` and `hash_key`;
    `EngineConfig` describes each.

    >>> from nearcast import Box, Engine, Message, Space, TopKSubscription, CountWindow
    >>> engine = Engine(space=Space(Box(0, 0, 1, 1)), window=CountWindow(100))
    >>> engine.subscribe([TopKSubscription("t1", location=(.2, .3), keywords="jazz", k=1, alpha=.5)])
    []
    >>> engine.publish([Message("m1", (.2, .3), "Jazz!"), Message("m2", (.9, .9), "more jazz")])
    [Update(seq=1, subscription='t1', message='m1', change='enter', score=1.0)]
    >>> engine.results("t1")
    [Result(message='m1', score=1.0)]
    """

    _folder: EngineFolder | None = None
    _is_clocked = False
    _adjustments: tuple[Adjustment, ...] = ()

    def __init__(self, **options: Unpack[EngineOptions]) -> None:
        self._set_up(EngineState(EngineConfig.of(options)))

    @classmethod
    def from_config(cls, config: EngineConfig) -> Engine:
        """Return an engine without subscriptions."""
        engine = cls.__new__(cls)
        engine._set_up(EngineState(config))
        return engine

    def _set_up(self, state: EngineState) -> None:
        self._config = state.config.with_own_graph()
        self._scoring = self._config.scoring
        self._shards = ShardSet(self._config, state.live, self._folder)
        self._balancer = self._make_balancer()
        self._stream = MessageStream(state, self._shards, self._folder, is_clocked=self._is_clocked)
        self._admission = Admission(self._config)
        self._updates = state.updates
        self._edge_changes = state.edge_changes
        self._work_before = state.work

    def _make_balancer(self) -> LoadBalancer | None:
        """Return what adjusts the routing, unless the shards are those of a distributed job, which does that."""
        policy = self._config.balance
        if policy is None or self._folder is not None:
            return None
        from nearcast.engine.load_balancer import LoadBalancer

        fresh = partial(fit, self._config.partitioner, n_shards=self._config.workers)
        return LoadBalancer(policy, self._shards, fresh)

    # -- subscriptions ------------------------------------------------------------------------------------------

    @overload
    def subscribe(self, subscriptions: ArrowTable) -> ArrowTable: ...
    @overload
    def subscribe(self, subscriptions: Iterable[Subscription]) -> list[Update]: ...
    def subscribe(self, subscriptions: Any) -> Any:
        """Add subscriptions and return their initial results as updates.

        A subscription whose id exists is replaced, and the updates are the difference between the two results. If a
        batch holds an id twice, the last one counts.
        """
        return self._subscribe(subscriptions)

    def _subscribe(self, subscriptions: Any, replicas: Callable[[SubscriptionBatch], Masks] | None = None) -> Any:
        """Add subscriptions; `replicas` returns the engines before this one that hold each of a batch."""
        table = as_table(subscriptions, subscription_columns)
        is_table = table is not None
        batches = self._admission.admit(
            table if is_table else subscriptions_of(subscriptions), now_us=self._stream.now_us
        )
        self._shards.prepare(batches)
        self._before_change()
        removed: dict[Id, list[ScoredMessage]] = {}
        for batch in batches:
            removed |= self._shards.remove(batch.ids)
        initial = [
            results
            for batch in batches
            for results in self._shards.insert(
                batch, np.full(len(batch), self._stream.seq, np.int64), None if replicas is None else replicas(batch)
            )
        ]
        if is_table and not removed:
            writer = UpdateWriter(self._stream.now_ticks(), Form.TABLE, self._stream.bodies)
            return self._joined([writer.write_initial_results(*results) for results in initial], Form.TABLE)
        added: dict[Id, list[ScoredMessage]] = {}
        for registry, results in initial:
            by_slot = results.by_slot()
            added |= dict(zip(registry.ids(np.fromiter(by_slot, np.int32)), by_slot.values(), strict=True))
        changes = [
            change
            for id_ in (id_ for batch in (batches if removed or added else ()) for id_ in batch.ids)
            for change in difference(id_, removed.get(id_, []), added.get(id_, []))
        ]
        return self._counted(changes, as_table=is_table)

    def _counted(self, changes: Sequence[StepChange], *, as_table: bool) -> Any:
        """Return changes that happened without a message as updates, and count them."""
        updates = to_updates(changes, seq=self._stream.seq, at=self.now, bodies=self._stream.bodies)
        self._updates += len(updates)
        return self._to_table(updates) if as_table else updates

    def _to_table(self, updates: Sequence[Update]) -> pa.Table:
        return updates_to_table(updates, bodies=self._stream.bodies is not None)

    def _locate(self, id_: Any) -> tuple[Matcher | ResultMerger, int]:
        """Return the owner of a subscription's result and the slot there."""
        id_ = plain_id(id_)
        located = self._shards.locate(id_) if is_id(id_) else None
        if located is None:
            raise UnknownSubscription(id_)
        return located

    def unsubscribe(self, ids: Iterable[Id] | ArrowTable) -> None:
        """Remove subscriptions, all of which must exist."""
        table = as_table(ids, lambda: ID_COLUMNS)
        leaving = self._existing(ids_of(ids) if table is None else ids_from_table(table).objects)
        self._before_change()
        self._shards.remove(leaving, leaves=False)

    def _existing(self, ids: Any) -> IdColumn:
        """Return ids without duplicates, all of which exist."""
        listed = []
        for id_ in ids:
            if not is_id(id_):
                raise UnknownSubscription(id_)
            listed.append(id_)
        column = IdColumn.of(list(dict.fromkeys(listed)))
        missing = self._shards.missing(column)
        if missing.any():
            raise UnknownSubscription(column[int(np.argmax(missing))])
        return column

    # -- social graph -------------------------------------------------------------------------------------------

    @overload
    def add_edges(self, edges: ArrowTable) -> ArrowTable: ...
    @overload
    def add_edges(self, edges: Iterable[tuple[Id, Id]]) -> list[Update]: ...
    def add_edges(self, edges: Any) -> Any:
        """Add edges (user, place) to the social graph and return the updates, under the seq of the last message.

        New users and places become known. Edges that exist are left as they are.
        """
        return self._change_edges(edges, self._scoring.social.add_edges)

    @overload
    def remove_edges(self, edges: ArrowTable) -> ArrowTable: ...
    @overload
    def remove_edges(self, edges: Iterable[tuple[Id, Id]]) -> list[Update]: ...
    def remove_edges(self, edges: Any) -> Any:
        """Remove edges (user, place) from the social graph, all of which must exist, and return the updates."""
        return self._change_edges(edges, self._scoring.social.remove_edges)

    def _change_edges(self, edges: Any, change: Callable[[Any], list[Id]]) -> Any:
        table = as_table(edges, lambda: EDGE_COLUMNS)
        is_table = table is not None
        listed = edges_from_table(table) if is_table else list(edges_of(edges))
        for edge in listed:
            for end in edge if isinstance(edge, tuple) else ():
                self._config.limits.check_id(end, "edges")
        users = set(change(listed))
        changes: list[StepChange] = []
        if users:
            self._before_change()
            self._edge_changes += 1
            changes = differences(self._shards.refresh_users(users, self._stream.seq))
        return self._counted(changes, as_table=is_table)

    # -- messages -----------------------------------------------------------------------------------------------

    @overload
    def publish(
        self, messages: ArrowTable | MessageBatch, *, conflate: bool = ..., grouped: bool = ...
    ) -> ArrowTable: ...
    @overload
    def publish(self, messages: Iterable[Message], *, conflate: bool = ...) -> list[Update]: ...
    def publish(self, messages: Any, *, conflate: bool = False, grouped: bool = False) -> Any:
        """Publish messages in order and return the updates.

        With `conflate` the updates are the net effect of the whole batch: a message that enters a result and leaves
        it again before the end is left out, and one that changes several times is reported once, at its last change.

        With `grouped`, for tables, updates that differ in subscription and score only share one row with lists of
        both: far fewer bytes where a message has many receivers. `ungroup` expands them.
        """
        table = as_table(messages, self._message_columns)
        is_table = table is not None or isinstance(messages, MessageBatch)
        require(is_table or not grouped, "grouped", "must be False unless messages are a table", grouped)
        form = (Form.GROUPS if grouped else Form.TABLE) if is_table else Form.OBJECTS
        batch = self._batch(messages if table is None else table)
        return self._publish(batch, self._stream.ticks(batch.ats_us), form, conflate=conflate)

    def _publish(
        self,
        batch: MessageBatch,
        ticks: Ticks,
        form: Form,
        *,
        conflate: bool = False,
        seen_by: Masks | None = None,
        replaced: Longs | None = None,
        replaced_in: SeenBy | None = None,
    ) -> Any:
        """Publish a batch as the given steps; see `MessageStream.publish`."""
        self._stream.check_times(batch, ticks.ats_us)
        self._before_change()
        if self._balancer is not None:
            self._balancer.begin()
        found = self._stream.publish(batch, ticks, form, seen_by=seen_by, replaced=replaced, replaced_in=replaced_in)
        updates = self._joined(found, form, conflate=conflate)
        if self._balancer is not None and (made := self._balancer.end(len(batch), seq=self._stream.seq)) is not None:
            self._adjust(made)
        return updates

    @overload
    def retract(self, ids: ArrowTable, *, only: Collection[int] | None = ...) -> ArrowTable: ...
    @overload
    def retract(self, ids: Iterable[Id], *, only: Collection[int] | None = ...) -> list[Update]: ...
    def retract(self, ids: Any, *, only: Collection[int] | None = None) -> Any:
        """Withdraw messages in one step, and return the updates under the seq of the last message.

        All messages of the window that have one of the ids leave every result, which is filled up again, and so do
        messages that only a `nearest` result still holds. Subscriptions of kinds that only report matches get a leave
        for each message of the window that they matched. With `only`, the messages with other seqs
        stay: several publishers may use one id.
        """
        table = as_table(ids, lambda: ID_COLUMNS)
        is_table = table is not None
        given = ids_from_table(table) if is_table else IdColumn.of([plain_id(id_) for id_ in ids_of(ids)])
        column = IdColumn.of(list(dict.fromkeys(given)))
        rows, seqs = self._stream.seqs_of(column, only)
        unknown = np.setdiff1d(np.arange(len(column)), rows)
        if len(unknown):
            raise UnknownMessage(column[int(unknown[0])])
        self._before_change()
        return self._counted(self._stream.retract(seqs), as_table=is_table)

    @overload
    def replace(self, messages: ArrowTable, *, only: Collection[int] | None = ...) -> ArrowTable: ...
    @overload
    def replace(self, messages: Iterable[Message], *, only: Collection[int] | None = ...) -> list[Update]: ...
    def replace(self, messages: Any, *, only: Collection[int] | None = None) -> Any:
        """Publish messages, each in place of what the window holds under its id, and return the updates.

        Each message is one step, with a new seq, at which the old message leaves and the new one arrives. So a
        subscription that had the old one and has the new one gets a leave and an enter under the same id. A message
        with an unknown id is simply published. With `only`, messages with other seqs are not replaced.
        """
        table = as_table(messages, self._message_columns)
        batch = self._batch(messages if table is None else table)
        self._stream.check_times(batch, batch.ats_us)
        held, n_before = self._stream.seqs_by_id(batch.ids, only), self._updates
        updates, late, start = list[Update](), list[int](), 0
        for row, id_ in enumerate(batch.ids):
            old = held.pop(id_, [])
            if old:
                updates += self._publish_rows(batch, start, row, late)
                updates += self._publish_rows(batch, row, row + 1, late, np.array(old, np.int64))
                start = row + 1
            held[id_] = [self._stream.seq + row + 1 - start]
        updates += self._publish_rows(batch, start, len(batch), late)
        self._stream.late_seqs, self._updates = tuple(late), n_before + len(updates)
        return updates if table is None else self._to_table(updates)

    def _publish_rows(
        self,
        batch: MessageBatch,
        start: int,
        stop: int,
        late: list[int],
        replaced: Longs | None = None,
    ) -> list[Update]:
        """Publish some messages of a batch, the first in place of others, and note those that came late."""
        if start == stop:
            return []
        part = batch.slice(start, stop)
        part = replace(part, seqs=np.arange(self._stream.seq + 1, self._stream.seq + 1 + len(part), dtype=np.int64))
        updates: list[Update] = self._publish(part, self._stream.ticks(part.ats_us), Form.OBJECTS, replaced=replaced)
        late += self._stream.late_seqs
        return updates

    def check_messages(self, messages: Iterable[Message]) -> None:
        """Raise what `publish` would raise, and change nothing."""
        table = as_table(messages, self._message_columns)
        batch = self._batch(messages if table is None else table)
        self._stream.check_times(batch, batch.ats_us)

    def _message_columns(self) -> list[str]:
        return message_columns(self._config.attributes)

    def _batch(self, messages: Any) -> MessageBatch:
        attributes = self._config.attributes
        vocabulary, limits, first_seq = self._scoring.vocabulary, self._config.limits, self._stream.seq + 1
        if isinstance(messages, MessageBatch):
            if isinstance(messages.texts, TermRows):
                has_key = messages.vocabulary.hash_key == vocabulary.hash_key
                require(has_key, "messages", "must hold terms hashed with the engine's key", "terms with another key")
                analyzer = messages.vocabulary.analyzer
                rule = f"must hold terms of the engine's analyzer {vocabulary.analyzer.name!r}"
                require(analyzer == vocabulary.analyzer, "messages", rule, analyzer.name)
            seqs = np.arange(first_seq, first_seq + len(messages), dtype=np.int64)
            codes = messages.codes
            if len(attributes) and codes is None:
                codes = np.full((len(messages), len(attributes)), NULL, np.int64)
            batch = replace(messages, seqs=seqs, vocabulary=vocabulary, codes=codes if len(attributes) else None)
        elif isinstance(messages, pa.Table):
            batch = messages_from_table(
                messages, vocabulary=vocabulary, limits=limits, first_seq=first_seq, attributes=attributes
            )
        else:
            listed = messages_of(messages)
            check_sizes(listed, limits, attributes)
            batch = MessageBatch.from_messages(
                listed, vocabulary=vocabulary, first_seq=first_seq, attributes=attributes
            )
        batch.check(self._config.space)
        if not self._config.bodies and batch.bodies is not None:
            batch = replace(batch, bodies=None)
        if self._config.window is not None:
            batch.prepare_order()  # the window keeps it
        return batch

    def advance(self, now: Timestamp) -> list[Update]:
        """Advance the clock without a message and return the updates of what expires.

        The updates carry the seq of the last message. Time never goes back: an earlier `now` changes nothing.
        """
        now_us = to_us(now, field="now")
        self._before_change()
        updates: list[Update] = self._joined(self._stream.advance(now_us, Form.OBJECTS), Form.OBJECTS)
        return updates

    @property
    def now(self) -> float | None:
        """The time of the engine in seconds since the epoch; None before the first message with a time."""
        return to_seconds(self._stream.now_us)

    @property
    def may_expire(self) -> bool:
        """True if `advance` alone can change a result, or end a subscription: something waits for its time."""
        return self._stream.may_expire

    @property
    def late_seqs(self) -> tuple[int, ...]:
        """The `seq` of each message of the last call that had expired on arrival."""
        return self._stream.late_seqs

    def _joined(self, parts: Sequence[UpdateBatch], form: Form, *, conflate: bool = False) -> Any:
        """Return the updates of all shards in order, and count them."""
        updates = joined(parts, form, bodies=self._stream.bodies is not None)
        if conflate:
            updates = net(updates, form)
        self._updates += count(updates, form)
        return updates

    # -- queries ------------------------------------------------------------------------------------------------

    def results(self, subscription: Id) -> list[Result]:
        """Return the current result of a subscription, best first.

        Stateless kinds store no results: theirs are the matches since the subscription that are still in the window.
        """
        return [Result(scored.message, scored.score) for scored in self.scored_messages(subscription)]

    def scored_messages(self, subscription: Id) -> list[ScoredMessage]:
        """Return the current result with the `seq` of each message: several messages may have the same id."""
        owner, slot = self._locate(subscription)
        if not owner.kind.result_policy.is_stateful and self._config.window is None:
            kind = owner.kind.kind
            raise StateError(f"matches of kind {kind!r} are looked up in the window, and this engine has none")
        return list(owner.results(slot, self._shards.batches_touching))

    def bodies(self, seqs: Iterable[int]) -> list[str | None]:
        """Return the bodies of messages by `seq`, None where there is none or the engine holds it no more."""
        if self._stream.bodies is None:
            raise StateError("an engine stores bodies only with bodies=True; this one has bodies=False")
        found: list[str | None] = self._stream.bodies.of(np.fromiter(seqs, np.int64)).to_pylist()
        return found

    def explain(self, subscription: Id, message: Message | Id) -> Explanation:
        """Return each part of a message's score for a subscription, and the threshold that the score must reach.

        The message is one of the window, by id (the newest, if several have it), or a `Message` as if published now.
        Only for a `Message` the explanation has highlights: the window holds terms and not texts.
        """
        owner, slot = self._locate(subscription)
        if not isinstance(message, Message):
            return owner.explain(slot, self._shards.find(message))
        explained = owner.explain(slot, self._batch([message]).documents[0])
        return explained.with_highlights(message.text, self._scoring.vocabulary.analyzer)

    def preview(self, subscription: Subscription, *, among: int = _PREVIEWED, most: int = 100) -> Preview:
        """Return what a subscription would hold of the newest messages of the window, best first, with explanations.

        Nothing is subscribed. Stateful kinds hold k messages, others all that match; at most `most` are returned.
        """
        self.check([subscription])
        score_of, policy = subscription.scorer(self._scoring), subscription.result_policy
        (footprint,) = SubscriptionBatch.of([subscription], self._scoring).footprints
        seqs = self._shards.seqs
        after = int(seqs[-among - 1]) if len(seqs) > among else 0
        documents = self._shards.touching(footprint, after=after)
        scored = {d.seq: (score, d) for d in documents if (score := score_of(d)) is not None}
        total = len(scored) if subscription.n_results is None else min(subscription.n_results, len(scored))
        best = policy.best(((score, seq) for seq, (score, _) in scored.items()), min(total, most))
        explained = (subscription.explanation(scored[seq][1], self._scoring) for _, seq in best)
        return Preview([replace(explanation, passes=True) for explanation in explained], total, min(among, len(seqs)))

    def score(self, subscription: Subscription, message: Message) -> Explanation:
        """Return the parts of a message's score for a subscription that need not exist; there is no threshold."""
        self.check([subscription])
        explained = subscription.explanation(self._batch([message]).documents[0], self._scoring)
        return explained.with_highlights(message.text, self._scoring.vocabulary.analyzer)

    def check(self, subscriptions: Iterable[Subscription]) -> None:
        """Raise what `subscribe` would raise, and change nothing."""
        table = as_table(subscriptions, subscription_columns)
        self._admission.admit(subscriptions_of(subscriptions) if table is None else table, now_us=self._stream.now_us)

    def shard_areas(self) -> list[ShardArea]:
        """Return the part of space that belongs to each worker; empty unless the partitioner divides space."""
        return self._shards.router.shard_areas(self._config.space.bounds)

    def __len__(self) -> int:
        """Return the number of subscriptions."""
        return sum(self._shards.kinds().values())

    def __contains__(self, subscription: Id) -> bool:
        id_ = plain_id(subscription)
        return is_id(id_) and self._shards.locate(id_) is not None

    def subscriptions(self) -> Iterator[Subscription]:
        """Yield all subscriptions, kind by kind.

        >>> from nearcast import Box, Engine, NearestSubscription, Space
        >>> engine = Engine(space=Space(Box(0, 0, 1, 1)))
        >>> engine.subscribe(NearestSubscription("n1", location=(0.2, 0.3), keywords="ramen", k=5))
        []
        >>> list(engine.subscriptions())
        [NearestSubscription(id='n1', location=(0.2, 0.3), keywords='ramen', k=5)]
        """
        yield from self._shards.subscriptions()

    def __repr__(self) -> str:
        kinds = ", ".join(f"{n:,} {kind}" for kind, n in self._shards.kinds().items() if n)
        window = self._config.window
        return f"<Engine: {kinds or 'no'} subscriptions, {self._stream.seq:,} messages, {window or 'no window'}>"

    def stats(self) -> Stats:
        """Return counts, memory, and the work done so far."""
        kinds = self._shards.kinds()
        return Stats(
            messages=self._stream.seq,
            late=self._stream.late,
            window=self._shards.n_live(),
            subscriptions=sum(kinds.values()),
            updates=self._updates,
            memory_bytes=resident_bytes(),
            kinds=kinds,
            shards=tuple(len(shard) for shard in self._shards.shards),
            work=self._work(),
        )

    def _work(self) -> dict[str, Work]:
        total = dict(self._work_before)
        for kind, work in self._shards.work().items():
            total[kind] = add_work(total.get(kind, Work()), work)
        return total

    # -- saving -------------------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write the whole engine to a folder; a saved engine that is there is replaced in one step."""
        archive.write(self._state(), path)

    @classmethod
    def load(cls, path: str | PathLike[str], *, workers: int | None = None) -> Engine:
        """Return an engine that continues where the saved one stopped, by default with as many workers."""
        engine, state = cls.__new__(cls), archive.read(path)
        state = state if workers is None else state.rescaled(workers)
        with archive.as_format_errors(path):
            engine._restore(state)
        return engine

    def rescale(self, workers: int) -> None:
        """Continue with another number of workers; no update depends on it.

        If all workers see every message, as with `hash`, they share everything but results, and the cost is a copy of
        these. With other partitioners the shards are built again.

        >>> from nearcast import Box, Engine, Space
        >>> engine = Engine(space=Space(Box(0, 0, 1, 1)))
        >>> engine.rescale(4)
        >>> engine.workers
        4
        """
        if workers == self._config.workers:
            return
        config = replace(self._config, workers=workers)
        if self._shards.rescale(config):
            self._config = config
            return
        self._rebuild(self._state().rescaled(workers))

    @property
    def workers(self) -> int:
        """The number of threads that share the work."""
        return self._config.workers

    def _adjust(self, made: Adjusted) -> None:
        """Continue with an adjusted routing; shards with windows of their own are built again, as these change."""
        self._adjustments += (made.adjustment,)
        if self._config.window is None:
            self._shards.reroute(made.routing)
        else:
            self._rebuild(replace(self._state(), routing=pack(made.routing)))

    def _rebuild(self, state: EngineState) -> None:
        """Continue with other shards, from the state of the present ones."""
        shards, late_seqs, balancer = self._shards, self._stream.late_seqs, self._balancer
        self._restore(state)
        self._stream.late_seqs = late_seqs
        if self._balancer is not None and balancer is not None:
            self._balancer.n_periods = balancer.n_periods
        shards.close()

    @property
    def adjustments(self) -> tuple[Adjustment, ...]:
        """The decisions with which `balance` has adjusted the routing, since the engine was created or loaded."""
        return self._adjustments

    def _restore(self, state: EngineState) -> None:
        self._set_up(state)
        batches = [SubscriptionBatch(saved.kind, saved.stored, self._scoring) for saved in state.subscriptions]
        if state.routing is not None:
            self._shards.resume(state.routing)
        self._shards.prepare(batches)
        for batch, saved in zip(batches, state.subscriptions, strict=True):
            self._shards.restore(batch, saved)

    def _before_change(self) -> None:
        """Prepare for a change of state; called once a request has passed all checks."""

    def _counters(self) -> dict[str, int]:
        return {
            "seq": self._stream.seq,
            "now_us": self._stream.now_us,
            "late": self._stream.late,
            "updates": self._updates,
            "edge_changes": self._edge_changes,
        }

    def _state(self) -> EngineState:
        return EngineState(
            self._config,
            **self._counters(),
            work=self._work(),
            live=self._shards.live(),
            bodies=self._stream.body_table(),
            expiries=self._stream.expiry_table(),
            subscriptions=list(self._shards.saved()),
            routing=self._shards.router.packed(),
        )

    def close(self) -> None:
        """Stop the worker threads; the engine must not be used afterwards."""
        self._shards.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
