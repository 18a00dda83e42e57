"""The embedded engine: subscribe, publish, ask, explain, save.

    messages ── check, number, weigh ── route ──┬─ shard 0 ─┐
    subscriptions ── check ── place ────────────┤    ...    ├── merge ── updates
                                                └─ shard n ─┘

Everything a call brings is checked before any of it happens, so a batch is all or nothing. Shards run on threads of
their own, share nothing that changes, and are merged by step: updates come in the order of the messages; within a
step those of one subscription stand together, leaves first. One caller at a time: the engine does not lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.engine import archive
from nearcast.engine.shard import Shard, choose_index
from nearcast.engine.state import EngineConfig, EngineState, SavedSubscription
from nearcast.engine.stats import Stats, add_work, resident_bytes
from nearcast.engine.told import Part, as_updates
from nearcast.engine.told import as_table as told_as_table
from nearcast.errors import InvalidInput, StateError, UnknownMessage, UnknownSubscription, require
from nearcast.index import Work
from nearcast.model import (
    ENTER,
    KINDS,
    LEAVE,
    Document,
    Explanation,
    Id,
    Keeps,
    Limits,
    Meaning,
    Message,
    MessageBatch,
    Moment,
    Result,
    Subscription,
    Update,
    check_sizes,
    to_seconds,
    to_us,
)
from nearcast.model.columns import (
    UPDATES,
    Table,
    ids_from_table,
    messages_from_table,
    subscriptions_from_table,
    updates_to_table,
)
from nearcast.partition import PARTITIONERS, Sample
from nearcast.social import SocialGraph
from nearcast.space import Space
from nearcast.text import TEXT_SIMILARITIES, Vocabulary
from nearcast.window import Kept, Ticks, WindowPolicy

T = TypeVar("T")


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
        partitioner: str = "hash",
        index: str = "auto",
        limits: Limits | None = None,
    ) -> None:
        """Set up an engine without subscriptions.

        Without a vocabulary every term weighs the same. Without a window no kind can be subscribed that needs one.
        `index` names one index for all kinds ("scan" asks every subscription); "auto" takes the fastest for each.
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
        self._set_up(EngineState(config, vocabulary, SocialGraph() if social is None else social))

    def _set_up(self, state: EngineState) -> None:
        self._config = config = state.config
        self._meaning = Meaning(
            config.space, state.vocabulary, state.social, TEXT_SIMILARITIES[config.text_similarity]
        )
        partitioner = {p.name: p for p in PARTITIONERS}[config.partitioner]
        self._routing = partitioner.fit(Sample((), None), n_shards=config.workers)
        self._shards = [
            Shard(self._meaning, config.window, index=config.index, live=state.live) for _ in range(config.workers)
        ]
        self._pool = ThreadPoolExecutor(config.workers, "nearcast") if config.workers > 1 else None
        self._home: dict[Id, int] = {}  # subscription -> shard
        self._seq, self._now_us = state.seq, state.now_us
        self._late, self._updates = state.late, state.updates
        self._work_before = state.work

    # -- subscriptions ------------------------------------------------------------------------------------------

    @overload
    def subscribe(self, subscriptions: Table) -> Table: ...
    @overload
    def subscribe(self, subscriptions: Iterable[Subscription]) -> list[Update]: ...
    def subscribe(self, subscriptions: Any) -> Any:
        """Take in subscriptions; return their first results as updates.

        An id that exists is replaced, and the updates are the difference between the two results. If a batch holds an
        id twice, the last one counts.
        """
        is_table = isinstance(subscriptions, pa.Table)
        given = subscriptions_from_table(subscriptions, KINDS) if is_table else subscriptions
        checked = {subscription.id: subscription for subscription in self._checked(given)}
        arriving = list(checked.values())
        homes = self._routing.place([s.footprint(self._meaning) for s in arriving]).tolist()
        before = self._remove([s.id for s in arriving if s.id in self._home])
        after = self._insert(arriving, homes, [self._seq] * len(arriving))
        updates = [update for s in arriving for update in self._difference(s.id, before.get(s.id, []), after[s.id])]
        self._updates += len(updates)
        return updates_to_table(updates) if is_table else updates

    def _insert(
        self, arriving: Sequence[Subscription], homes: Sequence[int], sinces: Sequence[int]
    ) -> dict[Id, list[Kept]]:
        started: dict[Id, list[Kept]] = {}
        for home, shard in enumerate(self._shards):
            chosen = [i for i, own in enumerate(homes) if own == home]
            started |= shard.insert([arriving[i] for i in chosen], [sinces[i] for i in chosen])
            self._home |= dict.fromkeys((arriving[i].id for i in chosen), home)
        return started

    def _remove(self, ids: Iterable[Id]) -> dict[Id, list[Kept]]:
        leaving: dict[int, list[Id]] = {}
        for id_ in ids:
            leaving.setdefault(self._home.pop(id_), []).append(id_)
        had: dict[Id, list[Kept]] = {}
        for home, chosen in leaving.items():
            had |= self._shards[home].delete(chosen)
        return had

    def _checked(self, subscriptions: Iterable[Subscription]) -> Iterable[Subscription]:
        for i, subscription in enumerate(subscriptions):
            if not isinstance(subscription, KINDS):
                raise InvalidInput("subscriptions", "must hold subscriptions", subscription, subject=f"item {i}")
            subscription.check(self._meaning, self._config.limits)
            if subscription.keeps is Keeps.BEST_IN_WINDOW and self._config.window is None:
                raise StateError(f"{subscription.subject} of kind {subscription.kind!r} needs a window; give one")
            choose_index(self._config.index, subscription.kind)
            yield subscription

    def _difference(self, id_: Id, before: list[Kept], after: list[Kept]) -> list[Update]:
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
        leaving = dict.fromkeys(ids_from_table(ids) if is_table else ids)
        for id_ in leaving:
            self._home_of(id_)
        self._remove(leaving)
        return UPDATES.empty_table() if is_table else []

    # -- messages -----------------------------------------------------------------------------------------------

    @overload
    def publish(self, messages: Table) -> Table: ...
    @overload
    def publish(self, messages: Iterable[Message]) -> list[Update]: ...
    def publish(self, messages: Any) -> Any:
        """Take in messages in order; return what they changed."""
        is_table = isinstance(messages, pa.Table)
        batch = self._batch(messages)
        self._check_times(batch)
        nows_us = np.maximum.accumulate(np.maximum(batch.ats_us, self._now_us))
        self._seq += len(batch)
        if len(batch):
            self._now_us = int(nows_us[-1])
        in_time = np.flatnonzero(~self._late_rows(batch, nows_us))
        self._late += len(batch) - len(in_time)
        seen = batch.take(in_time) if len(in_time) < len(batch) else batch
        ticks = Ticks(batch.seqs, batch.ats_us, nows_us)
        routed = self._routing.route(seen)
        told = self._on_shards(lambda shard, rows: shard.publish(self._part(seen, rows), ticks), routed)
        return self._hand_out([part for parts in told for part in parts], ticks, is_table)

    def _batch(self, messages: Any) -> MessageBatch:
        vocabulary, limits, first_seq = self._meaning.vocabulary, self._config.limits, self._seq + 1
        if isinstance(messages, pa.Table):
            batch = messages_from_table(messages, vocabulary=vocabulary, limits=limits, first_seq=first_seq)
        else:
            listed = list(messages)
            batch = MessageBatch.from_messages(listed, vocabulary=vocabulary, first_seq=first_seq)
            check_sizes(batch.ids, [m.text for m in listed], limits)
        batch.check(self._config.space)
        return batch

    def _check_times(self, batch: MessageBatch) -> None:
        if self._config.window is not None:
            for id_, at_us in zip(batch.ids, batch.ats_us.tolist(), strict=True):
                self._config.window.check_time(at_us, f"message {id_!r}")

    def _late_rows(self, batch: MessageBatch, nows_us: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        policy = self._config.window
        if policy is None:
            return np.zeros(len(batch), dtype=bool)
        rows = zip(batch.seqs.tolist(), batch.ats_us.tolist(), nows_us.tolist(), strict=True)
        late = (policy.key(seq, at_us) <= policy.horizon(seq, now_us) for seq, at_us, now_us in rows)
        return np.fromiter(late, dtype=bool, count=len(batch))

    @staticmethod
    def _part(batch: MessageBatch, rows: npt.NDArray[np.int64]) -> MessageBatch:
        return batch if len(rows) == len(batch) else batch.take(rows)

    def _on_shards(
        self, work: Callable[[Shard, npt.NDArray[np.int64]], T], routed: Sequence[npt.NDArray[np.int64]]
    ) -> list[T]:
        if self._pool is None:
            return [work(shard, rows) for shard, rows in zip(self._shards, routed, strict=True)]
        return list(self._pool.map(work, self._shards, routed))

    def advance(self, now: Moment) -> list[Update]:
        """Let time pass without a message: what has expired by then leaves.

        The updates carry the seq of the last message. Time never goes back: an earlier `now` changes nothing.
        """
        now_us = to_us(now, field="now")
        self._now_us = max(self._now_us, now_us)
        told = [part for shard in self._shards for part in shard.advance(self._seq, self._now_us)]
        now_column = np.array([self._now_us], dtype=np.int64)
        ticks = Ticks(np.array([self._seq], dtype=np.int64), now_column, now_column)
        updates: list[Update] = self._hand_out(told, ticks, False)
        return updates

    # -- questions ----------------------------------------------------------------------------------------------

    def results(self, subscription: Id) -> list[Result]:
        """Return what a subscription's result holds now, best first.

        Matches of kinds that only grow are not kept: for these it is what came since the subscription and is still in
        the window.
        """
        shard = self._home_of(subscription)
        kept = shard.results(subscription)
        return [Result(k.message, k.score) for k in kept]

    def explain(self, subscription: Id, message: Message | Id) -> Explanation:
        """Say how a message fares for a subscription: each part of its score, and the bar it must pass.

        The message is one of the window, by id (the newest, if several carry it), or any other, as if published now.
        """
        shard = self._home_of(subscription)
        if isinstance(message, Message):
            document = self._batch([message]).documents[0]
        else:
            document = self._find(message)
        return shard.explain(subscription, document)

    def _find(self, id_: Id) -> Document:
        for shard in self._shards:
            for document in reversed(shard.window.live.values()):
                if document.id == id_:
                    return document
        raise UnknownMessage(id_)

    def _home_of(self, id_: Id) -> Shard:
        if id_ not in self._home:
            raise UnknownSubscription(id_)
        return self._shards[self._home[id_]]

    def __len__(self) -> int:
        """Return the number of subscriptions."""
        return len(self._home)

    def __contains__(self, subscription: Id) -> bool:
        return subscription in self._home

    def stats(self) -> Stats:
        """Return counts, memory, and the work that was done."""
        kinds = sum((shard.counts() for shard in self._shards), Counter[str]())
        return Stats(
            messages=self._seq,
            late=self._late,
            window=max(len(shard.window) for shard in self._shards),
            subscriptions=len(self._home),
            updates=self._updates,
            memory_bytes=resident_bytes(),
            kinds=dict(kinds),
            shards=tuple(len(shard) for shard in self._shards),
            work=self._work(),
        )

    def _work(self) -> dict[str, Work]:
        total = dict(self._work_before)
        for shard in self._shards:
            for kind, work in shard.work().items():
                total[kind] = add_work(total.get(kind, Work()), work)
        return total

    def _hand_out(self, told: list[Part], ticks: Ticks, as_table: bool) -> Any:
        self._updates += sum(len(changes.steps) for _, changes in told)
        return told_as_table(told, ticks) if as_table else as_updates(told, ticks)

    # -- saving -------------------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything to a folder, exactly; one that holds a saved engine is replaced as a whole."""
        archive.write(self._state(), path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Engine:
        """Return an engine that goes on where the saved one stopped."""
        state = archive.read(path)
        engine = cls.__new__(cls)
        engine._set_up(state)
        engine._restore(state.subscriptions)
        return engine

    def _state(self) -> EngineState:
        live = {d.seq: d for shard in self._shards for d in shard.window.live.values()}
        saved = [
            SavedSubscription(
                member.subscription,
                member.since,
                [] if member.subscription.keeps is Keeps.MATCHES else shard.results(member.subscription.id),
            )
            for shard in self._shards
            for member in shard.members()
        ]
        return EngineState(
            self._config,
            self._meaning.vocabulary,
            self._meaning.social,
            seq=self._seq,
            now_us=self._now_us,
            late=self._late,
            updates=self._updates,
            work=self._work(),
            live=[live[seq] for seq in sorted(live)],
            subscriptions=saved,
        )

    def _restore(self, subscriptions: list[SavedSubscription]) -> None:
        homes = self._routing.place([s.subscription.footprint(self._meaning) for s in subscriptions])
        self._insert([s.subscription for s in subscriptions], homes.tolist(), [s.since for s in subscriptions])
        for saved in subscriptions:
            self._home_of(saved.subscription.id).restore(saved.subscription.id, saved.kept)

    def close(self) -> None:
        """Stop the worker threads; the engine must not be used after."""
        if self._pool is not None:
            self._pool.shutdown()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
