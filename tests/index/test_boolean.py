"""The index of kind `boolean` and its baseline GI2 find what the reference finds after any insertions and deletions."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import index_checks
from modes import MODES, check_passes
from nearcast._jit import Arena
from nearcast.index._kernels.boolean.layout import LENGTH, START
from nearcast.index.boolean import BooleanIndex
from nearcast.model import BooleanSubscription, Message, MessageBatch
from nearcast.model.subscription_columns import BooleanColumns
from nearcast.model.subscription_rows import store
from nearcast.space import Box, Space
from nearcast.text import Vocabulary
from nearcast.workload import make
from nearcast_baselines.gi2 import GI2
from twins import SMALL, FixedTwin, N, found, run_lifecycle, scoring_of

INDEXES = [BooleanIndex, pytest.param(GI2, marks=pytest.mark.soak)]
TERMS = [f"t{i}" for i in range(12)]
VOCABULARY = Vocabulary.with_weights({term: float(i) for i, term in enumerate(TERMS[:10])})
BOUNDS = {
    "plane": Space(Box(0, 0, 8, 8)),
    "earth": Space.earth(),
    "huge": Space(Box(-1.7e308, -1.7e308, 1.7e308, 1.7e308), max_distance=1.0),
    "small": Space(Box(0, -5e-324, 1e-320, 0), max_distance=1.0),
    "far": Space(Box(1e15, 1e15, 1e15 + 4, 1e15 + 2)),
    "flat": Space(Box(1, 2, 5, 2)),
}


class BooleanSource:
    """Boxes on a coarse lattice over the bounds, corners included; expressions of AND and OR over skewed terms."""

    vocabulary = VOCABULARY

    def __init__(self, space, seed):
        self.space, self.rng, self.n_drawn = space, np.random.default_rng(seed), 0

    def point(self):
        b = self.space.bounds
        share = self.rng.integers(0, 9, 2) / 8 if self.rng.random() < 0.7 else self.rng.random(2)
        x = b.xmin * (1 - share[0]) + b.xmax * share[0]
        y = b.ymin * (1 - share[1]) + b.ymax * share[1]
        return min(max(x, b.xmin), b.xmax), min(max(y, b.ymin), b.ymax)

    def box(self):
        if self.rng.random() < 0.1:
            return self.space.bounds
        (x1, y1), (x2, y2) = self.point(), self.point()
        shape = self.rng.random()
        if shape < 0.2:
            x2, y2 = x1, y1
        elif shape < 0.3:
            x2 = x1
        elif shape < 0.4:
            y2 = y1
        return Box(min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2))

    def keywords(self):
        """Return an expression: AND, OR, or a mixture, of one term up to a dozen branches."""
        terms = [str(term) for term in self.rng.choice(TERMS, self.rng.integers(1, 7), p=SKEWED)]
        shape = self.rng.integers(0, 4)
        if shape == 0:
            return " AND ".join(terms)
        if shape == 1:
            return " OR ".join(terms)
        if shape == 2:
            return f"({' OR '.join(terms[:3])}) AND ({' OR '.join(terms[3:] or TERMS[:1])})"
        operators = self.rng.choice(["AND", "OR"], len(terms))
        return " ".join(f"{term} {operator}" for term, operator in zip(terms, operators, strict=True)) + " t1"

    def subscription(self):
        self.n_drawn += 1
        return BooleanSubscription(f"b{self.n_drawn}", region=self.box(), keywords=self.keywords())

    def message(self):
        terms = [str(term) for term in self.rng.choice(TERMS, self.rng.integers(0, 7))]
        return Message("m", location=self.point(), text=terms)


def twin_of(make_index, space, seed=0):
    return FixedTwin(make_index, BooleanSource(space, seed), seed=seed)


SKEWED = np.array([8.0, 4, 4, 2, 2, 1, 1, 1, 1, 1, 1, 1])
SKEWED /= SKEWED.sum()


def by_slot(subscriptions, first=0):
    return dict(enumerate(subscriptions, first))


@pytest.mark.parametrize("make_index", INDEXES)
@pytest.mark.parametrize("name", BOUNDS)
def test_matches_equal_the_reference_in_every_space(make_index, name):
    run_lifecycle(twin_of(make_index, BOUNDS[name], len(name)))


@pytest.mark.parametrize("make_index", INDEXES)
@pytest.mark.parametrize("name", ["plane", "earth", "huge", "far"])
def test_matches_equal_the_reference_after_compaction(make_index, name):
    twin = twin_of(make_index, BOUNDS[name], 4)
    for _ in range(3):
        twin.insert([slot for slot in range(N) if slot not in twin.scorers])
        twin.delete(twin.rng.sample(range(N), N // 3))
        twin.index.compact()
        assert twin.check(twin.batch(20))


@pytest.mark.parametrize("make_index", INDEXES)
@pytest.mark.parametrize("name", ["plane", "earth", "huge", "far"])
def test_a_frequent_term_is_split_by_space(make_index, name):
    twin = twin_of(make_index, BOUNDS[name], 1)
    n, source = 300 if SMALL else 1500, twin.source
    bounds, made = source.space.bounds, []
    for i in range(n):
        x, y = source.point()
        reach = float(source.rng.choice([0.0, 1e-6, 0.01, 0.1])) / 4
        width, height = (bounds.xmax / 2 - bounds.xmin / 2) * reach, (bounds.ymax / 2 - bounds.ymin / 2) * reach
        box = Box(
            max(x - width, bounds.xmin), max(y - height, bounds.ymin),
            min(x + width, bounds.xmax), min(y + height, bounds.ymax),
        )  # fmt: skip
        keywords = ["t0", "t0", "t0 OR t1", "t0 AND t1", "t0 AND t1 AND t2", "t1 OR t0 OR t2"][i % 6]
        made.append(BooleanSubscription(f"h{i}", region=box, keywords=keywords))
    made.append(BooleanSubscription("bounds", region=bounds, keywords="t0"))
    twin.insert(by_slot(made))
    assert twin.check(twin.batch(60))
    deleted = twin.rng.sample(range(n + 1), n - 5)
    for part in np.array_split(deleted, 7):
        twin.delete(part.tolist())
        twin.check(twin.batch(20))
    twin.insert(deleted[:20])
    twin.check(twin.batch(40))


@pytest.mark.parametrize("make_index", INDEXES)
def test_borders_and_corners_are_inside(make_index):
    twin = twin_of(make_index, BOUNDS["plane"])
    third = 1 / 3
    sides = [0.0, np.nextafter(third, 0), third, np.nextafter(third, 1), 1.0, np.nextafter(8, 0), 8.0]
    boxes = [
        Box(a, c, b, d) for a in sides for b in sides if a <= b for c in sides[2:5] for d in sides[2:5] if c <= d
    ]
    twin.insert(by_slot(BooleanSubscription(f"b{i}", region=box, keywords="t0") for i, box in enumerate(boxes)))
    points = [(x, y) for x in sides for y in sides]
    assert twin.check(twin.batch_of([Message(f"m{i}", location=p, text="t0") for i, p in enumerate(points)]))


@pytest.mark.parametrize("make_index", INDEXES)
def test_an_expression_of_many_branches_and_terms_is_reported_once(make_index):
    twin = twin_of(make_index, BOUNDS["plane"])
    terms = [f"w{i}" for i in range(20 if SMALL else 200)]
    expressions = [
        " OR ".join(terms),
        " AND ".join(terms),
        " OR ".join(f"({a} AND {b})" for a, b in pairwise(terms)),
        f"(w0 AND w1) OR w2 OR (w3 AND w4 AND w5 AND w6) OR {terms[-1]}",
        "w0 OR w1 OR w2 OR w3",
        "w2 OR w1 OR w0",
        "w1 OR w0",
        "w0 AND w1",
        "w0 AND w1 AND w2",
        "w0 AND w1 AND w2 AND w3",
    ]
    bounds = twin.source.space.bounds
    twin.insert(by_slot(BooleanSubscription(f"b{i}", region=bounds, keywords=e) for i, e in enumerate(expressions)))
    texts = [
        terms, terms[:-1], terms[:4], terms[2:7], terms[1:3], terms[:1], terms[1:2], terms[2:3], terms[-1:], [], ["no"]
    ]  # fmt: skip
    batch = twin.batch_of([Message(f"m{i}", location=(1, 1), text=text) for i, text in enumerate(texts)])
    assert twin.check(batch)
    twin.delete([0, 2, 4])
    twin.check(batch)


@pytest.mark.parametrize("make_index", INDEXES)
def test_empty_batches_change_and_match_nothing(make_index):
    twin = twin_of(make_index, BOUNDS["plane"])
    twin.index.insert_columns(
        np.zeros(0, np.int32), BooleanColumns.of_stored(store([], BooleanSubscription), twin.scoring)
    )
    twin.index.delete(np.zeros(0, np.int32))
    assert twin.check(twin.batch(5)) == {}
    twin.index.compact()
    assert twin.check(MessageBatch.empty()) == {}
    twin.insert([3])
    assert twin.check(twin.batch_of([Message("m", location=(0, 0), text=[])])) == {}
    assert twin.check(twin.batch(5), 2, 2) == {}


@pytest.mark.parametrize("make_index", INDEXES)
def test_part_of_a_batch_has_the_row_numbers_of_the_batch(make_index):
    twin = twin_of(make_index, BOUNDS["plane"])
    twin.insert(range(50))
    batch = twin.batch(40)
    parts = [twin.check(batch, start, start + 10) for start in range(0, 40, 10)]
    assert {pair for part in parts for pair in part} == set(twin.check(batch))


@pytest.mark.parametrize("make_index", INDEXES)
def test_a_message_with_more_matches_than_the_buffer_holds_is_complete(make_index):
    twin, n = twin_of(partial(make_index, room=1), BOUNDS["plane"]), 200
    bounds = BOUNDS["plane"].bounds
    twin.insert(by_slot(BooleanSubscription(f"b{i}", region=bounds, keywords="t0 OR t1") for i in range(n)))
    batch = twin.batch_of([Message(f"m{i}", location=(i, i), text="t0 t1") for i in range(5)])
    assert len(twin.check(batch)) == 5 * n


def test_small_buffers_give_the_same_matches_and_count_work_once():
    twins = (twin_of(partial(BooleanIndex, room=room), BOUNDS["plane"], 6) for room in (1, 4096))
    index_checks.check_small_buffers(*twins, n=N, m=40)


def test_a_long_message_finds_its_terms_among_many():
    twin = twin_of(BooleanIndex, BOUNDS["plane"])
    n, bounds = 300 if SMALL else 5000, BOUNDS["plane"].bounds
    terms = [f"w{i}" for i in range(n)]
    twin.insert(
        by_slot(
            BooleanSubscription(f"b{i}", region=bounds, keywords=[terms[i], terms[(i * 7 + 2) % n]]) for i in range(n)
        )
    )
    assert twin.check(twin.batch_of([Message("m", location=(1, 1), text=terms[::2])]))


def test_a_box_of_the_whole_space_is_not_written_to_every_cell():
    twin = twin_of(BooleanIndex, BOUNDS["plane"], 5)
    n = 200 if SMALL else 2000
    points = twin.source.rng.random((n, 2)) * 8
    twin.insert(
        by_slot(
            BooleanSubscription(f"p{i}", region=Box(x, y, x, y), keywords="t0") for i, (x, y) in enumerate(points)
        )
    )
    before = twin.index.nbytes
    wide = BooleanSubscription("all", region=BOUNDS["plane"].bounds, keywords="t0")
    twin.insert(by_slot([wide] * (n // 4), n))
    assert twin.index.nbytes < 2 * before
    visited = twin.index.work.visited
    twin.check(twin.batch(20))
    assert twin.index.work.visited - visited < 20 * (n // 4 + n // 8)


def test_memory_of_deleted_subscriptions_is_reused():
    twin = twin_of(BooleanIndex, BOUNDS["plane"], 2)
    slots, sizes = list(range(100 if SMALL else 2000)), []
    for _ in range(6 if SMALL else 12):
        twin.insert(slots)
        sizes.append(twin.index.nbytes)
        twin.delete(slots)
    assert len(twin.index) == 0
    half = len(sizes) // 2
    assert max(sizes[half:]) <= 1.5 * max(sizes[:half]) and max(sizes) <= 4 * sizes[0]
    assert twin.check(twin.batch(10)) == {}
    twin.index.compact()
    assert twin.index.nbytes < max(10_000, sizes[0] / 20)
    twin.insert(slots[:50])
    assert twin.check(twin.batch(50))


@pytest.mark.parametrize("n_at_once", [1, 15, 700])
def test_identical_subscriptions_are_deleted_from_their_long_list(n_at_once):
    """All are on one list, beside some with two branches under the same term, and some elsewhere."""
    n, space = 1_600 if n_at_once > 15 and not SMALL else 150, BOUNDS["plane"]
    twin, region = twin_of(BooleanIndex, space, 4), space.bounds
    words = ["t1", "t1", "t1", "(t1 AND t2) OR (t1 AND t3)", "t2 OR t1", "t4"]
    twin.insert(
        by_slot(BooleanSubscription(f"b{i}", region=region, keywords=words[i % len(words)]) for i in range(n))
    )
    twin.insert(range(n, n + 60))
    batch = twin.batch_of([Message("m", (1, 1), text) for text in ("t1", "t1 t2", "t3 t1", "t4", "t2")])
    order = np.random.default_rng(7).permutation(n + 60).tolist()
    for start in range(0, len(order), n_at_once):
        twin.delete(order[start : start + n_at_once])
        if n_at_once > 1 or start % 20 == 0:
            twin.check(batch)
    assert len(twin.index) == 0
    assert twin.check(batch) == {}
    twin.insert(range(50))
    twin.check(batch)


def test_a_long_list_is_swept_once_for_all_that_are_deleted():
    twin, region, n = twin_of(BooleanIndex, BOUNDS["plane"], 5), BOUNDS["plane"].bounds, 1_200
    twin.insert(by_slot(BooleanSubscription(f"b{i}", region=region, keywords="t1") for i in range(n)))
    forest = twin.index._forest
    assert forest.nodes[:, LENGTH].max() == n
    twin.delete(list(range(0, n, 3)))
    kept = [slot for slot in range(n) if slot % 3]
    node = int(np.argmax(forest.nodes[:, LENGTH]))
    start, length = forest.nodes[node, START], forest.nodes[node, LENGTH]
    assert forest.slots[start : start + length].tolist() == kept, "a list that is swept keeps its order"


def test_numbers_of_deleted_terms_are_reused():
    twin, sizes = twin_of(BooleanIndex, BOUNDS["plane"], 3), []
    for turn in range(20):
        terms = [f"x{turn}y{i}" for i in range(101)]
        twin.insert(
            by_slot(
                BooleanSubscription(f"b{i}", region=twin.source.box(), keywords=terms[i : i + 2]) for i in range(100)
            )
        )
        twin.check(twin.batch_of([Message("m", location=(1, 1), text=terms[:100])]))
        sizes.append(twin.index.nbytes)
        twin.delete(list(range(100)))
    assert max(sizes) <= 2 * sizes[0]


def test_an_arena_holds_the_whole_index(tmp_path):
    twin = twin_of(partial(BooleanIndex, arena=Arena(tmp_path / "live")), BOUNDS["earth"])
    twin.insert(range(150))
    twin.delete(list(range(0, 150, 3)))
    twin.index._arena.save(tmp_path / "saved")
    for arena in (Arena.load(tmp_path / "saved"), Arena.attach(tmp_path / "live")):
        twin.index = BooleanIndex(twin.scoring, arena=arena)
        assert len(twin.index) == 100
        assert twin.check(twin.batch(40))
    twin.insert(range(0, 150, 3))
    twin.index.compact()
    twin.check(twin.batch(40))


@settings(max_examples=10 if SMALL else 60)
@given(data=st.data())
def test_matches_equal_the_reference_for_generated_changes(data):
    space = BOUNDS[data.draw(st.sampled_from(["plane", "earth"]))]
    twin = twin_of(BooleanIndex, space, data.draw(st.integers(0, 2**32)))
    for _ in range(data.draw(st.integers(1, 5))):
        taken = sorted(twin.scorers)
        deleted = data.draw(st.lists(st.sampled_from(taken), unique=True)) if taken else []
        if deleted:
            twin.delete(deleted)
        free = st.integers(0, 40).filter(lambda slot: slot not in twin.scorers)
        inserted = data.draw(st.lists(free, unique=True, max_size=15))
        if inserted:
            twin.insert(inserted)
        twin.check(twin.batch(8))


SIDES = ["xmin", "ymin", "xmax", "ymax"]


@pytest.fixture(scope="module")
def tweets():
    """Return scoring, subscriptions and messages of the tweets workload."""
    workload = make("tweets", seed=3)
    scoring = scoring_of(workload.space(), vocabulary=workload.vocabulary())
    made = [
        BooleanSubscription(row["id"], region=Box(*(row[side] for side in SIDES)), keywords=row["keywords"])
        for table in workload.subscriptions("boolean", 300 if SMALL else 20_000)
        for row in table.select(["id", *SIDES, "keywords"]).to_pylist()
    ]
    rows = next(workload.messages(300)).to_pylist()
    messages = [Message(row["id"], location=(row["x"], row["y"]), text=row["text"]) for row in rows]
    return scoring, made, MessageBatch.from_messages(messages, vocabulary=scoring.vocabulary)


def test_few_subscriptions_are_candidates_on_tweets(tweets):
    scoring, made, batch = tweets
    columns = BooleanColumns.of_stored(store(made, BooleanSubscription), scoring)
    pairs = []
    for make_index in (BooleanIndex, GI2):
        index = make_index(scoring)
        index.insert_columns(np.arange(len(made), dtype=np.int32), columns)
        pairs.append(set(found(index, batch)))
        work = index.work
        assert work.matched == len(pairs[-1])
        assert work.visited < 0.02 * len(made) * len(batch) or SMALL
        if make_index is BooleanIndex and not SMALL:
            assert work.candidates < 1e-4 * len(made) * len(batch)
            assert work.verified <= 1.2 * work.matched + 10
            assert index.nbytes < 400 * len(made)
    assert pairs[0] == pairs[1]
    scorers = [subscription.bind(scoring) for subscription in made[:2000]]
    expected = {
        (row, slot)
        for row in range(40)
        for slot, score_of in enumerate(scorers)
        if score_of(batch.documents[row]) is not None
    }
    assert {pair for pair in pairs[0] if pair[0] < 40 and pair[1] < 2000} == expected


@pytest.mark.soak
@pytest.mark.skipif(SMALL, reason="is one of the passes itself")
@pytest.mark.parametrize("mode", MODES)
def test_these_tests_pass_with(mode):
    check_passes(mode, __file__, NEARCAST_TEST_SMALL="1")
