"""The registry finds every id and slot after any sequence of inserts and deletes."""

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nearcast as nc
from nearcast._jit import Arena
from nearcast.engine import id_strings
from nearcast.engine._kernels import registry as kernels
from nearcast.engine.registry import SubscriptionRegistry
from nearcast.model import KINDS, IdColumn, SubscriptionBatch
from nearcast.testing import strategies

LONG = "x" * 300
POOL = ["", "a", "s17", "eleven byte", "twelve bytes", "ünïcode", LONG, LONG + "y", "7", 7, -(1 << 62)]


def nearest(id_, k=1, keywords=None):
    return nc.NearestSubscription(id_, location=(k % 8, 0), keywords=keywords or ["a", f"w{id_}"], k=k)


def slots_of(slots):
    return np.array(slots, dtype=np.int32)


@pytest.fixture(params=["heap", "files"])
def arena(request, tmp_path):
    return Arena() if request.param == "heap" else Arena(tmp_path / "arena")


@pytest.mark.parametrize("seed", range(4))
def test_every_allocated_id_is_found(seed, arena):
    rng = random.Random(seed)
    registry, seated = SubscriptionRegistry(nc.NearestSubscription, arena), {}
    for round_ in range(40):
        ids = [
            rng.choice([f"s{round_}.{i}", f"{LONG}{round_}.{i}", 1000 * round_ + i])
            for i in range(rng.randint(1, 60))
        ]
        words = [rng.choice([None, "plain words", "w " * rng.randint(1, 400)]) for _ in ids]
        batch = SubscriptionBatch.of(
            [nearest(id_, 1 + i, words[i]) for i, id_ in enumerate(ids)], strategies.scoring()
        )
        slots = registry.allocate(batch, np.full(len(batch), round_))
        assert len(set(slots.tolist())) == len(slots) and not set(slots.tolist()) & set(seated)
        seated |= {slot: (s, round_) for slot, s in zip(slots.tolist(), batch.subscriptions, strict=True)}
        leaving = rng.sample(sorted(seated), rng.randint(0, len(seated)))
        gone = [seated.pop(slot)[0].id for slot in leaving]
        registry.free(slots_of(leaving))
        assert len(registry) == len(seated)
        assert registry.taken().tolist() == sorted(seated)
        assert (registry.find(IdColumn.of([*gone, "never"])) == -1).all()
        held = sorted(seated)
        assert registry.find(IdColumn.of([seated[slot][0].id for slot in held])).tolist() == held
        requested = slots_of(rng.choices(held, k=20) if seated else [])
        assert registry.ids(requested).objects == [seated[slot][0].id for slot in requested.tolist()]
        assert registry.names(requested).to_pylist() == [str(seated[slot][0].id) for slot in requested.tolist()]
        assert registry.sinces(requested).tolist() == [seated[slot][1] for slot in requested.tolist()]
        if seated:
            assert registry.subscription(int(requested[0])) == seated[int(requested[0])][0]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
@given(data=st.data())
@settings(max_examples=30)
def test_stored_subscriptions_are_read_back(kind, data):
    fields = data.draw(st.lists(strategies.subscription_fields(kind.kind), min_size=1, max_size=len(POOL)))
    made = [strategies.make_subscription(kind.kind, id_, f) for id_, f in zip(POOL, fields, strict=False)]
    batch = SubscriptionBatch.of(made, strategies.scoring())
    registry = SubscriptionRegistry(kind)
    slots = registry.allocate(batch, np.zeros(len(made), np.int64))
    assert registry.rows(slots).equals(batch.stored)
    assert [registry.subscription(slot) for slot in slots.tolist()] == made


def test_similar_ids_are_distinguished():
    registry = SubscriptionRegistry(nc.NearestSubscription)
    slots = registry.allocate(
        SubscriptionBatch.of([nearest(id_) for id_ in POOL], strategies.scoring()), np.zeros(len(POOL), np.int64)
    )
    assert registry.find(IdColumn.of(POOL)).tolist() == slots.tolist()
    assert registry.find(IdColumn.of([LONG + "z", "x" * 12, 17, "-4611686018427387904"])).tolist() == [-1] * 4


def test_ids_with_equal_hashes_are_distinguished(monkeypatch):
    monkeypatch.setattr(IdColumn, "keys", lambda self, hash_key: np.full(len(self), 5 << 40, np.uint64))
    registry, ids = SubscriptionRegistry(nc.NearestSubscription), [f"s{i}" for i in range(500)]
    slots = registry.allocate(
        SubscriptionBatch.of([nearest(id_) for id_ in ids], strategies.scoring()), np.zeros(len(ids), np.int64)
    )
    registry.free(slots[::2])
    assert registry.find(IdColumn.of(ids)).tolist() == [-1 if i % 2 == 0 else s for i, s in enumerate(slots.tolist())]


def test_many_equal_hashes_take_no_more_room_than_others(monkeypatch, arena):
    def keys(self, hash_key):
        numbers = np.array([int(id_[1:]) for id_ in self], np.uint64)
        return np.where(numbers % 4 == 0, numbers * np.uint64(0x9E3779B97F4A7C15), np.uint64(5 << 40))

    monkeypatch.setattr(IdColumn, "keys", keys)
    registry, ids = SubscriptionRegistry(nc.NearestSubscription, arena), [f"s{i}" for i in range(6_000)]
    subscriptions = [nearest(id_, keywords="a") for id_ in ids]
    slots = registry.allocate(SubscriptionBatch.of(subscriptions, strategies.scoring()), np.zeros(6_000, np.int64))
    n_segments = int(registry._array("state")[kernels.N_SEGMENTS])
    assert n_segments < 64 and len(registry._array("segments")) <= 2 * kernels.SPARSE * n_segments
    registry.free(slots[1::3])
    expected = [-1 if i % 3 == 1 else s for i, s in enumerate(slots.tolist())]
    assert registry.find(IdColumn.of(ids)).tolist() == expected
    registry.allocate(SubscriptionBatch.of(subscriptions[1::3], strategies.scoring()), np.zeros(2_000, np.int64))
    assert (registry.find(IdColumn.of(ids)) >= 0).all()
    assert registry._array("state")[kernels.N_SEGMENTS] <= n_segments + 1


def test_every_id_is_found_after_segments_split():
    registry, ids = SubscriptionRegistry(nc.NearestSubscription), [f"s{i}" for i in range(9_000)]
    for start in range(0, len(ids), 1_500):
        some = [nearest(id_, keywords="a") for id_ in ids[start : start + 1_500]]
        registry.allocate(SubscriptionBatch.of(some, strategies.scoring()), np.zeros(len(some), np.int64))
    assert registry._array("state")[kernels.N_SEGMENTS] > 8
    assert registry.find(IdColumn.of(ids)).tolist() == list(range(9_000))
    registry.free(np.arange(0, 9_000, 3, dtype=np.int32))
    assert (registry.find(IdColumn.of(ids)) >= 0).tolist() == [i % 3 != 0 for i in range(9_000)]


def test_freed_blocks_are_reused():
    registry = SubscriptionRegistry(nc.NearestSubscription)
    for round_ in range(200):
        some = [nearest(f"{round_:03}.{i}", keywords="w " * (1 + i)) for i in range(20)]
        registry.free(registry.allocate(SubscriptionBatch.of(some, strategies.scoring()), np.zeros(20, np.int64)))
        if round_ == 0:
            used = registry._array("state")[kernels.USED]
    assert registry._array("state")[kernels.N_SLOTS] == 20
    assert registry._array("state")[kernels.USED] == used


def test_a_registry_in_files_continues_after_attach(tmp_path):
    with Arena(tmp_path / "arena") as arena:
        registry = SubscriptionRegistry(nc.NearestSubscription, arena)
        registry.allocate(
            SubscriptionBatch.of([nearest(id_) for id_ in POOL], strategies.scoring()), np.arange(len(POOL))
        )
    again = SubscriptionRegistry(nc.NearestSubscription, Arena.attach(tmp_path / "arena"))
    assert again.ids(again.taken()).objects == POOL
    assert again.find(IdColumn.of(POOL)).tolist() == list(range(len(POOL)))
    assert again.sinces(again.taken()).tolist() == list(range(len(POOL)))


def test_long_columns_of_strings_are_returned_in_chunks():
    rows = np.array([0, 1, 2, 2, 1] * 40)
    strings = pa.array(["ab", "c" * 30, ""])
    given = kernels.Strings(*id_strings.bytes_of(strings), np.empty((len(strings), 2), np.uint64))
    kernels.gather_heads(given)
    columns = id_strings._columns(
        len(rows),
        lambda first, done, out: kernels.repeat_names(given, rows[first:], done, out),
        most_words=16,
    )
    assert columns.num_chunks > 5
    assert columns.to_pylist() == strings.take(pa.array(rows)).to_pylist()
