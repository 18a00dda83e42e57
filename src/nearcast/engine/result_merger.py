"""What is the result of a subscription that lives in several shards? The k best of what its replicas hold.

    shard 0   m9 m4 m2   ─┐
                          ├─ m9 m7 m4 | m2         the first k are the result, the others wait
    shard 2   m9 m7      ─┘

Each replica keeps the k best of the messages that its shard sees, and together they see all that matter: so what is
among the k best of all is held by someone. Replicas say what came and went, step by step; a message counts as long as
any of them holds it. Nothing of this has to be saved: it is there again once replicas are asked what they hold.

Cost: 17 bytes for each of k and replica, and some hundred nanoseconds a change of a replica.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from nearcast._jit import Arena, column
from nearcast.engine._kernels import merger as kernels
from nearcast.engine.explain import explain
from nearcast.engine.registry import SubscriptionRegistry
from nearcast.model import (
    Document,
    Explanation,
    Id,
    IdColumn,
    ScoringContext,
    Subscription,
    SubscriptionBatch,
)
from nearcast.model._kernels import blocks
from nearcast.window import Changes, Results, ScoredMessage, Ticks

Slots = npt.NDArray[np.int32]

_PREFIX = "merger"
_BLOCKS = [f"{_PREFIX}.{name}" for name in ("scores", "seqs", "holders")]
_LEAST = 1 << 10  # messages for which it is worth finding out who is held no more


class ResultMerger:
    """The subscriptions of one kind, whose replicas are in shards."""

    def __init__(
        self, kind: type[Subscription], scoring: ScoringContext, n_shards: int, *, least: int = _LEAST
    ) -> None:
        self.kind, self._scoring, self._least = kind, scoring, least
        self.registry = SubscriptionRegistry(kind)
        self.n_matched = 0
        """Arrivals that changed a result, so far."""
        self._sign = kind.result_policy.sign
        self._arena = Arena()
        self._arena.new(f"{_PREFIX}.heads", np.int32, 0, columns=5)
        for name, dtype in zip(_BLOCKS, (np.float64, np.int64, np.uint8), strict=True):
            self._arena.new(name, dtype, 0)
        self._arena.new(f"{_PREFIX}.state", np.int64, blocks.STATE)[blocks.FIRST :] = -1
        self._slots = [np.zeros(0, np.int32) for _ in range(n_shards)]  # of a shard -> of the union
        self._ids: dict[int, Id] = {}  # of the messages that are held, by seq
        self._had_ids = least

    def __len__(self) -> int:
        return len(self.registry)

    def allocate(self, subscription_batch: SubscriptionBatch, sinces: npt.NDArray[np.int64]) -> Slots:
        """Take in subscriptions, whose replicas are yet to come."""
        slots = self.registry.allocate(subscription_batch, sinces)
        self._arena.grow(f"{_PREFIX}.heads", int(slots.max()) + 1)
        return slots

    def add(self, shard: int, replicas: Slots, slots: Slots, ks: npt.NDArray[np.int32], started: Results) -> None:
        """Take note of replicas in a shard, each of the subscription of that slot, and of what they start with."""
        if not len(slots):
            return
        held, top = self._slots[shard], int(replicas.max()) + 1
        if len(held) < top:
            held = self._slots[shard] = np.concatenate([held, np.zeros(max(top, len(held)), np.int32)])
        held[replicas] = slots
        ks = column(ks, np.int32)
        heads = self._arena[f"{_PREFIX}.heads"]
        heads[slots, kernels.PLACEMENTS] += 1
        rooms = heads[slots, kernels.PLACEMENTS] * ks
        while kernels.give_room(self._arrays, column(slots, np.int32), ks, rooms) < len(slots):
            state = self._arena[f"{_PREFIX}.state"]
            self._arena.grow_all(_BLOCKS, int(state[blocks.USED] + state[blocks.NEEDED]))
        self.fill(shard, started)

    def fill(self, shard: int, results: Results) -> None:
        """Take note of what replicas of a shard hold besides what is known."""
        self._note(results.seqs, results.ids)
        kernels.fill(
            self._arrays,
            self._sign,
            column(self._slots[shard][results.slots], np.int32),
            column(results.scores, np.float64),
            column(results.seqs, np.int64),
        )

    def drain(self, shard: int, slots: Slots, results: Results) -> None:
        """Take note that replicas in a shard, of the subscriptions of these slots, are gone with what they held."""
        self._arena[f"{_PREFIX}.heads"][slots, kernels.PLACEMENTS] -= 1
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
        """Return the bars that results have at least when messages have left, and the oldest that they rest on."""
        thresholds, oldest = np.empty(len(slots)), np.empty(len(slots), np.int64)
        kernels.survivors(self._arrays, column(slots, np.int32), leaving, thresholds, oldest)
        return thresholds, oldest

    def forget(self, slots: Slots) -> Results:
        """Forget subscriptions, whose replicas are gone; return the results they had."""
        had = self._read(slots)
        self.registry.leave(slots)
        kernels.end(self._arrays, column(slots, np.int32))
        return had

    def merge(self, told: Sequence[tuple[int, Changes]], ticks: Ticks) -> Changes:
        """Follow what changed in the replicas of shards; return how results changed."""
        deltas = self._deltas(told, int(ticks.seqs[0]))
        n = len(deltas.slots)
        out = kernels.Deltas(*(np.empty(2 * n, values.dtype) for values in deltas))
        most = int(self._arena[f"{_PREFIX}.heads"][:, kernels.K].max(initial=0))
        n = int(kernels.merge(self._arrays, self._sign, deltas, out, np.empty(most), np.empty(most, np.int64)))
        steps, seqs, enters = out.steps[:n], out.seqs[:n], out.enters[:n]
        n_matched = int(np.sum(enters & (seqs == ticks.seqs[steps])))
        mentioned, rows = np.unique(seqs, return_inverse=True)
        named = IdColumn.of([self._ids[seq] for seq in mentioned.tolist()])
        self._forget_ids()
        return Changes(
            steps, out.slots[:n], enters, out.scores[:n], named, mentioned, rows.astype(np.int64), n_matched
        )

    def _deltas(self, told: Sequence[tuple[int, Changes]], first_seq: int) -> kernels.Deltas:
        """Return what replicas tell by step and slot, leaves first; remember what messages are called."""
        parts = []
        for shard, changes in told:
            coming = np.flatnonzero(changes.enters) if changes.rows is None else np.arange(len(changes.seqs))
            self._note_coming(changes.seqs, changes.ids, coming, first_seq)
            seqs = changes.seqs if changes.rows is None else changes.seqs[changes.rows]
            slots = self._slots[shard][changes.slots]
            parts.append((changes.steps, slots, changes.enters, changes.scores, seqs))
        steps, slots, enters, scores, seqs = (np.concatenate(values) for values in zip(*parts, strict=True))
        order = np.argsort(steps << 33 | slots.astype(np.int64) << 1 | enters, kind="stable")
        return kernels.Deltas(steps[order], slots[order], enters[order], scores[order], seqs[order])

    def _note_coming(
        self, seqs: npt.NDArray[np.int64], ids: IdColumn, rows: npt.NDArray[np.int64], first_seq: int
    ) -> None:
        """Remember what messages of some rows are called; most came since a seq, and need not be sorted."""
        is_new = seqs[rows] >= first_seq
        new, old = rows[is_new], rows[~is_new]
        of_seq = np.full(int(seqs.max(initial=first_seq)) - first_seq + 1, -1, np.int64)
        of_seq[seqs[new] - first_seq] = new
        once = np.flatnonzero(of_seq >= 0)
        self._ids |= zip((once + first_seq).tolist(), ids.take(of_seq[once]), strict=True)
        self._note(seqs[old], ids.take(old))

    def _note(self, seqs: npt.NDArray[np.int64], ids: IdColumn) -> None:
        """Remember what messages are called."""
        once, rows = np.unique(seqs, return_index=True)
        new = np.array([seq not in self._ids for seq in once.tolist()], np.bool_)
        self._ids |= zip(once[new].tolist(), ids.take(rows[new]), strict=True)

    def _forget_ids(self) -> None:
        """Forget messages that nobody holds, if there may be many."""
        if len(self._ids) < 2 * self._had_ids:
            return
        known = np.sort(np.fromiter(self._ids, np.int64))
        held = np.zeros(len(known), np.bool_)
        kernels.mark(self._arrays, known, held)
        self._ids = {seq: self._ids[seq] for seq in known[held].tolist()}
        self._had_ids = max(self._least, len(self._ids))

    def held(self, slots: Slots) -> list[Results]:
        """Return some results."""
        return [self._read(slots)]

    def _read(self, slots: Slots) -> Results:
        heads = self._arena[f"{_PREFIX}.heads"][slots]
        lengths = np.minimum(heads[:, kernels.SIZE], heads[:, kernels.K]).astype(np.int64)
        ends = np.cumsum(lengths)
        at = np.repeat(heads[:, kernels.START] - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)
        seqs = self._arena[f"{_PREFIX}.seqs"][at]
        ids = IdColumn.of([self._ids[seq] for seq in seqs.tolist()])
        return Results(np.repeat(slots, lengths), seqs, self._arena[f"{_PREFIX}.scores"][at], ids)

    def results(self, slot: int, _live: Callable[[], Iterable[Document]]) -> list[ScoredMessage]:
        """Return a result, best first."""
        return self._read(np.array([slot], np.int32)).by_slot().get(slot, [])

    def explain(self, slot: int, document: Document) -> Explanation:
        """Say how a message fares for a subscription, given what else is in its result."""
        return explain(self.registry, slot, document, self._scoring, self)

    def would_enter(self, slot: int, document: Document, score: float) -> bool:
        """Tell whether a message is in a result or, published now, would come in."""
        held = self.results(slot, list)
        if self.threshold(slot) is None or any(kept.seq == document.seq for kept in held):
            return True
        rank, worst = (score, document.seq), (held[-1].score, held[-1].seq)
        return rank > worst if self._sign > 0 else rank < worst

    def threshold(self, slot: int) -> float | None:
        """Return the score of the worst of k results; None if there is room."""
        held = self.results(slot, list)
        return held[-1].score if len(held) == int(self._arena[f"{_PREFIX}.heads"][slot, kernels.K]) else None

    @property
    def _arrays(self) -> kernels.MergerArrays:
        return self._arena.bundle(_PREFIX, kernels.MergerArrays)
