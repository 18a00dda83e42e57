"""A shard: some of the subscriptions of every kind, and the window of the messages that it sees.

    batch ─┬─ admitted to the window ──────────┬─ results, a part per thread ── updates, some steps per thread
           └─ matched, some rows per thread ───┘

The threads of a shard share its indexes and its window. Matching only reads an index, so each thread takes some of
the messages, against all subscriptions. Results are then updated step by step, each part by one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from nearcast.engine.matcher import Matcher, joined_matches
from nearcast.engine.updates import UpdateBatch, UpdateWriter
from nearcast.engine.window_lookup import WindowLookup
from nearcast.errors import StateError
from nearcast.index import IndexEntry, find_index
from nearcast.model import MessageBatch, ScoringContext, Subscription, find_kind, kinds
from nearcast.window import Changes, Results, SlidingWindow, Steps, find_result_store
from nearcast.worker_pool import SERIAL, WorkerPool, WorkMeter

if TYPE_CHECKING:
    from nearcast._jit import Arena
    from nearcast.partition import Masks

ShardUpdates = list[tuple[Matcher, UpdateBatch | Changes]]
"""The updates or the changes of each matcher; of some several times."""


class Shard:
    """Some of the subscriptions of an engine."""

    def __init__(
        self,
        scoring: ScoringContext,
        window: SlidingWindow,
        *,
        index: str,
        number: int = 0,
        arena: Callable[[str], Arena] | None = None,
    ) -> None:
        """Create a shard without subscriptions; `arena` makes the arena of a kind, by default in memory."""
        self.number = number
        self.window = window
        """The messages that the shard sees."""
        self.matchers: dict[str, Matcher] = {}
        self._pool, self._meter = SERIAL, WorkMeter()
        self._scoring = scoring
        self._index = index
        self._arena = arena

    def __len__(self) -> int:
        return sum(len(matcher.registry) for matcher in self.matchers.values())

    def use(self, pool: WorkerPool) -> None:
        """Use the threads of a pool from now on."""
        self._pool = pool
        for matcher in self.matchers.values():
            matcher.use(pool)

    def matcher(self, kind: type[Subscription]) -> Matcher:
        """Return the matcher of a kind; it is created with the first subscription of that kind."""
        if kind.kind not in self.matchers:
            from nearcast._jit import Arena  # loads the kernels, so not before the first subscription
            from nearcast.engine.registry import SubscriptionRegistry
            from nearcast.engine.replicas import Replicas
            from nearcast.model.facets import Facets
            from nearcast.model.filters import Filters

            arena = Arena() if self._arena is None else self._arena(kind.kind)
            entry = choose_index(self._index, kind.kind)
            registry = SubscriptionRegistry(kind, arena, hash_key=self._scoring.hash_key)
            index = entry.make(self._scoring, arena)
            result_store = find_result_store(entry.result_store, kind).make(self._scoring, self.window, arena)
            replicas, filters = Replicas(arena), Filters(arena, self._scoring.space)
            facets = Facets(arena, self._scoring, most_values=entry.most_facet_values)
            self.matchers[kind.kind] = Matcher(
                kind, registry, index, result_store, self._scoring, replicas, filters, facets,
                WindowLookup(entry, self._scoring),
            )  # fmt: skip
            self.matchers[kind.kind].use(self._pool)
            names = [known.kind for known in kinds() if known.kind in self.matchers]
            self.matchers = {name: self.matchers[name] for name in names}
        return self.matchers[kind.kind]

    def attach(self, kind: str, results: Sequence[Results]) -> None:
        """Continue with a kind whose arena exists, and with the results that lie outside of it."""
        matcher, entry = self.matcher(find_kind(kind)), choose_index(self._index, kind)
        matcher.attach(results, has_index=entry.in_arena, has_results=self._has_results(kind))

    def _has_results(self, kind: str) -> bool:
        """Return whether the arena of a kind holds its results."""
        return find_result_store(choose_index(self._index, kind).result_store, find_kind(kind)).in_arena

    def results_outside_arena(self) -> Iterator[tuple[str, list[Results]]]:
        """Yield, by kind, the results that lie in no arena and do not follow from the window."""
        for kind, matcher in self.matchers.items():
            if matcher.kind.result_policy.must_be_saved and not self._has_results(kind):
                yield kind, matcher.held(matcher.registry.taken())

    def publish(
        self,
        batch: MessageBatch,
        seen_by: Masks | None,
        admit: Callable[[], Steps],
        writer: UpdateWriter,
        *,
        writes_updates: bool,
    ) -> ShardUpdates:
        """Match messages, which `admit` adds to the window, and return what they cause.

        `seen_by` holds the shards that see each message, None if all do. Stateful kinds return updates if
        `writes_updates`; otherwise they return changes for a merger.
        """
        cuts = self._pool.cuts(len(batch), self._meter.estimate(len(batch)))
        with self._meter.measure(len(batch), min(len(cuts) - 1, self._pool.n_threads)):
            return self._publish(batch, cuts, seen_by, admit, writer, writes_updates=writes_updates)

    def _publish(
        self,
        batch: MessageBatch,
        cuts: Sequence[int],
        seen_by: Masks | None,
        admit: Callable[[], Steps],
        writer: UpdateWriter,
        *,
        writes_updates: bool,
    ) -> ShardUpdates:
        """Publish a batch; the rows between two cuts are matched by one thread."""
        stateless = [m for m in self.matchers.values() if not m.kind.result_policy.is_stateful]
        stateful = [m for m in self.matchers.values() if m.kind.result_policy.is_stateful]
        if self.window.policy is not None or stateful:
            parts = batch.divided(cuts, self._pool, ordered=self.window.policy is not None)
        else:
            parts = [batch.slice(start, stop) for start, stop in pairwise(cuts)]
        ahead = [m for m in stateful if m.matches_whole_batches] if len(parts) > 1 else []
        for matcher in ahead:
            matcher.set_thresholds()
        matches: list[Callable[[], Any]] = [partial(m.match, part) for m in ahead for part in parts]
        steps, *found = self._pool.map(lambda task: task(), [admit, *matches])
        matches_of = {
            matcher: joined_matches(found[i * len(parts) : (i + 1) * len(parts)], cuts)
            for i, matcher in enumerate(ahead)
        }

        def publish(task: tuple[Matcher, MessageBatch, int, int]) -> tuple[Matcher, UpdateBatch]:
            matcher, part, start, stop = task
            seen = None if seen_by is None else seen_by[start:stop]
            return matcher, matcher.publish(part, seen, steps.slice(start, stop), writer)

        ranges = [(part, *ends) for part, ends in zip(parts, pairwise(cuts), strict=True)]
        updates: ShardUpdates = [*self._pool.map(publish, [(m, *rows) for m in stateless for rows in ranges])]
        changed = [(matcher, matcher.changes(batch, steps, matches_of.get(matcher))) for matcher in stateful]
        # Indexes and lists of the window are read no more, so they may change while updates are written.
        moving: list[Callable[[], None]] = [matcher.set_thresholds for matcher in stateful]
        writing: list[Callable[[], tuple[Matcher, UpdateBatch | Changes]]] = []
        for matcher, changes in changed:
            if writes_updates:
                writing += [partial(_written, matcher, piece, writer) for piece in matcher.divided(changes)]
            else:
                writing.append(partial(_merged, matcher, changes))
        tasks: list[Callable[[], Any]] = [*moving, *writing, partial(self.window.release, steps)]
        pool = self._pool if len(parts) > 1 else SERIAL
        updates += pool.map(lambda task: task(), tasks)[len(moving) : -1]
        return updates


def _written(matcher: Matcher, piece: Sequence[Changes], writer: UpdateWriter) -> tuple[Matcher, UpdateBatch]:
    return matcher, writer.write(matcher.registry, Changes.merged(piece))


def _merged(matcher: Matcher, changes: Sequence[Changes]) -> tuple[Matcher, Changes]:
    return matcher, Changes.merged(changes)


def choose_index(name: str, kind: str) -> IndexEntry:
    """Return the index of a name, or raise `StateError` if it does not serve the kind."""
    entry = find_index(name, kind)
    if entry is None:
        raise StateError(f"index {name!r} does not serve kind {kind!r}")
    return entry
