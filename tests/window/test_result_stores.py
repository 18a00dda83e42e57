"""Result stores apply steps exactly; recomputed results, the reference, always hold the best of the window."""

import random

import numpy as np
import pytest

from nearcast._jit import Arena
from nearcast.model import (
    BEST_EVER,
    BEST_IN_WINDOW,
    NO_TIME,
    Document,
    Matches,
    MessageBatch,
    SocialSubscription,
    SubscriptionBatch,
)
from nearcast.testing import strategies as params
from nearcast.window import RESULT_STORES, CountWindow, Results, ScoredMessage, SlidingWindow
from nearcast.window.cumulative import CumulativeResults
from nearcast.window.recompute import RecomputedResults
from nearcast.window.sliding import Step, Steps


def document(seq, score=0.0, at_us=NO_TIME):
    return Document(seq, f"m{seq}", (score, 0.0), at_us, None, {}, 0.0)


def score_of(document):
    return document.location[0]


def make_subscriptions(k):
    """Return one subscription that scores a message by its x."""
    subscription = SocialSubscription("s", location=(0, 0), keywords="a", k=k, user="u0")
    made = SubscriptionBatch.of([subscription], params.scoring())
    made.__dict__["scorers"] = [score_of]
    return made


@pytest.mark.parametrize("seed", range(5))
def test_recomputed_results_are_the_best_of_the_window(seed):
    rng = random.Random(seed)
    result_store, live = RecomputedResults(), {}
    ks = {}
    for seq in range(1, 200):
        if rng.random() < 0.1:
            slot = rng.randrange(6)
            if slot in ks:
                result_store.delete(np.array([slot], np.int32))
            ks[slot] = rng.randint(1, 5)
            result_store.insert(np.array([slot], np.int32), make_subscriptions(ks[slot]))
        arrival = document(seq, float(rng.randrange(6)))
        leaving = tuple(d for d in live.values() if rng.random() < 0.15)
        for d in leaving:
            del live[d.seq]
        live[seq] = arrival
        before = {slot: result_store.results(slot) for slot in ks}
        changes = result_store.step(Step(0, leaving, 0, arrival), [(slot, score_of(arrival)) for slot in ks])
        for slot, k in ks.items():
            expected = sorted(live.values(), key=lambda d: (-score_of(d), -d.seq))[:k]
            assert [scored.seq for scored in result_store.results(slot)] == [d.seq for d in expected]
            reported = [(c.scored.seq, c.enter) for c in changes if c.slot == slot]
            old, new = {k.seq for k in before[slot]}, {d.seq for d in expected}
            assert sorted(reported) == sorted([(s, False) for s in old - new] + [(s, True) for s in new - old])
            assert reported == sorted(reported, key=lambda change: change[1]), "leaves come first"
            full = len(expected) == k
            assert result_store.threshold(slot) == (score_of(expected[-1]) if full else None)
    assert not result_store._holders.keys() - live.keys(), "no record of an expired message remains"


@pytest.mark.parametrize("entry", RESULT_STORES, ids=lambda entry: entry.name)
def test_a_step_without_a_message_changes_no_result(entry):
    result_store = entry.make(params.scoring(), SlidingWindow(CountWindow(3)), Arena())
    result_store.insert(np.zeros(1, np.int32), make_subscriptions(3))
    no_matches = Matches(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0))
    steps = Steps.without_window(2, np.zeros(0, np.int64))
    (changes,) = result_store.publish(MessageBatch.empty(), steps, lambda start, stop: no_matches)
    assert len(changes.steps) == 0
    assert result_store.results(0) == []


def test_restored_results_compete_with_arrivals():
    result_store = RecomputedResults([document(1, 5.0), document(2, 7.0)])
    result_store.insert(np.zeros(1, np.int32), make_subscriptions(1))
    result_store.restore([Results.of({0: [ScoredMessage(2, "m2", 7.0)]})])
    arrival = document(3, 6.0)
    assert result_store.step(Step(0, (), 0, arrival), [(0, 6.0)]) == []
    changes = result_store.step(Step(0, (document(2, 7.0),), -1, None), ())
    assert [(c.scored.seq, c.enter) for c in changes] == [(2, False), (3, True)]


@pytest.mark.parametrize(
    ("result_store", "policy"), [(RecomputedResults(), BEST_IN_WINDOW), (CumulativeResults(), BEST_EVER)]
)
def test_the_result_policy_decides_what_would_enter(result_store, policy):
    result_store.insert(np.zeros(1, np.int32), make_subscriptions(2))
    assert result_store.would_enter(0, document(9), 1.0), "there is room"
    result_store.restore([Results.of({0: [ScoredMessage(4, "m4", 5.0), ScoredMessage(6, "m6", 5.0)]})])
    worst = result_store.results(0)[-1]
    for seq, score in [(1, 5.0), (9, 5.0), (9, 4.0), (9, 6.0)]:
        expected = policy.rank(score, seq) < policy.rank(worst.score, worst.seq)
        assert result_store.would_enter(0, document(seq), score) == expected
    assert result_store.would_enter(0, document(4), 0.0), "it is in the result"
