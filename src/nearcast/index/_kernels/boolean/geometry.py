"""Which steps of which cells does a box take? Boxes in whole steps of a cell, in lanes of one word."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel
from nearcast.index._kernels.boolean.layout import (
    BEYOND,
    BITS,
    FAN,
    KIDS,
    LANE,
    LANE_MAX,
    SPAN,
    STEP_BITS,
    STEPS,
    TOTAL_BITS,
    Forest,
)


@kernel
def quantize(half_value: float, half_low: float, steps: float) -> int:
    """Return a coordinate as an integer of TOTAL_BITS; never decreases as the coordinate grows.

    Halves, so that the width of no bounds overflows.
    """
    scaled = (half_value - half_low) * steps
    top = (1 << TOTAL_BITS) - 1
    if scaled <= 0.0:
        return 0
    return top if scaled >= top else int(scaled)


@kernel
def lanes_of(x_low: int, x_high: int, y_low: int, y_high: int) -> int:
    return (
        x_low
        | ((LANE_MAX - x_high) << LANE)
        | (y_low << (2 * LANE))
        | ((LANE_MAX - y_high) << (3 * LANE))
    )  # fmt: skip


@kernel
def low_step(value: int, depth: int, cell: int) -> int:
    shift = TOTAL_BITS - BITS * depth
    return 0 if (value >> shift) < cell else 1 + ((value >> (shift - STEP_BITS)) & STEPS)


@kernel
def high_step(value: int, depth: int, cell: int) -> int:
    shift = TOTAL_BITS - BITS * depth
    return BEYOND if (value >> shift) > cell else 1 + ((value >> (shift - STEP_BITS)) & STEPS)


@kernel
def corners_of(forest: Forest, slot: int) -> tuple[int, int, int, int]:
    """Return the box of a slot, quantized: left, bottom, right, top."""
    frame, boxes = forest.frame, forest.boxes
    return (
        quantize(boxes[slot, 0] * 0.5, frame[0], frame[2]),
        quantize(boxes[slot, 1] * 0.5, frame[1], frame[3]),
        quantize(boxes[slot, 2] * 0.5, frame[0], frame[2]),
        quantize(boxes[slot, 3] * 0.5, frame[1], frame[3]),
    )


@kernel
def children_of(low: int, high: int, depth: int, cell: int) -> tuple[int, int]:
    """Return the first and last child of a cell, along one axis, that an interval overlaps."""
    shift = TOTAL_BITS - BITS * (depth + 1)
    return max(low >> shift, cell << BITS), min(high >> shift, (cell << BITS) + FAN - 1)


@kernel
def reach(
    forest: Forest, root: int, corners: tuple[int, int, int, int], targets: NDArray[np.int64]
) -> int:  # fmt: skip
    """Write the lists that a box belongs to as rows of node, depth, column and row of its cell; return how many.

    A node without children takes all boxes that overlap its cell; one with children those that span too many.
    """
    left, bottom, right, top = corners
    targets[0, 0] = root
    targets[0, 1] = targets[0, 2] = targets[0, 3] = 0
    n, done, kept = 1, 0, 0
    while done < n:
        node, depth, column, line = targets[done, 0], targets[done, 1], targets[done, 2], targets[done, 3]
        done += 1
        kids = int(forest.nodes[node, KIDS])
        first, last = children_of(left, right, depth, column)
        lowest, highest = children_of(bottom, top, depth, line)
        if kids == 0 or last - first >= SPAN or highest - lowest >= SPAN:
            targets[kept, 0], targets[kept, 1], targets[kept, 2], targets[kept, 3] = node, depth, column, line
            kept += 1
            continue
        for y in range(lowest, highest + 1):
            for x in range(first, last + 1):
                targets[n, 0] = kids + ((y & (FAN - 1)) << BITS) + (x & (FAN - 1))
                targets[n, 1], targets[n, 2], targets[n, 3] = depth + 1, x, y
                n += 1
    return kept
