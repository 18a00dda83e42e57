"""The side of a line on which a point lies is exact for any float64."""

import math
import random
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from effort import effort
from nearcast.space._kernels.orientation import exact_orientation, orientation, shifted_orientation

SMALL = st.integers(-3, 3).map(float)
ANY = st.floats(allow_nan=False, allow_infinity=False)
MIXED = st.builds(math.ldexp, st.integers(-(2**53), 2**53).map(float), st.integers(-60, 60))


def by_fractions(ax, ay, bx, by, x, y):
    ax, ay, bx, by, x, y = map(Fraction, (ax, ay, bx, by, x, y))
    area = (bx - ax) * (y - ay) - (by - ay) * (x - ax)
    return (area > 0) - (area < 0)


@settings(max_examples=effort(500, 20_000))
@given(st.one_of(*(st.tuples(*[numbers] * 6) for numbers in (SMALL, MIXED, ANY, SMALL | ANY))))
@example((5e-324, 5e-324, 1e-323, 1e-323, 1.5e-323, 1.5e-323))
@example(
    (-1.7976931348623157e308, -1.7976931348623157e308, 1.7976931348623157e308, 1.7976931348623157e308, 5e-324, 0.0)
)
@example((0.0, 0.0, 1.7976931348623157e308, 5e-324, 1.7976931348623157e308, 5e-324))
def test_the_side_of_any_floats_is_that_of_fractions(numbers):
    expected = by_fractions(*numbers)
    assert orientation(*numbers) == expected
    assert exact_orientation(*numbers) == expected


def test_points_closest_to_a_line_are_on_their_side():
    """For coprime a and b there are p and q with a*q - b*p = 1: the smallest area that is not 0."""
    rng, n_open = random.Random(3), 0
    for _ in range(effort(2000, 50_000)):
        a, b = rng.getrandbits(52) | 1, rng.getrandbits(52) | 1
        if math.gcd(a, b) != 1:
            continue
        q = pow(a, -1, b)
        p = (a * q - 1) // b
        for shift in (0, rng.getrandbits(rng.randint(1, 52))):
            numbers = tuple(map(float, (shift, shift, a + shift, b + shift, p + shift, q + shift)))
            expected = by_fractions(*numbers)
            n_open += expected != 0
            assert orientation(*numbers) == expected
    assert n_open > 1000


@pytest.mark.parametrize(
    ("a", "b"),
    [((0, 0), (4, 2)), ((4, 2), (0, 0)), ((0, 2), (4, 0)), ((0, 1), (4, 1)), ((4, 1), (0, 1)), ((2, 0), (2, 2))],
)
def test_a_shift_decides_for_points_on_the_line(a, b):
    x, y = (a[0] + b[0]) / 2, (a[1] + b[1]) / 2
    assert orientation(*a, *b, x, y) == 0
    assert shifted_orientation(*a, *b, x, y) == orientation(*a, *b, x + 1e-6, y + 1e-9) != 0
