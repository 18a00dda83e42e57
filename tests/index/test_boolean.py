"""The index of kind `boolean`, and GI2 that it is measured against: the reference meaning, whatever happens to them."""

import os
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modes import MODES, check_passes
from nearcast._jit import Arena
from nearcast.index.boolean import BooleanIndex
from nearcast.model import BooleanSubscription, Message, MessageBatch, ScoringContext
from nearcast.model.subscription_columns import BooleanColumns
from nearcast.model.subscription_rows import store
from nearcast.social import SocialGraph
from nearcast.space import Box, Space
from nearcast.text import TEXT_SIMILARITIES, Vocabulary
from nearcast.workload import make

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from benchmarks.baselines.gi2 import GI2  # noqa: E402

INDEXES = [BooleanIndex, GI2]
PLAIN = os.environ.get("NUMBA_DISABLE_JIT") == "1"
CHECKED = os.environ.get("NUMBA_BOUNDSCHECK") == "1"
SMALL = PLAIN or CHECKED
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


def scoring_of(space):
    return ScoringContext(space, VOCABULARY, SocialGraph(), TEXT_SIMILARITIES["containment"])


class World:
    """An index and, beside it, the reference score of every subscription in it."""

    def __init__(self, make_index, space, seed=0):
        self.scoring = scoring_of(space)
        self.index = make_index(self.scoring)
        self.rng = np.random.default_rng(seed)
        self.scores = {}
        self.n_made = 0

    def point(self):
        """Return a point of a coarse lattice over the bounds, corners included, or any other."""
        b = self.scoring.space.bounds
        share = self.rng.integers(0, 9, 2) / 8 if self.rng.random() < 0.7 else self.rng.random(2)
        x = b.xmin * (1 - share[0]) + b.xmax * share[0]
        y = b.ymin * (1 - share[1]) + b.ymax * share[1]
        return min(max(x, b.xmin), b.xmax), min(max(y, b.ymin), b.ymax)

    def box(self):
        if self.rng.random() < 0.1:
            return self.scoring.space.bounds
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
        words = [str(word) for word in self.rng.choice(TERMS, self.rng.integers(1, 7), p=SKEWED)]
        shape = self.rng.integers(0, 4)
        if shape == 0:
            return " AND ".join(words)
        if shape == 1:
            return " OR ".join(words)
        if shape == 2:
            return f"({' OR '.join(words[:3])}) AND ({' OR '.join(words[3:] or TERMS[:1])})"
        operators = self.rng.choice(["AND", "OR"], len(words))
        return " ".join(f"{word} {operator}" for word, operator in zip(words, operators, strict=True)) + " t1"

    def insert(self, slots, subscriptions=None):
        made = subscriptions or [
            BooleanSubscription(f"b{self.n_made + i}", region=self.box(), keywords=self.keywords())
            for i in range(len(slots))
        ]
        self.n_made += len(made)
        self.index.insert_columns(
            np.array(slots, np.int32), BooleanColumns.of_stored(store(made, BooleanSubscription))
        )
        self.scores.update(zip(slots, (one.bind(self.scoring) for one in made), strict=True))

    def delete(self, slots):
        self.index.delete(np.array(slots, np.int32))
        for slot in slots:
            del self.scores[slot]

    def messages(self, n):
        texts = [[str(t) for t in self.rng.choice(TERMS, self.rng.integers(0, 7))] for _ in range(n)]
        return self.batch([Message(f"m{i}", location=self.point(), text=text) for i, text in enumerate(texts)])

    def batch(self, messages):
        return MessageBatch.from_messages(messages, vocabulary=self.scoring.vocabulary)

    def check(self, batch, start=0, stop=None):
        stop = len(batch) if stop is None else stop
        found = self.index.match(batch, start, stop)
        assert (found.rows.dtype, found.slots.dtype, found.scores.dtype) == (np.int64, np.int32, np.float64)
        assert len(found.rows) == len(found.slots) == len(found.scores)
        assert (found.scores == 1.0).all() and (np.diff(found.rows) >= 0).all()
        pairs = list(zip(found.rows.tolist(), found.slots.tolist(), strict=True))
        expected = {
            (row, slot)
            for row in range(start, stop)
            for slot, score in self.scores.items()
            if score(batch.documents[row]) is not None
        }
        assert len(pairs) == len(set(pairs))
        assert set(pairs) == expected
        work = self.index.work
        assert work.matched <= work.verified <= work.candidates <= work.visited
        return len(pairs)


SKEWED = np.array([8.0, 4, 4, 2, 2, 1, 1, 1, 1, 1, 1, 1])
SKEWED /= SKEWED.sum()


@pytest.mark.parametrize("make_index", INDEXES)
@pytest.mark.parametrize("name", BOUNDS)
def test_it_agrees_with_the_reference_through_insertions_and_deletions(make_index, name):
    world = World(make_index, BOUNDS[name], seed=len(name))
    n = 30 if SMALL else 120
    free, taken = list(range(2 * n, 0, -1)), []
    matches = 0
    for step in range(4 if SMALL else 12):
        world.rng.shuffle(free)
        new, free = free[: n // 2], free[n // 2 :]
        world.insert(new)
        taken += new
        matches += world.check(world.messages(20))
        world.rng.shuffle(taken)
        gone, taken = taken[: n // 3], taken[n // 3 :]
        world.delete(gone)
        free += gone
        matches += world.check(world.messages(20))
        if step % 4 == 3:
            world.index.compact()
            matches += world.check(world.messages(10))
    assert matches > 0


@pytest.mark.parametrize("make_index", INDEXES)
@pytest.mark.parametrize("name", ["plane", "earth", "huge", "far"])
def test_a_hot_term_is_cut_up_by_space_and_stays_right(make_index, name):
    world = World(make_index, BOUNDS[name], seed=1)
    n = 300 if PLAIN else 1500
    bounds = world.scoring.space.bounds
    made = []
    for i in range(n):
        x, y = world.point()
        reach = float(world.rng.choice([0.0, 1e-6, 0.01, 0.1])) / 4
        width, height = (bounds.xmax / 2 - bounds.xmin / 2) * reach, (bounds.ymax / 2 - bounds.ymin / 2) * reach
        box = Box(
            max(x - width, bounds.xmin), max(y - height, bounds.ymin),
            min(x + width, bounds.xmax), min(y + height, bounds.ymax),
        )  # fmt: skip
        keywords = ["t0", "t0", "t0 OR t1", "t0 AND t1", "t0 AND t1 AND t2", "t1 OR t0 OR t2"][i % 6]
        made.append(BooleanSubscription(f"h{i}", region=box, keywords=keywords))
    made.append(BooleanSubscription("everywhere", region=bounds, keywords="t0"))
    world.insert(list(range(n + 1)), made)
    assert world.check(world.messages(60)) > 0
    gone = world.rng.permutation(n + 1)[: n - 5].tolist()
    for some in np.array_split(gone, 7):
        world.delete(some.tolist())
        world.check(world.messages(20))
    world.insert(gone[:20])
    world.check(world.messages(40))


@pytest.mark.parametrize("make_index", INDEXES)
def test_borders_and_corners_are_inside(make_index):
    world = World(make_index, BOUNDS["plane"])
    third = 1 / 3
    sides = [0.0, np.nextafter(third, 0), third, np.nextafter(third, 1), 1.0, np.nextafter(8, 0), 8.0]
    boxes = [
        Box(a, c, b, d) for a in sides for b in sides if a <= b for c in sides[2:5] for d in sides[2:5] if c <= d
    ]
    world.insert(
        list(range(len(boxes))),
        [BooleanSubscription(f"b{i}", region=box, keywords="t0") for i, box in enumerate(boxes)],
    )
    points = [(x, y) for x in sides for y in sides]
    assert world.check(world.batch([Message(f"m{i}", location=p, text="t0") for i, p in enumerate(points)])) > 0


@pytest.mark.parametrize("make_index", INDEXES)
def test_an_expression_of_many_branches_and_terms_is_reported_once(make_index):
    world = World(make_index, BOUNDS["plane"])
    many = [f"w{i}" for i in range(20 if SMALL else 200)]
    everywhere = world.scoring.space.bounds
    expressions = [
        " OR ".join(many),
        " AND ".join(many),
        " OR ".join(f"({a} AND {b})" for a, b in pairwise(many)),
        f"(w0 AND w1) OR w2 OR (w3 AND w4 AND w5 AND w6) OR {many[-1]}",
        "w0 OR w1 OR w2 OR w3",
        "w2 OR w1 OR w0",
        "w1 OR w0",
        "w0 AND w1",
        "w0 AND w1 AND w2",
        "w0 AND w1 AND w2 AND w3",
    ]
    world.insert(
        list(range(10)),
        [BooleanSubscription(f"b{i}", region=everywhere, keywords=e) for i, e in enumerate(expressions)],
    )
    texts = [many, many[:-1], many[:4], many[2:7], many[1:3], many[:1], many[1:2], many[2:3], many[-1:], [], ["none"]]
    batch = world.batch([Message(f"m{i}", location=(1, 1), text=text) for i, text in enumerate(texts)])
    assert world.check(batch) > 0
    world.delete([0, 2, 4])
    world.check(batch)


@pytest.mark.parametrize("make_index", INDEXES)
def test_nothing_comes_of_nothing(make_index):
    world = World(make_index, BOUNDS["plane"])
    world.index.insert_columns(np.zeros(0, np.int32), BooleanColumns.of_stored(store([], BooleanSubscription)))
    world.index.delete(np.zeros(0, np.int32))
    assert world.check(world.messages(5)) == 0
    world.index.compact()
    assert world.check(MessageBatch.empty()) == 0
    world.insert([3])
    assert world.check(world.batch([Message("m", location=(0, 0), text=[])])) == 0
    assert world.check(world.messages(5), 2, 2) == 0


@pytest.mark.parametrize("make_index", INDEXES)
def test_a_range_of_rows_is_matched_alone(make_index):
    world = World(make_index, BOUNDS["plane"])
    world.insert(list(range(50)))
    batch = world.messages(40)
    assert sum(world.check(batch, start, start + 10) for start in range(0, 40, 10)) == world.check(batch)


@pytest.mark.parametrize("make_index", INDEXES)
def test_a_message_with_more_matches_than_there_is_room_for_is_whole(make_index):
    world = World(partial(make_index, room=1), BOUNDS["plane"])
    n = 200
    boxes = [BooleanSubscription(f"b{i}", region=BOUNDS["plane"].bounds, keywords="t0 OR t1") for i in range(n)]
    world.insert(list(range(n)), boxes)
    batch = world.batch([Message(f"m{i}", location=(i, i), text="t0 t1") for i in range(5)])
    assert world.check(batch) == 5 * n


def test_a_long_message_finds_its_terms_among_many():
    world = World(BooleanIndex, BOUNDS["plane"])
    n = 300 if SMALL else 5000
    words = [f"w{i}" for i in range(n)]
    made = [
        BooleanSubscription(f"b{i}", region=BOUNDS["plane"].bounds, keywords=[words[i], words[(i * 7 + 2) % n]])
        for i in range(n)
    ]
    world.insert(list(range(n)), made)
    assert world.check(world.batch([Message("m", location=(1, 1), text=words[::2])])) > 0


def test_the_whole_space_is_not_written_to_every_cell():
    world = World(BooleanIndex, BOUNDS["plane"], seed=5)
    n = 200 if SMALL else 2000
    points = world.rng.random((n, 2)) * 8
    world.insert(
        list(range(n)),
        [BooleanSubscription(f"p{i}", region=Box(x, y, x, y), keywords="t0") for i, (x, y) in enumerate(points)],
    )
    before = world.index.nbytes
    everywhere = BooleanSubscription("all", region=BOUNDS["plane"].bounds, keywords="t0")
    world.insert(list(range(n, n + n // 4)), [everywhere] * (n // 4))
    assert world.index.nbytes < 2 * before
    visited = world.index.work.visited
    batch = world.messages(20)
    world.check(batch)
    assert world.index.work.visited - visited < 20 * (n // 4 + n // 8)


def test_room_that_deletions_leave_is_used_again():
    world = World(BooleanIndex, BOUNDS["plane"], seed=2)
    n = 100 if PLAIN else 2000
    slots = list(range(n))
    sizes = []
    for _ in range(6 if PLAIN else 12):
        world.insert(slots)
        sizes.append(world.index.nbytes)
        world.delete(slots)
    assert len(world.index) == 0
    half = len(sizes) // 2
    assert max(sizes[half:]) <= 1.5 * max(sizes[:half]) and max(sizes) <= 4 * sizes[0]
    assert world.check(world.messages(10)) == 0
    world.index.compact()
    assert world.index.nbytes < max(10_000, sizes[0] / 20)
    world.insert(slots[:50])
    assert world.check(world.messages(50)) > 0


def test_new_terms_take_the_place_of_forgotten_ones():
    world = World(BooleanIndex, BOUNDS["plane"], seed=3)
    sizes = []
    for turn in range(20):
        made = [
            BooleanSubscription(f"b{i}", region=world.box(), keywords=[f"x{turn}y{i}", f"x{turn}y{i + 1}"])
            for i in range(100)
        ]
        world.insert(list(range(100)), made)
        world.check(world.batch([Message("m", location=(1, 1), text=[f"x{turn}y{i}" for i in range(100)])]))
        sizes.append(world.index.nbytes)
        world.delete(list(range(100)))
    assert max(sizes) <= 2 * sizes[0]


def test_an_index_goes_on_where_its_arena_is(tmp_path):
    world = World(lambda scoring: BooleanIndex(scoring, arena=Arena(tmp_path / "live")), BOUNDS["earth"])
    world.insert(list(range(150)))
    world.delete(list(range(0, 150, 3)))
    world.index._arena.save(tmp_path / "saved")
    for arena in (Arena.load(tmp_path / "saved"), Arena.attach(tmp_path / "live")):
        world.index = BooleanIndex(world.scoring, arena=arena)
        assert len(world.index) == 100
        assert world.check(world.messages(40)) > 0
    world.insert(list(range(0, 150, 3)))
    world.index.compact()
    world.check(world.messages(40))


@settings(max_examples=10 if SMALL else 60, deadline=None)
@given(data=st.data())
def test_it_agrees_with_the_reference_on_drawn_worlds(data):
    space = BOUNDS[data.draw(st.sampled_from(["plane", "earth"]))]
    world = World(BooleanIndex, space, seed=data.draw(st.integers(0, 2**32)))
    for _ in range(data.draw(st.integers(1, 5))):
        taken = sorted(world.scores)
        gone = data.draw(st.lists(st.sampled_from(taken), unique=True)) if taken else []
        if gone:
            world.delete(gone)
        free = st.integers(0, 40).filter(lambda slot: slot not in world.scores)
        new = data.draw(st.lists(free, unique=True, max_size=15))
        if new:
            world.insert(new)
        world.check(world.messages(8))


@pytest.fixture(scope="module")
def tweets():
    """Return meaning, subscriptions as a slate, and messages of the tweets workload."""
    workload = make("tweets", seed=3)
    scoring = ScoringContext(workload.space(), workload.vocabulary(), SocialGraph(), TEXT_SIMILARITIES["containment"])
    n = 300 if SMALL else 20_000
    made = [
        BooleanSubscription(row["id"], region=Box(*(row[side] for side in SIDES)), keywords=row["keywords"])
        for table in workload.subscriptions("boolean", n)
        for row in table.select(["id", *SIDES, "keywords"]).to_pylist()
    ]
    rows = next(workload.messages(300)).to_pylist()
    messages = [Message(row["id"], location=(row["x"], row["y"]), text=row["text"]) for row in rows]
    return scoring, made, MessageBatch.from_messages(messages, vocabulary=scoring.vocabulary)


SIDES = ["xmin", "ymin", "xmax", "ymax"]


def test_pruning_is_good_on_tweets(tweets):
    scoring, made, batch = tweets
    subscription_columns = BooleanColumns.of_stored(store(made, BooleanSubscription))
    found = []
    for make_index in INDEXES:
        index = make_index(scoring)
        index.insert_columns(np.arange(len(made), dtype=np.int32), subscription_columns)
        matches = index.match(batch, 0, len(batch))
        found.append(set(zip(matches.rows.tolist(), matches.slots.tolist(), strict=True)))
        work = index.work
        assert work.matched == len(found[-1])
        assert work.visited < 0.02 * len(made) * len(batch) or SMALL
        if make_index is BooleanIndex and not SMALL:
            assert work.candidates < 1e-4 * len(made) * len(batch)
            assert work.verified <= 1.2 * work.matched + 10
            assert index.nbytes < 400 * len(made)
    assert found[0] == found[1]
    scores = [one.bind(scoring) for one in made[:2000]]
    expected = {
        (row, slot) for row in range(40) for slot, s in enumerate(scores) if s(batch.documents[row]) is not None
    }
    assert {pair for pair in found[0] if pair[0] < 40 and pair[1] < 2000} == expected


@pytest.mark.skipif(SMALL, reason="this is the run within the run")
@pytest.mark.parametrize("mode", MODES)
def test_it_passes_these_tests_with(mode):
    check_passes(mode, __file__)
