"""Does every index find what the scan finds, with the same scores and less work?"""

import random

import numpy as np
import pytest

from nearcast.index import INDEXES
from nearcast.index.scan import Scan
from nearcast.model import KINDS, Cohort, MessageBatch
from nearcast.testing import strategies as world
from nearcast.text import TEXT_SIMILARITIES

PAIRS = [(kind, entry) for kind in KINDS for entry in INDEXES if kind.kind in entry.kinds]
LARGEST_SHARE = {"scan": 1.0, "boolean": 0.5, "similarity": 1.0}
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


def found(index, batch, bars):
    matches = index.match(batch, 0, len(batch), bars)
    rows, slots, scores = (column.tolist() for column in matches)
    assert rows == sorted(rows)
    assert len(set(zip(rows, slots, strict=True))) == len(rows), "a pair was reported twice"
    return {(row, slot): score for row, slot, score in zip(rows, slots, scores, strict=True)}


@pytest.mark.parametrize(("kind", "entry"), PAIRS, ids=lambda p: getattr(p, "kind", None) or getattr(p, "name", ""))
@pytest.mark.parametrize("seed", range(3))
def test_an_index_finds_what_the_scan_finds(kind, entry, space, seed, random_fields):
    rng = random.Random(seed)
    meaning = world.meaning(space, rng.choice(sorted(TEXT_SIMILARITIES)))
    index, scan = entry.make(meaning), Scan(meaning)
    open_bars = np.full(256, np.inf if kind.kind == "nearest" else -np.inf)
    alive = set()
    for round_ in range(4):
        chosen = rng.sample(range(200), 40)  # subscribe, and for some of them unsubscribe first
        gone = np.array([slot for slot in chosen if slot in alive], dtype=np.int32)
        subscriptions = [
            world.make_subscription(kind.kind, f"s{slot}", random_fields(kind.kind, space, rng)) for slot in chosen
        ]
        for one in (index, scan):
            one.delete(gone)
            one.insert(np.array(chosen, dtype=np.int32), Cohort.of(subscriptions, meaning))
        alive |= set(chosen)
        batch = random_batch(space, rng, 30)
        expected = found(scan, batch, open_bars)
        got = found(index, batch, open_bars)
        assert set(got) == set(expected), f"round {round_}, seed {seed}"
        assert all(got[pair] == pytest.approx(score, abs=1e-9) for pair, score in expected.items())
    assert index.work.candidates <= LARGEST_SHARE[entry.name] * scan.work.visited
    assert index.work.verified <= index.work.candidates <= index.work.visited


@pytest.mark.parametrize(("kind", "entry"), PAIRS, ids=lambda p: getattr(p, "kind", None) or getattr(p, "name", ""))
def test_an_index_that_holds_nothing_finds_nothing(kind, entry):
    assert found(entry.make(world.meaning()), random_batch(world.PLANE, random.Random(1), 5), np.zeros(0)) == {}
