"""Does the index of kind `social` answer as the reference does, whatever the bars, with less work?"""

import os
import random

import numpy as np
import pytest

from modes import MODES, check_passes
from nearcast._jit import Arena
from nearcast.index._kernels.social.layout import N_OPEN
from nearcast.index.social import SocialIndex
from nearcast.model import Message, MessageBatch, ScoringContext, SocialSubscription, SubscriptionBatch
from nearcast.model.profiles import Profiles
from nearcast.social import SocialGraph
from nearcast.space import Box, Space
from nearcast.testing import strategies as projection
from nearcast.text import TEXT_SIMILARITIES, Vocabulary
from nearcast.workload import make

SMALL = "NEARCAST_TEST_SMALL" in os.environ
"""Set for the passes without compiled code and with checked bounds."""
ROUNDS, N, M = (2, 40, 8) if SMALL else (6, 200, 30)

SPACES = {
    "half": Space.earth(),
    "near": Space.earth(max_distance=300_000.0),
    "metre": Space.earth(max_distance=1.0),
    "flat": Space(Box(-3, 10, 5, 11), max_distance=0.5),
    "dot": Space(Box(0, 0, 0, 0), max_distance=7),
    "huge": Space(Box(-1e308, -1e308, 1e308, 1e308), max_distance=1e300),
    "plane": projection.PLANE,
    "globe": projection.GLOBE,
}
TERMS = [f"t{i}" for i in range(30)]
VOCABULARY = Vocabulary.with_weights({term: i * 0.37 % 3.1 for i, term in enumerate(TERMS)})
USERS, PLACES = [f"u{i}" for i in range(40)], [f"p{i}" for i in range(25)]


class Source:
    """Users with one place or many, points that coincide or do not, terms rare and frequent."""

    def __init__(self, space, seed):
        self.space, self.rng = space, random.Random(seed)
        edges = {
            (user, self.rng.choice(PLACES[:20])) for user in USERS for _ in range(self.rng.choice([1, 1, 2, 4, 9]))
        }
        self.scoring = ScoringContext(space, VOCABULARY, SocialGraph(edges), TEXT_SIMILARITIES["dice"])
        self.points = [self.anywhere() for _ in range(6)]

    def anywhere(self):
        b, (s, t) = self.space.bounds, (self.rng.random(), self.rng.random())
        return b.xmin * (1 - s) + b.xmax * s, b.ymin * (1 - t) + b.ymax * t

    def point(self):
        (x, y), b, spread = self.rng.choice(self.points), self.space.bounds, self.rng.choice([0.0, 1e-9, 1e-4, 0.5])
        x, y = x + self.rng.uniform(-spread, spread), y + self.rng.uniform(-spread, spread)
        return min(max(x, b.xmin), b.xmax), min(max(y, b.ymin), b.ymax)

    def terms(self, least, most):
        return [TERMS[min(int(self.rng.expovariate(0.15)), 29)] for _ in range(self.rng.randint(least, most))]

    def subscription(self):
        return SocialSubscription("s", self.point(), self.terms(1, 8), k=1, user=self.rng.choice(USERS))

    def batch(self, n):
        places = [*PLACES, None, "nowhere"]
        made = [Message("m", self.point(), self.terms(0, 9), place=self.rng.choice(places)) for _ in range(n)]
        return MessageBatch.from_messages(made, vocabulary=VOCABULARY)

    def threshold(self):
        rng = self.rng
        return rng.choice([-np.inf, 0.0, rng.uniform(0, 1.2), rng.uniform(1, 2), rng.uniform(1, 3), 3.0, np.inf])


class Twin:
    """An index, and beside it what it must know."""

    def __init__(self, source, **options):
        self.source, self.scoring = source, source.scoring
        self.index = SocialIndex(source.scoring, **options)
        self.subscriptions, self.thresholds = {}, {}

    def insert(self, subscriptions):
        slots = np.array(list(subscriptions), np.int32)
        self.index.insert(slots, SubscriptionBatch.of(list(subscriptions.values()), self.scoring))
        self.subscriptions |= subscriptions
        self.thresholds |= dict.fromkeys(subscriptions, -np.inf)

    def delete(self, slots):
        self.index.delete(np.array(slots, np.int32))
        for slot in slots:
            del self.subscriptions[slot], self.thresholds[slot]

    def set_thresholds(self, thresholds):
        self.index.set_thresholds(
            np.array(list(thresholds), np.int32), np.array(list(thresholds.values()), np.float64)
        )
        self.thresholds |= thresholds

    def expected(self, batch):
        found = {}
        for slot, subscription in self.subscriptions.items():
            score_of = subscription.bind(self.scoring)
            for row, document in enumerate(batch.documents):
                score = score_of(document)
                if score >= self.thresholds[slot]:
                    found[row, slot] = score
        return found

    def check(self, batch):
        rows, slots, scores = (column.tolist() for column in self.index.match(batch, 0, len(batch)))
        found = dict(zip(zip(rows, slots, strict=True), scores, strict=True))
        assert len(found) == len(rows), "a pair was reported twice"
        assert found == self.expected(batch), "not bit for bit what the reference says"
        return len(found)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("seed", range(2))
def test_it_answers_as_the_reference_does_whatever_the_bars(space, seed):
    source = Source(space, seed)
    twin, rng = Twin(source, room=16), source.rng
    for _ in range(ROUNDS):
        free = [slot for slot in range(4 * N) if slot not in twin.subscriptions]
        twin.insert({slot: source.subscription() for slot in rng.sample(free, N // 2)})
        twin.delete(rng.sample(sorted(twin.subscriptions), N // 6))
        twin.set_thresholds({slot: source.threshold() for slot in twin.subscriptions if rng.random() < 0.7})
        # Bars that are reached exactly.
        batch = source.batch(M)
        twin.set_thresholds({slot: score for (_, slot), score in twin.expected(batch).items() if rng.random() < 0.2})
        twin.check(batch)


def test_a_graph_that_changes_is_followed_at_once():
    source = Source(projection.PLANE, 3)
    twin, rng, graph = Twin(source), source.rng, source.scoring.social
    twin.insert({slot: source.subscription() for slot in range(N)})
    for _ in range(8):
        twin.set_thresholds({slot: source.threshold() for slot in twin.subscriptions})
        graph.add_edges([(rng.choice([*USERS, "new"]), rng.choice([*PLACES, "another"])) for _ in range(3)])
        graph.remove_edges(rng.sample(graph.edges(), 2))
        twin.check(source.batch(M))


ALONE = {
    "friends": (Message("m", (8, 8), ["x"], place="p0"), 1.0, 0.5),
    "words": (Message("m", (8, 8), ["a", "b"], place=None), 1.0, 0.5),
    "nearby": (Message("m", (0, 0), ["x"], place=None), 1.0, 0.9),
}


@pytest.mark.parametrize("way", ALONE)
def test_each_way_to_meet_a_subscription_suffices(way):
    message, score, below = ALONE[way]
    scoring = projection.scoring(Space(Box(0, 0, 8, 8), max_distance=4))
    index = SocialIndex(scoring)
    one = SocialSubscription("s", (0, 0), ["a", "b"], k=1, user="u0")
    index.insert(np.array([3], np.int32), SubscriptionBatch.of([one], scoring))
    batch = MessageBatch.from_messages([message], vocabulary=scoring.vocabulary)
    for threshold, n in ((below, 1), (score, 1), (np.nextafter(score, 2), 0)):
        index.set_thresholds(np.array([3], np.int32), np.array([threshold]))
        matches = index.match(batch, 0, 1)
        assert matches.scores.tolist() == [score] * n


def test_everything_is_given_back():
    source = Source(projection.PLANE, 5)
    twin = Twin(source)
    for _ in range(3):
        twin.insert({slot: source.subscription() for slot in range(N)})
        twin.set_thresholds({slot: source.threshold() for slot in range(N)})
        twin.check(source.batch(M))
        twin.delete(list(range(N)))
    index = twin.index
    assert index.match(source.batch(M), 0, M).slots.size == 0
    assert index._terms.arrays.lengths.sum() == index._users.arrays.lengths.sum() == 0
    assert index._array("counts")[N_OPEN] == 0
    size = index._arena.nbytes
    twin.insert({slot: source.subscription() for slot in range(N // 2)})
    assert index._arena.nbytes == size, "what was given back is used again"


def test_an_arena_that_holds_an_index_is_gone_on_with(tmp_path):
    source = Source(projection.GLOBE, 6)
    twin = Twin(source, arena=Arena(tmp_path / "arena"))
    twin.insert({slot: source.subscription() for slot in range(N)})
    twin.set_thresholds({slot: source.threshold() for slot in range(N)})
    twin.index._arena.flush()
    twin.index = SocialIndex(source.scoring, arena=Arena.attach(tmp_path / "arena"))
    twin.check(source.batch(M))


def test_profiles_may_be_written_anew_by_a_keeper():
    source = Source(projection.PLANE, 7)
    twin = Twin(source)
    subscriptions = {slot: source.subscription() for slot in range(N)}
    twin.insert(subscriptions)
    profiles, slots = Profiles(twin.index._arena), np.arange(N, dtype=np.int32)
    profiles.delete(slots)
    subscription_batch = SubscriptionBatch.of(list(subscriptions.values()), source.scoring)
    profiles.insert(slots[::-1].copy(), subscription_batch.take(slots[::-1].astype(np.int64)).subscription_columns)
    twin.check(source.batch(M))
    twin.delete(list(range(0, N, 2)))
    twin.check(source.batch(M))


@pytest.mark.skipif(SMALL, reason="the share of candidates is that of a large index")
def test_few_subscriptions_are_candidates():
    workload, n = make("tweets"), 3000
    community = workload.social(n)
    scoring = ScoringContext(workload.space(), workload.vocabulary(), community.graph, TEXT_SIMILARITIES["dice"])
    index, rng = SocialIndex(scoring), np.random.default_rng(1)
    (table,) = workload.subscriptions("social", n, community=community)
    made = [
        SocialSubscription(row["id"], (row["x"], row["y"]), row["keywords"], row["k"], row["user"])
        for row in table.to_pylist()
    ]
    index.insert(np.arange(n, dtype=np.int32), SubscriptionBatch.of(made, scoring))
    index.set_thresholds(np.arange(n, dtype=np.int32), rng.normal(1.5, 0.25, n))
    messages = [
        Message(row["id"], (row["x"], row["y"]), row["text"], place=row["place"])
        for table in workload.messages(200, community=community)
        for row in table.to_pylist()
    ]
    index.match(MessageBatch.from_messages(messages, vocabulary=scoring.vocabulary), 0, 200)
    work = index.work
    assert work.visited <= 0.3 * 200 * n
    assert work.verified <= work.candidates <= 0.1 * 200 * n


@pytest.mark.skipif(SMALL, reason="this is what starts the small passes")
@pytest.mark.parametrize("mode", MODES)
def test_it_holds_uncompiled_and_with_checked_bounds(mode):
    check_passes(mode, __file__, NEARCAST_TEST_SMALL="1")
