"""Kernel of `nearcast.partition.tree`: the leaves that boxes overlap."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel


class TreeArrays(NamedTuple):
    """A tree with the shard of each leaf."""

    axes: NDArray[np.int8]
    """int8 (n_nodes,): 0 for x, 1 for y."""
    values: NDArray[np.float64]
    """float64 (n_nodes,): coordinates up to the value go low."""
    kids: NDArray[np.int32]
    """int32 (n_nodes, 2): the nodes below, low and high; a leaf is ~number."""
    shards: NDArray[np.int32]
    """int32 (n_leaves,): the shard of each leaf."""


@kernel(allocates=True)
def add_overlapped(tree: TreeArrays, boxes: NDArray[np.float64], masks: NDArray[np.uint64]) -> None:
    """Add to the mask of each box the shards of the leaves that it overlaps; the tree has a node."""
    open_ = np.empty(tree.axes.size + 1, np.int32)
    for row in range(boxes.shape[0]):
        open_[0] = 0
        n_open = 1
        while n_open > 0:
            n_open -= 1
            node = open_[n_open]
            if node < 0:
                shard = tree.shards[~node]
                masks[row, shard >> 6] |= np.uint64(1) << np.uint64(shard & 63)
                continue
            axis, value = tree.axes[node], tree.values[node]
            if boxes[row, axis + 2] > value:
                open_[n_open] = tree.kids[node, 1]
                n_open += 1
            if boxes[row, axis] <= value:
                open_[n_open] = tree.kids[node, 0]
                n_open += 1
