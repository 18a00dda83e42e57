"""Routings that send every message to all shards: subscriptions move, by leaves of space or by cells of keys."""

from dataclasses import replace

import numpy as np
import pytest

from nearcast.partition.balance.adjust import adjust
from nearcast.partition.balance.adjustment import Adjustment
from nearcast.partition.balance.cells import Period
from nearcast.partition.balance.steps import Cut, Move
from nearcast.partition.balance.work import work_of
from nearcast.partition.base import Sample
from nearcast.partition.candidate_pairs import count_by_subscription, count_compared
from nearcast.partition.dkm import DkmPartitioner
from nearcast.partition.load import COMPARE, DELETE, HANDLE, INSERT
from nearcast.partition.location import LocationPartitioner
from nearcast.partition.masks import as_ints
from nearcast.partition.serialization import pack, unpack
from samples import crowded

ROUTINGS = pytest.mark.parametrize("partitioner", [LocationPartitioner(), DkmPartitioner()], ids=lambda one: one.name)


def shards_of(masks):
    return np.array([mask.bit_length() - 1 for mask in as_ints(masks)])


def world():
    sample = crowded(n=1_500, n_messages=800)
    n = len(sample.footprints)
    stored, deleted = sample.footprints.take(np.arange(n - 200)), sample.footprints.take(np.arange(n - 200, n))
    are_new = np.arange(len(stored)) % 3 == 0
    return sample, Period.of(sample.messages, stored, are_new=are_new, deleted=deleted, counts_pairs=True)


@ROUTINGS
def test_the_load_of_a_shard_is_that_of_its_subscriptions_and_of_all_messages(partitioner):
    sample, period = world()
    routing = partitioner.fit(sample, n_shards=5).fixed()
    shards, pairs = (
        shards_of(routing.place(period.footprints)),
        count_by_subscription(Sample(period.footprints, period.messages)),
    )
    gone = np.bincount(shards_of(routing.place(period.deleted)), minlength=5)
    expected = HANDLE * len(period.messages) + DELETE * gone
    np.add.at(expected, shards, COMPARE * pairs + INSERT * period.are_new)
    table = work_of(routing, period).table()
    assert np.allclose(table.shard_loads, expected)
    assert np.isclose(table.loads.sum(), expected.sum() - 5 * HANDLE * len(period.messages))
    assert table.sizes.sum() == period.sizes.sum()
    weighed = work_of(routing, period._replace(weight=3, message_weight=2)).table()
    of_pairs = np.bincount(shards, weights=COMPARE * pairs, minlength=5)
    rest = expected - of_pairs - HANDLE * len(period.messages)
    assert np.allclose(weighed.shard_loads, 6 * of_pairs + 3 * rest + 2 * HANDLE * len(period.messages))


def test_pairs_by_subscription_are_those_by_message():
    sample, _ = world()
    by_subscription = count_by_subscription(sample)
    assert by_subscription.sum() == count_compared(sample).sum() > 0
    footprint, document = sample.footprints, sample.messages.documents
    for row in (0, 7, 99):
        (terms,) = footprint[row].branches
        assert by_subscription[row] <= sum(not terms.isdisjoint(one.units) for one in document)


@ROUTINGS
def test_work_moves_until_shards_are_even(partitioner):
    """All subscriptions in one shard: its leaves are split, and the others take their parts."""
    sample, period = world()
    routing = partitioner.fit(sample, n_shards=5).fixed()
    routing = routing.reassigned(np.zeros_like(routing.cell_shards))
    made = adjust(routing, period, sigma=1.05)
    after = work_of(made.routing, period).table().shard_loads
    assert after.max() < 1.1 * after.min()
    assert np.allclose(made.adjustment.loads_after, after)
    assert {type(step) for step in made.adjustment.steps} == (
        {Cut, Move} if partitioner.name == "location" else {Move}
    )
    assert made.adjustment.moved_subscriptions == np.count_nonzero(shards_of(made.routing.place(period.footprints)))
    replayed = Adjustment.from_json(made.adjustment.to_json()).replay(unpack(pack(routing)))
    assert pack(replayed) == pack(made.routing)


def test_idle_leaves_go_to_one_shard_and_an_overloaded_one_is_split():
    """DSkype, section 7.4, with as many shards as before: one becomes free, and takes half of the busiest leaf."""
    sample, period = world()
    routing = LocationPartitioner().fit(sample, n_shards=4)
    xs, busy = period.messages.xs, period.footprints
    hot = busy.take(np.flatnonzero(routing.tree.leaves_at(busy.xs, busy.ys) == 2))
    loaded = Period.of(period.messages, hot, counts_pairs=True)
    assert len(xs) and adjust(routing, loaded, sigma=1.05) is not None
    made = adjust(routing, loaded, sigma=1.05).routing
    assert made.tree.n_leaves > 4
    assert len(np.unique(shards_of(made.place(hot)))) == 4, "all shards have a part of what one had"


def test_later_subscriptions_are_in_cells_of_their_own():
    """A fixed routing places them by key; an adjustment moves them as it moves those of the sample."""
    sample, _ = world()
    routing = DkmPartitioner().fit(sample, n_shards=4).fixed()
    later = replace(sample.footprints, keys=sample.footprints.keys + np.uint64(1))
    known, new = (set(routing.subscription_cells(some).cells.tolist()) for some in (sample.footprints, later))
    assert not known & new
    period = Period.of(sample.messages, later, counts_pairs=True)
    everything = routing.reassigned(np.where(np.arange(len(routing.cell_shards)) < 128, routing.cell_shards, 0))
    before, after = everything, adjust(everything, period, sigma=1.05).routing
    assert set(shards_of(before.place(later))) == {0}
    assert np.bincount(shards_of(after.place(later)), minlength=4).min() > 200
    assert as_ints(after.place(sample.footprints)) == as_ints(routing.place(sample.footprints))
