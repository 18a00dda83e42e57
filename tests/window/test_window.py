"""Windows and keepers on their own."""

import random

import numpy as np
import pytest

from nearcast._jit import Arena
from nearcast.model import NO_TIME, Document, Matches, MessageBatch, SocialSubscription, SubscriptionBatch
from nearcast.model.message import Message
from nearcast.testing import strategies as params
from nearcast.text import Vocabulary
from nearcast.window import RESULT_STORES, CountWindow, Results, ScoredMessage, SlidingWindow, Ticks, TimeWindow
from nearcast.window.recompute import RecomputedResults
from nearcast.window.sliding import Step, Steps


def document(seq, score=0.0, at_us=NO_TIME):
    return Document(seq, f"m{seq}", (score, 0.0), at_us, None, {}, 0.0)


def score_of(document):
    return document.location[0]


def subscription_batch(k):
    """One subscription that scores a message by its x."""
    subscription = SocialSubscription("s", location=(0, 0), keywords="a", k=k, user="u0")
    made = SubscriptionBatch.of([subscription], params.scoring())
    made.__dict__["scorers"] = [score_of]
    return made


def left(steps):
    return [d.seq for step in steps.walk(MessageBatch.empty()) for d in step.leaving]


def test_a_shard_that_sees_only_some_messages_still_lets_go_in_time():
    window = SlidingWindow(CountWindow(2))
    messages = [Message(i, (0, 0), "a") for i in range(5)]
    batch = MessageBatch.from_messages(messages, vocabulary=Vocabulary.with_weights({}))
    seen = batch.take(batch.seqs[[0, 3]] - 1)
    no_times = np.full(5, NO_TIME)
    steps = window.admit(seen, Ticks(batch.seqs, no_times, no_times))
    assert [(s.row, [d.seq for d in s.leaving]) for s in steps.walk(seen)] == [
        (0, []),
        (-1, []),
        (-1, [1]),
        (1, []),
        (-1, []),
    ]
    assert [d.seq for d in window.documents()] == [4]


def test_a_time_window_lets_go_by_time_not_by_arrival():
    before = SlidingWindow(TimeWindow(10))
    messages = [Message(i, (0, 0), "a", at=at) for i, at in enumerate((30.0, 20.5))]
    batch = MessageBatch.from_messages(messages, vocabulary=Vocabulary.with_weights({}))
    before.admit(batch, Ticks(batch.seqs, batch.ats_us, np.maximum.accumulate(batch.ats_us)))
    for window in (SlidingWindow(TimeWindow(10), before.table()), before):
        assert [d.seq for d in window.documents()] == [1, 2]
        assert left(window.advance(3, 30_500_000)) == [2]
        assert left(window.advance(3, 40_000_000)) == [1]


def test_without_a_policy_nothing_is_kept():
    window = SlidingWindow(None)
    messages = [Message(1, (0, 0), "a")]
    batch = MessageBatch.from_messages(messages, vocabulary=Vocabulary.with_weights({}))
    window.admit(batch, Ticks(batch.seqs, batch.ats_us, batch.ats_us))
    assert len(window) == 0
    assert window.table() is None
    assert left(window.advance(9, 9)) == []


@pytest.mark.parametrize("seed", range(5))
def test_recompute_always_holds_the_best_of_the_window(seed):
    rng = random.Random(seed)
    result_store, live = RecomputedResults(), {}
    ks = {}
    for seq in range(1, 200):
        if rng.random() < 0.1:
            slot = rng.randrange(6)
            if slot in ks:
                result_store.delete(np.array([slot], np.int32))
            ks[slot] = rng.randint(1, 5)
            result_store.insert(np.array([slot], np.int32), subscription_batch(ks[slot]))
        coming = document(seq, float(rng.randrange(6)))
        leaving = tuple(d for d in live.values() if rng.random() < 0.15)
        for d in leaving:
            del live[d.seq]
        live[seq] = coming
        before = {slot: result_store.results(slot) for slot in ks}
        changes = result_store.step(Step(0, leaving, 0, coming), [(slot, score_of(coming)) for slot in ks])
        for slot, k in ks.items():
            expected = sorted(live.values(), key=lambda d: (-score_of(d), -d.seq))[:k]
            assert [kept.seq for kept in result_store.results(slot)] == [d.seq for d in expected]
            told = [(c.kept.seq, c.enter) for c in changes if c.slot == slot]
            old, new = {k.seq for k in before[slot]}, {d.seq for d in expected}
            assert sorted(told) == sorted([(s, False) for s in old - new] + [(s, True) for s in new - old])
            assert told == sorted(told, key=lambda change: change[1]), "leaves come first"
            full = len(expected) == k
            assert result_store.threshold(slot) == (score_of(expected[-1]) if full else None)
    assert not result_store._holders.keys() - live.keys(), "nothing is remembered of what has left"


@pytest.mark.parametrize("entry", RESULT_STORES, ids=lambda entry: entry.name)
def test_a_step_without_a_message_brings_nothing_in(entry):
    result_store = entry.make(params.scoring(), SlidingWindow(CountWindow(3)), Arena())
    result_store.insert(np.zeros(1, np.int32), subscription_batch(3))
    nobody = Matches(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0))
    steps = Steps.without_window(2, np.zeros(0, np.int64))
    assert len(result_store.publish(MessageBatch.empty(), steps, lambda start, stop: nobody).steps) == 0
    assert result_store.results(0) == []


def test_what_was_restored_competes_on():
    result_store = RecomputedResults([document(1, 5.0), document(2, 7.0)])
    result_store.insert(np.zeros(1, np.int32), subscription_batch(1))
    result_store.restore([Results.of({0: [ScoredMessage(2, "m2", 7.0)]})])
    coming = document(3, 6.0)
    assert result_store.step(Step(0, (), 0, coming), [(0, 6.0)]) == []
    changes = result_store.step(Step(0, (document(2, 7.0),), -1, None), ())
    assert [(c.kept.seq, c.enter) for c in changes] == [(2, False), (3, True)]
