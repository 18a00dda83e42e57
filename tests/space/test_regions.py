"""Regions hold the same points in kernels, in the reference and in Shapely, also on boundaries."""

import math
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from effort import effort
from nearcast._jit import Arena
from nearcast.errors import InvalidInput
from nearcast.space import Box, Circle, MultiPolygon, Polygon, Space
from nearcast.space.metric import EARTH_RADIUS_M
from nearcast.space.polygons_cover import polygons_cover
from nearcast.space.region_columns import RegionColumns
from nearcast.space.region_formats import as_region, to_geojson, to_wkb
from nearcast.space.region_store import RegionStore, filter_by_region

PLANE = Space(Box(-1_000, -1_000, 1_000, 1_000))
EARTH = Space.earth()


def stored(regions, space=PLANE):
    store = RegionStore(Arena(), space)
    store.insert(np.arange(len(regions), dtype=np.int32), RegionColumns.of(regions))
    return store


def covered(store, slot, points):
    points = np.asarray(points, np.float64).reshape(-1, 2)
    out = np.zeros(len(points), np.bool_)
    n = filter_by_region(store.arrays, slot, points[:, 0].copy(), points[:, 1].copy(), out)
    assert n == out.sum()
    return out.tolist()


def shape_of(region):
    return shapely.from_wkb(to_wkb(region))


def star(rng, center, n, size):
    """Return a polygon of n points that sees all of itself from its center."""
    angles = np.sort(rng.random(n)) * 2 * np.pi
    assume_gap = np.diff(np.append(angles, angles[0] + 2 * np.pi)).max() < np.pi
    radii = size * rng.uniform(0.2, 1, n)
    points = np.column_stack([center[0] + radii * np.cos(angles), center[1] + radii * np.sin(angles)])
    return Polygon(points.tolist()) if assume_gap else None


def stars(seed, n_regions):
    rng, made = np.random.default_rng(seed), []
    while len(made) < n_regions:
        center, n = rng.uniform(-50, 50, 2), int(rng.choice([3, 4, 8, 40, 200, 2_000]))
        region = star(rng, center, n, rng.uniform(1, 60))
        if region is not None:
            made.append(region)
    return made


def near(region, rng, n):
    """Return points around a region: anywhere in its extent and a bit beyond, and at the heights of its corners."""
    xmin, ymin, xmax, ymax = region.extent
    dx, dy = (xmax - xmin) / 10, (ymax - ymin) / 10
    anywhere = rng.uniform((xmin - dx, ymin - dy), (xmax + dx, ymax + dy), (n // 2, 2))
    corners = np.array([point for ring in region.rings for point in ring])
    level = anywhere[: n // 4].copy()
    level[:, 1] = corners[rng.integers(0, len(corners), len(level)), 1]
    chosen = corners[rng.integers(0, len(corners), n // 4)]
    return np.concatenate([anywhere, level, chosen])


@pytest.mark.parametrize("seed", range(effort(1, 10)))
def test_a_million_points_lie_in_the_polygons_that_shapely_says(seed):
    regions = stars(seed, 200)
    store, rng = stored(regions), np.random.default_rng(seed + 1)
    for slot, region in enumerate(regions):
        points = near(region, rng, 5_000)
        assert covered(store, slot, points) == shapely.covers(shape_of(region), shapely.points(points)).tolist()


GRID = st.integers(-4, 4).map(float)
CORNERS = st.lists(st.tuples(GRID, GRID), min_size=3, max_size=9, unique=True)
ALL_POINTS = [(x / 2, y / 2) for x in range(-9, 10) for y in range(-9, 10)]


def valid(make):
    try:
        return make()
    except InvalidInput:
        return None


@settings(max_examples=effort(120, 10_000))
@given(CORNERS, st.lists(CORNERS, max_size=2), st.booleans())
def test_polygons_on_a_grid_hold_their_boundaries(shell, others, are_holes):
    """Holes, rings that touch, edges on one line: most points lie on edges and corners."""
    polygon = valid(lambda: Polygon(shell, others if are_holes else ()))
    assume(polygon is not None)
    parts = [polygon] if are_holes else [polygon, *filter(None, (valid(lambda o=o: Polygon(o)) for o in others))]
    region = valid(lambda: MultiPolygon(parts)) if len(parts) > 1 else polygon
    assume(region is not None)
    expected = shapely.covers(shape_of(region), shapely.points(ALL_POINTS)).tolist()
    assert [polygons_cover(region.rings, *point) for point in ALL_POINTS] == expected
    assert covered(stored([region]), 0, ALL_POINTS) == expected


@settings(max_examples=effort(80, 5_000))
@given(st.data())
def test_slivers_hold_what_exact_arithmetic_says(data):
    """Shapely computes the side of a line with rounding for the worst of these, so the reference judges."""
    scale = data.draw(st.sampled_from([1.0, 1e-9, 1e-300, 1e9, 1e140]))
    tiny = st.integers(-3, 3).map(lambda n: n * math.ulp(1.0))
    number = st.builds(lambda n, d: (n / 7 + d) * scale, st.integers(-9, 9), tiny)
    points = st.tuples(number, number)
    polygon = valid(lambda: Polygon(data.draw(st.lists(points, min_size=3, max_size=5, unique=True))))
    assume(polygon is not None)
    others = [((ax + bx) / 2, (ay + by) / 2) for (ax, ay), (bx, by) in zip(polygon.shell, polygon.shell[1:])]  # noqa: B905
    looked_at = [*polygon.shell, *others, *data.draw(st.lists(points, max_size=5))]
    assert covered(stored([polygon]), 0, looked_at) == [polygons_cover(polygon.rings, *point) for point in looked_at]


def test_a_comb_of_ten_thousand_points_is_right():
    teeth = [(float(i), float(i % 2) * 100 - 50) for i in range(-600, 600)]
    comb = Polygon([*teeth, (600.0, 200.0), (-600.0, 200.0)])
    store, rng = stored([comb]), np.random.default_rng(3)
    points = rng.uniform((-610, -60), (610, 60), (20_000, 2))
    assert covered(store, 0, points) == shapely.covers(shape_of(comb), shapely.points(points)).tolist()


@settings(max_examples=effort(300, 10_000))
@given(st.tuples(GRID, GRID), st.sampled_from([0.0, 1.0, 2.5, 5.0, 1e9]), st.lists(st.tuples(GRID, GRID), min_size=1))
def test_circles_on_the_plane_hold_the_points_at_their_radius(center, radius, points):
    circle = Circle(center, radius)
    expected = [math.dist(center, point) <= radius for point in points]
    assert [PLANE.covers(circle, point) for point in points] == expected
    assert covered(stored([circle]), 0, points) == expected


LONGITUDES = st.floats(-180, 180) | st.sampled_from([-180.0, 180.0, 0.0, 179.999999])
LATITUDES = st.floats(-90, 90) | st.sampled_from([-90.0, 90.0, 0.0, 89.999999])
PLACES = st.tuples(LONGITUDES, LATITUDES)


@settings(max_examples=effort(200, 20_000))
@given(PLACES, st.sampled_from([0.0, 1.0, 1e3, 1e6, 1.0007e7, 2.0015e7, 3e7]), st.lists(PLACES, min_size=1))
def test_circles_on_the_earth_hold_what_their_distance_says(center, radius, points):
    circle = Circle(center, radius)
    points = [center, *points]
    expected = [EARTH.distance(center, point) <= radius for point in points]
    assert covered(stored([circle], EARTH), 0, points) == expected
    box = EARTH.bounding_box(circle)
    assert all(box.contains(*point) for point, inside in zip(points, expected, strict=True) if inside)
    columns = RegionColumns.of([circle])
    assert columns.bounding_boxes(EARTH).tolist() == [list(box.as_tuple())]


@pytest.mark.parametrize("radius", [1.0, 9.9, 10.0, 150.0, 2e4, 5.5e5, 5.6e5, 2e6])
def test_circles_on_the_earth_are_exact_at_their_edge(radius):
    """Near the edge the series that decide elsewhere leave a doubt, and the formula itself is asked."""
    rng = np.random.default_rng(int(radius))
    centers = [(179.9999, 12.0), (-71.0, -0.0001), (13.4, 52.5), (0.0, 89.9), (100.0, -89.99999)]
    for center in centers:
        off = np.concatenate([rng.normal(0, 1e-15, 400), rng.normal(0, 1e-8, 300), rng.normal(0, 0.2, 300)])
        angle, turn = radius / EARTH_RADIUS_M * (1 + off), rng.uniform(0, 2 * np.pi, 1_000)
        y = math.radians(center[1])
        north = np.arcsin(np.sin(y) * np.cos(angle) + np.cos(y) * np.sin(angle) * np.cos(turn))
        east = np.arctan2(np.sin(turn) * np.sin(angle) * np.cos(y), np.cos(angle) - np.sin(y) * np.sin(north))
        points = np.column_stack([(center[0] + np.degrees(east) + 180) % 360 - 180, np.degrees(north)])
        expected = [EARTH.distance(center, point) <= radius for point in points.tolist()]
        assert 0 < sum(expected) < len(expected)
        assert covered(stored([Circle(center, radius)], EARTH), 0, points) == expected


@settings(max_examples=effort(200, 5_000))
@given(PLACES, PLACES, st.lists(PLACES, min_size=1))
def test_boxes_on_the_earth_may_cross_the_antimeridian(one, other, points):
    south, north = sorted((one[1], other[1]))
    box = Box(one[0], south, other[0], north)
    points = [one, other, *points]
    expected = [any(half.contains(*point) for half in box.halves()) for point in points]
    assert [EARTH.covers(box, point) for point in points] == expected
    assert covered(stored([box], EARTH), 0, points) == expected
    around = EARTH.bounding_box(box)
    assert all(around.contains(*point) for point, inside in zip(points, expected, strict=True) if inside)


def test_slots_are_reused_and_a_slot_without_a_region_holds_every_point():
    rng, store, now = np.random.default_rng(7), RegionStore(Arena(), PLANE), {}
    pool = [*stars(8, 30), Box(0, 0, 5, 5), Circle((1, 1), 3), None]
    sizes = []
    for _ in range(effort(60, 600)):
        slots = rng.permutation(40)[: int(rng.integers(1, 9))]
        taken = np.array([slot for slot in slots if now.get(int(slot)) is not None], np.int32)
        store.delete(taken)
        chosen = [pool[i] for i in rng.integers(0, len(pool), len(slots))]
        store.insert(slots.astype(np.int32), RegionColumns.of(chosen))
        now |= dict(zip(slots.tolist(), chosen, strict=True))
        sizes.append(store.nbytes)
    points = rng.uniform(-60, 60, (500, 2))
    for slot in range(45):
        region = now.get(slot)
        inside = [region is None or PLANE.covers(region, point) for point in points.tolist()]
        assert covered(store, slot, points) == inside, slot
    assert sizes[-1] <= 2 * sizes[len(sizes) // 2], "blocks are reused"


def test_a_store_continues_with_what_its_arena_holds():
    arena = Arena()
    triangle = Polygon([(0, 0), (4, 0), (0, 4)])
    RegionStore(arena, PLANE).insert(np.array([2], np.int32), RegionColumns.of([triangle]))
    again = RegionStore(arena, PLANE)
    assert covered(again, 2, [(1, 1), (3, 3)]) == [True, False]


# -- formats

WITH_HOLE = Polygon([(0, 0), (9, 0), (9, 9), (0, 9)], [[(1, 1), (2, 1), (2, 2)]])
TWO = MultiPolygon([Polygon([(0, 0), (1, 0), (0, 1)]), WITH_HOLE.__class__([(5, 5), (6, 5), (6, 6)])])


@pytest.mark.parametrize("region", [WITH_HOLE, TWO, Polygon([(0, 0), (4, 0), (0, 4)])])
def test_all_formats_give_the_same_region(region):
    shape = shape_of(region)
    geojson = to_geojson(region)
    forms = [
        region, geojson, {"type": "Feature", "geometry": geojson, "properties": None}, shape, shape.wkt, shape.wkb,
        shape.wkb_hex, shapely.to_wkb(shape, byte_order=0), shapely.to_wkb(shapely.set_srid(shape, 4326), include_srid=True),
        shapely.to_wkb(shapely.force_3d(shape, 7.0)), shapely.force_3d(shape, 7.0).wkt, SimpleNamespace(__geo_interface__=geojson),
    ]  # fmt: skip
    assert [as_region(form) for form in forms] == [region] * len(forms)


def test_a_circle_is_a_point_with_a_radius():
    circle = Circle((1, 2), 3)
    feature = {"type": "Feature", "geometry": {"type": "Point", "coordinates": [1, 2]}, "properties": {"radius": 3}}
    assert as_region(feature) == as_region(to_geojson(circle)) == circle


REFUSED = [
    ("POLYGON EMPTY", "POLYGON or MULTIPOLYGON"),
    ("LINESTRING (0 0, 1 1)", "POLYGON or MULTIPOLYGON"),
    ("POLYGON ((0 0, 1 1, 1 0, 0 1, 0 0))", "Self-intersection"),
    ("POLYGON ((0 0, 4 0, 0 4, 0 0), (9 9, 10 9, 9 10, 9 9))", "Hole lies outside shell"),
    ({"type": "Point", "coordinates": [0, 0]}, "radius"),
    ({"type": "Point", "coordinates": [0, 0], "radius": -1}, "0 or more"),
    ({"type": "Point", "coordinates": [0, float("nan")], "radius": 1}, "finite"),
    ({"type": "Polygon", "coordinates": []}, "empty"),
    ({"type": "Polygon", "coordinates": [[[0, 0], [1, 0]]]}, "3 different points"),
    ({"type": "Polygon", "coordinates": [[[0, 0], [1, 0], ["a", 1]]]}, "finite numbers"),
    ({"type": "Polygon", "coordinates": [[[0, 0], [1e200, 0], [0, 1]]]}, "1e\\+150"),
    ({"type": "GeometryCollection", "geometries": []}, "Polygon"),
    (b"\x01\x03\x00\x00\x00\xff\xff\xff\xff", "well-formed WKB"),
    (b"", "well-formed WKB"),
    ("0103", "well-formed WKB"),
    (7, "__geo_interface__"),
    (None, "__geo_interface__"),
]


@pytest.mark.parametrize(("value", "reason"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_no_region_is_refused_with_a_reason(value, reason):
    with pytest.raises(InvalidInput, match=reason) as raised:
        as_region(value, field="region", subject="subscription 's'")
    assert str(raised.value).startswith("region must") and "subscription 's'" in str(raised.value)


def test_a_region_of_too_many_points_is_refused_before_it_is_validated():
    at_limit = [(math.cos(a / 50), math.sin(a / 50)) for a in range(300)]
    ring = [*at_limit, at_limit[0]]
    assert as_region({"type": "Polygon", "coordinates": [ring]}, max_points=301)
    with pytest.raises(InvalidInput, match="at most 300 points; got 301"):
        as_region({"type": "Polygon", "coordinates": [ring]}, max_points=300)
    wkb = shapely.Polygon(ring).wkb
    assert as_region(wkb, max_points=301)
    with pytest.raises(InvalidInput, match="at most 300 points"):
        as_region(wkb, max_points=300)


@settings(max_examples=effort(200, 20_000))
@given(st.binary(max_size=60), st.integers(0, 200), st.integers(0, 255))
def test_damaged_wkb_is_refused_or_a_region(junk, at, byte):
    """The reader is a kernel: nothing it reads may make it read beyond the bytes."""
    good = bytearray(to_wkb(TWO))
    good[at % len(good)] = byte
    for data in (bytes(good), bytes(good)[:at], junk, bytes(good) + junk):
        columns, errors = RegionColumns.read_wkb([data])
        assert bool(errors) == (columns.codes[0] == 0)
        if not errors:
            shape = shapely.from_wkb(data[: len(data)], on_invalid="ignore")
            assert shape is None or shapely.is_valid(shape)


def test_columns_of_wkb_give_an_error_for_each_bad_row_and_the_others():
    rows = pa.chunked_array([[to_wkb(WITH_HOLE), None], [b"junk", to_wkb(TWO)]], pa.binary())
    columns, errors = RegionColumns.read_wkb(rows)
    assert [columns.region(row) for row in range(4)] == [WITH_HOLE, None, None, TWO]
    assert list(errors) == [2] and errors[2].field == "region"
    with pytest.raises(InvalidInput, match="row 2"):
        RegionColumns.from_wkb(rows)
    assert columns.take([3, -1, 0]).region(0) == TWO
    assert RegionColumns.joined([columns, columns]).region(7) == TWO


def test_what_means_nothing_in_a_space_is_refused():
    with pytest.raises(InvalidInput, match="xmin <= xmax on a plane"):
        PLANE.check_region(Box(5, 0, 1, 1))
    with pytest.raises(InvalidInput, match="antimeridian"):
        EARTH.check_region(Box(190, 0, 1, 1))
    with pytest.raises(InvalidInput, match="center"):
        EARTH.check_region(Circle((0, 91), 1))
    EARTH.check_region(Polygon([(-500, -500), (500, -500), (0, 500)]))
    PLANE.check_region(Circle((5_000, 5_000), 10))
    regions = [Box(5, 0, 1, 1), Box(0, 0, 1, 1), Circle((0, 91), 1), WITH_HOLE]
    for space in (PLANE, EARTH):
        accepted = [valid(lambda r=r, s=space: s.check_region(r) or True) is True for r in regions]
        assert RegionColumns.of(regions).is_allowed(space).tolist() == accepted
