"""Leaves are packed evenly and merged into parts of even load."""

from dataclasses import replace

import numpy as np
import pytest

from nearcast.model import Footprints, MessageBatch
from nearcast.partition.base import Sample
from nearcast.partition.masks import as_ints, count_rows, count_shards
from nearcast.partition.space_rtree import LEAVES, SpaceRtreePartitioner, runs
from nearcast.space import Box
from nearcast.text import Vocabulary


def boxes_around(xs, ys, half):
    n = len(xs)
    return Footprints(
        np.arange(n, dtype=np.uint64), xs, ys, np.column_stack([xs - half, ys - half, xs + half, ys + half]),
        np.zeros(n, np.int32), np.arange(n + 1), np.arange(n + 1), np.zeros(n, np.int64),
    )  # fmt: skip


def messages_at(xs, ys):
    return MessageBatch.from_columns(
        ids=list(range(len(xs))), xs=xs, ys=ys, ats_us=np.zeros(len(xs), np.int64), places=[None] * len(xs),
        texts=[""] * len(xs), vocabulary=Vocabulary.with_weights({}),
    )  # fmt: skip


def towns(n=20_000, n_messages=20_000, seed=0):
    """Return a sample of small boxes around one town and messages around it and another."""
    rng = np.random.default_rng(seed)
    xs, ys = rng.normal(30, 8, n), rng.normal(30, 8, n)
    second = rng.integers(0, 2, n_messages) * 40.0
    messages = messages_at(rng.normal(30, 6, n_messages) + second, rng.normal(30, 6, n_messages) + second)
    return Sample(boxes_around(xs, ys, rng.exponential(0.5, n)), messages)


def test_leaves_are_slabs_cut_into_tiles_and_runs_of_them_are_shards():
    at = np.array([(x, y) for x in range(8) for y in range(8)], float)  # as many points as there are leaves
    sample = Sample(boxes_around(at[:, 0], at[:, 1], np.full(64, 0.1)), MessageBatch.empty())
    routing = SpaceRtreePartitioner().fit(sample, n_shards=4)
    assert routing.tree.n_leaves == 64 == LEAVES * 4
    assert routing.tree.leaves_at(at[:, 0], at[:, 1]).tolist() == list(range(64)), (
        "leaves are numbered slab by slab, upwards"
    )
    assert routing.assignment.tolist() == [shard for shard in range(4) for _ in range(16)]
    reach = boxes_around(np.array([0.5, 3.0, 9.0]), np.array([4.0, 4.0, -7.0]), np.array([0.6, 0.6, 0.6]))
    assert as_ints(routing.place(reach)) == [0b0011, 0b0110, 0b1000]
    assert as_ints(routing.route(messages_at(np.array([-50.0, 1.0, 1.1, 50.0]), np.zeros(4)))) == [1, 1, 2, 8]


@pytest.mark.parametrize("n_shards", [1, 3, 8, 32])
def test_loads_are_even_and_replicas_few(n_shards):
    sample = towns()
    routing = SpaceRtreePartitioner().fit(sample, n_shards=n_shards)
    assert routing.loads.max() < 1.6 * routing.loads.mean()
    assignment, seen = routing.place(sample.footprints), routing.route(sample.messages)
    assert count_shards(seen).tolist() == [1] * len(seen), "a message goes to one shard"
    assert np.bitwise_count(assignment).mean() < 2
    held = count_rows(assignment, n_shards).tolist()
    assert min(held) < max(held) or n_shards == 1


def test_placing_finds_the_leaves_that_boxes_overlap():
    sample = towns(n=3_000)
    routing = SpaceRtreePartitioner().fit(sample, n_shards=7)
    boxes = sample.footprints.boxes.copy()
    boxes[0], boxes[1] = [-np.inf, -np.inf, np.inf, np.inf], [30, 30, np.inf, 31]
    rows, leaves = routing.tree.leaves_in(boxes)
    slow = [0] * len(boxes)
    for row, leaf in zip(rows.tolist(), leaves.tolist(), strict=True):
        slow[row] |= 1 << int(routing.assignment[leaf])
    assert as_ints(routing.place(replace(sample.footprints, boxes=boxes))) == slow
    assert slow[0] == 0b111_1111


def test_the_regions_contain_the_messages_of_their_shard():
    sample = towns(n=2_000, n_messages=500)
    routing = SpaceRtreePartitioner().fit(sample, n_shards=8)
    regions = routing.shard_areas(Box(-50, -50, 150, 150))
    boxes, shards = np.array([r.box for r in regions]), np.array([r.shards for r in regions], np.uint64)
    assert np.isclose(((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])).sum(), 200.0**2)
    xs, ys = sample.messages.xs, sample.messages.ys
    for x, y, seen in zip(xs, ys, as_ints(routing.route(sample.messages)), strict=True):
        inside = (boxes[:, 0] <= x) & (x <= boxes[:, 2]) & (boxes[:, 1] <= y) & (y <= boxes[:, 3])
        assert seen in shards[inside].tolist()


def test_equal_points_stay_together():
    same = np.full(50, 3.0)
    routing = SpaceRtreePartitioner().fit(Sample(boxes_around(same, same, same), MessageBatch.empty()), n_shards=4)
    assert routing.tree.n_leaves == 1
    assert len(set(as_ints(routing.place(boxes_around(same, same, same))))) == 1


def test_runs_have_equal_costs():
    costs = np.random.default_rng(0).exponential(1.0, 1_000)
    found = runs(costs, 5)
    assert (np.diff(found) >= 0).all()
    totals = np.bincount(found, weights=costs)
    assert totals.max() - totals.min() < 2 * costs.max()
    assert runs(np.zeros(3), 2).tolist() == [0, 0, 0]
