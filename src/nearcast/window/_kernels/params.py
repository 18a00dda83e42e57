"""What do scores mean, and where is a message, in few bits?

The frame is where distances are bounded: unit vectors, or plane coordinates. A spot is a point of the frame in a grid
of 65,536 steps along each axis of a cube around everything that lies in the bounds of the space: 48 bits a message,
good to a hundred metres on a continent. Bounds give way by as much. Eight bits more say how much its heaviest term
weighs, or how many terms it has, as the kind needs it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearcast._jit import kernel

SPOT_BITS = 16
SPOT_MASK = (1 << SPOT_BITS) - 1
MOST_EXTRA = 255
COST_BASED, FACTOR, BOUNDED = 0, 1, 2
"""Policies of a buffer: how far it reaches below the k-th score is weighed, a factor, or as far as there is room."""


class BufferParams(NamedTuple):
    """Constant for the life of a keeper."""

    on_sphere: bool
    max_distance: float
    near_a_unit: float
    """Nearness lost along a unit of the frame: of the plane, or of angle."""
    x0: float
    y0: float
    z0: float
    """The least corner of the cube."""
    unit: float
    """A step of its grid."""
    margin: float
    """What spots, and numbers of 32 bits, may cost a bound."""
    is_social: bool
    """Whether scores are those of kind `social`, or of `topk`."""
    by_time: bool
    """Whether messages leave by their time, or as they came."""
    policy: int
    factor: float
    """Of the policies that have one: theta over the k-th score, or the room of a buffer over k."""


@kernel
def to_frame(on_sphere: bool, x: float, y: float) -> tuple[float, float, float]:
    """Return a point of the space as one of the frame."""
    if on_sphere:
        longitude, latitude = np.radians(x), np.radians(y)
        flat = np.cos(latitude)
        return flat * np.cos(longitude), flat * np.sin(longitude), np.sin(latitude)
    return x, y, 0.0


@kernel
def _step(value: float, least: float, unit: float) -> int:
    return max(0, min(SPOT_MASK, int((value - least) / unit + 0.5)))


@kernel
def spot_of(params: BufferParams, x: float, y: float, extra: int) -> int:
    """Return the spot of a point of the space, and with it a small number, plus 1 and cut off where the bits end."""
    px, py, pz = to_frame(params.on_sphere, x, y)
    spot = _step(px, params.x0, params.unit) | _step(py, params.y0, params.unit) << SPOT_BITS
    spot |= _step(pz, params.z0, params.unit) << 2 * SPOT_BITS
    return spot | min(MOST_EXTRA, extra + 1) << 3 * SPOT_BITS
