"""Partitioners of two levels divide by space and by terms."""

import numpy as np
import pytest

from nearcast.errors import InvalidInput
from nearcast.partition.keyword_first import KeywordFirstPartitioner
from nearcast.partition.location import LocationPartitioner
from nearcast.partition.masks import as_ints, count_rows, count_shards
from nearcast.partition.prefix import PrefixPartitioner
from nearcast.partition.serialization import pack, unpack
from nearcast.partition.spatial_first import SpatialFirstPartitioner
from nearcast.space import Box
from samples import crowded

BOTH = [SpatialFirstPartitioner, KeywordFirstPartitioner]


@pytest.fixture(scope="module")
def sample():
    return crowded(800, 1_500)


@pytest.mark.parametrize(
    ("partitioner", "n_first", "alone"),
    [
        (SpatialFirstPartitioner, 1, PrefixPartitioner),
        (SpatialFirstPartitioner, 4, LocationPartitioner),
        (KeywordFirstPartitioner, 4, PrefixPartitioner),
        (KeywordFirstPartitioner, 1, LocationPartitioner),
    ],
)
def test_a_single_level_equals_its_partitioner_alone(partitioner, n_first, alone, sample):
    both, one = partitioner(n_first).fit(sample, n_shards=4), alone().fit(sample, n_shards=4)
    assert as_ints(both.place(sample.footprints)) == as_ints(one.place(sample.footprints))
    frequencies = np.diff(sample.messages.term_indptr) > 0
    assert as_ints(both.route(sample.messages)[frequencies]) == as_ints(one.route(sample.messages)[frequencies])
    if alone is PrefixPartitioner or partitioner is KeywordFirstPartitioner:
        assert both.loads == pytest.approx(one.loads, rel=1e-2)
    else:
        assert both.loads.tolist() == count_rows(one.place(sample.footprints), one.n_shards).tolist()


def test_spatial_first_routes_a_message_to_every_part_of_space(sample):
    routing = SpatialFirstPartitioner(2).fit(sample, n_shards=8)
    assignment, seen = routing.place(sample.footprints), routing.route(sample.messages)
    leaves = routing.tree.leaves_at(sample.footprints.xs, sample.footprints.ys)
    low = np.uint64(0b1111)
    assert ((assignment[:, 0] & low != 0) == (leaves == 0)).all()
    assert ((assignment[:, 0] >> np.uint64(4) != 0) == (leaves == 1)).all()
    assert (seen & low != 0).all() and (seen >> np.uint64(4) != 0).all()


def test_keyword_first_routes_a_message_to_all_leaves_of_its_terms(sample):
    routing = KeywordFirstPartitioner(2).fit(sample, n_shards=8)
    of_runs, seen = routing.runs.route(sample.messages), routing.route(sample.messages)
    of_runs, ranges = as_ints(of_runs), (0b1111, 0b11110000)
    assert as_ints(seen) == [sum(own for run, own in enumerate(ranges) if mask >> run & 1) for mask in of_runs]
    assignment = routing.place(sample.footprints)
    assert (count_shards(assignment) == count_shards(routing.runs.place(sample.footprints))).all()


@pytest.mark.parametrize("partitioner", BOTH)
def test_all_shards_have_work_and_the_regions_cover_space(partitioner, sample):
    routing = partitioner().fit(sample, n_shards=8)
    held = count_rows(routing.place(sample.footprints), 8).tolist()
    assert min(held) > 0
    bounds = Box(-100, -100, 200, 200)
    drawn = 0
    for region in unpack(pack(routing)).shard_areas(bounds):
        drawn |= region.shards
    assert drawn == 0b11111111


@pytest.mark.parametrize("partitioner", BOTH)
def test_parts_must_divide_the_shards(partitioner, sample):
    with pytest.raises(InvalidInput, match="n_first must divide the number of shards, 8; got 3"):
        partitioner(3).fit(sample, n_shards=8)
