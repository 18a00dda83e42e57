"""Loads are more even than by terms alone, and later subscriptions add to them."""

from dataclasses import replace

import numpy as np
import pytest

from nearcast.partition.base import Sample
from nearcast.partition.density_grid import DensityGrid
from nearcast.partition.dkm import GAMMA_1, DkmPartitioner, _Division
from nearcast.partition.knn_keyword import KnnKeywordPartitioner
from nearcast.partition.knn_space import KnnSpacePartitioner
from nearcast.partition.masks import as_ints
from nearcast.partition.term_frequencies import TermFrequencies
from samples import crowded


def true_work(sample, routing, n_shards):
    """Return, per shard, the pairs of a subscription and a message with one of its terms in its dependency box."""
    frequencies = TermFrequencies.of(sample.messages)
    looks = DensityGrid.of(sample).dependency_boxes(sample.footprints, frequencies.costs(sample.footprints))
    assignment = np.log2(routing.place(sample.footprints)[:, 0].astype(float)).astype(int)
    terms = [set(d.units) for d in sample.messages.documents]
    work = np.zeros(n_shards)
    for row, (xmin, ymin, xmax, ymax) in enumerate(looks.tolist()):
        xs, ys = sample.messages.xs, sample.messages.ys
        near = np.flatnonzero((xs >= xmin) & (xs <= xmax) & (ys >= ymin) & (ys <= ymax))
        (branch,) = sample.footprints[row].branches
        work[assignment[row]] += sum(not branch.isdisjoint(terms[at]) for at in near.tolist())
    return work


def test_work_is_more_even_than_by_terms_alone():
    sample, n_shards = crowded(n=1_200, n_messages=1_500), 8
    spread = {}
    for partitioner in (DkmPartitioner(), KnnKeywordPartitioner()):
        work = true_work(sample, partitioner.fit(sample, n_shards=n_shards), n_shards)
        spread[partitioner.name] = float(work.max() - work.min()) / work.mean()
    assert spread["dkm"] < spread["knn_keyword"], spread


@pytest.mark.parametrize("n_shards", [1, 2, 8])
def test_every_subscription_is_in_one_set_and_loads_are_even(n_shards):
    sample = crowded()
    frequencies = TermFrequencies.of(sample.messages)
    looks = DensityGrid.of(sample).dependency_boxes(sample.footprints, frequencies.costs(sample.footprints))
    sets = _Division(sample.footprints, looks, frequencies, sample.messages).part(GAMMA_1 * n_shards)
    assert GAMMA_1 * n_shards <= len(sets) < GAMMA_1 * n_shards + 4
    assert np.sort(np.concatenate([rows for rows, _ in sets])).tolist() == list(range(len(sample.footprints)))
    assert [costs.sum() for _, costs in sets] == sorted((costs.sum() for _, costs in sets), reverse=True)
    loads = DkmPartitioner().fit(sample, n_shards=n_shards).loads
    assert np.isclose(loads.sum(), sum(costs.sum() for _, costs in sets))
    assert loads.max() - loads.min() < 0.05 * loads.mean()


def test_a_later_subscription_goes_to_the_least_loaded_shard_and_adds_to_its_load():
    sample = crowded()
    routing = DkmPartitioner().fit(sample, n_shards=4)
    later = replace(sample.footprints, keys=sample.footprints.keys + np.uint64(1))
    before = routing.loads.copy()
    first = as_ints(routing.place(later.take(np.array([0]))))
    assert first == [1 << int(np.argmin(before))]
    assert routing.loads.sum() > before.sum()
    routing.place(later)
    assert routing.loads.max() - routing.loads.min() < 0.05 * routing.loads.mean()


def test_an_empty_sample_is_accepted():
    routing = DkmPartitioner().fit(Sample.none(), n_shards=4)
    assignment = as_ints(routing.place(crowded(n=40).footprints))
    assert set(assignment) == {1, 2, 4, 8}


@pytest.mark.parametrize(
    "partitioner", [DkmPartitioner(), KnnKeywordPartitioner(), KnnSpacePartitioner()], ids=lambda one: one.name
)
def test_the_load_of_a_shard_falls_when_subscriptions_go(partitioner):
    """Those of the sample and later ones; who comes again is a later one."""
    sample = crowded()
    routing, footprints = partitioner.fit(sample, n_shards=4), sample.footprints
    first, later = routing.loads.copy(), replace(footprints, keys=footprints.keys + np.uint64(1))
    shards = shards_of(routing.place(later))
    release(routing, later, shards)
    assert np.allclose(routing.loads, first), "as if none had come"
    some = footprints.take(np.arange(0, len(footprints), 3))
    release(routing, some, shards_of(routing.place(some)))
    assert routing.loads.sum() < 0.9 * first.sum()
    release(routing, some, shards_of(routing.place(some)))
    rest = footprints.take(np.setdiff1d(np.arange(len(footprints)), np.arange(0, len(footprints), 3)))
    release(routing, rest, shards_of(routing.place(rest)))
    assert routing.loads.max() < 1e-6 * first.max(), "nothing is left"


def test_shards_stay_even_while_subscriptions_come_and_go():
    sample, n_shards = crowded(n=2_000), 8
    routing = DkmPartitioner().fit(sample, n_shards=n_shards)
    routing.place(sample.footprints)
    gone = np.flatnonzero(sample.footprints.xs < np.quantile(sample.footprints.xs, 0.3))
    leaving = sample.footprints.take(gone)
    release(routing, leaving, shards_of(routing.place(leaving)))
    coming = sample.footprints.take(np.random.default_rng(1).permutation(len(sample.footprints))[: len(gone)])
    routing.place(replace(coming, keys=coming.keys + np.uint64(1)))
    assert routing.loads.max() < 1.05 * routing.loads.mean()


def shards_of(masks):
    return np.array([mask.bit_length() - 1 for mask in as_ints(masks)])


def release(routing, footprints, shards):
    for shard in range(routing.n_shards):
        routing.release(footprints.take(np.flatnonzero(shards == shard)), shard)
