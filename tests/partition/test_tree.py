"""Every point is in one leaf, and a box finds all leaves that it overlaps."""

import numpy as np
import pytest

from nearcast.partition.tree import grow

BOUNDS = (0.0, 0.0, 10.0, 10.0)


def halves(points):
    """Return a function that cuts at the median of the points, along x and y in turn."""

    def cut(rows, others, depth, shares):
        values = np.unique(points[depth % 2][rows])
        return (depth % 2, float(values[(len(values) - 1) // 2])) if len(values) > 1 else None

    return cut


def grown(n_leaves, seed=0, n=200):
    rng = np.random.default_rng(seed)
    points = rng.integers(0, 11, n).astype(float), rng.integers(0, 11, n).astype(float)
    return grow(n_leaves, points, points, (np.zeros(0), np.zeros(0)), halves(points)), points


@pytest.mark.parametrize("n_leaves", [1, 2, 3, 7, 8, 32])
def test_points_lie_in_the_boxes_of_their_leaves(n_leaves):
    tree, (xs, ys) = grown(n_leaves)
    assert tree.n_leaves == n_leaves
    leaves, boxes = tree.leaves_at(xs, ys), tree.boxes(BOUNDS)
    assert set(leaves.tolist()) == set(range(n_leaves))
    inside = (boxes[leaves, 0] <= xs) & (xs <= boxes[leaves, 2]) & (boxes[leaves, 1] <= ys) & (ys <= boxes[leaves, 3])
    assert inside.all()
    assert np.isclose(((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])).sum(), 100.0)


@pytest.mark.parametrize("n_leaves", [1, 2, 5, 32])
def test_a_box_finds_the_leaves_of_all_points_in_it(n_leaves):
    tree, _ = grown(n_leaves)
    rng = np.random.default_rng(1)
    corners = np.sort(rng.integers(0, 11, (60, 2, 2)).astype(float), axis=1)
    boxes = np.concatenate([corners[:, 0], corners[:, 1]], axis=1)
    rows, leaves = tree.leaves_in(boxes)
    found = set(zip(rows.tolist(), leaves.tolist(), strict=True))
    assert len(found) == len(rows), "each pair is reported once"
    grid = np.array([(x, y) for x in np.arange(0, 10.5, 0.5) for y in np.arange(0, 10.5, 0.5)])
    at = tree.leaves_at(grid[:, 0], grid[:, 1])
    for row, (xmin, ymin, xmax, ymax) in enumerate(boxes.tolist()):
        inside = (grid[:, 0] >= xmin) & (grid[:, 0] <= xmax) & (grid[:, 1] >= ymin) & (grid[:, 1] <= ymax)
        assert {(row, leaf) for leaf in at[inside].tolist()} <= found


@pytest.mark.parametrize("n_leaves", [1, 2, 32])
def test_no_boxes_overlap_no_leaves(n_leaves):
    tree, _ = grown(n_leaves)
    rows, leaves = tree.leaves_in(np.zeros((0, 4)))
    assert (rows.tolist(), leaves.tolist()) == ([], [])
    assert (rows.dtype, leaves.dtype) == (np.int64, np.int32), "as with boxes"


def test_points_that_coincide_are_not_cut():
    points = np.ones(5), np.ones(5)
    tree = grow(4, points, points, points, halves(points))
    assert tree.n_leaves == 1
    assert tree.leaves_at(*points).tolist() == [0] * 5
    assert tree.leaves_in(np.array([[0.0, 0.0, 9.0, 9.0]]))[1].tolist() == [0]
