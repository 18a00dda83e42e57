"""With Mt-KaHyPar, terms that occur together share a shard."""

import sys

import numpy as np
import pytest

import nearcast as nc
from nearcast.partition import PARTITIONERS
from nearcast.partition.base import Sample
from nearcast.partition.load import load_of
from nearcast.partition.masks import count_shards
from nearcast.partition.text_frequency import TextFrequencyPartitioner
from nearcast.partition.text_hypergraph import TextHypergraphPartitioner
from term_samples import footprints_of, messages_of

needs_library = pytest.mark.skipif(
    not TextHypergraphPartitioner.is_installed(),
    reason="mtkahypar is not installed: pip install 'nearcast[hypergraph]'",
)


def topics(n_topics=20, n=1_000, seed=0):
    """Return a sample in which each message and subscription has terms of one topic."""
    rng = np.random.default_rng(seed)

    def terms(n_terms):
        return {int(term) for term in rng.integers(0, n_topics) * 10 + rng.integers(0, 10, n_terms)}

    return Sample(footprints_of(*[[terms(1)] for _ in range(n)]), messages_of(*[terms(4) for _ in range(n)]))


@needs_library
def test_terms_that_occur_together_share_a_shard():
    sample = Sample(
        footprints_of([{1}], [{2}], [{3}], [{4}]), messages_of({1, 2}, {1, 2}, {1, 2}, {3, 4}, {3, 4}, {3, 4})
    )
    routing = TextHypergraphPartitioner().fit(sample, n_shards=2)
    one, two, three, four = routing.words.shards.tolist()
    assert one == two != three == four
    assert np.allclose(routing.loads, load_of([3, 3], [2, 2]))


@needs_library
@pytest.mark.parametrize("n_shards", [1, 2, 5])
def test_messages_of_a_topic_go_to_one_shard_and_loads_are_even(n_shards):
    sample = topics()
    routing = TextHypergraphPartitioner().fit(sample, n_shards=n_shards)
    baseline = TextFrequencyPartitioner().fit(sample, n_shards=n_shards)
    assert count_shards(routing.route(sample.messages)).mean() < 1.1
    assert routing.loads.max() < 1.2 * routing.loads.mean()
    assert routing.loads.sum() < baseline.loads.sum() or n_shards == 1


@needs_library
def test_fitting_is_repeatable():
    fitted = [TextHypergraphPartitioner().fit(topics(), n_shards=4).words.shards.tolist() for _ in range(2)]
    assert fitted[0] == fitted[1]


def test_a_missing_dependency_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mtkahypar", None)
    with pytest.raises(nc.StateError, match=r"mtkahypar must be installed .* pip install 'nearcast\[hypergraph\]'"):
        TextHypergraphPartitioner().fit(topics(), n_shards=4)


def test_the_partitioner_is_registered_where_the_library_is_installed():
    assert ("text_hypergraph" in [p.name for p in PARTITIONERS]) == TextHypergraphPartitioner.is_installed()
