"""Parts of space have even loads, and replicas are few."""

import numpy as np
import pytest

from nearcast.model import Footprints, MessageBatch
from nearcast.partition.base import Sample
from nearcast.partition.load import assign_greedily, load_of
from nearcast.partition.masks import as_ints, count_rows, mask_of
from nearcast.partition.space_grid import CELLS, SpaceGridPartitioner
from nearcast.partition.space_kd import SpaceKdPartitioner
from nearcast.space import Box
from nearcast.text import Vocabulary

BOTH = [SpaceGridPartitioner(), SpaceKdPartitioner()]


def crowded(n, n_messages, seed=0):
    """Return a sample of boxes around one town and messages around two."""
    rng = np.random.default_rng(seed)
    xs, ys, half = rng.normal(30, 8, n), rng.normal(30, 8, n), rng.exponential(0.5, n)
    footprints = Footprints(
        np.arange(n, dtype=np.uint64),
        xs,
        ys,
        np.column_stack([xs - half, ys - half, xs + half, ys + half]),
        np.zeros(n, np.int32),
        np.arange(n + 1),
        np.arange(n + 1),
        rng.integers(0, 99, n),
    )
    towns = rng.integers(0, 2, n_messages) * 40.0
    return footprints, messages_at(rng.normal(30, 6, n_messages) + towns, rng.normal(30, 6, n_messages) + towns)


def messages_at(xs, ys):
    return MessageBatch.from_columns(
        ids=list(range(len(xs))), xs=xs, ys=ys, ats_us=np.zeros(len(xs), np.int64), places=[None] * len(xs),
        texts=[""] * len(xs), vocabulary=Vocabulary.with_weights({}),
    )  # fmt: skip


@pytest.mark.parametrize("partitioner", BOTH, ids=lambda p: p.name)
@pytest.mark.parametrize("n_shards", [2, 8, 32])
def test_loads_are_even_and_replicas_few(partitioner, n_shards):
    footprints, messages = crowded(30_000, 30_000)
    routing = partitioner.fit(Sample(footprints, messages), n_shards=n_shards)
    assert routing.loads.max() < 2 * routing.loads.mean()
    assignment = routing.place(footprints)
    seen = count_rows(routing.route(messages), n_shards).tolist()
    assert sum(seen) == len(messages), "a message goes to one shard"
    held = count_rows(assignment, n_shards).tolist()
    most = 3 if partitioner.name == "space_grid" else 1.5  # the cells of a shard are not adjacent
    assert 1 <= sum(held) / len(footprints) < most


@pytest.mark.parametrize("partitioner", BOTH, ids=lambda p: p.name)
def test_loads_equal_definition_1(partitioner):
    footprints, messages = crowded(500, 700)
    routing = partitioner.fit(Sample(footprints, messages), n_shards=1)
    assert routing.loads[0] >= float(load_of(len(messages), len(footprints)))
    if partitioner.name == "space_kd":
        assert routing.loads.tolist() == [float(load_of(700, 500))]


@pytest.mark.parametrize("partitioner", BOTH, ids=lambda p: p.name)
def test_the_regions_contain_the_messages_of_their_shard(partitioner):
    footprints, messages = crowded(2_000, 2_000)
    routing = partitioner.fit(Sample(footprints, messages), n_shards=8)
    bounds = Box(-50, -50, 150, 150)
    regions = routing.shard_areas(bounds)
    boxes, shards = np.array([r.box for r in regions]), np.array([r.shards for r in regions], np.uint64)
    for x, y, seen in zip(messages.xs[:200], messages.ys[:200], as_ints(routing.route(messages)[:200]), strict=True):
        inside = (boxes[:, 0] <= x) & (x <= boxes[:, 2]) & (boxes[:, 1] <= y) & (y <= boxes[:, 3])
        assert seen in shards[inside].tolist()


def test_an_unbounded_box_is_in_every_cell_and_distant_points_are_in_edge_cells():
    footprints, messages = crowded(300, 300)
    routing = SpaceGridPartitioner().fit(Sample(footprints, messages), n_shards=4)
    everywhere = Footprints(
        np.zeros(1, np.uint64), np.zeros(1), np.zeros(1), np.array([[-np.inf, -np.inf, np.inf, np.inf]]),
        np.zeros(1, np.int32), np.array([0, 1]), np.array([0, 0]), np.zeros(0, np.int64),
    )  # fmt: skip
    assert as_ints(routing.place(everywhere)) == [0b1111]
    far = messages_at(np.array([1e9]), np.array([-1e9]))
    assert as_ints(routing.route(far)) == as_ints(mask_of(routing.assignment[0, CELLS - 1 :], 4))


def test_greedy_assignment_gives_the_next_piece_to_the_least_loaded_shard():
    assert assign_greedily(np.array([1.0, 9.0, 2.0, 3.0, 4.0]), np.zeros(2)).tolist() == [0, 0, 1, 1, 1]
    assert assign_greedily(np.array([1.0, 1.0]), np.array([5.0, 0.0, 0.5])).tolist() == [1, 2]
    assert assign_greedily(np.zeros(0), np.zeros(3)).tolist() == []
