import numpy as np
import pytest

from nearcast.errors import InvalidInput
from nearcast.space import Box, Space
from nearcast.workload.cities import Cities
from nearcast.workload.generator import make
from nearcast.workload.streams import generator
from nearcast.workload.zipf import Zipf


def points(workload, n=40_000):
    return workload.cities.draw(generator(5, "test"), n, seed=workload.seed)


@pytest.mark.parametrize("name", ["tweets", "places", "reviews"])
def test_every_point_lies_in_the_bounds(name):
    workload = make(name)
    xs, ys, _ = points(workload)
    bounds = workload.bounds
    assert bounds.xmin <= xs.min() <= xs.max() <= bounds.xmax
    assert bounds.ymin <= ys.min() <= ys.max() <= bounds.ymax


def collision_probability(workload):
    """Return the probability that two random points are in the same of 200 x 100 cells."""
    xs, ys, _ = points(workload)
    bounds = workload.bounds
    cells = ((xs - bounds.xmin) / (bounds.xmax - bounds.xmin) * 200).astype(int) * 101
    cells += ((ys - bounds.ymin) / (bounds.ymax - bounds.ymin) * 100).astype(int)
    shares = np.unique(cells, return_counts=True)[1] / len(xs)
    return float((shares**2).sum())


def test_points_cluster_and_places_are_more_spread_out_than_tweets():
    uniform = 1 / 20_000
    assert collision_probability(make("tweets", seed=1)) > 50 * uniform
    assert (
        2 * uniform
        < collision_probability(make("places", seed=1))
        < collision_probability(make("tweets", seed=1)) / 3
    )


def test_the_density_hardly_depends_on_the_seed():
    crowdings = [collision_probability(make("tweets", seed=seed)) for seed in range(4)]
    assert max(crowdings) < 1.5 * min(crowdings)


def test_city_sizes_follow_zipf_and_a_few_points_are_rural():
    workload = make("tweets")
    _, _, placements = points(workload)
    rural = np.mean(placements < 0)
    assert abs(rural - workload.cities.rural) < 0.005
    counts = np.bincount(placements[placements >= 0], minlength=workload.cities.sizes.size)
    assert len(counts) == workload.cities.sizes.size
    assert 2**0.9 * 0.85 < counts[0] / counts[1] < 2**0.9 * 1.15
    assert counts[:20].sum() > counts[200:].sum()


def test_a_city_has_the_configured_spread():
    workload = make("tweets", seed=2)
    xs, ys, placements = points(workload)
    centre_xs, centre_ys = workload.cities.centres(workload.seed)
    spreads = workload.cities.spreads_m()
    assert 3_000 <= spreads.min() < spreads.max() == 20_000
    for city in (0, 5):
        here = placements == city
        space = Space.earth()
        centre = (centre_xs[city], centre_ys[city])
        metres = np.array([space.distance(centre, point) for point in zip(xs[here], ys[here], strict=True)])
        # The distance of a Gaussian step in the plane has a mean square of twice the variance.
        assert abs(np.sqrt(np.mean(metres**2) / 2) / spreads[city] - 1) < 0.1


def test_the_map_depends_on_the_seed_only():
    cities = make("tweets").cities
    assert np.array_equal(cities.centres(1)[0], cities.centres(1)[0])
    assert not np.array_equal(cities.centres(1)[0], cities.centres(2)[0])


@pytest.mark.parametrize("bad", [{"rural": 1.5}, {"spread_min_m": 3.0}, {"spread_min_m": -1.0}])
def test_bad_options_of_cities_are_refused(bad):
    good = {"bounds": Box(0, 0, 1, 1), "sizes": Zipf(3), "spread_m": 2.0, "spread_min_m": 1.0, "rural": 0.1}
    with pytest.raises(InvalidInput, match=next(iter(bad))):
        Cities(**{**good, **bad})
