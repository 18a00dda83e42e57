"""Buffers hold the best of the window under every policy and factor, and little more than that."""

import random

import numpy as np
import pytest

import nearcast as nc
from effort import effort
from nearcast._jit import Arena
from nearcast.engine import EngineConfig
from nearcast.engine.shard_engine import ShardEngine
from nearcast.index import IndexEntry, register
from nearcast.index.scan import Scan
from nearcast.testing import strategies as params
from nearcast.window import buffers
from nearcast.window import register as register_result_store
from nearcast.window._kernels import buffers as kernels
from nearcast.window._kernels.parts import part_of
from nearcast.window.buffered import POLICIES, BufferedResults
from nearcast.window.store import NEXT

KINDS = ("topk", "social")
EDGES = [*params.EDGES, *(("u4", f"q{i}") for i in range(12)), ("u4", "p0"), ("u4", "p9")]
"""The last user resembles the first a little, so that some scores are above 0 and very small."""
SCAN = IndexEntry("scan", frozenset(KINDS), lambda scoring, arena: Scan(scoring), False)
FACTORS = [("skyband", 0.0), ("skyband", 0.5), ("skyband", 1.0), ("kmax", 1.0), ("kmax", 1.7), ("kmax", 6.0)]
for policy in POLICIES:
    register(SCAN._replace(name=f"scan-{policy}", result_store=policy))
for policy, factor in FACTORS:
    for kind in KINDS:
        register_result_store(buffers(policy, kind, factor=factor, name=f"{policy} {factor} {kind}"))
        name = f"scan-{policy}-{factor}-{kind}"
        register(SCAN._replace(name=name, kinds=frozenset({kind}), result_store=f"{policy} {factor} {kind}"))


def make_engine(index, space, window):
    return nc.Engine(
        space=space, vocabulary=params.vocabulary(), window=window, social=nc.SocialGraph(EDGES), index=index
    )


def random_subscription(rng, space, kind="topk"):
    fields = {
        "location": rng.choice(params.GRID[space]),
        "keywords": rng.choices(params.TERMS, k=rng.randint(1, 4)),
        "k": rng.choice([1, 1, 2, 3, 5, 12]),
    }
    own = {"alpha": rng.choice([0, 0.5, 1, rng.random()])} if kind == "topk" else {"user": rng.choice(params.USERS)}
    return params.make_subscription(kind, f"s{rng.randrange(12)}", {**fields, **own})


class Stream:
    """Messages with many ties; some late, some in bursts."""

    def __init__(self, rng, space, window):
        self.rng, self.space, self.places = rng, space, random.Random(1)
        self.span = getattr(window, "seconds", None)
        self.now, self.n = 0.0, 0

    def take(self, n):
        rng, made = self.rng, []
        for _ in range(n):
            self.n += 1
            self.now += rng.random() * rng.choice([0, 0.1, 1, 3])
            at = None
            if self.span is not None:
                at = self.now - (rng.random() * self.span * 1.2 if rng.random() < 0.3 else 0)
            terms = rng.choices(params.TERMS, k=rng.randint(0, 5))
            place = self.places.choice([None, "nowhere", "p9", *params.PLACES])
            made.append(nc.Message(f"m{self.n}", rng.choice(params.GRID[self.space]), terms, at=at, place=place))
        return made


def sorted_changes(updates):
    """Return the changes of updates in one order."""
    return sorted((u.seq, u.subscription, u.change, u.message, u.score) for u in updates)


def leaves_come_first(updates):
    """Report whether, per step and subscription, all leaves precede all enters."""
    entered = set()
    for update in updates:
        key = update.seq, update.subscription
        if update.change == "enter":
            entered.add(key)
        elif key in entered:
            return False
    return True


def result_store_of(engine):
    (matcher,) = engine._shards.shards[0].matchers.values()
    return matcher._result_store


def assert_theorem_5(engine):
    """Assert that a buffer holds all messages that reach theta, except for those that k better ones outlive."""
    (matcher,) = engine._shards.shards[0].matchers.values()
    result_store, window = matcher._result_store, engine._shards.shards[0].window
    documents = window.documents()
    key_of = {d.seq: window.policy.key(d.seq, d.at_us) for d in documents}
    heads, base = result_store._heads, result_store._source.base
    for slot in matcher.registry.taken().tolist():
        subscription = matcher.registry.subscription(slot)
        score_of = subscription.bind(engine._scoring)
        numbers = result_store._parts[part_of(slot, len(result_store._parts))]._array("numbers")
        theta = float(heads.view(np.float32)[slot, kernels.THETA])
        scored = [(score, d.seq) for d in documents if (score := score_of(d)) is not None]
        first, size = int(heads[slot, kernels.START]), int(heads[slot, kernels.SIZE])
        held = window.store.of("seqs", numbers[first : first + size].astype(np.int64) + base)
        held = set(held.tolist()) & set(key_of)
        assert all(score >= theta for score, seq in scored if seq in held)
        for score, seq in scored:
            if score >= theta and seq not in held:
                better = [s for s in scored if s > (score, seq) and key_of[s[1]] >= key_of[seq]]
                assert len(better) >= subscription.k
        assert len(held) >= subscription.k or theta == -np.inf


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(effort(2, 8)))
def test_buffers_hold_what_recomputing_finds(kind, policy, seed):
    compare_with_recompute(kind, f"scan-{policy}", seed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("policy", "factor"), FACTORS)
@pytest.mark.parametrize("seed", range(8, effort(9, 12)))
def test_results_do_not_depend_on_the_factor(kind, policy, factor, seed):
    compare_with_recompute(kind, f"scan-{policy}-{factor}-{kind}", seed)


def compare_with_recompute(kind, index, seed):
    """Subscribe, unsubscribe, rescale, publish and advance at random, and compare all changes and results."""
    rng = random.Random(seed)
    space = rng.choice(params.SPACES)
    span = rng.choice([1, 3, 10, 40, 200])
    window = nc.TimeWindow(seconds=span) if seed % 2 else nc.CountWindow(span)
    engines = [make_engine(index, space, window) for index in ("scan", index)]
    stream, subscribed = Stream(rng, space, window), set()
    for _ in range(40):
        choice = rng.random()
        if choice < 0.25:
            made = [random_subscription(rng, space, kind) for _ in range(rng.randint(1, 4))]
            subscribed |= {one.id for one in made}
            slow, fast = (engine.subscribe(made) for engine in engines)
        elif choice < 0.3 and subscribed:
            leaving = [subscribed.pop()]
            for engine in engines:
                engine.unsubscribe(leaving)
            slow, fast = [], []
        elif choice < 0.33:
            engines[1].rescale(rng.choice([1, 2, 3]))
            slow, fast = [], []
        elif choice < 0.38 and seed % 2:
            stream.now += rng.random() * span
            slow, fast = (engine.advance(stream.now) for engine in engines)
        else:
            messages = stream.take(rng.choice([1, 1, 3, 10, 40]))
            slow, fast = (engine.publish(messages) for engine in engines)
        assert sorted_changes(fast) == sorted_changes(slow)
        assert leaves_come_first(fast)
        for id_ in subscribed:
            assert engines[1].results(id_) == engines[0].results(id_)
        if subscribed:
            assert_theorem_5(engines[1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_search_in_the_middle_of_a_batch_includes_later_arrivals(kind, policy):
    rng, n = random.Random(5), 30 if kind == "topk" else 100  # for social every message is a candidate
    one_by_one, at_once = (make_engine(f"scan-{policy}", params.PLANE, nc.CountWindow(n)) for _ in range(2))
    subscriptions = [random_subscription(rng, params.PLANE, kind) for _ in range(20)]
    messages = Stream(rng, params.PLANE, nc.CountWindow(n)).take(n + 370)
    for engine in (one_by_one, at_once):
        engine.publish(messages[:n])
        engine.subscribe(subscriptions)
    expected = [update for message in messages[n:] for update in one_by_one.publish([message])]
    assert sorted_changes(at_once.publish(messages[n:])) == sorted_changes(expected)
    assert result_store_of(at_once).searches > 0, "buffers must have run short for this to mean anything"


def test_buffers_stay_small_and_searches_rare():
    engine = make_engine("scan-cskyband", params.PLANE, nc.CountWindow(500))
    rng = random.Random(1)
    stream = Stream(rng, params.PLANE, nc.CountWindow(500))
    engine.publish(stream.take(500))
    engine.subscribe(
        [
            nc.TopKSubscription(
                i, rng.choice(params.GRID[params.PLANE]), [rng.choice(params.TERMS)], 10, rng.random()
            )
            for i in range(30)
        ]
    )
    engine.publish(stream.take(1500))
    result_store = result_store_of(engine)
    assert result_store.sizes.mean() <= 20, "twice k"
    assert result_store.searches <= 1500 * 30 / 100


@pytest.mark.parametrize("kind", KINDS)
def test_the_base_moves_before_numbers_grow_too_large(kind):
    rng = random.Random(3)
    window = nc.CountWindow(20)
    plain, moving = (make_engine(index, params.PLANE, window) for index in ("scan", "scan-cskyband"))
    subscriptions = [random_subscription(rng, params.PLANE, kind) for _ in range(15)]
    stream = Stream(rng, params.PLANE, window)
    for engine in (plain, moving):
        engine.subscribe(subscriptions)
    result_store_of(moving)._source.lists._max_number = 50
    for _ in range(30):
        messages = stream.take(17)
        assert sorted_changes(moving.publish(messages)) == sorted_changes(plain.publish(messages))
    assert result_store_of(moving)._source.base > 300
    assert int(result_store_of(moving)._window.store.state[NEXT]) == 510


def test_expired_messages_and_deleted_slots_free_their_memory():
    rng = random.Random(2)
    window = nc.TimeWindow(seconds=30)
    engine = make_engine("scan-cskyband", params.PLANE, window)
    stream = Stream(rng, params.PLANE, window)
    for _ in range(5):
        engine.subscribe([random_subscription(rng, params.PLANE) for _ in range(10)])
        engine.publish(stream.take(100))
    engine.advance(stream.now + 1000)
    result_store = result_store_of(engine)
    buckets = result_store._source.lists.arrays.buckets
    assert (buckets[:, 0] == -1).all(), "no list holds an expired message"
    assert result_store._source.lists.arrays.counts[1] == 0
    (part,) = result_store._parts
    assert (part._array("queues") == kernels.NONE).all()
    ids = [
        id_
        for matcher in engine._shards.shards[0].matchers.values()
        for id_ in matcher.registry.ids(matcher.registry.taken())
    ]
    engine.unsubscribe(ids)
    before = int(part._array("state")[0])
    engine.publish(stream.take(50))
    engine.subscribe([random_subscription(rng, params.PLANE) for _ in range(10)])
    assert int(part._array("state")[0]) <= max(before, 64), "blocks are reused"


def test_a_block_is_the_smallest_that_fits():
    sizes = [kernels.capacity_of(block_class) for block_class in range(40)]
    assert sizes == sorted(set(sizes))
    for n in range(1, 3000):
        block_class = kernels.class_for(n)
        assert kernels.capacity_of(block_class) >= n
        assert block_class == 0 or kernels.capacity_of(block_class - 1) < n


@pytest.mark.parametrize("kind", KINDS)
def test_an_arena_that_holds_buffers_is_continued(tmp_path, kind):
    rng = random.Random(4)
    options = {"space": params.PLANE, "vocabulary": params.vocabulary(), "window": nc.CountWindow(40)}
    options["social"] = nc.SocialGraph(EDGES)
    plain, engine = nc.Engine(**options), ShardEngine.create(EngineConfig.of(options), folder=tmp_path / "engine")
    stream = Stream(rng, params.PLANE, nc.CountWindow(40))
    for round_ in range(6):
        subscriptions = [random_subscription(rng, params.PLANE, kind) for _ in range(5)]
        messages = stream.take(60)
        for one in (plain, engine):
            one.subscribe(subscriptions)
        assert sorted_changes(engine.publish(messages)) == sorted_changes(plain.publish(messages))
        engine.seal(f"round {round_}")
        engine = ShardEngine.attach(tmp_path / "engine", f"round {round_}", EngineConfig.of(options))


@pytest.mark.parametrize("kind", KINDS)
def test_queues_survive_the_doubling_of_the_window(kind):
    rng = random.Random(6)
    window = nc.CountWindow(1000)
    slow, fast = (make_engine(index, params.PLANE, window) for index in ("scan", "scan-cskyband"))
    stream = Stream(rng, params.PLANE, window)
    subscriptions = [random_subscription(rng, params.PLANE, kind) for _ in range(8)]
    for engine in (slow, fast):
        engine.subscribe(subscriptions)
    for size in (3, 60, 5, 200, 7, 500, 400):
        messages = stream.take(size)
        assert sorted_changes(fast.publish(messages)) == sorted_changes(slow.publish(messages))
    (part,) = result_store_of(fast)._parts
    assert len(part._array("queues")) >= 1000


def test_a_larger_factor_of_k_holds_more_and_searches_less():
    sizes, searches = [], []
    for factor in (1.0, 1.7, 6.0):
        rng, window = random.Random(7), nc.CountWindow(300)
        engine = make_engine(f"scan-kmax-{factor}-topk", params.PLANE, window)
        stream = Stream(rng, params.PLANE, window)
        engine.publish(stream.take(300))
        engine.subscribe([random_subscription(rng, params.PLANE) for _ in range(20)])
        engine.publish(stream.take(600))
        result_store = result_store_of(engine)
        sizes.append(result_store.sizes.mean())
        searches.append(result_store.searches)
    assert sizes == sorted(set(sizes))
    assert searches == sorted(set(searches), reverse=True)


def check_rejected(rule, **options):
    """Assert that a result store with these options is rejected by a rule."""
    window = nc.Engine(space=params.PLANE, window=nc.CountWindow(3))._shards.shards[0].window
    with pytest.raises(nc.InvalidInput, match=rule):
        BufferedResults(params.scoring(), window, Arena(), **options)


def test_an_unknown_policy_is_rejected():
    check_rejected("policy must be one of", policy="magic")


@pytest.mark.parametrize(
    ("policy", "factor", "rule"),
    [
        ("cskyband", 1.0, r"factor must be None; got 1.0 \(buffers, policy 'cskyband'\)"),
        ("skyband", 1.01, r"factor must be in \[0, 1\]; got 1.01"),
        ("skyband", float("nan"), r"factor must be in \[0, 1\]; got nan"),
        ("kmax", 0.99, r"factor must be in \[1, 1000\]; got 0.99"),
        ("kmax", "3", r"factor must be in \[1, 1000\]; got '3'"),
    ],
)
def test_a_factor_outside_the_range_of_its_policy_is_rejected(policy, factor, rule):
    check_rejected(rule, policy=policy, factor=factor)


def test_a_registered_result_store_must_have_a_new_name():
    with pytest.raises(nc.InvalidInput, match=r"name must not be one of .*'kmax'.*; got 'kmax'"):
        register_result_store(buffers("kmax", "topk", factor=2.0))
