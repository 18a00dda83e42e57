"""On which side of a line a point lies, exactly, for any float64.

    (bx - ax) * (y - ay) - (by - ay) * (x - ax)       > 0 left of the line from a to b, 0 on it, < 0 right of it

Evaluated in floating point, each product is off by at most 3u, and their difference by u, relative to themselves,
with u = 2^-53; so the sign is right where the result exceeds (3 + 16u)u times the sum of the magnitudes of the
products (Shewchuk, "Adaptive Precision Floating-Point Arithmetic", 1997, section 4.2). That bound holds without
underflow, which may add less than 2^-1070; `_TINY` is far above. An overflow gives an infinity or a NaN, which pass
no comparison.

What the filter leaves open, about the points on an edge, is decided with integers. Multiplied out, six products of
coordinates remain. A coordinate is an integer of 53 bits times a power of two, a product one of 106 bits, and their
sum fits into a number of 4,400 bits, in limbs of 32. No rounding takes place, so neither range nor FMA matters, and
expansions of floats (section 4.1), which must stay clear of underflow and overflow, are not needed.

Cost: two nanoseconds, and some hundreds if the filter does not decide.
"""

from __future__ import annotations

from math import frexp

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel

_FILTER = 3.3306690738754716e-16  # (3 + 16u)u
_TINY = 1e-290
_MANTISSA = 9007199254740992.0  # 2^53
_LOWEST = 2 * (1074 + 53)
"""Added to the exponent of a product, to make a position of 0 or more: the smallest unit is 2^-1127."""
_LIMBS = 142
"""Enough for products of 2^1024: (2 * 1024 + _LOWEST) / 32, and the carry."""
_LOW = 0xFFFFFFFF


@kernel
def _add_at(limbs: NDArray[np.int64], value: int, position: int, sign: int) -> None:
    """Add a number below 2^54 at a position of bits."""
    limb, shift = position >> 5, position & 31
    low, high = (value & _LOW) << shift, (value >> 32) << shift
    limbs[limb] += sign * (low & _LOW)
    limbs[limb + 1] += sign * ((low >> 32) + (high & _LOW))
    limbs[limb + 2] += sign * (high >> 32)


@kernel
def _add_product(limbs: NDArray[np.int64], sign: int, u: float, v: float) -> None:
    """Add a product to the sum, exactly."""
    mantissa_u, exponent_u = frexp(u)
    mantissa_v, exponent_v = frexp(v)
    whole_u, whole_v = int(mantissa_u * _MANTISSA), int(mantissa_v * _MANTISSA)
    if whole_u < 0:
        whole_u, sign = -whole_u, -sign
    if whole_v < 0:
        whole_v, sign = -whole_v, -sign
    position = exponent_u + exponent_v - 106 + _LOWEST
    low_u, high_u = whole_u & 0x7FFFFFF, whole_u >> 27
    low_v, high_v = whole_v & 0x7FFFFFF, whole_v >> 27
    _add_at(limbs, low_u * low_v, position, sign)
    _add_at(limbs, low_u * high_v, position + 27, sign)
    _add_at(limbs, high_u * low_v, position + 27, sign)
    _add_at(limbs, high_u * high_v, position + 54, sign)


@kernel(allocates=True)
def exact_orientation(ax: float, ay: float, bx: float, by: float, x: float, y: float) -> int:
    """Return 1, 0 or -1 for a point left of the line from a to b, on it, or right of it, by integers."""
    limbs = np.zeros(_LIMBS, np.int64)
    _add_product(limbs, 1, bx, y)
    _add_product(limbs, -1, bx, ay)
    _add_product(limbs, -1, ax, y)
    _add_product(limbs, -1, by, x)
    _add_product(limbs, 1, by, ax)
    _add_product(limbs, 1, ay, x)
    carry, is_zero = 0, True
    for i in range(_LIMBS):
        value = int(limbs[i]) + carry
        carry = value >> 32  # rounds down, so the rest is not negative
        is_zero = is_zero and (value & _LOW) == 0
    if carry < 0:
        return -1
    return 0 if is_zero and carry == 0 else 1


@kernel
def orientation(ax: float, ay: float, bx: float, by: float, x: float, y: float) -> int:
    """Return 1, 0 or -1 for a point left of the line from a to b, on it, or right of it."""
    left, right = (bx - ax) * (y - ay), (by - ay) * (x - ax)
    area = left - right
    bound = _FILTER * (abs(left) + abs(right)) + _TINY
    if area > bound:
        return 1
    if -area > bound:
        return -1
    return exact_orientation(ax, ay, bx, by, x, y)


@kernel
def shifted_orientation(ax: float, ay: float, bx: float, by: float, x: float, y: float) -> int:
    """Return the orientation of (x + d, y + e), with d and e above 0, infinitely small, and e far smaller than d.

    It is 1 or -1, unless a and b are equal.
    """
    side = orientation(ax, ay, bx, by, x, y)
    if side != 0:
        return side
    if ay != by:
        return 1 if by < ay else -1
    return 1 if bx > ax else -1
