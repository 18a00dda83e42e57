"""The paper's baselines of kind `social` find what the reference finds, as indexes and within an engine."""

import random
from functools import partial

import numpy as np
import pytest

import index_checks
import nearcast as nc
from modes import check_passes
from nearcast import index as indexes
from nearcast import window as windows
from nearcast._jit import Arena
from nearcast.index._kernels.social.layout import THRESHOLD, X
from nearcast.model import Message, MessageBatch, ScoringContext, SocialSubscription, SubscriptionBatch
from nearcast.social import SocialGraph
from nearcast.testing import strategies
from nearcast.text import TEXT_SIMILARITIES
from nearcast.workload import make as make_workload
from nearcast_baselines import social
from nearcast_baselines.social.quadtree_nodes import CHILD, DEEPEST, DEPTH, LEAF, N_NODES, PARENT, SIZE
from twins import DOT, EDGES, FEW, FLAT, GLOBE, HUGE, PLACES, PLANE, SMALL, USERS, SocialTwin, run_lifecycle

pytestmark = pytest.mark.soak  # compiling them takes long, and only benchmarks use them

for result_store in social.RESULT_STORES:
    windows.register(result_store)
for entry in social.BASELINES:
    indexes.register(entry)


MAKERS = {
    "scan": social.SubscriptionScan,
    "quadtree": social.Quadtree,
    "quadtree of small leaves": partial(social.Quadtree, capacity=1),
}
BASELINES = [entry.name for entry in social.BASELINES]
_, N, M = FEW
SPACES = {"plane": PLANE, "globe": GLOBE, "near": EDGES, "flat": FLAT, "dot": DOT, "huge": HUGE}


class ArenaTwin(SocialTwin):
    """A twin whose index shares an arena with the profiles."""

    def __init__(self, make, space, seed):
        self.arena = Arena()
        super().__init__(lambda scoring: make(scoring, self.arena), space, seed)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_matches_equal_the_reference_in_every_space(make, space):
    run_lifecycle(ArenaTwin(make, space, 3), sizes=FEW)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_changes_of_the_graph_take_effect_at_once(make):
    twin = ArenaTwin(make, PLANE, 4)
    twin.insert(range(N))
    graph, rng = twin.scoring.social, twin.rng
    for _ in range(4):
        twin.move_thresholds(twin.batch(M))
        graph.add_edges([(rng.choice([*USERS, "new"]), rng.choice([*PLACES, "another"])) for _ in range(3)])
        graph.remove_edges(rng.sample(graph.edges(), 2))
        twin.check(twin.batch(M))


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_small_buffers_give_the_same_matches_and_count_work_once(make):
    index_checks.check_small_buffers(*(ArenaTwin(partial(make, room=room), GLOBE, 5) for room in (1, 4096)), n=N, m=M)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_part_of_a_batch_has_the_row_numbers_of_the_batch(make):
    index_checks.check_part_of_a_batch(ArenaTwin(make, PLANE, 6), n=N, m=M, start=1, stop=3)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_profiles_are_shared_with_the_result_store(make):
    twin = ArenaTwin(make, PLANE, 7)
    index_checks.check_shared_profiles(twin, twin.arena)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_thresholds_of_free_slots_are_ignored(make):
    index_checks.check_free_slots(ArenaTwin(make, PLANE, 8), M)


@pytest.mark.parametrize("capacity", [1, 10])
def test_nodes_summarise_all_subscriptions_below_them(capacity):
    twin = ArenaTwin(partial(social.Quadtree, capacity=capacity), GLOBE, 8)

    def check():
        tree, sites = twin.index._tree(), twin.index._sites
        n, held = int(tree.state[N_NODES]), np.array(sorted(twin.thresholds), np.int64)
        below = [set() for _ in range(n)]
        for slot in held.tolist():
            node = int(tree.slots_of[slot, LEAF])
            assert tree.nodes[node, CHILD] < 0, "only leaves hold subscriptions"
            while node >= 0:
                below[node].add(slot)
                node = int(tree.nodes[node, PARENT])
        counts = {}
        for node, slots in enumerate(below):
            assert tree.leasts[node] == min((sites[slot, THRESHOLD] for slot in slots), default=np.inf)
            for slot in slots:
                point = sites[slot, X : X + 3]
                assert (tree.boxes[node, :3] <= point).all() and (point <= tree.boxes[node, 3:]).all()
                run, length, _ = twin.index._profiles.arrays.heads[slot].tolist()
                for term in twin.index._terms.get_many(twin.index._profiles.arrays.run_terms[run : run + length]):
                    key = (node << 32) | int(term)
                    counts[key] = counts.get(key, 0) + 1
            if tree.nodes[node, CHILD] < 0:
                assert tree.nodes[node, SIZE] == len(slots)
                assert len(slots) <= capacity or tree.nodes[node, DEPTH] == DEEPEST
        assert dict(zip(*(column.tolist() for column in twin.index._words.items()), strict=True)) == counts

    run_lifecycle(twin, check, sizes=FEW)
    assert twin.index._tree().state[N_NODES] > 1


@pytest.mark.skipif(SMALL, reason="what is pruned is that of a large index")
def test_a_quadtree_verifies_far_fewer_subscriptions_than_a_scan():
    workload, n, m = make_workload("tweets"), 3000, 100
    community = workload.social(n)
    scoring = ScoringContext(workload.space(), workload.vocabulary(), community.graph, TEXT_SIMILARITIES["dice"])
    (table,) = workload.subscriptions("social", n, community=community)
    made = [
        SocialSubscription(row["id"], (row["x"], row["y"]), row["keywords"], row["k"], row["user"])
        for row in table.to_pylist()
    ]
    messages = [
        Message(row["id"], (row["x"], row["y"]), row["text"], place=row["place"])
        for table in workload.messages(m, community=community)
        for row in table.to_pylist()
    ]
    batch, slots = MessageBatch.from_messages(messages, vocabulary=scoring.vocabulary), np.arange(n, dtype=np.int32)
    thresholds = np.random.default_rng(1).normal(1.6, 0.2, n)
    work, found = {}, {}
    for name, make in MAKERS.items():
        index = make(scoring)
        index.insert(slots, SubscriptionBatch.of(made, scoring))
        index.set_thresholds(slots, thresholds)
        rows, matched, _ = index.match(batch, 0, m)
        work[name], found[name] = index.work, set(zip(rows.tolist(), matched.tolist(), strict=True))
    assert found["scan"] == found["quadtree"] == found["quadtree of small leaves"] != set()
    assert work["scan"].verified == n * m
    assert work["quadtree"].verified < 0.5 * n * m
    assert work["quadtree of small leaves"].verified < work["quadtree"].verified


# -- in an engine -----------------------------------------------------------------------------------------------

GRAPH = [*strategies.EDGES, ("u3", "p0"), ("u3", "p9"), *(("u3", f"q{i}") for i in range(6))]
WINDOWS = {
    "count": nc.CountWindow(12),
    "fewer than k": nc.CountWindow(2),
    "doubling": nc.CountWindow(150),
    "time": nc.TimeWindow(seconds=6),
}


class EnginePair:
    """Two engines, one with a baseline and one with the reference index, that must emit the same updates."""

    def __init__(self, name, window, seed):
        self.rng, self.window, self.n, self.now = random.Random(seed), window, 0, 0.0
        self.edges = set(GRAPH)
        self.engines = [
            nc.Engine(
                space=PLANE,
                vocabulary=strategies.vocabulary(),
                window=window,
                social=SocialGraph(GRAPH),
                index=index,
            )
            for index in (name, "scan")
        ]
        self.n_updates = 0

    def compare(self, call):
        updates, reference = (
            sorted((u.seq, u.subscription, u.change, u.message, u.score) for u in call(engine))
            for engine in self.engines
        )
        assert updates == reference
        self.n_updates += len(updates)

    def subscription(self):
        rng = self.rng
        return nc.SocialSubscription(
            f"s{rng.randrange(14)}",
            location=rng.choice(strategies.GRID[PLANE]),
            keywords=rng.choices(strategies.TERMS, k=rng.randint(1, 4)),
            k=rng.choice([1, 2, 3, 5]),
            user=rng.choice(strategies.USERS),
        )

    def messages(self, n):
        made, rng = [], self.rng
        for _ in range(n):
            self.n += 1
            self.now += rng.choice([0.0, 0.1, 1.0])
            late = rng.random() * 7 if rng.random() < 0.3 else 0.0
            at = self.now - late if isinstance(self.window, nc.TimeWindow) else None
            terms = rng.choices(strategies.TERMS, k=rng.randint(0, 5))
            place = rng.choice([None, "nowhere", "p9", "new", *strategies.PLACES])
            made.append(nc.Message(f"m{self.n}", rng.choice(strategies.GRID[PLANE]), terms, at=at, place=place))
        return made

    def change_edges(self):
        rng = self.rng
        if rng.random() < 0.5:
            new = [
                (rng.choice([*strategies.USERS, "eve"]), rng.choice([*strategies.PLACES, "p9", "new"]))
                for _ in range(2)
            ]
            self.edges |= set(new)
            self.compare(lambda engine: engine.add_edges(new))
        else:
            old = rng.sample(sorted(self.edges), 1)
            self.edges -= set(old)
            self.compare(lambda engine: engine.remove_edges(old))


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("name", BASELINES)
def test_an_engine_with_a_baseline_emits_the_updates_of_the_reference(name, window):
    """Messages tie, subscriptions are replaced and removed, edges are added and removed."""
    pair, ids = EnginePair(name, window, 9), set()
    for turn in range(3 if SMALL else 12):
        subscriptions = [pair.subscription() for _ in range(4)]  # an id that exists replaces its subscription
        ids |= {subscription.id for subscription in subscriptions}
        pair.compare(lambda engine, subscriptions=subscriptions: engine.subscribe(subscriptions))
        messages = pair.messages(pair.rng.choice([1, 7, 30]))
        pair.compare(lambda engine, messages=messages: engine.publish(messages))
        if turn % 3 == 1:
            pair.change_edges()
            removed = pair.rng.choice(sorted(ids))
            ids.remove(removed)
            for engine in pair.engines:
                engine.unsubscribe([removed])
        for id_ in ids:
            results, reference = (engine.results(id_) for engine in pair.engines)
            assert results == reference
    if isinstance(window, nc.TimeWindow):
        pair.compare(lambda engine: engine.advance(pair.now + 3))
    assert pair.n_updates > 0


@pytest.mark.soak
@pytest.mark.skipif(SMALL, reason="is one of the passes itself")
def test_these_tests_pass_uncompiled():
    """Plain Python checks bounds by itself, so baselines are not compiled again with bounds checks."""
    check_passes("uncompiled", __file__, NEARCAST_TEST_SMALL="1")
