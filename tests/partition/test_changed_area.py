"""The area in which a routing changes covers every subscription that moves, and not much more."""

import numpy as np
import pytest

from nearcast import Box
from nearcast.partition import PARTITIONERS, Sample
from nearcast.partition.balance.adjust import adjust
from nearcast.partition.balance.cells import Period
from nearcast.partition.balance.changed_area import changed_area
from nearcast.partition.tree import Tree
from nearcast.workload import make

BY_NAME = {partitioner.name: partitioner for partitioner in PARTITIONERS}


@pytest.fixture(scope="module")
def sample():
    import pyarrow as pa

    from nearcast.advice import Stream
    from nearcast.social import SocialGraph

    workload = make("tweets")
    subscriptions = pa.concat_tables(workload.subscriptions("boolean", 2_000, queries="q3")).combine_chunks()
    messages = pa.concat_tables(workload.messages(4_000)).combine_chunks()
    return Stream(
        "tweets", workload.space(), workload.vocabulary(), SocialGraph(), None, subscriptions, messages
    ).sample


@pytest.mark.parametrize("name", ["space_kd", "space_rtree", "hybrid", "location"])
def test_every_subscription_that_moves_is_within_the_area(sample, name):
    is_east = sample.messages.xs > np.median(sample.messages.xs)
    east, west = (sample.messages.take(np.flatnonzero(side)) for side in (is_east, ~is_east))
    before = BY_NAME[name].fit(Sample(sample.footprints, west), n_shards=5).fixed()
    made = adjust(before, Period.of(east, sample.footprints, counts_pairs=True), sigma=1.0)
    assert made is not None
    area = changed_area(before, made.routing)
    assert area is not None
    inside = area(sample.footprints.boxes)
    moves = (before.place(sample.footprints) != made.routing.place(sample.footprints)).any(axis=1)
    assert moves.any()
    assert inside[moves].all()
    again = changed_area(made.routing, made.routing)
    assert again is not None
    assert not again(sample.footprints.boxes).any()


def test_a_small_change_has_a_small_area(sample):
    before = BY_NAME["space_kd"].fit(sample, n_shards=8).fixed()
    shards = before.cell_shards.copy()
    shards[3] = 0
    area = changed_area(before, before.reassigned(shards))
    assert area is not None
    assert 0 < np.count_nonzero(area(sample.footprints.boxes)) < len(sample.footprints) / 2


@pytest.mark.parametrize("name", ["space_kd", "hybrid"])
def test_routings_that_were_fitted_apart_may_differ_anywhere(sample, name):
    first, second = (
        BY_NAME[name].fit(Sample(sample.footprints, sample.messages.slice(start, start + 500)), n_shards=4).fixed()
        for start in (0, 3_000)
    )
    assert changed_area(first, second) is None
    assert changed_area(first, BY_NAME["hash"].fit(sample, n_shards=4)) is None
    assert changed_area(first, BY_NAME[name].fit(sample, n_shards=5)) is None


def test_hybrids_with_other_terms_may_differ_anywhere(sample):
    before = BY_NAME["hybrid"].fit(sample, n_shards=4).fixed()
    leaf = int(before.owners.leaves[0])
    terms = np.array([5, 6])
    one = before.split(0, terms, shard=1) if not before.owners.are_divided[leaf] else before
    other = before.split(0, terms + 1, shard=1) if not before.owners.are_divided[leaf] else before
    if one is not before:
        assert changed_area(one, other) is None
        area = changed_area(before, one)
        assert area is not None
        box = before.tree.boxes(Box(-180, -90, 180, 90).as_tuple())[leaf]
        assert area(box[None, :]).all()


def test_a_tree_knows_the_leaves_that_it_was_cut_from():
    none = Tree(np.zeros(0, np.int8), np.zeros(0), np.zeros((0, 2), np.int32), 1)
    one = none.cut(0, axis=0, value=5.0)
    two = one.cut(0, axis=1, value=1.0).cut(2, axis=0, value=2.0)
    assert two.refines(one)
    assert two.refines(none)
    assert not one.refines(two)
    assert not two.refines(none.cut(0, axis=1, value=5.0))
    assert two.ancestors(one).tolist() == [0, 1, 0, 0]
    assert two.ancestors(none).tolist() == [0, 0, 0, 0]
    assert one.ancestors(one).tolist() == [0, 1]
