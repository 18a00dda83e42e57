"""Merged results of subscriptions that live in several shards: the k best of what the replicas hold.

    shard 0   m9 m4 m2   ─┐
                          ├─ m9 m7 m4 | m2         the first k are the result, the others wait
    shard 2   m9 m7      ─┘

Each replica keeps the k best of the messages that its shard sees, and together the shards see all messages that
matter. Every message among the k best of all is therefore held by some replica. Replicas report what enters and
leaves, step by step; a message counts as long as one of them holds it. An engine saves nothing of this: it follows
from what the replicas hold. A merge stage, whose replicas live elsewhere, has it in an arena of its own.

Cost: 18 bytes per result and replica, and a few hundred nanoseconds per change of a replica.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nearcast._jit import Arena, column
from nearcast.engine._kernels import merger as kernels
from nearcast.engine.distinct_numbers import distinct_seqs
from nearcast.engine.explain import explain
from nearcast.engine.registry import SubscriptionRegistry
from nearcast.engine.window_lookup import Touching
from nearcast.model import (
    Document,
    Explanation,
    IdColumn,
    ScoringContext,
    Subscription,
    SubscriptionBatch,
)
from nearcast.model._kernels import blocks
from nearcast.window import Changes, Results, ScoredMessage, Ticks
from nearcast.window.held_messages import HeldMessages

Slots = npt.NDArray[np.int32]

_PREFIX = "merger"
_BLOCKS = [f"{_PREFIX}.{name}" for name in ("scores", "seqs", "holders")]
_LEAST = 1 << 10  # fewer messages than this are not worth a search for unused ids


class ResultMerger:
    """The merged results of one kind."""

    def __init__(
        self,
        kind: type[Subscription],
        scoring: ScoringContext,
        n_shards: int,
        *,
        arena: Arena | None = None,
        least: int = _LEAST,
    ) -> None:
        """Create a merger without subscriptions, or continue with an arena that holds one."""
        self.kind, self._scoring, self._least = kind, scoring, least
        self._arena = Arena() if arena is None else arena
        self.registry = SubscriptionRegistry(kind, self._arena, hash_key=scoring.hash_key)
        self.n_matched = 0
        """Number of messages that changed a result on arrival."""
        self._sign = kind.result_policy.sign
        if f"{_PREFIX}.state" not in self._arena:
            with self._arena.together():
                self._arena.new(f"{_PREFIX}.heads", np.int32, 0, columns=5)
                for name, dtype in zip(_BLOCKS, (np.float64, np.int64, np.uint16), strict=True):
                    self._arena.new(name, dtype, 0)
                self._arena.new(f"{_PREFIX}.state", np.int64, blocks.STATE)[blocks.FIRST :] = -1
        self._slots = [np.zeros(0, np.int32) for _ in range(n_shards)]  # slot in a shard -> slot here
        self._messages = HeldMessages(self._arena)

    def __len__(self) -> int:
        return len(self.registry)

    def allocate(self, subscriptions: SubscriptionBatch, sinces: npt.NDArray[np.int64]) -> Slots:
        """Add subscriptions; their replicas are added later."""
        slots = self.registry.allocate(subscriptions, sinces)
        self._arena.grow(f"{_PREFIX}.heads", int(slots.max()) + 1)
        return slots

    def add(self, shard: int, replicas: Slots, slots: Slots, ks: npt.NDArray[np.int32], initial: Results) -> None:
        """Add replicas in a shard, each of the subscription in the given slot, with their initial results."""
        if not len(slots):
            return
        own, top = self._slots[shard], int(replicas.max()) + 1
        if len(own) < top:
            own = self._slots[shard] = np.concatenate([own, np.zeros(max(top, len(own)), np.int32)])
        own[replicas] = slots
        self.make_room(slots, ks, 1)
        self.fill(shard, initial)

    def make_room(self, slots: Slots, ks: npt.NDArray[np.int32], n_replicas: npt.NDArray[np.int64] | int) -> None:
        """Make room for so many more replicas of subscriptions, each of which is given once."""
        ks = column(ks, np.int32)
        heads = self._arena[f"{_PREFIX}.heads"]
        heads[slots, kernels.REPLICAS] += n_replicas
        rooms = heads[slots, kernels.REPLICAS] * ks
        while kernels.reserve(self._arrays, column(slots, np.int32), ks, rooms) < len(slots):
            state = self._arena[f"{_PREFIX}.state"]
            self._arena.grow_all(_BLOCKS, int(state[blocks.USED] + state[blocks.NEEDED]))

    def fill(self, shard: int, results: Results) -> None:
        """Add messages that replicas of a shard hold."""
        self.hold(results._replace(slots=self._slots[shard][results.slots]))

    def hold(self, results: Results) -> None:
        """Add messages that replicas hold, by the slots of their subscriptions."""
        self.remember(results.seqs, results.ids)
        kernels.fill(
            self._arrays,
            self._sign,
            column(results.slots, np.int32),
            column(results.scores, np.float64),
            column(results.seqs, np.int64),
        )

    def drain(self, shard: int, slots: Slots, results: Results) -> None:
        """Remove replicas of a shard, of the subscriptions in the given slots, with what they held."""
        self._arena[f"{_PREFIX}.heads"][slots, kernels.REPLICAS] -= 1
        kernels.drain(
            self._arrays,
            self._sign,
            column(self._slots[shard][results.slots], np.int32),
            column(results.scores, np.float64),
            column(results.seqs, np.int64),
        )

    def survivors(
        self, slots: Slots, leaving: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Return lower bounds of the thresholds after messages leave, and the oldest message that each rests on."""
        thresholds, oldest = np.empty(len(slots)), np.empty(len(slots), np.int64)
        kernels.survivors(self._arrays, column(slots, np.int32), leaving, thresholds, oldest)
        return thresholds, oldest

    def merged(self, shard: int, results: Results) -> Results:
        """Return those results of replicas in a shard that are part of merged results."""
        slots = self._slots[shard][results.slots]
        now = self._read(np.unique(slots))
        pairs = set(zip(now.slots.tolist(), now.seqs.tolist(), strict=True))
        rows = zip(slots.tolist(), results.seqs.tolist(), strict=True)
        chosen = np.flatnonzero(np.fromiter((row in pairs for row in rows), np.bool_, len(slots)))
        return Results(results.slots[chosen], results.seqs[chosen], results.scores[chosen], results.ids.take(chosen))

    def forget(self, slots: Slots) -> Results:
        """Remove subscriptions whose replicas are gone; return their results."""
        removed = self._read(slots)
        self.registry.free(slots)
        kernels.end(self._arrays, column(slots, np.int32))
        return removed

    def merge(self, by_shard: Sequence[tuple[int, Changes]], ticks: Ticks) -> Changes:
        """Apply the changes of replicas, by shard, and return the changes of merged results."""
        return self.merge_slots([self._delta(shard, changes) for shard, changes in by_shard], ticks)

    def merge_slots(self, parts: Sequence[kernels.Deltas], ticks: Ticks) -> Changes:
        """Do the same with changes by the slots of their subscriptions; messages that enter must be remembered."""
        deltas = _sorted(parts)
        n = len(deltas.slots)
        out = kernels.Deltas(*(np.empty(2 * n, values.dtype) for values in deltas))
        most = int(self._arena[f"{_PREFIX}.heads"][:, kernels.K].max(initial=0))
        n = int(kernels.merge(self._arrays, self._sign, deltas, out, np.empty(most), np.empty(most, np.int64)))
        steps, seqs, enters = out.steps[:n], out.seqs[:n], out.enters[:n]
        n_matched = int(np.sum(enters & (seqs == ticks.seqs[steps])))
        mentioned, rows = distinct_seqs(seqs)
        named = self._ids(mentioned)
        self._forget_messages()
        return Changes(steps, out.slots[:n], enters, out.scores[:n], named, mentioned, rows, n_matched)

    def _delta(self, shard: int, changes: Changes) -> kernels.Deltas:
        """Return the changes of the replicas of a shard, and remember the messages that enter."""
        slots, seqs = self._slots[shard][changes.slots], changes.seqs
        if changes.rows is None:
            rows = np.flatnonzero(changes.enters)
            self.remember(seqs[rows], changes.ids.take(rows))
        else:
            self.remember(seqs, changes.ids)
            seqs = seqs[changes.rows]
        return kernels.Deltas(changes.steps, slots, changes.enters, changes.scores, seqs)

    def remember(self, seqs: npt.NDArray[np.int64], ids: IdColumn) -> None:
        """Remember the ids of messages."""
        once, rows = np.unique(seqs, return_index=True)
        known = self._messages.seqs
        new = ~np.isin(once, known, assume_unique=True)
        if not new.any():
            return
        once, ids = once[new], ids.take(rows[new])
        if len(known) and once[0] < known[-1]:
            self._messages.merge(once, ids)
        else:
            self._messages.append(once, ids)

    def _ids(self, seqs: npt.NDArray[np.int64]) -> IdColumn:
        """Return the ids of messages that are remembered."""
        return self._messages.ids(np.searchsorted(self._messages.seqs, seqs).astype(np.int32))

    def _forget_messages(self) -> None:
        """Forget the messages that no replica holds, if there may be many."""
        if len(self._messages) >= self._least and self._messages.has_doubled:
            self._messages.keep(np.isin(self._messages.seqs, self.held_seqs(), assume_unique=True))

    def held_seqs(self) -> npt.NDArray[np.int64]:
        """Return the seqs of all messages that replicas hold, ascending: one pass over all of them."""
        known = self._messages.seqs
        marks = np.zeros(len(known), np.bool_)
        kernels.mark(self._arrays, known, marks)
        return known[marks]

    def reset(self) -> None:
        """Forget what replicas hold, before all of them report it again.

        Results that do not follow from the window stay, as those of one more replica.
        """
        slots, heads = self.registry.taken(), self._arena[f"{_PREFIX}.heads"]
        kept = self._read(slots)
        heads[slots, kernels.SIZE] = heads[slots, kernels.REPLICAS] = 0
        if self.kind.result_policy.must_be_saved:
            heads[slots, kernels.REPLICAS] = 1
            self.hold(kept)

    def held_by_replicas(self, slots: Slots) -> tuple[npt.NDArray[np.int64], Results]:
        """Return the number of replicas of some slots, and what these hold: each message as often as it is held."""
        heads = self._arena[f"{_PREFIX}.heads"][slots]
        at, lengths = _places(heads, heads[:, kernels.SIZE].astype(np.int64))
        times = self._arena[f"{_PREFIX}.holders"][at]
        at, of_slots = np.repeat(at, times), np.repeat(np.repeat(slots, lengths), times)
        seqs = self._arena[f"{_PREFIX}.seqs"][at]
        results = Results(of_slots, seqs, self._arena[f"{_PREFIX}.scores"][at], self._ids(seqs))
        return heads[:, kernels.REPLICAS].astype(np.int64), results

    def held(self, slots: Slots) -> list[Results]:
        """Return the results of slots."""
        return [self._read(slots)]

    def _read(self, slots: Slots) -> Results:
        heads = self._arena[f"{_PREFIX}.heads"][slots]
        at, lengths = _places(heads, np.minimum(heads[:, kernels.SIZE], heads[:, kernels.K]).astype(np.int64))
        seqs = self._arena[f"{_PREFIX}.seqs"][at]
        return Results(np.repeat(slots, lengths), seqs, self._arena[f"{_PREFIX}.scores"][at], self._ids(seqs))

    def results(self, slot: int, _touching: Touching) -> list[ScoredMessage]:
        """Return a result, best first."""
        return self._read(np.array([slot], np.int32)).by_slot().get(slot, [])

    def explain(self, slot: int, document: Document) -> Explanation:
        """Explain the score of a message for a subscription, given the other messages of its result."""
        return explain(self.registry, slot, document, self._scoring, self)

    def would_enter(self, slot: int, document: Document, score: float) -> bool:
        """Return whether a message is in a result or would enter it if published now."""
        results = self.results(slot, list)
        if self.threshold(slot) is None or any(scored.seq == document.seq for scored in results):
            return True
        worst = results[-1]
        return self.kind.result_policy.would_enter(score, document.seq, (worst.score, worst.seq))

    def threshold(self, slot: int) -> float | None:
        """Return the score of the worst of k results; None if the result is not full."""
        results = self.results(slot, list)
        return results[-1].score if len(results) == int(self._arena[f"{_PREFIX}.heads"][slot, kernels.K]) else None

    @property
    def _arrays(self) -> kernels.MergerArrays:
        return self._arena.bundle(_PREFIX, kernels.MergerArrays)


def _sorted(parts: Sequence[kernels.Deltas]) -> kernels.Deltas:
    """Return changes of replicas by step and slot, leaves first."""
    steps, slots, enters, scores, seqs = (np.concatenate(values) for values in zip(*parts, strict=True))
    order = np.argsort(steps << 33 | slots.astype(np.int64) << 1 | enters, kind="stable")
    return kernels.Deltas(steps[order], slots[order], enters[order], scores[order], seqs[order])


def _places(
    heads: npt.NDArray[np.int32], lengths: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the places of the first messages of some slots, given how many of each, and these lengths."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(heads[:, kernels.START] - (ends - lengths), lengths) + np.arange(total), lengths
