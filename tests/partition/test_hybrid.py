"""Each region is divided by space or by text, whichever is cheaper, and no match is lost."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from nearcast.partition.base import Sample
from nearcast.partition.hybrid import HybridPartitioner
from nearcast.partition.hybrid_parts import SampleWork, total
from nearcast.partition.hybrid_plan import merged, numbers_of_parts, plan
from nearcast.partition.load import load_of
from nearcast.partition.masks import as_ints, count_rows
from nearcast.partition.serialization import pack, unpack
from nearcast.partition.space_kd import SpaceKdPartitioner
from nearcast.partition.term_frequencies import TermFrequencies
from nearcast.partition.text_metric import TextMetricPartitioner
from nearcast.space import Box
from term_samples import footprints_of, messages_of


def work_of(sample):
    return SampleWork(sample, TermFrequencies.of(sample.messages))


def boxes_around(points, half):
    points = np.array(points, float)
    return np.concatenate([points - half, points + half], axis=1)


def two_lands(n=800, n_messages=1_200, seed=0):
    """Return a sample with large boxes and rare terms, 100 to 139, in the west; small boxes, frequent terms in the east."""
    rng = np.random.default_rng(seed)
    subscriptions, at, half = [], [], []
    for row in range(n):
        is_west = row % 2 == 0
        low = 100 + int(rng.integers(0, 40)) if is_west else int(rng.zipf(1.5)) % 30
        subscriptions.append([{low, 200 + row % 7}] if is_west else [{low}])
        at.append(rng.uniform([0, 0] if is_west else [60, 0], [40, 100] if is_west else [100, 100]))
        half.append(60.0 if is_west else 0.5)
    boxes = boxes_around(at, np.array(half)[:, None])
    boxes[::2, 2] = np.minimum(boxes[::2, 2], 50.0)
    published, where = [], []
    for row in range(n_messages):
        is_west = row % 2 == 0
        terms = {int(term) % 30 for term in rng.zipf(1.5, 3)}
        published.append(terms | {100 + int(rng.integers(0, 40))} if is_west and row % 8 == 0 else terms)
        where.append(rng.uniform([0, 0] if is_west else [60, 0], [40, 100] if is_west else [100, 100]))
    return Sample(footprints_of(*subscriptions, boxes=boxes), messages_of(*published, at=where))


def test_similarity_is_the_cosine_of_message_and_branch_terms():
    sample = Sample(footprints_of([{1, 2}], [{1}, {3}]), messages_of({1, 2}, {1}))
    work = work_of(sample)  # messages: 1 twice, 2 once; branches: 1 twice, 2 once, 3 once
    assert np.isclose(work.similarity(work.all()), 5 / (np.sqrt(5) * np.sqrt(6)))
    assert work_of(Sample.none()).similarity(work_of(Sample.none()).all()) == 1.0


def test_a_part_counts_subscriptions_once_and_messages_with_postings():
    sample = Sample(footprints_of([{1}, {2}], [{3, 4}]), messages_of({1, 2}, {4}, {3}, {9}))
    part = work_of(sample).all()
    assert part.sent.tolist() == [0, 2], "the branch of 3 and 4 is posted under 3, the lesser of equally rare terms"
    assert part.load == float(load_of(2, 2))
    nothing = work_of(Sample(footprints_of([set()]), sample.messages)).all()
    assert nothing.sent.tolist() == [0, 1, 2, 3]


def test_a_part_is_cut_in_space_where_loads_are_even_although_boxes_cross_the_cut():
    boxes = boxes_around([(0, 0), (1, 0), (2, 0), (3, 0), (1.5, 0)], np.array([[0.1]] * 4 + [[5.0]]))
    sample = Sample(
        footprints_of(*[[{1}]] * 5, boxes=boxes), messages_of(*[{1}] * 4, at=[(0, 0), (1, 0), (2, 0), (3, 0)])
    )
    work = work_of(sample)
    low, high = work.by_space(work.all(), 2)
    assert low.messages.tolist() == [0, 1]
    assert high.messages.tolist() == [2, 3]
    assert low.branches.tolist() == [0, 1, 4]
    assert high.branches.tolist() == [2, 3, 4]
    assert low.path[0][:2] == high.path[0][:2]
    assert low.path[0][0] == 0


def test_a_part_is_divided_by_the_terms_it_is_posted_under():
    sample = Sample(footprints_of([{1}], [{2}], [{1}, {3}], [{4}]), messages_of({1, 2}, {1, 2}, {3, 4}, {3, 4}, {9}))
    work = work_of(sample)
    parts = work.by_text(work.all(), 2)
    assert sorted((part.sent.tolist(), part.branches.tolist()) for part in parts) == [
        ([0, 1], [0, 1, 2]),
        ([2, 3], [3, 4]),
    ]
    assert total(parts) == float(load_of(2, 3) + load_of(2, 2)), "a subscription with terms in both counts in both"
    assert not any(part.is_whole for part in parts)
    assert len(work.by_text(parts[0], 9)) == 2, "no more parts than terms"


def test_the_numbers_of_parts_have_the_least_total_load():
    rng = np.random.default_rng(5)
    for n in (3, 5, 8):
        costs = [rng.uniform(0, 10, n) for _ in range(3)]
        best = min(
            (ks for ks in itertools.product(range(1, n + 1), repeat=3) if sum(ks) == n),
            key=lambda ks: sum(cost[k - 1] for cost, k in zip(costs, ks, strict=True)),
        )
        assert numbers_of_parts(costs, n) == list(best)


def test_parts_that_share_messages_are_merged_unless_the_greatest_load_rises():
    sample = Sample(footprints_of([{1}], [{2}], [{3}]), messages_of(*[{1}] * 9, *[{2, 3}] * 3))
    work = work_of(sample)
    heavy, light = sorted(work.by_text(work.all(), 2), key=lambda part: -part.load)
    made = merged([heavy, *work.by_text(light, 2)], work, 2)
    assert made.shards.tolist() == [0, 1, 1]
    assert made.loads.tolist() == load_of([9, 3], [1, 2]).tolist(), "a message counts once"


def test_each_region_is_divided_by_the_cheaper_criterion():
    sample = two_lands()
    routing = HybridPartitioner().fit(sample, n_shards=4)
    several = routing.owners.are_divided
    west, east = routing.tree.leaves_at(np.array([20.0, 80.0]), np.array([50.0, 50.0]))
    assert several[west], "large boxes are divided by text"
    assert not several[east], "small boxes are divided by space"
    assert not routing.route(sample.messages).any(), "nothing is placed yet, so every message is dropped"
    totals = [
        partitioner.fit(sample, n_shards=4).loads.sum()
        for partitioner in (SpaceKdPartitioner(), TextMetricPartitioner())
    ]
    assert routing.loads.sum() < min(totals)


@pytest.mark.parametrize("n_shards", [1, 2, 6, 16])
def test_loads_equal_those_of_the_sample_and_are_even(n_shards):
    sample = two_lands()
    routing = HybridPartitioner().fit(sample, n_shards=n_shards)
    assignment, seen = routing.place(sample.footprints), routing.route(sample.messages)
    held, sent = (count_rows(masks, n_shards) for masks in (assignment, seen))
    assert np.allclose(routing.loads, load_of(sent, held))
    assert routing.loads.max() < 1.6 * routing.loads.mean()


def test_many_subscriptions_are_sampled_with_weights(monkeypatch):
    sample = two_lands()
    exact = plan(work_of(sample), 4)
    monkeypatch.setattr("nearcast.partition.hybrid_parts._PLANNED", 300)
    work = work_of(sample)
    assert work.weight == 3
    assert work.all().n_subscriptions == 3 * 267
    assert np.isclose(plan(work, 4).loads.sum(), exact.loads.sum(), rtol=0.2)


def test_a_message_is_dropped_until_a_subscription_is_posted_under_its_terms():
    sample = two_lands()
    routing = HybridPartitioner().fit(sample, n_shards=4)
    routing.place(sample.footprints)
    late = messages_of({777}, {777}, set(), at=[(20, 50), (80, 50), (20, 50)])
    assert as_ints(routing.route(late)) == [0, 0, 0]
    everywhere = footprints_of([{777}])
    home = as_ints(routing.place(everywhere))[0]
    seen = as_ints(routing.route(late))
    assert seen[0] & home
    assert seen[1] & home
    assert seen[2] == 0
    assert [mask.bit_count() for mask in seen[:2]] == [1, 1], "a term has one shard per leaf"
    routing.place(footprints_of([set()], boxes=np.array([[0.0, 0.0, 50.0, 100.0]])))
    assert all(routing.route(late)[[0, 2]]), "a branch without terms needs every message in its box"


def test_posted_terms_are_saved_with_the_routing():
    sample = two_lands()
    routing = HybridPartitioner().fit(sample, n_shards=4)
    routing.place(sample.footprints)
    for term in range(1_000, 1_100):
        routing.place(footprints_of([{term}]))
    again = unpack(pack(routing))
    late = messages_of(*[{term} for term in range(1_000, 1_200)], at=[(20, 50)] * 200)
    assert as_ints(again.route(late)) == as_ints(routing.route(late))
    assert np.count_nonzero(again.route(late)) == 100
    assert as_ints(again.route(sample.messages)) == as_ints(routing.route(sample.messages))


def test_a_fixed_routing_is_independent_of_placements_and_drops_nothing():
    sample = two_lands()
    routing = HybridPartitioner().fit(sample, n_shards=4)
    fixed = unpack(pack(routing.fixed()))
    late = messages_of({777}, {101}, set(), at=[(20, 50), (20, 50), (80, 50)])
    before = as_ints(fixed.route(late))
    assert all(before)
    assert as_ints(fixed.place(footprints_of([{777}]))) == as_ints(routing.place(footprints_of([{777}])))
    assert as_ints(fixed.route(late)) == before
    assert as_ints(fixed.fixed().route(late)) == before
    assert as_ints(routing.fixed().route(late)) == before


@pytest.mark.parametrize("n_shards", [3, 5, 9])
@pytest.mark.parametrize("is_fixed", [False, True])
def test_every_matching_subscription_shares_a_shard_with_the_message(n_shards, is_fixed):
    routing = HybridPartitioner().fit(two_lands(), n_shards=n_shards)
    assert routing.owners.are_divided.any(), "some leaf is divided by text"
    routing = routing.fixed() if is_fixed else routing
    rng = np.random.default_rng(n_shards)

    def terms(most):
        return {int(term) for term in rng.choice([0, 1, 2, 101, 102, 120, 203, 5_000, -7], rng.integers(0, most))}

    subscriptions = [[terms(3) for _ in range(rng.integers(1, 3))] for _ in range(150)]
    boxes = np.sort(rng.uniform(-50, 150, (150, 2, 2)), axis=1).reshape(150, 4)
    footprints = footprints_of(*subscriptions, boxes=boxes)
    footprints.boxes[:10] = [-np.inf, -np.inf, np.inf, np.inf]
    at = rng.uniform(-60, 160, (150, 2))
    assignment = as_ints(routing.place(replace(footprints, keys=footprints.keys + np.uint64(9_999))))
    published = [terms(5) for _ in range(150)]
    seen = as_ints(routing.route(messages_of(*published, at=at)))
    met = 0
    for (footprint, home), (row, frequencies) in itertools.product(
        zip(footprints, assignment, strict=True), enumerate(published)
    ):
        if footprint.may_match(*at[row].tolist(), frequencies):
            assert home & seen[row]
            met += 1
    assert met > 1_000


def test_the_regions_contain_the_messages_of_their_shard():
    sample = two_lands()
    routing = HybridPartitioner().fit(sample, n_shards=6)
    routing.place(sample.footprints)
    regions = routing.shard_areas(Box(-20, -20, 120, 120))
    boxes, shards = np.array([r.box for r in regions]), [r.shards for r in regions]
    assert np.isclose(((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])).sum(), 140.0**2)
    leaves = routing.tree.leaves_at(sample.messages.xs, sample.messages.ys).tolist()
    for leaf, seen in zip(leaves, as_ints(routing.route(sample.messages)), strict=True):
        assert seen & ~shards[leaf] == 0
