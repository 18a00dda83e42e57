"""Squares follow the density of messages, and the estimated area of a subscription is about right."""

import numpy as np
import pytest

from nearcast.partition.density_grid import DensityGrid
from nearcast.partition.knn_space import THETA, KnnSpacePartitioner
from nearcast.partition.masks import as_ints
from nearcast.partition.term_frequencies import TermFrequencies
from samples import crowded


def test_estimated_radii_are_close_to_the_distance_of_the_kth_message():
    sample = crowded()
    density, frequencies = DensityGrid.of(sample), TermFrequencies.of(sample.messages)
    boxes = density.dependency_boxes(sample.footprints, frequencies.costs(sample.footprints))
    ratios = []
    for row in range(0, len(sample.footprints), 20):
        footprint = sample.footprints[row]
        holds = np.array(
            [not d.units.keys().isdisjoint(next(iter(footprint.branches))) for d in sample.messages.documents]
        )
        xs, ys = sample.messages.xs[holds], sample.messages.ys[holds]
        nearest = np.sort(np.hypot(xs - footprint.point[0], ys - footprint.point[1]))[footprint.k - 1]
        ratios.append((boxes[row, 2] - boxes[row, 0]) / 2 / nearest)
    assert 0.5 < np.median(ratios) < 4


def test_a_subscription_with_k_above_the_number_of_messages_covers_all_of_space():
    sample = crowded(n=4, n_messages=5, k=50)
    density, frequencies = DensityGrid.of(sample), TermFrequencies.of(sample.messages)
    assert not np.isfinite(density.dependency_boxes(sample.footprints, frequencies.costs(sample.footprints))).any()
    everywhere = np.array([[-np.inf, -np.inf, np.inf, np.inf]])
    assert density.shares_in(everywhere).tolist() == [1.0]


@pytest.mark.parametrize("n_shards", [2, 8])
def test_squares_are_small_where_messages_are_dense_and_cover_space(n_shards):
    sample = crowded()
    routing = KnnSpacePartitioner().fit(sample, n_shards=n_shards)
    assert THETA * n_shards <= len(routing.squares) < THETA * n_shards + 4
    sizes = routing.squares[:, 2:] - routing.squares[:, :2]
    extent = routing.density.extent
    assert np.isclose(sizes.prod(axis=1).sum(), (extent[2] - extent[0]) * (extent[3] - extent[1]))
    around = (np.abs(routing.squares[:, :2] - 20) < 10).all(axis=1)
    assert np.median(sizes[around]) < np.median(sizes[~around])
    assert set(as_ints(routing.place(sample.footprints))) == {1 << shard for shard in range(n_shards)}
