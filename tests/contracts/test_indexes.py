"""Does every index find what the scan finds, with the same scores and less work?"""

import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest

from nearcast._jit import Arena
from nearcast.index import INDEXES
from nearcast.index.scan import Scan
from nearcast.model import KINDS, MessageBatch, SubscriptionBatch
from nearcast.testing import strategies as world
from nearcast.text import TEXT_SIMILARITIES

sys.path.insert(0, str(Path(__file__).parents[2]))  # the baselines live beside the package

from benchmarks.baselines import BASELINES

PAIRS = [(kind, entry) for kind in KINDS for entry in INDEXES if entry.serves(kind.kind)]
ALL_PAIRS = [(kind, entry) for kind in KINDS for entry in (*INDEXES, *BASELINES) if entry.serves(kind.kind)]
LARGEST_SHARE = {"scan": 1.0, "boolean": 0.5, "similarity": 1.0, "topk": 1.0, "nearest": 1.0, "social": 1.0}
"""Of what a scan looks at, the most that an index may have for candidates: pruning must not rot."""


@pytest.fixture(scope="module", params=world.SPACES, ids=lambda s: s.metric)
def space(request):
    return request.param


def random_batch(space, rng, n):
    places = rng.choices(world.GRID[space], k=n)
    return MessageBatch.from_columns(
        ids=[f"m{i}" for i in range(n)],
        xs=np.array([x for x, _ in places]),
        ys=np.array([y for _, y in places]),
        ats_us=np.zeros(n, np.int64),
        places=[rng.choice([None, *world.PLACES]) for _ in range(n)],
        texts=[rng.choices(world.TERMS, k=rng.randint(0, 6)) for _ in range(n)],
        vocabulary=world.vocabulary(),
    )


def found(index, batch):
    matches = index.match(batch, 0, len(batch))
    rows, slots, scores = (column.tolist() for column in matches)
    assert rows == sorted(rows)
    assert len(set(zip(rows, slots, strict=True))) == len(rows), "a pair was reported twice"
    return {(row, slot): score for row, slot, score in zip(rows, slots, scores, strict=True)}


@pytest.mark.parametrize(("kind", "entry"), PAIRS, ids=lambda p: getattr(p, "kind", None) or getattr(p, "name", ""))
@pytest.mark.parametrize("seed", range(3))
def test_an_index_finds_what_the_scan_finds(kind, entry, space, seed, random_fields):
    rng = random.Random(seed)
    scoring = world.scoring(space, rng.choice(sorted(TEXT_SIMILARITIES)))
    index, scan = entry.make(scoring, Arena()), Scan(scoring)
    alive = set()
    for round_ in range(4):
        chosen = rng.sample(range(200), 40)  # subscribe, and for some of them unsubscribe first
        gone = np.array([slot for slot in chosen if slot in alive], dtype=np.int32)
        subscriptions = [
            world.make_subscription(kind.kind, f"s{slot}", random_fields(kind.kind, space, rng)) for slot in chosen
        ]
        for one in (index, scan):
            one.delete(gone)
            one.insert(np.array(chosen, dtype=np.int32), SubscriptionBatch.of(subscriptions, scoring))
        alive |= set(chosen)
        batch = random_batch(space, rng, 30)
        expected = found(scan, batch)
        got = found(index, batch)
        assert set(got) == set(expected), f"round {round_}, seed {seed}"
        assert all(got[pair] == pytest.approx(score, abs=1e-9) for pair, score in expected.items())
    assert index.work.candidates <= LARGEST_SHARE[entry.name] * scan.work.visited
    assert index.work.verified <= index.work.candidates <= index.work.visited


@pytest.mark.parametrize(("kind", "entry"), PAIRS, ids=lambda p: getattr(p, "kind", None) or getattr(p, "name", ""))
def test_an_index_that_holds_nothing_finds_nothing(kind, entry):
    assert found(entry.make(world.scoring(), Arena()), random_batch(world.PLANE, random.Random(1), 5)) == {}


def in_columns(matches):
    return [column.tolist() for column in matches]


def work_of(index):
    work = index.work
    return np.array([work.visited, work.candidates, work.verified, work.matched])


@pytest.mark.parametrize(
    ("kind", "entry"), ALL_PAIRS, ids=lambda p: getattr(p, "kind", None) or getattr(p, "name", "")
)
def test_matches_on_several_threads_at_once_are_those_of_one(kind, entry, space, random_fields):
    rng = random.Random(7)
    scoring = world.scoring(space, rng.choice(sorted(TEXT_SIMILARITIES)))
    index = entry.make(scoring, Arena())
    n_slots, n_threads, n_rounds = 300, 4, 12
    for chosen in (range(n_slots), rng.sample(range(n_slots), 60)):  # some come again, over the gaps of others
        slots = np.array(chosen, dtype=np.int32)
        made = [world.make_subscription(kind.kind, f"s{s}", random_fields(kind.kind, space, rng)) for s in chosen]
        if index.work.visited:
            index.delete(slots)
        index.insert(slots, SubscriptionBatch.of(made, scoring))
        index.match(random_batch(space, rng, 20), 0, 20)
    index.delete(np.arange(0, n_slots, 7, dtype=np.int32))
    batch = random_batch(space, rng, 60)
    parts = [(start, start + 3) for start in range(0, len(batch), 3)]
    before = work_of(index)
    expected = [in_columns(index.match(batch, *part)) for part in parts]
    work_of_one = work_of(index) - before
    assert sum(len(rows) for rows, _, _ in expected) > 0
    start_together = Barrier(n_threads)

    def take_turns(thread):
        start_together.wait()
        return [
            [(i, index.match(batch, *parts[i])) for i in range(thread, len(parts), n_threads)]
            for _ in range(n_rounds)
        ]

    with ThreadPoolExecutor(n_threads) as pool:
        told = list(pool.map(take_turns, range(n_threads)))
    for i, matches in (pair for rounds in told for one in rounds for pair in one):
        assert in_columns(matches) == expected[i]
    assert (work_of(index) - before).tolist() == ((1 + n_rounds) * work_of_one).tolist()
