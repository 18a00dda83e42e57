"""Quantized geometry: coordinates as integers, boxes in whole steps of a cell, packed into lanes of one word."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel
from nearcast.index._kernels.boolean.layout import (
    BEYOND,
    BITS,
    CHILDREN,
    FAN,
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
    """Return a coordinate as an integer of TOTAL_BITS; it never decreases as the coordinate grows.

    Halves of the coordinates are taken, so that the width of the bounds never overflows.
    """
    scaled = (half_value - half_low) * steps
    top = (1 << TOTAL_BITS) - 1
    if scaled <= 0.0:
        return 0
    return top if scaled >= top else int(scaled)


@kernel
def pack_lanes(x_low: int, x_high: int, y_low: int, y_high: int) -> int:
    """Return a box in steps as four lanes of one word."""
    return (
        x_low
        | ((LANE_MAX - x_high) << LANE)
        | (y_low << (2 * LANE))
        | ((LANE_MAX - y_high) << (3 * LANE))
    )  # fmt: skip


@kernel
def low_step(value: int, depth: int, cell: int) -> int:
    """Return the step of a lower side within a cell; 0 if it lies before the cell."""
    shift = TOTAL_BITS - BITS * depth
    return 0 if (value >> shift) < cell else 1 + ((value >> (shift - STEP_BITS)) & STEPS)


@kernel
def high_step(value: int, depth: int, cell: int) -> int:
    """Return the step of an upper side within a cell; BEYOND if it lies after the cell."""
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
def lists_of_box(forest: Forest, root: int, corners: tuple[int, int, int, int], targets: NDArray[np.int64]) -> int:
    """Write the lists that a box belongs to as rows of node, depth, column and row of its cell; return how many.

    A node without children takes all boxes that overlap its cell; one with children takes those that span too many.
    """
    left, bottom, right, top = corners
    targets[0, 0] = root
    targets[0, 1] = targets[0, 2] = targets[0, 3] = 0
    n, done, n_lists = 1, 0, 0
    while done < n:
        node, depth, column, line = targets[done, 0], targets[done, 1], targets[done, 2], targets[done, 3]
        done += 1
        children = int(forest.nodes[node, CHILDREN])
        first, last = children_of(left, right, depth, column)
        lowest, highest = children_of(bottom, top, depth, line)
        if children == 0 or last - first >= SPAN or highest - lowest >= SPAN:
            targets[n_lists, 0], targets[n_lists, 1] = node, depth
            targets[n_lists, 2], targets[n_lists, 3] = column, line
            n_lists += 1
            continue
        for y in range(lowest, highest + 1):
            for x in range(first, last + 1):
                targets[n, 0] = children + ((y & (FAN - 1)) << BITS) + (x & (FAN - 1))
                targets[n, 1], targets[n, 2], targets[n, 3] = depth + 1, x, y
                n += 1
    return n_lists
