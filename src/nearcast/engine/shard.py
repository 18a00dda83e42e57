"""A shard: some of the subscriptions of every kind, and a window, which it may share with other shards.

Stateless kinds do not depend on the order of messages, so several threads may match parts of a batch against the same
subscriptions. A shard therefore returns the work of a batch as jobs: one for its stateful kinds, and as many as asked
for the stateless ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from nearcast.engine.matcher import Matcher
from nearcast.engine.updates import UpdateBatch, UpdateWriter
from nearcast.errors import StateError
from nearcast.index import IndexEntry, find_index
from nearcast.model import MessageBatch, ScoringContext, Subscription, find_kind, kinds
from nearcast.window import Changes, Results, SlidingWindow, Steps, find_result_store

if TYPE_CHECKING:
    from nearcast._jit import Arena
    from nearcast.partition import Masks

ShardUpdates = list[tuple[Matcher, UpdateBatch | Changes]]
ShardTask = Callable[[], ShardUpdates]
"""Work for one thread: advance matchers, and return the updates or the changes of each."""


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
        """The messages that the shard sees; to be replaced only while there are no matchers."""
        self.matchers: dict[str, Matcher] = {}
        self._scoring = scoring
        self._index = index
        self._arena = arena

    def __len__(self) -> int:
        return sum(len(matcher.registry) for matcher in self.matchers.values())

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
                kind, registry, index, result_store, self._scoring, replicas, filters, facets
            )
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
        steps: Steps,
        writer: UpdateWriter,
        *,
        cuts: Sequence[int],
        writes_updates: bool,
    ) -> list[ShardTask]:
        """Return the jobs that match messages, which the window has admitted.

        `seen_by` holds the shards that see each message, None if all do; `cuts` are the rows at which threads divide
        the batch. Jobs of stateful kinds write updates if `writes_updates`; otherwise they return changes for a
        merger.
        """

        def writing(matchers: Sequence[Matcher], rows: MessageBatch, seen: Masks | None, at: Steps) -> ShardTask:
            return lambda: [(m, m.publish(rows, seen, at, writer)) for m in matchers]

        stateless = [m for m in self.matchers.values() if not m.kind.result_policy.is_stateful]
        stateful = [m for m in self.matchers.values() if m.kind.result_policy.is_stateful]
        jobs = []
        if stateless:
            for start, stop in pairwise(cuts):
                seen = None if seen_by is None else seen_by[start:stop]
                jobs.append(writing(stateless, batch.slice(start, stop), seen, steps.slice(start, stop)))
        if stateful and writes_updates:
            jobs.append(writing(stateful, batch, seen_by, steps))
        elif stateful:
            jobs.append(lambda: [(m, m.changes(batch, seen_by, steps)) for m in stateful])
        return jobs


def choose_index(name: str, kind: str) -> IndexEntry:
    """Return the index of a name, or raise `StateError` if it does not serve the kind."""
    entry = find_index(name, kind)
    if entry is None:
        raise StateError(f"index {name!r} does not serve kind {kind!r}")
    return entry
