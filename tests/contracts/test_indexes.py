"""Every index finds what the scan finds, with the same scores, on any number of threads, and with far less work."""

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from threading import Barrier

import numpy as np
import pyarrow as pa
import pytest

from effort import in_soak
from nearcast._jit import Arena
from nearcast.index import INDEXES
from nearcast.index.scan import Scan
from nearcast.model import KINDS, MessageBatch, ScoringContext, SubscriptionBatch
from nearcast.model.attributes import Attributes
from nearcast.model.columns import messages_from_table, subscriptions_from_table
from nearcast.model.facets import Facets
from nearcast.model.limits import Limits
from nearcast.social import SocialGraph
from nearcast.space import Space
from nearcast.testing import strategies
from nearcast.text import TEXT_SIMILARITIES
from nearcast.workload import make
from nearcast_baselines import BASELINES

PAIRS = [(kind, entry) for kind in KINDS for entry in INDEXES if entry.serves(kind.kind)]
FAST_PAIRS = [(kind, entry) for kind, entry in PAIRS if entry.name != "scan"]
BASELINE_PAIRS = [(kind, entry) for kind in KINDS for entry in BASELINES if entry.serves(kind.kind)]
N_PAST, N_UPCOMING = 250, 50
"""Messages that give subscriptions their thresholds, and messages to match against them."""
MAX_CANDIDATES = {"boolean": 5e-5, "similarity": 0.009, "topk": 0.004, "nearest": 0.003, "social": 0.13}
"""Greatest share of all pairs that may be candidates on the tweets workload: 1.5 times the share measured."""


def name_of(parameter):
    """Return the name of a kind or an index."""
    return getattr(parameter, "kind", None) or parameter.name


@pytest.fixture(scope="module", params=strategies.SPACES, ids=lambda s: s.metric)
def space(request):
    return request.param


def random_batch(space, rng, n):
    places = rng.choices(strategies.GRID[space], k=n)
    return MessageBatch.from_columns(
        ids=[f"m{i}" for i in range(n)],
        xs=np.array([x for x, _ in places]),
        ys=np.array([y for _, y in places]),
        ats_us=np.zeros(n, np.int64),
        places=[rng.choice([None, *strategies.PLACES]) for _ in range(n)],
        texts=[rng.choices(strategies.TERMS, k=rng.randint(0, 6)) for _ in range(n)],
        vocabulary=strategies.vocabulary(),
    )


def found(index, batch):
    matches = index.match(batch, 0, len(batch))
    rows, slots, scores = (column.tolist() for column in matches)
    assert rows == sorted(rows)
    assert len(set(zip(rows, slots, strict=True))) == len(rows), "a pair was reported twice"
    return {(row, slot): score for row, slot, score in zip(rows, slots, scores, strict=True)}


@pytest.mark.parametrize(("kind", "entry"), [*PAIRS, *in_soak(BASELINE_PAIRS)], ids=name_of)
@pytest.mark.parametrize("seed", range(3))
def test_an_index_finds_the_matches_of_the_scan(kind, entry, space, seed, random_fields):
    rng = random.Random(seed)
    scoring = strategies.scoring(space, rng.choice(sorted(TEXT_SIMILARITIES)))
    index, scan = entry.make(scoring, Arena()), Scan(scoring)
    taken = set()
    for round_ in range(4):
        chosen = rng.sample(range(200), 40)  # slots that are taken are freed first
        deleted = np.array([slot for slot in chosen if slot in taken], dtype=np.int32)
        subscriptions = [
            strategies.make_subscription(kind.kind, f"s{slot}", random_fields(kind.kind, space, rng))
            for slot in chosen
        ]
        for target in (index, scan):
            target.delete(deleted)
            target.insert(np.array(chosen, dtype=np.int32), SubscriptionBatch.of(subscriptions, scoring))
        taken |= set(chosen)
        batch = random_batch(space, rng, 30)
        expected = found(scan, batch)
        matches = found(index, batch)
        assert set(matches) == set(expected), f"round {round_}, seed {seed}"
        assert all(matches[pair] == pytest.approx(score, abs=1e-9) for pair, score in expected.items())
    assert index.work.verified <= index.work.candidates <= index.work.visited


@pytest.mark.parametrize(("kind", "entry"), PAIRS, ids=name_of)
def test_an_empty_index_finds_nothing(kind, entry):
    assert found(entry.make(strategies.scoring(), Arena()), random_batch(strategies.PLANE, random.Random(1), 5)) == {}


@pytest.fixture(scope="module")
def tweets():
    """Return, per kind, subscriptions of the tweets workload, past messages and upcoming ones."""

    @cache
    def make_data(kind, n=2_000):
        workload = make("tweets", seed=1)
        community = workload.social(n) if kind == "social" else None
        options = {} if community is None else {"community": community}
        graph = SocialGraph() if community is None else community.graph
        scoring = ScoringContext(
            Space.earth(max_distance=500_000.0), workload.vocabulary(), graph, TEXT_SIMILARITIES["containment"]
        )
        tables = workload.subscriptions(kind, n, **options)
        subscriptions = [one for table in tables for one in subscriptions_from_table(table)]
        table = pa.concat_tables(workload.messages(N_PAST + N_UPCOMING, **options))
        batch = messages_from_table(table, vocabulary=scoring.vocabulary, limits=Limits(), first_seq=1)
        return SubscriptionBatch.of(subscriptions, scoring), batch

    return make_data


def thresholds_after(matches, n, policy):
    """Return the threshold of each slot if its result were the best match."""
    thresholds = np.full(n, -np.inf * policy.sign)
    best = np.maximum if policy.greater_is_better else np.minimum
    best.at(thresholds, matches.slots, matches.scores)
    return thresholds


@pytest.mark.parametrize(("kind", "entry"), FAST_PAIRS, ids=name_of)
def test_an_index_rules_out_most_pairs_without_scoring_them(kind, entry, tweets):
    subscriptions, batch = tweets(kind.kind)
    n, slots, policy = len(subscriptions), np.arange(len(subscriptions), dtype=np.int32), kind.result_policy
    index, scan = entry.make(subscriptions.scoring, Arena()), Scan(subscriptions.scoring)
    for target in (index, scan):
        target.insert(slots, subscriptions)
    start, stop, thresholds = 0, len(batch), np.full(n, -np.inf)
    if policy.is_stateful:
        start = N_PAST
        thresholds = thresholds_after(scan.match(batch, 0, N_PAST), n, policy)
        index.set_thresholds(slots, thresholds)
    before, n_scanned = index.work.candidates, scan.work.visited
    matches, reference = index.match(batch, start, stop), scan.match(batch, start, stop)
    if policy.greater_is_better:
        passes = reference.scores >= thresholds[reference.slots]
    else:
        passes = (reference.scores < thresholds[reference.slots]) | np.isinf(thresholds[reference.slots])
    expected = set(zip(reference.rows[passes].tolist(), reference.slots[passes].tolist(), strict=True))
    assert set(zip(matches.rows.tolist(), matches.slots.tolist(), strict=True)) == expected != set()
    share = (index.work.candidates - before) / (scan.work.visited - n_scanned)
    assert share <= MAX_CANDIDATES[entry.name]


N_CATEGORIES = 50
MAX_SHARE_UNDER_FACETS = 1.5 / N_CATEGORIES
"""Greatest share of the entries visited without facets that may be visited with one category each."""
FACETED_PAIRS = [(kind, entry) for kind, entry in FAST_PAIRS if entry.most_facet_values > 0]


def with_categories(subscriptions, batch, wanted, held):
    """Return subscriptions that want a category each, and messages that have one."""
    attributes = Attributes.of({"category": str})
    scoring = replace(subscriptions.scoring, attributes=attributes)
    names = zip(subscriptions.subscriptions, wanted.tolist(), strict=True)
    filtered = [replace(one, where=f"category = 'c{category}'") for one, category in names]
    codes = [attributes.encode({"category": f"c{category}"}, scoring.hash_key) for category in held.tolist()]
    return SubscriptionBatch.of(filtered, scoring), replace(batch, codes=np.array(codes, np.int64))


@pytest.mark.parametrize(("kind", "entry"), FACETED_PAIRS, ids=name_of)
def test_facets_rule_out_most_entries_and_change_no_score(kind, entry, tweets):
    plain, batch = tweets(kind.kind)
    slots, rng = np.arange(len(plain), dtype=np.int32), np.random.default_rng(3)
    without, under = entry.make(plain.scoring, Arena()), entry.make(plain.scoring, Arena())
    without.insert(slots, plain)
    thresholds = np.full(len(plain), -np.inf)
    if kind.result_policy.is_stateful:
        scan = Scan(plain.scoring)
        scan.insert(slots, plain)
        thresholds = thresholds_after(scan.match(batch, 0, N_PAST), len(plain), kind.result_policy)
        without.set_thresholds(slots, thresholds)
    every = without.match(batch, 0, len(batch))
    wanted, held = (rng.integers(0, N_CATEGORIES, n) for n in (len(plain), len(batch)))
    held[every.rows[0]] = wanted[every.slots[0]]  # at least one match passes
    filtered, batch = with_categories(plain, batch, wanted, held)
    facets = Facets(Arena(), filtered.scoring, most_values=entry.most_facet_values)
    under.insert(slots, facets.choose(filtered))
    if kind.result_policy.is_stateful:
        under.set_thresholds(slots, thresholds)
    matches = facets.of_messages(under.match(facets.rows_of(batch), 0, len(batch) * facets.n_rows))
    passes = wanted[every.slots] == held[every.rows]
    expected = sorted(zip(*(column[passes].tolist() for column in every), strict=True))
    assert sorted(zip(*in_columns(matches), strict=True)) == expected != []
    assert under.work.visited <= MAX_SHARE_UNDER_FACETS * without.work.visited


def in_columns(matches):
    return [column.tolist() for column in matches]


def work_of(index):
    work = index.work
    return np.array([work.visited, work.candidates, work.verified, work.matched])


@pytest.mark.parametrize(("kind", "entry"), [*PAIRS, *in_soak(BASELINE_PAIRS)], ids=name_of)
def test_matches_on_several_threads_equal_those_on_one(kind, entry, space, random_fields):
    rng = random.Random(7)
    scoring = strategies.scoring(space, rng.choice(sorted(TEXT_SIMILARITIES)))
    index = entry.make(scoring, Arena())
    n_slots, n_threads, n_rounds = 300, 4, 12
    for chosen in (range(n_slots), rng.sample(range(n_slots), 60)):  # some are replaced
        slots = np.array(chosen, dtype=np.int32)
        made = [
            strategies.make_subscription(kind.kind, f"s{s}", random_fields(kind.kind, space, rng)) for s in chosen
        ]
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
        results = list(pool.map(take_turns, range(n_threads)))
    for i, matches in (pair for rounds in results for round_ in rounds for pair in round_):
        assert in_columns(matches) == expected[i]
    assert (work_of(index) - before).tolist() == ((1 + n_rounds) * work_of_one).tolist()
