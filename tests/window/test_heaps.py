"""Heaps hold the k nearest messages since a subscription, and messages in no result are dropped."""

import os
import random

import numpy as np
import pytest

import nearcast as nc
from effort import effort
from modes import check_passes
from nearcast._jit import Arena
from nearcast.engine import EngineConfig
from nearcast.engine.shard_engine import ShardEngine
from nearcast.index import IndexEntry, register
from nearcast.index._kernels.nearest.layout import THRESHOLD
from nearcast.index.scan import Scan
from nearcast.model import IdColumn, Matches, MessageBatch, SubscriptionBatch
from nearcast.model._kernels import blocks
from nearcast.testing import strategies as params
from nearcast.window import Steps
from nearcast.window.heaps import HeapResults
from nearcast.window.held_messages import HeldMessages
from nearcast.window.result_store import Results, ScoredMessage

SMALL = "NEARCAST_TEST_SMALL" in os.environ
"""Set for the pass without compiled code."""

register(IndexEntry("scan-heaps", frozenset({"nearest"}), lambda scoring, arena: Scan(scoring), False, "heaps"))


def random_subscription(rng, space, n_ids=12):
    id_ = rng.randrange(n_ids)
    return nc.NearestSubscription(
        id_ if id_ % 3 else f"s{id_}",
        location=rng.choice(params.GRID[space]),
        keywords=rng.choices(params.TERMS, k=rng.randint(1, 4)),
        k=rng.choice([1, 1, 2, 3, 5, 12, 40]),
    )


class Stream:
    """Messages with many ties, and ids that are texts or integers."""

    def __init__(self, rng, space):
        self.rng, self.space, self.n = rng, space, 0

    def take(self, n):
        made = []
        for _ in range(n):
            self.n += 1
            terms = self.rng.choices(params.TERMS, k=self.rng.randint(0, 5))
            id_ = self.n if self.n % 4 == 0 else f"m{self.n}"
            made.append(nc.Message(id_, self.rng.choice(params.GRID[self.space]), terms))
        return made


def sorted_changes(updates):
    """Return the changes of updates in one order."""
    return sorted((u.seq, str(u.subscription), u.change, str(u.message), u.score) for u in updates)


def result_store_of(engine):
    return engine._shards.shards[0].matchers["nearest"]._result_store


def leaves_come_right_before(updates):
    """Assert that the changes of a step and subscription are adjacent: at most one leave, then one enter."""
    seen = set()
    for before, update in zip([None, *updates], updates, strict=False):
        key = update.seq, update.subscription
        if key in seen:
            assert (before.seq, before.subscription) == key
            assert (before.change, update.change) == ("leave", "enter")
        seen.add(key)


@pytest.mark.parametrize("index", ["scan-heaps", "nearest"])
@pytest.mark.parametrize("seed", range(2 if SMALL else effort(2, 8)))
def test_heaps_hold_what_cumulative_results_hold(index, seed):
    rng = random.Random(seed)
    space = params.SPACES[seed % 2]
    slow, fast = (nc.Engine(space=space, vocabulary=params.vocabulary(), index=name) for name in ("scan", index))
    stream, subscribed = Stream(rng, space), set()
    for step in range(40):
        choice = rng.random()
        if choice < 0.3 or not subscribed:
            made = [random_subscription(rng, space) for _ in range(rng.randint(1, 4))]
            subscribed |= {one.id for one in made}
            changes = [engine.subscribe(made) for engine in (slow, fast)]
        elif choice < 0.4:
            leaving = [subscribed.pop()]
            changes = [engine.unsubscribe(leaving) or [] for engine in (slow, fast)]
        else:
            messages = stream.take(rng.choice([1, 1, 3, 10, 100]))
            changes = [engine.publish(messages) for engine in (slow, fast)]
            leaves_come_right_before(changes[1])
        if rng.random() < 0.1:
            fast.rescale(rng.choice([1, 2, 3]))
        result_store_of(fast)._least = 8
        assert sorted_changes(changes[1]) == sorted_changes(changes[0]), step
        for id_ in subscribed:
            assert fast.results(id_) == slow.results(id_)
            message = nc.Message("new", rng.choice(params.GRID[space]), rng.choices(params.TERMS, k=3))
            assert fast.explain(id_, message) == slow.explain(id_, message)


def test_a_subscription_that_is_replaced_starts_empty_at_its_new_location():
    rng = random.Random(3)
    slow, fast = (nc.Engine(space=params.PLANE, vocabulary=params.vocabulary(), index=i) for i in ("scan", "auto"))
    stream = Stream(rng, params.PLANE)
    for _ in range(12):
        subscribed = [
            nc.NearestSubscription(i, location=rng.choice(params.GRID[params.PLANE]), keywords="a b", k=3)
            for i in range(6)
        ]
        messages = stream.take(15)
        assert sorted_changes(fast.subscribe(subscribed)) == sorted_changes(slow.subscribe(subscribed))
        assert sorted_changes(fast.publish(messages)) == sorted_changes(slow.publish(messages))
    assert fast.stats().subscriptions == 6


def test_messages_that_no_result_holds_are_dropped():
    engine, rng = nc.Engine(space=params.PLANE, vocabulary=params.vocabulary()), random.Random(4)
    engine.subscribe(
        [nc.NearestSubscription(i, rng.choice(params.GRID[params.PLANE]), rng.choice("abc"), 3) for i in range(20)]
    )
    result_store, stream, longest = result_store_of(engine), Stream(rng, params.PLANE), 0
    result_store._least = 16
    for _ in range(60):
        for message in stream.take(20):
            twin = nc.Message(f"{message.id}", (8 * rng.random() ** (1 + stream.n / 50), 0), message.text)
            engine.publish([twin])
            longest = max(longest, len(result_store._messages))
    assert longest <= 2 * 60 + 2, "at most twice the messages of twenty results of three"
    held = {scored.seq for i in range(20) for scored in result_store.results(engine._locate(i)[1])}
    assert held <= set(result_store._messages.seqs.tolist())


def test_handles_stay_in_the_order_of_arrival():
    held = HeldMessages(Arena())
    held.append(np.array([3, 5]), IdColumn.of(["m3", 5]))
    held.append(np.zeros(0, np.int64), IdColumn.of([]))
    held.append(np.array([9]), IdColumn.of(["5"]))
    assert list(held.ids(np.array([2, 1, 0, 1], np.int32))) == ["5", 5, "m3", 5]
    now = held.merge(np.array([4, 9, 4, 11]), IdColumn.of(["m4", "5", "m4", ""]))
    assert held.seqs.tolist() == [3, 4, 5, 9, 11]
    assert now.tolist() == [0, 2, 3]
    assert list(held.ids(np.arange(5, dtype=np.int32))) == ["m3", "m4", 5, "5", ""]
    numbers = held.keep(np.array([False, True, False, True, True]))
    assert numbers.tolist() == [-1, 0, -1, 1, 2]
    assert list(held.ids(np.arange(3, dtype=np.int32))) == ["m4", "5", ""]


def make_result_store(ks):
    made = [nc.NearestSubscription(i, (0, 0), "a", k) for i, k in enumerate(ks)]
    result_store = HeapResults(Arena())
    result_store.insert(np.arange(len(ks), dtype=np.int32), SubscriptionBatch.of(made, params.scoring()))
    return result_store


def publish(result_store, distances, first_seq=1, calls=None):
    """Publish messages at given distances from all slots; append the rows of each call of the index to `calls`."""
    messages = [nc.Message(f"m{first_seq + i}", (0, 0), "a") for i in range(len(distances))]
    batch = MessageBatch.from_messages(messages, vocabulary=params.vocabulary(), first_seq=first_seq)
    n_slots = len(result_store._heads)
    slots = np.flatnonzero(result_store._heads[:, 2]).astype(np.int32)

    def find(start, stop):
        if calls is not None:
            calls.append(stop - start)
        rows = np.repeat(np.arange(start, stop), len(slots))
        return Matches(rows, np.tile(slots, stop - start), np.asarray(distances, float)[rows])

    assert n_slots
    (changes,) = result_store.publish(batch, Steps.without_window(len(batch), np.arange(len(batch))), find)
    return changes


def test_threshold_changes_are_reported_once():
    result_store = make_result_store([1, 2, 3])
    publish(result_store, [5.0, 4.0])
    slots, thresholds = result_store.take_threshold_changes()
    assert dict(zip(slots.tolist(), thresholds.tolist(), strict=True)) == {0: 4.0, 1: 5.0}
    assert len(result_store.take_threshold_changes().slots) == 0
    publish(result_store, [9.0], 3)
    assert result_store.take_threshold_changes().slots.tolist() == [2]
    assert [result_store.threshold(slot) for slot in range(3)] == [4.0, 5.0, 9.0]
    publish(result_store, [1.0], 4)
    result_store.delete(np.array([1], np.int32))
    assert sorted(result_store.take_threshold_changes().slots.tolist()) == [0, 2]


def test_a_threshold_with_which_a_message_ties_is_reported_however_little_it_moved():
    result_store = make_result_store([1])
    publish(result_store, [5.0])
    result_store.take_threshold_changes()
    publish(result_store, [4.75], 2)
    assert len(result_store.take_threshold_changes().slots) == 0
    publish(result_store, [4.75], 3)
    assert result_store.take_threshold_changes().thresholds.tolist() == [4.75]
    publish(result_store, [4.8], 4)
    assert len(result_store.take_threshold_changes().slots) == 0


def test_the_index_matches_fewer_messages_per_call_if_most_matches_do_not_enter():
    result_store, calls = make_result_store([1, 1]), []
    publish(result_store, [7.0] * 400, calls=calls)
    assert calls[:3] == [32, 16, 8]
    assert max(calls[6:]) == 1
    calls.clear()
    publish(result_store, 6.0 - np.arange(200) / 100, 401, calls=calls)
    assert max(calls) > 64, "more messages per call if matches enter"


def test_restored_results_are_as_they_were_saved():
    result_store = make_result_store([1, 2, 3, 4])
    publish(result_store, [3.0, 1.0], 11)
    result_store.take_threshold_changes()
    for slot in (2, 3):
        result_store.delete(np.array([slot], np.int32))
    made = [nc.NearestSubscription(i, (0, 0), "a", k) for i, k in ((2, 2), (3, 9))]
    result_store.insert(np.array([2, 3], np.int32), SubscriptionBatch.of(made, params.scoring()))
    early = [ScoredMessage(2, "m2", 0.5), ScoredMessage(11, "m11", 3.0)]
    late = [ScoredMessage(2, "m2", 0.25), ScoredMessage(4, 4, 0.25), ScoredMessage(12, "m12", 1.0)]
    result_store.restore([Results.of({2: early}), Results.of({3: late})])
    assert result_store.results(3) == late
    assert result_store.results(2) == early
    assert result_store.results(0) == [ScoredMessage(12, "m12", 1.0)]
    assert result_store.results(1) == [ScoredMessage(12, "m12", 1.0), ScoredMessage(11, "m11", 3.0)]
    assert result_store.take_threshold_changes().slots.tolist() == [2]
    assert result_store._messages.seqs.tolist() == [2, 4, 11, 12]


def test_deleted_subscriptions_free_their_blocks():
    result_store = make_result_store([1, 5, 16, 17, 40])
    publish(result_store, [3.0] * 50)
    state = result_store._arena["heaps.0.state"]
    used = int(state[blocks.USED])
    results = result_store.delete(np.arange(5, dtype=np.int32))
    assert np.bincount(results.slots).tolist() == [1, 5, 16, 17, 40]
    assert results.seqs[results.slots == 3].tolist() == list(range(1, 18)), "the older message wins a tie"
    made = [nc.NearestSubscription(i, (0, 0), "a", k) for i, k in enumerate([40, 17, 16, 5, 1])]
    result_store.insert(np.arange(5, dtype=np.int32), SubscriptionBatch.of(made, params.scoring()))
    assert state[blocks.USED] == used
    assert result_store.results(0) == []


def test_an_attached_folder_continues_exactly(tmp_path):
    rng = random.Random(4)
    options = {"space": params.GLOBE, "vocabulary": params.vocabulary()}
    plain, engine = (
        nc.Engine(**options, index="scan"),
        ShardEngine.create(EngineConfig.of(options), folder=tmp_path / "engine"),
    )
    stream = Stream(rng, params.GLOBE)
    for round_ in range(6):
        subscriptions = [random_subscription(rng, params.GLOBE) for _ in range(5)]
        messages = stream.take(60)
        for one in (plain, engine):
            one.subscribe(subscriptions)
        assert sorted_changes(engine.publish(messages)) == sorted_changes(plain.publish(messages))
        engine.seal(f"round {round_}")
        engine = ShardEngine.attach(tmp_path / "engine", f"round {round_}", EngineConfig.of(options))


@pytest.mark.parametrize("workers", [1, 3])
def test_a_loaded_engine_continues_exactly(tmp_path, workers):
    rng = random.Random(5)
    options = {"space": params.GLOBE, "vocabulary": params.vocabulary()}
    plain, engine = nc.Engine(**options, index="scan"), nc.Engine(**options, workers=workers)
    stream = Stream(rng, params.GLOBE)
    for round_ in range(5):
        subscriptions = [random_subscription(rng, params.GLOBE, 40) for _ in range(20)]
        messages = stream.take(40)
        for one in (plain, engine):
            one.subscribe(subscriptions)
        assert sorted_changes(engine.publish(messages)) == sorted_changes(plain.publish(messages))
        engine.save(tmp_path / f"{round_}")
        engine = nc.Engine.load(tmp_path / f"{round_}")
        ids = {one.id for one in subscriptions}
        assert [engine.results(i) for i in ids] == [plain.results(i) for i in ids]
        for shard in engine._shards.shards:
            matcher = shard.matchers["nearest"]
            for slot in matcher.registry.taken().tolist():
                threshold = matcher._result_store.threshold(slot)
                assert matcher._index._array("sites")[slot, THRESHOLD] == (
                    np.inf if threshold is None else threshold
                ), "the index has the thresholds at once"


@pytest.mark.soak
@pytest.mark.skipif(SMALL, reason="it would start itself again")
def test_this_file_passes_uncompiled():
    check_passes("uncompiled", __file__, NEARCAST_TEST_SMALL="1")
