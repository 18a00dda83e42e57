"""Kernels of `nearcast.model.profiles`, and the exact score of kind `topk`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel
from nearcast.model._kernels.blocks import class_of, give_block, size_of, take_block
from nearcast.space import metric

RUN, LENGTH, K = 0, 1, 2
"""Columns of a head."""
X, Y, ALPHA = 0, 1, 2
"""Columns of a point."""

euclidean, haversine = kernel(metric.euclidean), kernel(metric.haversine)


class ProfileArrays(NamedTuple):
    """All profiles, by slot."""

    points: NDArray[np.float64]
    """float64 (n_slots, 3): x, y, alpha."""
    heads: NDArray[np.int32]
    """int32 (n_slots, 3): start of its run or -1 for a free slot, number of terms, k."""
    run_terms: NDArray[np.int64]
    """int64 (n,): term numbers of each run, ascending; the next free block in the first of a free one."""
    run_units: NDArray[np.float64]
    """float64 (n,): the weight of each, in a vector of length 1."""
    state: NDArray[np.int64]
    """int64 (STATE,): see `blocks`."""


class ProfileColumns(NamedTuple):
    """The columns of subscriptions to insert."""

    xs: NDArray[np.float64]
    ys: NDArray[np.float64]
    alphas: NDArray[np.float64]
    ks: NDArray[np.int32]
    indptr: NDArray[np.int64]
    term_ids: NDArray[np.int64]
    units: NDArray[np.float64]


@kernel
def insert_profiles(profiles: ProfileArrays, columns: ProfileColumns, slots: NDArray[np.int32], start: int) -> int:
    """Insert rows from `start` on, except for slots in use; return the row at which the pool was full."""
    for row in range(start, slots.size):
        slot = slots[row]
        if profiles.heads[slot, RUN] >= 0:
            continue
        first, n = columns.indptr[row], columns.indptr[row + 1] - columns.indptr[row]
        block_class = class_of(n)
        run = take_block(profiles.state, profiles.run_terms, block_class, size_of(block_class))
        if run < 0:
            return row
        for i in range(n):
            profiles.run_terms[run + i] = columns.term_ids[first + i]
            profiles.run_units[run + i] = columns.units[first + i]
        profiles.points[slot, X] = columns.xs[row]
        profiles.points[slot, Y] = columns.ys[row]
        profiles.points[slot, ALPHA] = columns.alphas[row]
        profiles.heads[slot, RUN] = run
        profiles.heads[slot, LENGTH] = n
        profiles.heads[slot, K] = columns.ks[row]
    return slots.size


@kernel
def delete_profiles(profiles: ProfileArrays, slots: NDArray[np.int32]) -> None:
    """Delete slots, except for free ones."""
    for slot in slots:
        if slot < profiles.heads.shape[0] and profiles.heads[slot, RUN] >= 0:
            block_class = class_of(profiles.heads[slot, LENGTH])
            give_block(profiles.state, profiles.run_terms, block_class, profiles.heads[slot, RUN])
            profiles.heads[slot, RUN] = -1


@kernel
def near(ax: float, ay: float, bx: float, by: float, on_sphere: bool, max_distance: float) -> float:
    """Return nearness, bit for bit as `Space.near` does."""
    ax, ay, bx, by = float(ax), float(ay), float(bx), float(by)  # without JIT NumPy scalars would warn about overflow
    distance = haversine(ax, ay, bx, by) if on_sphere else euclidean(ax, ay, bx, by)
    return max(0.0, 1.0 - distance / max_distance)


@kernel
def topk_score(
    px: float, py: float, alpha: float, x: float, y: float, text: float, on_sphere: bool, max_distance: float
) -> float:
    """Return the score of a message at (x, y) for a subscription of kind `topk` at (px, py), given their cosine.

    It equals the reference bit for bit if the cosine is summed in ascending order of term ids.
    """
    return alpha * near(px, py, x, y, on_sphere, max_distance) + (1.0 - alpha) * text
