"""Loads are more even than by terms alone, and later subscriptions add to them."""

from dataclasses import replace

import numpy as np
import pytest

from nearcast.partition.base import Sample
from nearcast.partition.density_grid import DensityGrid
from nearcast.partition.dkm import GAMMA_1, DkmPartitioner, _Division
from nearcast.partition.knn_keyword import KnnKeywordPartitioner
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
