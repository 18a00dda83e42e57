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

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

import numpy as np
import pyarrow as pa

from nearcast.engine import archive
from nearcast.engine.admission import Admission
from nearcast.engine.config import EngineConfig, EngineOptions
from nearcast.engine.shard_set import ShardSet
from nearcast.engine.state import EngineState
from nearcast.engine.stats import Stats, add_work, resident_bytes
from nearcast.engine.updates import Form, UpdateBatch, count, joined, net, write_initial_results
from nearcast.errors import InvalidInput, StateError, UnknownSubscription, require
from nearcast.index import Work
from nearcast.model import (
    ENTER,
    LEAVE,
    NO_TIME,
    Explanation,
    Id,
    IdColumn,
    Message,
    MessageBatch,
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
from nearcast.model.columns import ArrowTable, edges_from_table, ids_from_table, messages_from_table, updates_to_table
from nearcast.model.inputs import as_table, edges_of, ids_of, messages_of, subscriptions_of
from nearcast.window import ScoredMessage, Ticks

if TYPE_CHECKING:
    from nearcast.engine.folder import EngineFolder
    from nearcast.engine.matcher import Matcher
    from nearcast.engine.result_merger import ResultMerger
    from nearcast.partition import Masks, Region


_PREVIEWED = 20_000  # messages that a preview considers


class Engine:
    """Keeps the result of every subscription exact while messages stream past.

    Options: `space` (required), `vocabulary`, `window`, `social`, `text_similarity`, `workers`, `partitioner`,
    `index` and `limits`; `EngineConfig` describes each.

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
        self._admission = Admission(self._config)
        self._seq, self._now_us = state.seq, state.now_us
        self._late, self._updates = state.late, state.updates
        self._edge_changes = state.edge_changes
        self._work_before = state.work

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
        table = as_table(subscriptions)
        is_table = table is not None
        batches = self._admission.admit(table if is_table else subscriptions_of(subscriptions))
        self._shards.prepare(batches)
        self._before_change()
        removed: dict[Id, list[ScoredMessage]] = {}
        for batch in batches:
            removed |= self._shards.remove(batch.ids)
        initial = [
            results
            for batch in batches
            for results in self._shards.insert(
                batch, np.full(len(batch), self._seq, np.int64), None if replicas is None else replicas(batch)
            )
        ]
        if is_table and not removed:
            parts = [write_initial_results(*results, seq=self._seq, at_us=self._now_us) for results in initial]
            entered = joined(parts, Form.TABLE)
            self._updates += len(entered)
            return entered
        added: dict[Id, list[ScoredMessage]] = {}
        for registry, results in initial:
            by_slot = results.by_slot()
            added |= dict(zip(registry.ids(np.fromiter(by_slot, np.int32)), by_slot.values(), strict=True))
        updates = [
            update
            for id_ in (id_ for batch in (batches if removed or added else ()) for id_ in batch.ids)
            for update in self._difference(id_, removed.get(id_, []), added.get(id_, []))
        ]
        self._updates += len(updates)
        return updates_to_table(updates) if is_table else updates

    def _locate(self, id_: Any) -> tuple[Matcher | ResultMerger, int]:
        """Return the owner of a subscription's result and the slot there."""
        id_ = plain_id(id_)
        located = self._shards.locate(id_) if is_id(id_) else None
        if located is None:
            raise UnknownSubscription(id_)
        return located

    def _difference(self, id_: Id, before: list[ScoredMessage], after: list[ScoredMessage]) -> list[Update]:
        old, new = {scored.seq for scored in before}, {scored.seq for scored in after}
        at = to_seconds(self._now_us)
        leaves = [Update(self._seq, id_, s.message, LEAVE, s.score, at) for s in before if s.seq not in new]
        enters = [Update(self._seq, id_, s.message, ENTER, s.score, at) for s in after if s.seq not in old]
        return leaves + enters

    def unsubscribe(self, ids: Iterable[Id] | ArrowTable) -> None:
        """Remove subscriptions, all of which must exist."""
        table = as_table(ids)
        leaving = self._existing(ids_of(ids) if table is None else ids_from_table(table).objects)
        self._before_change()
        self._shards.remove(leaving)

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
        table = as_table(edges)
        is_table = table is not None
        users = set(change(edges_from_table(table) if is_table else edges_of(edges)))
        updates: list[Update] = []
        if users:
            self._before_change()
            self._edge_changes += 1
            for registry, before, after in self._shards.refresh_users(users, self._seq):
                slots = np.fromiter(dict.fromkeys([*before, *after]), np.int32)
                for slot, id_ in zip(slots.tolist(), registry.ids(slots), strict=True):
                    updates += self._difference(id_, before.get(slot, []), after.get(slot, []))
        self._updates += len(updates)
        return updates_to_table(updates) if is_table else updates

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
        table = as_table(messages)
        is_table = table is not None or isinstance(messages, MessageBatch)
        require(is_table or not grouped, "grouped", "must be False unless messages are a table", grouped)
        form = (Form.GROUPS if grouped else Form.TABLE) if is_table else Form.OBJECTS
        batch = self._batch(messages if table is None else table)
        return self._publish(batch, self._ticks(batch.ats_us), form, conflate=conflate)

    def _publish(
        self, batch: MessageBatch, ticks: Ticks, form: Form, *, conflate: bool = False, seen_by: Masks | None = None
    ) -> Any:
        """Publish a batch as the given steps; `seen_by` holds the engines that see each message, if several do."""
        policy = self._config.window
        if policy is not None and policy.needs_time and (ticks.ats_us == NO_TIME).any():
            subject = f"message {batch.ids[int(np.argmax(batch.ats_us == NO_TIME))]!r}" if len(batch) else "stream"
            raise InvalidInput("at", "must be given where the window is a TimeWindow", None, subject=subject)
        self._before_change()
        self._seq += len(ticks.seqs)
        if len(ticks.seqs):
            self._now_us = int(ticks.nows_us[-1])
        in_time = self._in_time(batch, ticks)
        if seen_by is not None and len(in_time) < len(batch):
            seen_by = seen_by[np.searchsorted(batch.seqs, in_time.seqs)]
        return self._joined(self._shards.publish(in_time, ticks, form, seen_by), form, conflate=conflate)

    def _ticks(self, ats_us: Any) -> Ticks:
        """Return the next steps of the stream, by the times of their messages."""
        seqs = np.arange(self._seq + 1, self._seq + 1 + len(ats_us), dtype=np.int64)
        return Ticks(seqs, ats_us, np.maximum.accumulate(np.maximum(ats_us, self._now_us)))

    def _in_time(self, batch: MessageBatch, ticks: Ticks) -> MessageBatch:
        """Return the messages that have not expired on arrival; count the late ones of the whole stream."""
        policy = self._config.window
        if policy is None:
            return batch
        expired = policy.key(ticks.seqs, ticks.ats_us) <= policy.horizon(ticks.seqs, ticks.nows_us)
        late = np.broadcast_to(expired, len(ticks.seqs))
        if not late.any():
            return batch
        self._late += int(late.sum())
        return batch.take(np.flatnonzero(~late[batch.seqs - ticks.seqs[0]]))

    def _batch(self, messages: Any) -> MessageBatch:
        vocabulary, limits, first_seq = self._scoring.vocabulary, self._config.limits, self._seq + 1
        if isinstance(messages, MessageBatch):
            seqs = np.arange(first_seq, first_seq + len(messages), dtype=np.int64)
            batch = replace(messages, seqs=seqs, vocabulary=vocabulary)
        elif isinstance(messages, pa.Table):
            batch = messages_from_table(messages, vocabulary=vocabulary, limits=limits, first_seq=first_seq)
        else:
            listed = messages_of(messages)
            batch = MessageBatch.from_messages(listed, vocabulary=vocabulary, first_seq=first_seq)
            check_sizes(batch.ids, [m.text for m in listed], limits)
        batch.check(self._config.space)
        return batch

    def advance(self, now: Timestamp) -> list[Update]:
        """Advance the clock without a message and return the updates of what expires.

        The updates carry the seq of the last message. Time never goes back: an earlier `now` changes nothing.
        """
        now_us = to_us(now, field="now")
        self._before_change()
        self._now_us = max(self._now_us, now_us)
        now_column = np.array([self._now_us], dtype=np.int64)
        ticks = Ticks(np.array([self._seq], dtype=np.int64), now_column, now_column)
        updates: list[Update] = self._joined(self._shards.advance(self._seq, ticks), Form.OBJECTS)
        return updates

    def _joined(self, parts: Sequence[UpdateBatch], form: Form, *, conflate: bool = False) -> Any:
        """Return the updates of all shards in order, and count them."""
        updates = joined(parts, form)
        if conflate:
            updates = net(updates, form)
        self._updates += count(updates, form)
        return updates

    # -- queries ------------------------------------------------------------------------------------------------

    def results(self, subscription: Id) -> list[Result]:
        """Return the current result of a subscription, best first.

        Stateless kinds store no results: theirs are the matches since the subscription that are still in the window.
        """
        owner, slot = self._locate(subscription)
        if not owner.kind.result_policy.is_stateful and self._config.window is None:
            kind = owner.kind.kind
            raise StateError(f"matches of kind {kind!r} are looked up in the window, and this engine has none")
        return [Result(scored.message, scored.score) for scored in owner.results(slot, self._shards.documents)]

    def explain(self, subscription: Id, message: Message | Id) -> Explanation:
        """Return each part of a message's score for a subscription, and the threshold that the score must reach.

        The message is one of the window, by id (the newest, if several have it), or a `Message` as if published now.
        """
        owner, slot = self._locate(subscription)
        document = self._batch([message]).documents[0] if isinstance(message, Message) else self._shards.find(message)
        return owner.explain(slot, document)

    def preview(self, subscription: Subscription, *, among: int = _PREVIEWED, most: int = 100) -> list[Explanation]:
        """Return what a subscription would hold of the newest messages of the window, best first, with explanations.

        Nothing is subscribed. Stateful kinds hold k messages, others all that match; at most `most` are returned.
        """
        self.check([subscription])
        score_of, policy = subscription.bind(self._scoring), subscription.result_policy
        documents = sorted(self._shards.documents(among), key=lambda document: document.seq)[-among:]
        scored = {d.seq: (score, d) for d in documents if (score := score_of(d)) is not None}
        k = most if subscription.n_results is None else min(subscription.n_results, most)
        best = policy.best(((score, seq) for seq, (score, _) in scored.items()), k)
        explained = (subscription.explain(scored[seq][1], self._scoring) for _, seq in best)
        return [replace(explanation, passes=True) for explanation in explained]

    def score(self, subscription: Subscription, message: Message) -> Explanation:
        """Return the parts of a message's score for a subscription that need not exist; there is no threshold."""
        self.check([subscription])
        return subscription.explain(self._batch([message]).documents[0], self._scoring)

    def check(self, subscriptions: Iterable[Subscription]) -> None:
        """Raise what `subscribe` would raise, and change nothing."""
        table = as_table(subscriptions)
        self._admission.admit(subscriptions_of(subscriptions) if table is None else table)

    def regions(self) -> list[Region]:
        """Return the part of space that belongs to each worker; empty unless the partitioner divides space."""
        return self._shards.router.regions(self._config.space.bounds)

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
        return f"<Engine: {kinds or 'no'} subscriptions, {self._seq:,} messages, {window or 'no window'}>"

    def stats(self) -> Stats:
        """Return counts, memory, and the work done so far."""
        kinds = self._shards.kinds()
        return Stats(
            messages=self._seq,
            late=self._late,
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
    def load(cls, path: str | PathLike[str]) -> Engine:
        """Return an engine that continues where the saved one stopped."""
        engine = cls.__new__(cls)
        engine._restore(archive.read(path))
        return engine

    def _restore(self, state: EngineState) -> None:
        self._set_up(state)
        batches = [SubscriptionBatch(saved.kind, saved.stored, self._scoring) for saved in state.subscriptions]
        if state.routing is not None:
            self._shards.router.resume(state.routing)
        self._shards.prepare(batches)
        for batch, saved in zip(batches, state.subscriptions, strict=True):
            self._shards.restore(batch, saved)

    def _before_change(self) -> None:
        """Prepare for a change of state; called once a request has passed all checks."""

    def _counters(self) -> dict[str, int]:
        return {
            "seq": self._seq,
            "now_us": self._now_us,
            "late": self._late,
            "updates": self._updates,
            "edge_changes": self._edge_changes,
        }

    def _state(self) -> EngineState:
        return EngineState(
            self._config,
            **self._counters(),
            work=self._work(),
            live=self._shards.live(),
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
