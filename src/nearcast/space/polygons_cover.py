"""Whether a point lies in polygons: the reference of the compiled test.

A point on an edge is inside. Any other is inside if a ray to its left crosses an odd number of edges: rings of valid
polygons touch at points only, so shells and holes need no distinction. An edge holds its lower end and not its upper
one, which counts a vertex on the ray once:

        \\  |  /                    at the height of p the ray crosses
    ─────\\─┼─/──── p              one edge of three: the two that rise from the vertex on the ray count,
          \\|/                     the one below ends there and does not
           |

The side of an edge on which a point lies is computed with fractions, so decisions are exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise

__all__ = ["polygons_cover"]

_Point = tuple[float, float]


def polygons_cover(rings: Iterable[Sequence[_Point]], x: float, y: float) -> bool:
    """Return whether a point lies in the closed area of all rings; each ring ends with its first point.

    >>> square, hole = ((0, 0), (3, 0), (3, 3), (0, 3), (0, 0)), ((1, 1), (2, 1), (2, 2), (1, 2), (1, 1))
    >>> [polygons_cover([square, hole], x, 1.5) for x in (0, 0.5, 1, 1.5, 4)]
    [True, True, True, False, False]
    """
    is_inside = False
    for ring in rings:
        for (ax, ay), (bx, by) in pairwise(ring):
            if (ay > y and by > y) or (ay < y and by < y) or (ax > x and bx > x):
                continue  # the ray does not meet it
            is_left = ax < x and bx < x
            side = 0 if is_left else _side(ax, ay, bx, by, x, y)
            if not is_left and side == 0 and min(ax, bx) <= x:
                return True
            if (ay > y) != (by > y) and (is_left or (side > 0) != (by > ay)):
                is_inside = not is_inside
    return is_inside


def _side(ax: float, ay: float, bx: float, by: float, x: float, y: float) -> int:
    """Return 1, 0 or -1 if a point lies to the left of the line from a to b, on it, or to the right."""
    ax_, ay_, x_, y_ = Fraction(ax), Fraction(ay), Fraction(x), Fraction(y)
    area = (Fraction(bx) - ax_) * (y_ - ay_) - (Fraction(by) - ay_) * (x_ - ax_)
    return (area > 0) - (area < 0)
