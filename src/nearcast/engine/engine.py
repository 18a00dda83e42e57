"""The embedded engine: subscribe, publish, ask, explain, save.

    messages ── check, number, weigh ── route ──┬─ shard 0 ─┐
    subscriptions ── check ── place ────────────┤    ...    ├── merge ── updates
                                                └─ shard n ─┘

Everything a call brings is checked before any of it happens, so a batch is all or nothing. Threads then do the work,
in one of two ways: kinds that keep results are parted, each shard moving its own subscriptions on through the
messages it sees; kinds that keep nothing are shared in the first shard, each thread taking some of the messages,
unless the partitioner sends messages to some shards only. Updates come in the order of the messages; within a step
those of one subscription stand together, leaves first. One caller at a time: the engine does not lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.engine import archive
from nearcast.engine.admission import Admission
from nearcast.engine.archive import (
    read_graph,
    read_results,
    read_routing,
    table_of_graph,
    table_of_results,
    table_of_routing,
)
from nearcast.engine.shard_set import ShardSet
from nearcast.engine.state import EngineConfig, EngineState
from nearcast.engine.stats import Stats, add_work, resident_bytes
from nearcast.engine.stream_slice import StreamSlice
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
    Limits,
    Message,
    MessageBatch,
    Result,
    ScoringContext,
    Subscription,
    SubscriptionBatch,
    Timestamp,
    Update,
    check_sizes,
    is_id,
    to_seconds,
    to_us,
)
from nearcast.model.columns import (
    UPDATES,
    Table,
    edges_from_table,
    ids_from_table,
    messages_from_table,
    updates_to_table,
)
from nearcast.social import SocialGraph
from nearcast.space import Space
from nearcast.text import TEXT_SIMILARITIES, Vocabulary
from nearcast.window import ScoredMessage, Ticks, WindowPolicy

if TYPE_CHECKING:
    from nearcast.engine.folder import EngineFolder
    from nearcast.engine.matcher import Matcher
    from nearcast.engine.result_merger import ResultMerger
    from nearcast.partition import Masks, Region, Routing


_PREVIEWED = 20_000  # messages that a preview looks at


class Engine:
    """Keeps the answer of every subscription exact while messages stream past.

    >>> from nearcast import Box, Engine, Message, Space, TopKSubscription, CountWindow
    >>> engine = Engine(space=Space(Box(0, 0, 1, 1)), window=CountWindow(100))
    >>> engine.subscribe([TopKSubscription("t1", location=(.2, .3), keywords="jazz", k=1, alpha=.5)])
    []
    >>> engine.publish([Message("m1", (.2, .3), "Jazz!"), Message("m2", (.9, .9), "more jazz")])
    [Update(seq=1, subscription='t1', message='m1', change='enter', score=1.0)]
    >>> engine.results("t1")
    [Result(message='m1', score=1.0)]
    """

    def __init__(
        self,
        *,
        space: Space,
        vocabulary: Vocabulary | None = None,
        window: WindowPolicy | None = None,
        social: SocialGraph | None = None,
        text_similarity: str = "containment",
        workers: int = 1,
        partitioner: str | Routing = "hash",
        index: str = "auto",
        limits: Limits | None = None,
        folder: str | PathLike[str] | None = None,
    ) -> None:
        """Set up an engine without subscriptions.

        Without a vocabulary every term weighs the same. Without a window no kind can be subscribed that needs one.
        `partitioner` says how subscriptions and messages are shared among workers: by name, "auto" for the one that
        suits the first subscriptions and the window best, or as a routing that was fitted before.
        `index` names one index for all kinds ("scan" asks every subscription); "auto" takes the fastest for each.
        With a `folder`, whose content is replaced, the engine lives there instead of in memory, see `seal`.
        """
        config = EngineConfig(
            space=space,
            window=window,
            text_similarity=text_similarity,
            workers=workers,
            partitioner=partitioner,
            index=index,
            limits=limits or Limits(),
        )
        if vocabulary is None:
            vocabulary = Vocabulary.with_weights({})
        if folder is not None:
            self._live_in(folder)
        self._set_up(EngineState(config, vocabulary, SocialGraph() if social is None else social))

    _folder: EngineFolder | None = None

    def _live_in(self, folder: str | PathLike[str]) -> None:
        from nearcast.engine.folder import EngineFolder

        self._folder = EngineFolder(folder)
        self._folder.clear()

    def _set_up(self, state: EngineState) -> None:
        self._config = config = state.config
        self._scoring = ScoringContext(
            config.space, state.vocabulary, state.social.copy(), TEXT_SIMILARITIES[config.text_similarity]
        )
        self._shards = ShardSet(config, self._scoring, state.live, self._folder)
        self._admission = Admission(config, self._scoring)
        self._seq, self._now_us = state.seq, state.now_us
        self._late, self._updates = state.late, state.updates
        self._edge_changes = state.edge_changes
        self._work_before = state.work

    # -- subscriptions ------------------------------------------------------------------------------------------

    @overload
    def subscribe(self, subscriptions: Table, *, before: Masks | None = ...) -> Table: ...
    @overload
    def subscribe(self, subscriptions: Iterable[Subscription]) -> list[Update]: ...
    def subscribe(self, subscriptions: Any, *, before: Masks | None = None) -> Any:
        """Take in subscriptions; return their first results as updates.

        An id that exists is replaced, and the updates are the difference between the two results. If a batch holds an
        id twice, the last one counts.

        An engine that is one of several may have subscriptions of kinds that keep nothing in common with others. For
        each row of a table, whose ids differ, `before` says which engines before this one have it: a match is told by
        the first that also sees the message (see `StreamSlice.seen_by`).
        """
        is_table = isinstance(subscriptions, pa.Table)
        subscription_batches = self._admission.subscription_batches(subscriptions)
        self._shards.prepare(subscription_batches)
        self._about_to_change()
        had: dict[Id, list[ScoredMessage]] = {}
        for subscription_batch in subscription_batches:
            had |= self._shards.remove(subscription_batch.ids)
        started = [
            start
            for subscription_batch in subscription_batches
            for start in self._shards.insert(
                subscription_batch,
                np.full(len(subscription_batch), self._seq, dtype=np.int64),
                _of_rows(before, subscription_batch, subscriptions),
            )
        ]
        if is_table and not had:
            parts = [write_initial_results(*start, seq=self._seq, at_us=self._now_us) for start in started]
            told = joined(parts, Form.TABLE)
            self._updates += len(told)
            return told
        after: dict[Id, list[ScoredMessage]] = {}
        for registry, results in started:
            held = results.by_slot()
            after |= dict(zip(registry.ids(np.fromiter(held, np.int32)), held.values(), strict=True))
        updates = [
            update
            for id_ in (
                id_
                for subscription_batch in (subscription_batches if had or after else ())
                for id_ in subscription_batch.ids
            )
            for update in self._difference(id_, had.get(id_, []), after.get(id_, []))
        ]
        self._updates += len(updates)
        return updates_to_table(updates) if is_table else updates

    def hand_over(self, ids: Table) -> Table:
        """Forget those of some subscriptions that are here and go on elsewhere; return what leaves their results."""
        leaving = ids_from_table(ids)
        self._about_to_change()
        had = self._shards.remove(leaving)
        updates = [update for id_, before in had.items() for update in self._difference(id_, before, [])]
        self._updates += len(updates)
        told: Table = updates_to_table(updates)
        return told

    def _locate(self, id_: Any) -> tuple[Matcher | ResultMerger, int]:
        """Return who speaks for a subscription, and its slot there."""
        allocate = self._shards.allocate(id_) if is_id(id_) else None
        if allocate is None:
            raise UnknownSubscription(id_)
        return allocate

    def _difference(self, id_: Id, before: list[ScoredMessage], after: list[ScoredMessage]) -> list[Update]:
        old, new = {kept.seq for kept in before}, {kept.seq for kept in after}
        at = to_seconds(self._now_us)
        gone = [Update(self._seq, id_, k.message, LEAVE, k.score, at) for k in before if k.seq not in new]
        come = [Update(self._seq, id_, k.message, ENTER, k.score, at) for k in after if k.seq not in old]
        return gone + come

    @overload
    def unsubscribe(self, ids: Table) -> Table: ...
    @overload
    def unsubscribe(self, ids: Iterable[Id]) -> list[Update]: ...
    def unsubscribe(self, ids: Any) -> Any:
        """Forget subscriptions. Nobody is left to be told, so there are no updates."""
        is_table = isinstance(ids, pa.Table)
        require(not isinstance(ids, str), "ids", "must be a list of ids", ids)
        leaving = self._known(ids_from_table(ids).objects if is_table else ids)
        self._about_to_change()
        self._shards.remove(leaving)
        return UPDATES.empty_table() if is_table else []

    def _known(self, ids: Iterable[Id]) -> IdColumn:
        """Return ids, each once, all of which are here."""
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

    # -- friends ------------------------------------------------------------------------------------------------

    @overload
    def add_edges(self, edges: Table) -> Table: ...
    @overload
    def add_edges(self, edges: Iterable[tuple[Id, Id]]) -> list[Update]: ...
    def add_edges(self, edges: Any) -> Any:
        """Add edges (user, place) to the social graph; return what that changes, under the seq of the last message.

        Users and places become known by it. Edges that are there already stay so.
        """
        return self._change_edges(edges, self._scoring.social.add_edges)

    @overload
    def remove_edges(self, edges: Table) -> Table: ...
    @overload
    def remove_edges(self, edges: Iterable[tuple[Id, Id]]) -> list[Update]: ...
    def remove_edges(self, edges: Any) -> Any:
        """Remove edges (user, place) from the social graph, all of which must be there; return what that changes."""
        return self._change_edges(edges, self._scoring.social.remove_edges)

    def _change_edges(self, edges: Any, change: Callable[[Any], list[Id]]) -> Any:
        is_table = isinstance(edges, pa.Table)
        touched = set(change(edges_from_table(edges) if is_table else edges))
        updates: list[Update] = []
        if touched:
            self._about_to_change()
            self._edge_changes += 1
            for registry, before, after in self._shards.follow(touched, self._seq):
                slots = np.fromiter(dict.fromkeys([*before, *after]), np.int32)
                for slot, id_ in zip(slots.tolist(), registry.ids(slots), strict=True):
                    updates += self._difference(id_, before.get(slot, []), after.get(slot, []))
        self._updates += len(updates)
        return updates_to_table(updates) if is_table else updates

    # -- messages -----------------------------------------------------------------------------------------------

    @overload
    def publish(
        self,
        messages: Table | MessageBatch,
        *,
        conflate: bool = ...,
        grouped: bool = ...,
        stream_slice: StreamSlice | None = ...,
    ) -> Table: ...
    @overload
    def publish(
        self, messages: Iterable[Message], *, conflate: bool = ..., stream_slice: StreamSlice | None = ...
    ) -> list[Update]: ...
    def publish(
        self, messages: Any, *, conflate: bool = False, grouped: bool = False, stream_slice: StreamSlice | None = None
    ) -> Any:
        """Take in messages in order; return what they changed.

        With `conflate` only what the whole batch changed is told: a message that came into a result and went out
        again before the end is not, and one that did so several times is told once, where it last did.

        With `grouped`, for tables, updates that agree in all but receiver and score are one row, with lists of these:
        far fewer bytes where a message has many receivers; `ungroup` writes them out.

        An engine that is one of several, each with a part of the subscriptions, may be given only some messages of a
        stream; `stream_slice` then says which ones, so that all of them number and expire alike.
        """
        is_table = isinstance(messages, (pa.Table, MessageBatch))
        require(is_table or not grouped, "grouped", "must be False unless messages are a table", grouped)
        form = (Form.GROUPS if grouped else Form.TABLE) if is_table else Form.OBJECTS
        batch = self._batch(messages)
        ticks = self._ticks(batch, stream_slice)
        if stream_slice is not None:
            batch = replace(batch, seqs=ticks.seqs[stream_slice.rows])
        policy = self._config.window
        if policy is not None and policy.needs_time and (ticks.ats_us == NO_TIME).any():
            subject = f"message {batch.ids[int(np.argmax(batch.ats_us == NO_TIME))]!r}" if len(batch) else "stream"
            raise InvalidInput("at", "must be given where the window is a TimeWindow", None, subject=subject)
        self._about_to_change()
        self._seq += len(ticks.seqs)
        if len(ticks.seqs):
            self._now_us = int(ticks.nows_us[-1])
        seen_by = None if stream_slice is None else stream_slice.seen_by
        seen = self._in_time(batch, ticks)
        if seen_by is not None and len(seen) < len(batch):
            seen_by = seen_by[np.searchsorted(batch.seqs, seen.seqs)]
        parts = self._shards.publish(seen, ticks, form, seen_by)
        return self._joined(parts, form, conflate=conflate)

    def _ticks(self, batch: MessageBatch, stream_slice: StreamSlice | None) -> Ticks:
        """Return the steps of the stream that a batch is, or is a share of."""
        ats_us = batch.ats_us if stream_slice is None else stream_slice.ats_us
        if stream_slice is not None:
            stream_slice.check(len(batch))
        seqs = np.arange(self._seq + 1, self._seq + 1 + len(ats_us), dtype=np.int64)
        return Ticks(seqs, ats_us, np.maximum.accumulate(np.maximum(ats_us, self._now_us)))

    def _in_time(self, batch: MessageBatch, ticks: Ticks) -> MessageBatch:
        """Return the messages that have not expired when they come, and count the late ones of the whole stream."""
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
            listed = list(messages)
            batch = MessageBatch.from_messages(listed, vocabulary=vocabulary, first_seq=first_seq)
            check_sizes(batch.ids, [m.text for m in listed], limits)
        batch.check(self._config.space)
        return batch

    def advance(self, now: Timestamp) -> list[Update]:
        """Let time pass without a message: what has expired by then leaves.

        The updates carry the seq of the last message. Time never goes back: an earlier `now` changes nothing.
        """
        now_us = to_us(now, field="now")
        self._about_to_change()
        self._now_us = max(self._now_us, now_us)
        now_column = np.array([self._now_us], dtype=np.int64)
        ticks = Ticks(np.array([self._seq], dtype=np.int64), now_column, now_column)
        updates: list[Update] = self._joined(self._shards.advance(self._seq, ticks), Form.OBJECTS)
        return updates

    def _joined(self, parts: Sequence[UpdateBatch], form: Form, *, conflate: bool = False) -> Any:
        """Return what all have to tell as one, and count it."""
        updates = joined(parts, form)
        if conflate:
            updates = net(updates, form)
        self._updates += count(updates, form)
        return updates

    # -- questions ----------------------------------------------------------------------------------------------

    def results(self, subscription: Id) -> list[Result]:
        """Return what a subscription's result holds now, best first.

        Matches of kinds that only grow are not kept: for these it is what came since the subscription and is still in
        the window.
        """
        owner, slot = self._locate(subscription)
        if not owner.kind.result_policy.is_stateful and self._config.window is None:
            kind = owner.kind.kind
            raise StateError(f"matches of kind {kind!r} are looked up in the window, and this engine has none")
        kept = owner.results(slot, self._shards.documents)
        return [Result(k.message, k.score) for k in kept]

    def explain(self, subscription: Id, message: Message | Id) -> Explanation:
        """Say how a message fares for a subscription: each part of its score, and the bar it must pass.

        The message is one of the window, by id (the newest, if several carry it), or any other, as if published now.
        """
        owner, slot = self._locate(subscription)
        document = self._batch([message]).documents[0] if isinstance(message, Message) else self._shards.find(message)
        return owner.explain(slot, document)

    def preview(self, subscription: Subscription, *, among: int = _PREVIEWED, most: int = 100) -> list[Explanation]:
        """Say which of the newest messages of the window a subscription would hold, best first, and why.

        Nothing is subscribed. Kinds that keep results hold k of them, others all that match; `most` are told.
        """
        self.check([subscription])
        score_of = subscription.bind(self._scoring)
        documents = sorted(self._shards.documents(among), key=lambda document: document.seq)[-among:]
        scored = [(score, document) for document in documents if (score := score_of(document)) is not None]
        scored.sort(key=lambda found: subscription.result_policy.rank(found[0], found[1].seq))
        k = most if subscription.n_results is None else subscription.n_results
        held = [subscription.explain(document, self._scoring) for _, document in scored[: min(k, most)]]
        return [replace(explained, passes=True) for explained in held]

    def weigh(self, subscription: Subscription, message: Message) -> Explanation:
        """Say how a message fares for a subscription that need not be here: the parts of its score, and no bar."""
        self.check([subscription])
        return subscription.explain(self._batch([message]).documents[0], self._scoring)

    def check(self, subscriptions: Iterable[Subscription]) -> None:
        """Raise what `subscribe` would raise, and change nothing."""
        self._admission.subscription_batches(subscriptions)

    def regions(self) -> list[Region]:
        """Return which part of space belongs to which workers; none where it is not space that is parted."""
        return self._shards.router.regions(self._config.space.bounds)

    def __len__(self) -> int:
        """Return the number of subscriptions."""
        return sum(self._shards.kinds().values())

    def __contains__(self, subscription: Id) -> bool:
        return is_id(subscription) and self._shards.allocate(subscription) is not None

    def stats(self) -> Stats:
        """Return counts, memory, and the work that was done."""
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
        """Write everything to a folder, exactly; one that holds a saved engine is replaced as a whole."""
        archive.write(self._state(), path)

    @classmethod
    def load(cls, path: str | PathLike[str], *, folder: str | PathLike[str] | None = None) -> Engine:
        """Return an engine that goes on where the saved one stopped, in memory or in a folder, see `seal`."""
        state = archive.read(path)
        engine = cls.__new__(cls)
        if folder is not None:
            engine._live_in(folder)
        engine._set_up(state)
        subscription_batches = [
            SubscriptionBatch(saved.kind, saved.stored, engine._scoring) for saved in state.subscription_batches
        ]
        if state.routing is not None:
            engine._shards.router.resume(state.routing)
        engine._shards.prepare(subscription_batches)
        for subscription_batch, saved in zip(subscription_batches, state.subscription_batches, strict=True):
            engine._shards.restore(subscription_batch, saved)
        return engine

    def seal(self, mark: str) -> None:
        """Leave an engine that lives in a folder to whoever attaches it next, in this process or another.

        The mark says which moment this is. The first change breaks the seal, so that a process that dies on the way
        leaves nothing that could be taken for whole.
        """
        if self._folder is None:
            raise StateError("an engine must live in a folder to be sealed; give it one")
        from nearcast.engine.folder import Sealed

        tables = {}
        kept = [
            (f"{shard.number}.{kind}", results)
            for shard in self._shards.shards
            for kind, results in shard.loose_results()
        ]
        if kept:
            tables["results"] = table_of_results(kept)
        if self._edge_changes:
            tables["graph"] = table_of_graph(self._scoring.social)
        if (routing := self._shards.router.packed()) is not None:
            tables["routing"] = table_of_routing(routing)
        work = {kind: asdict(work) for kind, work in self._work().items()}
        self._folder.seal(mark, Sealed({**self._counters(), "work": work}, tables))

    def holds(self, mark: str) -> bool:
        """Tell whether the engine is still the one that was sealed with a mark: nobody has had its folder since."""
        return self._folder is not None and self._folder.holds(mark)

    @classmethod
    def attach(cls, folder: str | PathLike[str], mark: str, **options: Any) -> Engine:
        """Go on with the engine that was sealed with a mark in a folder; `options` are those it was made with."""
        from nearcast.engine.folder import EngineFolder

        engine = cls(**options)
        config, scoring = engine._config, engine._scoring
        engine._folder = EngineFolder(folder)
        counters, tables = engine._folder.open(mark)
        work = {kind: Work(**done) for kind, done in counters.pop("work").items()}
        engine.close()
        social = read_graph(tables["graph"]) if "graph" in tables else scoring.social
        engine._set_up(EngineState(config, scoring.vocabulary, social, **counters, work=work))
        if "routing" in tables:
            engine._shards.router.resume(read_routing(tables["routing"]))
        kept = read_results(tables["results"]) if "results" in tables else {}
        engine._shards.attach(engine._folder, kept)
        return engine

    def _about_to_change(self) -> None:
        if self._folder is not None:
            self._folder.break_seal()

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
            self._scoring.vocabulary,
            self._scoring.social,
            **self._counters(),
            work=self._work(),
            live=self._shards.live(),
            subscription_batches=list(self._shards.subscription_batches()),
            routing=self._shards.router.packed(),
        )

    def close(self) -> None:
        """Stop the worker threads; the engine must not be used after."""
        self._shards.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _of_rows(before: Masks | None, subscription_batch: SubscriptionBatch, table: Any) -> Masks | None:
    """Return the masks of the rows of a table that a cohort has."""
    if before is None:
        return None
    rows = pc.index_in(subscription_batch.ids.strings, value_set=table["id"].combine_chunks()).to_numpy()
    own: Masks = before[rows]
    return own
