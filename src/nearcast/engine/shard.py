"""What does one worker own? A part of the subscriptions, of every kind, and a window over what it sees.

Kinds that keep nothing need no order among messages: their subscriptions may be shared, each thread taking some of
the messages. The work of a batch is therefore handed out as jobs: one for the kinds that keep results, and as many as
are wanted for those that do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from nearcast.engine.matcher import Matcher
from nearcast.engine.updates import Form, UpdateBatch
from nearcast.errors import StateError
from nearcast.index import IndexEntry, find_index
from nearcast.model import MessageBatch, ScoringContext, Subscription, find_kind, kinds
from nearcast.window import Changes, Results, SlidingWindow, Steps, Ticks, WindowPolicy, find_result_store

if TYPE_CHECKING:
    from nearcast._jit import Arena
    from nearcast.partition import Masks

ShardUpdates = list[tuple[Matcher, UpdateBatch | Changes]]
Job = Callable[[], ShardUpdates]
"""A piece of work for some thread: move matchers on, and say what each has to tell, or what changed."""


class Shard:
    """A part of the subscriptions, alone with the stream."""

    def __init__(
        self,
        scoring: ScoringContext,
        policy: WindowPolicy | None,
        *,
        index: str,
        number: int = 0,
        live: pa.Table | None = None,
        arena: Callable[[str], Arena] | None = None,
    ) -> None:
        """Start without subscriptions; `arena` gives the state of each kind a place, in memory if there is none."""
        self.number = number
        self.window = SlidingWindow(policy, live, arena=None if arena is None else partial(arena, "window"))
        self.matchers: dict[str, Matcher] = {}
        self._scoring = scoring
        self._index = index
        self._arena = arena

    def __len__(self) -> int:
        return sum(len(matcher.registry) for matcher in self.matchers.values())

    def matcher(self, kind: type[Subscription]) -> Matcher:
        """Return the matcher of a kind, made when the first subscription of that kind comes."""
        if kind.kind not in self.matchers:
            from nearcast._jit import Arena  # with the first subscription, not before, come the kernels
            from nearcast.engine.registry import SubscriptionRegistry
            from nearcast.engine.replicas import Replicas

            arena = Arena() if self._arena is None else self._arena(kind.kind)
            entry = choose_index(self._index, kind.kind)
            registry, index = SubscriptionRegistry(kind, arena), entry.make(self._scoring, arena)
            result_store = find_result_store(entry.result_store, kind).make(self._scoring, self.window, arena)
            replicas = Replicas(arena)
            self.matchers[kind.kind] = Matcher(kind, registry, index, result_store, self._scoring, replicas)
            names = [known.kind for known in kinds() if known.kind in self.matchers]
            self.matchers = {name: self.matchers[name] for name in names}
        return self.matchers[kind.kind]

    def attach(self, kind: str, kept: Sequence[Results]) -> None:
        """Go on with a kind whose arena is there already, and with the results it had."""
        matcher, entry = self.matcher(find_kind(kind)), choose_index(self._index, kind)
        matcher.go_on(kept, is_indexed=entry.in_arena, is_kept=self._is_kept(kind))

    def _is_kept(self, kind: str) -> bool:
        """Tell whether the results of a kind lie in its arena."""
        return find_result_store(choose_index(self._index, kind).result_store, find_kind(kind)).in_arena

    def loose_results(self) -> Iterator[tuple[str, list[Results]]]:
        """Yield, kind by kind, the results that lie in no arena and cannot be found again."""
        for kind, matcher in self.matchers.items():
            if matcher.kind.result_policy.must_be_saved and not self._is_kept(kind):
                yield kind, matcher.held(matcher.registry.taken())

    def publish(
        self, batch: MessageBatch, seen_by: Masks, ticks: Ticks, *, form: Form, cuts: Sequence[int], tells: bool
    ) -> list[Job]:
        """Take in messages, some of a batch; return the work that is to be done then.

        `seen_by` says for each which shards have it; `cuts` are rows at which they may be parted among threads. What
        kinds that keep results have to say is written down only if the shard `tells` it, and nobody else has a part.
        """
        return self._jobs(batch, seen_by, self.window.admit(batch, ticks), ticks, form, cuts, tells=tells)

    def advance(self, seq: int, ticks: Ticks, *, tells: bool) -> list[Job]:
        """Let time pass without a message."""
        steps = self.window.advance(seq, int(ticks.nows_us[-1]))
        nobody = np.zeros(0, np.uint64)
        return self._jobs(MessageBatch.empty(), nobody, steps, ticks, Form.OBJECTS, (0, 0), tells=tells)

    def _jobs(
        self,
        batch: MessageBatch,
        seen_by: Masks,
        steps: Steps,
        ticks: Ticks,
        form: Form,
        cuts: Sequence[int],
        *,
        tells: bool,
    ) -> list[Job]:
        def telling(matchers: Sequence[Matcher], rows: MessageBatch, seen: Masks, at: Steps) -> Job:
            return lambda: [(m, m.publish(rows, seen, at, ticks, form=form)) for m in matchers]

        forward = [m for m in self.matchers.values() if not m.kind.result_policy.is_stateful]
        keeping = [m for m in self.matchers.values() if m.kind.result_policy.is_stateful]
        jobs = []
        if forward:
            for start, stop in pairwise(cuts):
                rows, seen, at = batch.slice(start, stop), seen_by[start:stop], steps.slice(start, stop)
                jobs.append(telling(forward, rows, seen, at))
        if keeping and tells:
            jobs.append(telling(keeping, batch, seen_by, steps))
        elif keeping:
            jobs.append(lambda: [(m, m.changes(batch, seen_by, steps)) for m in keeping])
        return jobs


def choose_index(name: str, kind: str) -> IndexEntry:
    """Return the index of that name, which has to serve a kind."""
    entry = find_index(name, kind)
    if entry is None:
        raise StateError(f"index {name!r} does not serve kind {kind!r}")
    return entry
