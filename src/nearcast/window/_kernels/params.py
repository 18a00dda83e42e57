"""Constants of a result store with buffers, and the spot of a message: its location in 48 bits.

The frame is the space in which distances are bounded: unit vectors, or plane coordinates. A spot is a point of the
frame on a grid of 65,536 steps along each axis of a cube around the bounds of the space: 48 bits per message,
accurate to a hundred metres on a continent. Bounds are loosened by as much. Eight more bits hold a small number that
the source of candidates chooses: the weight of the heaviest term, or the number of terms.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearcast._jit import kernel

SPOT_BITS = 16
SPOT_MASK = (1 << SPOT_BITS) - 1
MAX_EXTRA = 255
COST_BASED, FACTOR, BOUNDED = 0, 1, 2
"""Policies of a buffer: theta is chosen by cost, is a factor of the k-th score, or follows from the buffer's size."""


class BufferParams(NamedTuple):
    """Constants for the lifetime of a result store."""

    on_sphere: bool
    max_distance: float
    near_per_unit: float
    """Nearness lost per unit of the frame: of the plane, or of angle."""
    x0: float
    y0: float
    z0: float
    """The least corner of the cube."""
    unit: float
    """One step of the grid."""
    margin: float
    """The most that spots and 32-bit numbers can change a bound."""
    by_time: bool
    """True if messages expire by their time, false if in the order of arrival."""
    policy: int
    factor: float
    """Of the policies that have one: theta over the k-th score, or the size of a buffer over k."""


@kernel
def to_frame(on_sphere: bool, x: float, y: float) -> tuple[float, float, float]:
    """Return the point of the frame for a point of the space."""
    if on_sphere:
        longitude, latitude = np.radians(x), np.radians(y)
        flat = np.cos(latitude)
        return flat * np.cos(longitude), flat * np.sin(longitude), np.sin(latitude)
    return x, y, 0.0


@kernel
def _grid_step(value: float, least: float, unit: float) -> int:
    return max(0, min(SPOT_MASK, int((value - least) / unit + 0.5)))


@kernel
def spot_of(params: BufferParams, x: float, y: float, extra: int) -> int:
    """Return the spot of a point of the space, with `extra + 1`, capped at eight bits, above it."""
    px, py, pz = to_frame(params.on_sphere, x, y)
    spot = _grid_step(px, params.x0, params.unit) | _grid_step(py, params.y0, params.unit) << SPOT_BITS
    spot |= _grid_step(pz, params.z0, params.unit) << 2 * SPOT_BITS
    return spot | min(MAX_EXTRA, extra + 1) << 3 * SPOT_BITS
