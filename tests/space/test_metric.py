"""Distances are right, and bounds of boxes are safe."""

import math
import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.space import METRICS, Box, Space
from nearcast.space.metric import (
    EARTH_RADIUS_M,
    HALF_CIRCUMFERENCE_M,
    haversine,
    haversine_farthest,
    haversine_nearest,
)

LON = st.floats(-180, 180) | st.sampled_from([-180.0, -179.9, 0.0, 179.9, 180.0])
LAT = st.floats(-90, 90) | st.sampled_from([-90.0, -89.9, 0.0, 89.9, 90.0])
ANY = st.floats(-1e6, 1e6)
DRAW = {"euclidean": (ANY, ANY), "haversine": (LON, LAT)}


def by_vectors(ax, ay, bx, by):
    """Great-circle distance by cross and dot product: accurate everywhere, also at the antipode."""

    def vector(lon, lat):
        lon, lat = math.radians(lon), math.radians(lat)
        return math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat)

    a, b = vector(ax, ay), vector(bx, by)
    cross = (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return EARTH_RADIUS_M * math.atan2(math.hypot(*cross), dot)


@given(LON, LAT, LON, LAT)
def test_haversine_agrees_with_vectors(ax, ay, bx, by):
    assert haversine(ax, ay, bx, by) == pytest.approx(by_vectors(ax, ay, bx, by), rel=1e-9, abs=0.2)


@pytest.mark.parametrize(
    ("a", "b", "metres"),
    [
        ((0, 0), (0, 0), 0),
        ((0, 0), (180, 0), HALF_CIRCUMFERENCE_M),
        ((0, 90), (123, 90), 0),
        ((179.5, 0), (-179.5, 0), EARTH_RADIUS_M * math.radians(1)),
        ((10, 80), (-170, 80), EARTH_RADIUS_M * math.radians(20)),
        ((0, -90), (0, 90), HALF_CIRCUMFERENCE_M),
    ],
)
def test_haversine_at_poles_antipodes_and_the_antimeridian(a, b, metres):
    assert haversine(*a, *b) == pytest.approx(metres, abs=1e-6)


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: m.name)
@settings(max_examples=400)
@given(data=st.data())
def test_no_point_of_a_box_is_nearer_or_farther_than_its_bounds(metric, data):
    x, y = DRAW[metric.name]
    px, py = data.draw(x), data.draw(y)
    xmin, xmax = sorted((data.draw(x), data.draw(x)))
    ymin, ymax = sorted((data.draw(y), data.draw(y)))
    share = st.floats(0, 1)
    qx = min(max(xmin + data.draw(share) * (xmax - xmin), xmin), xmax)
    qy = min(max(ymin + data.draw(share) * (ymax - ymin), ymin), ymax)
    distance = metric.distance(px, py, qx, qy)
    assert metric.nearest(px, py, xmin, ymin, xmax, ymax) <= distance
    assert metric.farthest(px, py, xmin, ymin, xmax, ymax) >= distance


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: m.name)
def test_bounds_are_tight(metric):
    """Random points of a box come close to both bounds; bounds of 0 or infinity would be safe but useless."""
    rng = random.Random(4)
    for _ in range(60):
        wide, high = (180, 90) if metric.name == "haversine" else (100, 100)
        px, py = rng.uniform(-wide, wide), rng.uniform(-high, high)
        x1, x2 = sorted(rng.uniform(-wide, wide) for _ in range(2))
        y1, y2 = sorted(rng.uniform(-high, high) for _ in range(2))
        edge = [(x1 + i / 200 * (x2 - x1), y) for i in range(201) for y in (y1, y2)]
        edge += [(x, y1 + i / 200 * (y2 - y1)) for i in range(201) for x in (x1, x2)]
        inside = [(rng.uniform(x1, x2), rng.uniform(y1, y2)) for _ in range(1500)]
        distances = [metric.distance(px, py, *q) for q in [*edge, *inside]]
        size = metric.distance(x1, y1, x2, y2) + metric.distance(x1, y2, x2, y1)
        slack = 0.05 * size + (1000 if metric.name == "haversine" else 0.1)
        inside_box = x1 <= px <= x2 and y1 <= py <= y2
        if not inside_box:
            assert metric.nearest(px, py, x1, y1, x2, y2) >= min(distances) - slack
        antipode_inside = metric.name == "haversine" and x1 <= (px + 180 if px < 0 else px - 180) <= x2
        if not antipode_inside:
            assert metric.farthest(px, py, x1, y1, x2, y2) <= max(distances) + slack


def test_the_nearest_point_of_a_box_may_be_across_the_antimeridian():
    degree = EARTH_RADIUS_M * math.radians(1)
    assert haversine_nearest(179, 0, -180, -5, -170, 5) == pytest.approx(degree, abs=1e-3)
    assert haversine_nearest(-179, 0, 170, -5, 180, 5) == pytest.approx(degree, abs=1e-3)
    assert haversine_nearest(180, 0, -180, -5, -170, 5) == 0
    assert haversine_nearest(175, 40, -180, 30, -178, 50) < haversine(175, 40, -178, 40)
    assert haversine_farthest(-179, 0, 0, -1, 2, 1) == pytest.approx(HALF_CIRCUMFERENCE_M, abs=2)


def test_the_nearest_point_of_a_box_may_be_beyond_a_pole():
    assert haversine_nearest(0, 89, 170, 85, 180, 88) == pytest.approx(EARTH_RADIUS_M * math.radians(3), rel=0.02)


@settings(max_examples=300)
@given(
    data=st.data(),
    space=st.sampled_from(
        [Space(Box(-100, -100, 100, 100)), Space.earth(), Space(Box(-50, -20, 179, 89), "haversine")]
    ),
)
def test_a_reach_covers_every_point_within_the_radius(data, space):
    b = space.bounds
    point = st.tuples(st.floats(b.xmin, b.xmax), st.floats(b.ymin, b.ymax))
    centre, other = data.draw(point), data.draw(point)
    radius = (
        data.draw(st.floats(0, 1.2 * space.max_distance))
        if data.draw(st.booleans())
        else space.distance(centre, other)
    )
    if space.distance(centre, other) <= radius:
        assert space.reach(centre, radius).contains(*other)


def test_a_reach_allows_for_squares_that_underflow():
    """Found by Hypothesis: a difference of 1e-170 is a distance of 0."""
    assert Space(Box(-1, -1, 1, 1)).reach((0, 0), 0.0).contains(0.0, 1e-170)


def test_near_falls_to_zero_and_stays_there():
    space = Space(Box(0, 0, 100, 0.5), max_distance=10)
    assert [space.near((0, 0), (x, 0)) for x in (0, 5, 10, 50)] == [1.0, 0.5, 0.0, 0.0]


def test_max_distance_defaults_to_the_diagonal():
    assert Space(Box(0, 0, 3, 4)).max_distance == 5
    assert Space.earth().max_distance == HALF_CIRCUMFERENCE_M
    assert Space(Box(-180, -90, 180, 90), "haversine").max_distance == HALF_CIRCUMFERENCE_M
    small = Space(Box(8, 50, 9, 51), "haversine")
    assert small.max_distance == haversine(8, 50, 9, 51)


def test_compiled_and_plain_metrics_agree_bit_by_bit():
    from nearcast._jit import kernel

    rng = random.Random(8)
    for metric in METRICS:
        for plain, n in ((metric.distance, 4), (metric.nearest, 6), (metric.farthest, 6)):
            compiled = kernel(plain)
            for _ in range(500):
                xs = sorted(rng.uniform(-180, 180) for _ in range(2))
                ys = sorted(rng.uniform(-90, 90) for _ in range(2))
                given = (rng.uniform(-180, 180), rng.uniform(-90, 90), xs[0], ys[0], xs[1], ys[1])[:n]
                assert struct.pack("d", compiled(*given)) == struct.pack("d", plain(*given)), (plain, given)
