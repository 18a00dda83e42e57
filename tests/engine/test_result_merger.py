"""Merged results are the k best of all replicas."""

import random

import numpy as np
import pytest

import nearcast as nc
from nearcast.engine import EngineConfig
from nearcast.engine.result_merger import ResultMerger
from nearcast.engine.shard_engine import ShardEngine
from nearcast.model import IdColumn, SubscriptionBatch
from nearcast.testing import strategies
from nearcast.window import Changes, Results, Ticks

KINDS = ["topk", "nearest"]


def batch_of(kind, ks):
    given = {"alpha": 0.5} if kind == "topk" else {}
    make = {"topk": nc.TopKSubscription, "nearest": nc.NearestSubscription}[kind]
    subscriptions = [make(f"s{i}", location=(1, 1), keywords="tea", k=k, **given) for i, k in enumerate(ks)]
    return SubscriptionBatch.of(subscriptions, strategies.scoring())


def changes(rows):
    """Return changes of a replica, as (step, slot, enters, score, seq)."""
    steps, slots, enters, scores, seqs = zip(*rows, strict=True) if rows else [()] * 5
    return Changes(
        np.array(steps, np.int64), np.array(slots, np.int32), np.array(enters, np.bool_), np.array(scores),
        IdColumn.of([f"m{seq}" for seq in seqs]), np.array(seqs, np.int64), None, 0,
    )  # fmt: skip


class Replicas:
    """Replicas whose results change at random, and the changes that they report."""

    def __init__(self, kind, ks, n_shards, rng):
        self.rng, self.ks, self.n_shards = rng, ks, n_shards
        self.is_better = max if kind == "topk" else min
        self.held = {(shard, slot): {} for shard in range(n_shards) for slot in range(len(ks))}

    def turn(self, step):
        """Change some results; return the rows that each shard reports."""
        updates = {shard: [] for shard in range(self.n_shards)}
        for (shard, slot), held in self.held.items():
            gone = [seq for seq in held if self.rng.random() < 0.3]
            updates[shard] += [(step, slot, False, held.pop(seq), seq) for seq in gone]
            for seq in self.rng.sample(range(40), 3):
                if seq not in held and seq not in gone and len(held) < self.ks[slot]:
                    held[seq] = (seq * 7 % 10) / 10
                    updates[shard].append((step, slot, True, held[seq], seq))
        return updates

    def best(self, slot):
        """Return the k best of all, best first."""
        sign = -1 if self.is_better is max else 1
        every = {seq: score for (_, s), held in self.held.items() if s == slot for seq, score in held.items()}
        ranked = sorted(every.items(), key=lambda item: (sign * item[1], sign * item[0]))
        return [(seq, score) for seq, score in ranked[: self.ks[slot]]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_merged_changes_lead_from_the_k_best_to_the_k_best(kind, seed):
    rng, ks, n_shards = random.Random(seed), [1, 2, 3, 7], 3
    batch, replicas = batch_of(kind, ks), Replicas(kind, ks, n_shards, rng)
    merger = ResultMerger(batch.kind, strategies.scoring(), n_shards)
    slots = merger.allocate(batch, np.zeros(len(ks), np.int64))
    for shard in range(n_shards):
        merger.add(shard, slots, slots, batch.footprints.ks, Results.none())
    updates_so_far = [set() for _ in ks]
    for round_ in range(30):
        parts = {shard: [] for shard in range(n_shards)}
        after = []
        for step in range(4):
            for shard, rows in replicas.turn(step).items():
                parts[shard] += rows
            after.append([replicas.best(slot) for slot in range(len(ks))])
        seqs = np.arange(4, dtype=np.int64) + 4 * round_
        merged = merger.merge([(s, changes(rows)) for s, rows in parts.items()], Ticks(seqs, seqs, seqs))
        at = 0
        for step in range(4):
            while at < len(merged.steps) and merged.steps[at] == step:
                row, slot = merged.rows[at], merged.slots[at]
                entry = (int(merged.seqs[row]), float(merged.scores[at]))
                assert merged.ids[row] == f"m{entry[0]}"
                (updates_so_far[slot].add if merged.enters[at] else updates_so_far[slot].remove)(entry)
                at += 1
            assert updates_so_far == [set(best) for best in after[step]]
        assert at == len(merged.steps)
        for slot, best in enumerate(after[-1]):
            assert [(kept.seq, kept.score) for kept in merger.results(slot, list)] == best


def test_a_change_of_replicas_alone_emits_no_update():
    batch = batch_of("topk", [2])
    merger = ResultMerger(batch.kind, strategies.scoring(), 2)
    slots = merger.allocate(batch, np.zeros(1, np.int64))
    started = Results(slots, np.array([5]), np.array([0.5]), IdColumn.of(["m5"]))
    merger.add(0, slots, slots, batch.footprints.ks, started)
    merger.add(1, slots, slots, batch.footprints.ks, Results.none())
    moment = np.array([6], np.int64)
    leaves, comes = changes([(0, 0, False, 0.5, 5)]), changes([(0, 0, True, 0.5, 5)])
    merged = merger.merge([(0, leaves), (1, comes)], Ticks(moment, moment, moment))
    assert len(merged.steps) == 0
    assert merger.results(0, list)[0].message == "m5"


def test_deleted_subscriptions_are_forgotten_and_their_space_is_reused():
    batch = batch_of("topk", [3, 3])
    merger = ResultMerger(batch.kind, strategies.scoring(), 1)
    room = 0
    for _ in range(50):
        slots = merger.allocate(batch, np.zeros(2, np.int64))
        started = Results(slots, np.array([5, 6]), np.array([0.5, 0.6]), IdColumn.of(["a", "b"]))
        merger.add(0, slots, slots, batch.footprints.ks, started)
        room = room or merger._arrays.seqs.size
        assert merger.forget(slots).ids.objects == ["a", "b"]
    assert (len(merger), merger._arrays.seqs.size) == (0, room)


def test_ids_of_messages_outside_all_results_are_forgotten():
    batch = batch_of("nearest", [1])
    merger = ResultMerger(batch.kind, strategies.scoring(), 1, least=4)
    slots = merger.allocate(batch, np.zeros(1, np.int64))
    merger.add(0, slots, slots, batch.footprints.ks, Results.none())
    for seq in range(1, 30):
        rows = [(0, 0, False, 1.0 / (seq - 1), seq - 1)] if seq > 1 else []
        moment = np.array([seq], np.int64)
        merger.merge([(0, changes([*rows, (0, 0, True, 1.0 / seq, seq)]))], Ticks(moment, moment, moment))
    assert len(merger._messages) < 12
    assert merger.results(0, list)[0].message == "m29"


def test_an_empty_kind_is_saved_and_sealed(tmp_path):
    options = {"space": strategies.PLANE, "window": nc.CountWindow(3), "workers": 3, "partitioner": "keyword"}
    tea = nc.NearestSubscription("s", location=(1, 1), keywords="tea", k=1)
    with ShardEngine.create(EngineConfig.of(options), folder=tmp_path / "engine") as engine:
        engine.subscribe([tea, nc.TopKSubscription("t", location=(1, 1), keywords="tea milk", k=1, alpha=0.5)])
        engine.unsubscribe(["s"])
        engine.save(tmp_path / "saved")
        engine.seal("now")
    for again in (
        nc.Engine.load(tmp_path / "saved"),
        ShardEngine.attach(tmp_path / "engine", "now", EngineConfig.of(options)),
    ):
        with again:
            assert len(again) == 1
            again.subscribe([tea])
            assert {u.subscription for u in again.publish([nc.Message("m", (1, 1), "milk tea")])} == {"s", "t"}


def test_a_message_that_enters_while_the_clock_advances_is_no_match():
    """The last message, whose seq the updates of an advance carry, may take the place of one that expires."""
    options = {"space": strategies.PLANE, "window": nc.TimeWindow(6), "workers": 3, "partitioner": "keyword"}
    with nc.Engine(**options) as engine:
        engine.subscribe([nc.TopKSubscription("t", location=(1, 1), keywords="tea milk", k=1, alpha=0.5)])
        engine.publish([nc.Message("m1", (1, 1), "milk tea", at=0), nc.Message("m2", (2, 2), "tea", at=3)])
        assert engine.stats().matched == 1
        assert [(u.message, u.change) for u in engine.advance(6)] == [("m1", "leave"), ("m2", "enter")]
        assert engine.stats().matched == 1
