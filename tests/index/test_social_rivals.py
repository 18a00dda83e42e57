"""Do the paper's rivals of kind `social` answer as the reference does, indexes whatever the bars and engines always?"""

import random
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import nearcast as nc
from modes import check_passes
from nearcast import index as indexes
from nearcast import window as windows
from nearcast._jit import Arena
from nearcast.index._kernels.social.layout import THRESHOLD, X
from nearcast.model import Message, MessageBatch, ScoringContext, SocialSubscription, SubscriptionBatch
from nearcast.model.profiles import Profiles
from nearcast.social import SocialGraph
from nearcast.space import Box, Space
from nearcast.testing import strategies as projection
from nearcast.text import TEXT_SIMILARITIES, Vocabulary
from nearcast.workload import make as make_workload
from twins import SMALL, TERMS, M, N, Twin, live_through

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.baselines import social
from benchmarks.baselines.social.tree import CHILD, DEEPEST, DEPTH, LEAF, N_NODES, PARENT, SIZE

for result_store in social.RESULT_STORES:
    windows.register(result_store)
for rival in social.RIVALS:
    indexes.register(rival)


MAKERS = {
    "everyone": social.Everyone,
    "quadtree": social.Quadtree,
    "quadtree of small leaves": partial(social.Quadtree, capacity=1),
}
RIVALS = [entry.name for entry in social.RIVALS]
SPACES = {
    "plane": projection.PLANE,
    "globe": projection.GLOBE,
    "near": Space.earth(max_distance=300_000.0),
    "flat": Space(Box(-3, 10, 5, 11), max_distance=0.5),
    "dot": Space(Box(0, 0, 0, 0), max_distance=7),
    "huge": Space(Box(-1e308, -1e308, 1e308, 1e308), max_distance=1e300),
}
VOCABULARY = Vocabulary.with_weights({term: i * 0.37 % 3.1 for i, term in enumerate(TERMS)})
USERS, PLACES = [f"u{i}" for i in range(30)], [f"p{i}" for i in range(20)]


class Social(Twin):
    """An index of kind `social`, and beside it what it must know."""

    def __init__(self, make, space, seed):
        rng, self.arena = random.Random(seed), Arena()
        edges = {(user, rng.choice(PLACES[:16])) for user in USERS for _ in range(rng.choice([1, 1, 2, 4, 9]))}
        scoring = ScoringContext(space, VOCABULARY, SocialGraph(edges), TEXT_SIMILARITIES["dice"])
        super().__init__(lambda scoring: make(scoring, self.arena), scoring, seed)

    def subscription(self):
        return SocialSubscription("s", self.point(), self.words(6), k=1, user=self.rng.choice(USERS))

    def message(self):
        place = self.rng.choice([*PLACES, None, "nowhere"])
        return Message("m", self.point(), self.words(9, least=0), place=place)

    def threshold_near(self, exact):
        return self.rng.choice([super().threshold_near(exact), self.rng.uniform(0, 3)])


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_any_space_is_answered_as_the_reference_does(make, space):
    live_through(Social(make, space, 3))


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_graph_that_changes_is_followed_at_once(make):
    twin = Social(make, projection.PLANE, 4)
    twin.insert(range(N))
    graph, rng = twin.scoring.social, twin.rng
    for _ in range(4):
        twin.move_thresholds(twin.batch())
        graph.add_edges([(rng.choice([*USERS, "new"]), rng.choice([*PLACES, "another"])) for _ in range(3)])
        graph.remove_edges(rng.sample(graph.edges(), 2))
        twin.check(twin.batch())


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_tiny_buffers_give_the_same_answers_and_count_work_once(make):
    small, large = (Social(partial(make, room=room), projection.GLOBE, 5) for room in (1, 4096))
    for twin in (small, large):
        twin.insert(range(N))
    assert small.check(small.batch()) == large.check(large.batch()) > 1
    assert small.index.work == large.index.work


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_part_of_a_batch_is_numbered_as_the_batch_is(make):
    twin = Social(make, projection.PLANE, 6)
    twin.insert(range(N))
    batch = twin.batch()
    whole, part = twin.index.match(batch, 0, M), twin.index.match(batch, 1, 3)
    inside = (whole.rows >= 1) & (whole.rows < 3)
    assert [c.tolist() for c in part] == [c[inside].tolist() for c in whole]
    assert len(twin.index.match(batch, 2, 2).slots) == 0


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_profiles_are_those_of_the_keeper_and_slots_that_are_not_here_have_no_bar(make):
    twin = Social(make, projection.PLANE, 7)
    twin.insert(range(8))
    twin.delete([3])
    assert Profiles(twin.arena).arrays.heads[:4, 0].tolist()[3] < 0 <= Profiles(twin.arena).arrays.heads[2, 0]
    twin.index.set_thresholds(np.array([3], np.int32), np.array([0.5]))
    twin.index.delete(np.array([3], np.int32))
    assert twin.check(twin.batch()) > 0


@pytest.mark.parametrize("capacity", [1, 10])
def test_nodes_know_all_that_is_below(capacity):
    twin = Social(partial(social.Quadtree, capacity=capacity), projection.GLOBE, 8)

    def look():
        tree, sites = twin.index._tree(), twin.index._sites
        n, held = int(tree.state[N_NODES]), np.array(sorted(twin.thresholds), np.int64)
        below = [set() for _ in range(n)]
        for slot in held.tolist():
            node = int(tree.seats[slot, LEAF])
            assert tree.nodes[node, CHILD] < 0, "only leaves have seats"
            while node >= 0:
                below[node].add(slot)
                node = int(tree.nodes[node, PARENT])
        words = {}
        for node, slots in enumerate(below):
            assert tree.leasts[node] == min((sites[slot, THRESHOLD] for slot in slots), default=np.inf)
            for slot in slots:
                point = sites[slot, X : X + 3]
                assert (tree.boxes[node, :3] <= point).all() and (point <= tree.boxes[node, 3:]).all()
                run, length, _ = twin.index._profiles.arrays.heads[slot].tolist()
                for term in twin.index._terms.get_many(twin.index._profiles.arrays.run_terms[run : run + length]):
                    key = (node << 32) | int(term)
                    words[key] = words.get(key, 0) + 1
            if tree.nodes[node, CHILD] < 0:
                assert tree.nodes[node, SIZE] == len(slots)
                assert len(slots) <= capacity or tree.nodes[node, DEPTH] == DEEPEST
        assert dict(zip(*(column.tolist() for column in twin.index._words.items()), strict=True)) == words

    live_through(twin, look)
    assert twin.index._tree().state[N_NODES] > 1


@pytest.mark.skipif(SMALL, reason="what is pruned is that of a large index")
def test_a_quadtree_leaves_out_much_of_what_everyone_is_asked_for():
    workload, n, m = make_workload("tweets"), 3000, 100
    community = workload.social(n)
    scoring = ScoringContext(workload.space(), workload.vocabulary(), community.graph, TEXT_SIMILARITIES["dice"])
    (table,) = workload.subscriptions("social", n, community=community)
    made = [
        SocialSubscription(row["id"], (row["x"], row["y"]), row["keywords"], row["k"], row["user"])
        for row in table.to_pylist()
    ]
    said = [
        Message(row["id"], (row["x"], row["y"]), row["text"], place=row["place"])
        for table in workload.messages(m, community=community)
        for row in table.to_pylist()
    ]
    batch, slots = MessageBatch.from_messages(said, vocabulary=scoring.vocabulary), np.arange(n, dtype=np.int32)
    thresholds = np.random.default_rng(1).normal(1.6, 0.2, n)
    work, found = {}, {}
    for name, make in MAKERS.items():
        index = make(scoring)
        index.insert(slots, SubscriptionBatch.of(made, scoring))
        index.set_thresholds(slots, thresholds)
        rows, met, _ = index.match(batch, 0, m)
        work[name], found[name] = index.work, set(zip(rows.tolist(), met.tolist(), strict=True))
    assert found["everyone"] == found["quadtree"] == found["quadtree of small leaves"] != set()
    assert work["everyone"].verified == n * m
    assert work["quadtree"].verified < 0.5 * n * m
    assert work["quadtree of small leaves"].verified < work["quadtree"].verified


# -- in an engine -----------------------------------------------------------------------------------------------

EDGES = [*projection.EDGES, ("u3", "p0"), ("u3", "p9"), *(("u3", f"q{i}") for i in range(6))]
WINDOWS = {
    "count": nc.CountWindow(12),
    "fewer than k": nc.CountWindow(2),
    "doubling": nc.CountWindow(150),
    "time": nc.TimeWindow(seconds=6),
}


class Beside:
    """Two engines, one of them with the slow index and keeper, that must tell the same."""

    def __init__(self, name, window, seed):
        self.rng, self.window, self.n, self.now = random.Random(seed), window, 0, 0.0
        self.edges = set(EDGES)
        self.engines = [
            nc.Engine(
                space=projection.PLANE,
                vocabulary=projection.vocabulary(),
                window=window,
                social=SocialGraph(EDGES),
                index=index,
            )
            for index in (name, "scan")
        ]
        self.n_told = 0

    def both(self, do):
        mine, reference = (
            sorted((u.seq, u.subscription, u.change, u.message, u.score) for u in do(engine))
            for engine in self.engines
        )
        assert mine == reference
        self.n_told += len(mine)

    def subscription(self):
        rng = self.rng
        return nc.SocialSubscription(
            f"s{rng.randrange(14)}",
            location=rng.choice(projection.GRID[projection.PLANE]),
            keywords=rng.choices(projection.TERMS, k=rng.randint(1, 4)),
            k=rng.choice([1, 2, 3, 5]),
            user=rng.choice(projection.USERS),
        )

    def messages(self, n):
        made, rng = [], self.rng
        for _ in range(n):
            self.n += 1
            self.now += rng.choice([0.0, 0.1, 1.0])
            late = rng.random() * 7 if rng.random() < 0.3 else 0.0
            at = self.now - late if isinstance(self.window, nc.TimeWindow) else None
            terms = rng.choices(projection.TERMS, k=rng.randint(0, 5))
            place = rng.choice([None, "nowhere", "p9", "new", *projection.PLACES])
            made.append(
                nc.Message(f"m{self.n}", rng.choice(projection.GRID[projection.PLANE]), terms, at=at, place=place)
            )
        return made

    def change_friends(self):
        rng = self.rng
        if rng.random() < 0.5:
            new = [
                (rng.choice([*projection.USERS, "eve"]), rng.choice([*projection.PLACES, "p9", "new"]))
                for _ in range(2)
            ]
            self.edges |= set(new)
            self.both(lambda engine: engine.add_edges(new))
        else:
            old = rng.sample(sorted(self.edges), 1)
            self.edges -= set(old)
            self.both(lambda engine: engine.remove_edges(old))


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("name", RIVALS)
def test_an_engine_with_a_rival_tells_what_the_slow_one_tells(name, window):
    """Messages tie, subscriptions move and leave, edges come and go."""
    beside, here = Beside(name, window, 9), set()
    for turn in range(3 if SMALL else 12):
        come = [beside.subscription() for _ in range(4)]  # those whose id is here already move
        here |= {subscription.id for subscription in come}
        beside.both(lambda engine, come=come: engine.subscribe(come))
        said = beside.messages(beside.rng.choice([1, 7, 30]))
        beside.both(lambda engine, said=said: engine.publish(said))
        if turn % 3 == 1:
            beside.change_friends()
            gone = beside.rng.choice(sorted(here))
            here.remove(gone)
            beside.both(lambda engine, gone=gone: engine.unsubscribe([gone]))
        for id_ in here:
            mine, reference = (engine.results(id_) for engine in beside.engines)
            assert mine == reference
    if isinstance(window, nc.TimeWindow):
        beside.both(lambda engine: engine.advance(beside.now + 3))
    assert beside.n_told > 0


@pytest.mark.skipif(SMALL, reason="is one of the passes itself")
def test_all_of_this_holds_uncompiled():
    """Plain Python refuses a place beyond an array by itself, so rivals are not compiled again with bounds checks."""
    check_passes("uncompiled", __file__, NEARCAST_TEST_SMALL="1")
