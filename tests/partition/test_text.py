"""Terms are assigned evenly, and terms that occur together share a shard."""

import os

import numpy as np
import pytest

from modes import MODES, check_passes
from nearcast.partition.base import Sample
from nearcast.partition.load import load_of
from nearcast.partition.masks import as_ints, count_rows, count_shards
from nearcast.partition.text_frequency import TextFrequencyPartitioner
from nearcast.partition.text_metric import TextMetricPartitioner
from nearcast.partition.text_postings import TermPostings
from nearcast.space import Box
from term_samples import footprints_of, messages_of

SMALL = "NEARCAST_TEST_SMALL" in os.environ
BOTH = [TextFrequencyPartitioner(), TextMetricPartitioner()]


def skewed(n=600 if SMALL else 3_000, seed=0):
    """Return a sample of topics of ten terms with skewed frequencies; subscriptions have one or two terms of a topic."""
    rng = np.random.default_rng(seed)

    def terms(n_terms):
        topic = int(rng.zipf(1.4)) % 40
        return {topic * 10 + int(term) % 10 for term in rng.zipf(1.3, n_terms)}

    messages = [terms(4) for _ in range(n)]
    subscriptions = [[terms(2)] if rng.random() < 0.5 else [terms(1), terms(1)] for _ in range(n)]
    return Sample(footprints_of(*subscriptions), messages_of(*messages))


def test_postings_are_messages_and_branches_by_term():
    sample = Sample(footprints_of([{1, 2}], [{1}, {3}], [{2, 9}], [set()]), messages_of({1, 2}, {1}, {1, 3}, set()))
    postings = TermPostings.of(sample)
    assert postings.terms.tolist() == [1, 2, 3, 9]
    assert postings.message_indptr.tolist() == [0, 3, 4, 5, 5]
    assert postings.message_rows.tolist() == [0, 1, 2, 0, 2]
    assert postings.held.tolist() == [1, 1, 1, 1], "under the rarest term of each branch"
    assert np.allclose(postings.costs(), load_of([3, 1, 1, 0], [1, 1, 1, 1]))


def test_text_frequency_assigns_the_most_expensive_term_first():
    # term 1 costs about 4 + 1, term 2 about 3 + 1, term 3 about 2, term 4 about 1
    sample = Sample(footprints_of([{1}], [{2}]), messages_of({1, 2}, {1, 2}, {1, 2, 3}, {1, 3}, {4}))
    routing = TextFrequencyPartitioner().fit(sample, n_shards=2)
    assert routing.words.terms.tolist() == [1, 2, 3, 4]
    assert routing.words.shards.tolist() == [0, 1, 1, 0]
    assert as_ints(routing.place(sample.footprints)) == [0b01, 0b10]
    assert as_ints(routing.route(sample.messages)) == [3, 3, 3, 3, 1]
    assert np.allclose(routing.loads, load_of([5, 4], [1, 1]))


def test_text_metric_keeps_terms_together_that_occur_together():
    sample = Sample(
        footprints_of([{1}], [{2}], [{3}], [{4}]), messages_of({1, 2}, {1, 2}, {1, 2}, {3, 4}, {3, 4}, {3, 4})
    )
    apart, together = (partitioner.fit(sample, n_shards=2) for partitioner in BOTH)
    assert apart.words.shards.tolist() == [0, 1, 0, 1]
    assert as_ints(apart.route(sample.messages)) == [3] * 6
    assert together.words.shards.tolist() == [0, 0, 1, 1]
    assert as_ints(together.route(sample.messages)) == [1, 1, 1, 2, 2, 2]
    assert np.allclose(together.loads, load_of([3, 3], [2, 2]))


@pytest.mark.parametrize("n_shards", [2, 8])
def test_text_metric_routes_messages_to_fewer_shards_and_lowers_the_greatest_load(n_shards):
    sample = skewed()
    by_frequency, by_metric = (partitioner.fit(sample, n_shards=n_shards) for partitioner in BOTH)
    reach = [count_shards(routing.route(sample.messages)).mean() for routing in (by_frequency, by_metric)]
    assert reach[1] < 0.8 * reach[0]
    assert by_metric.loads.sum() < by_frequency.loads.sum()
    assert by_metric.loads.max() < by_frequency.loads.max()


@pytest.mark.parametrize("partitioner", BOTH, ids=lambda p: p.name)
@pytest.mark.parametrize("n_shards", [1, 3, 8])
def test_loads_equal_those_of_the_sample_and_are_even(partitioner, n_shards):
    sample = skewed()
    routing = partitioner.fit(sample, n_shards=n_shards)
    assignment, seen = routing.place(sample.footprints), routing.route(sample.messages)
    held, sent = (count_rows(masks, n_shards) for masks in (assignment, seen))
    assert np.allclose(routing.loads, load_of(sent, held))
    assert routing.loads.max() < 1.5 * routing.loads.mean()
    assert np.bitwise_count(assignment).max() <= 2, "one shard per branch"
    assert routing.shard_areas(Box(0, 0, 1, 1)) == []
    assert routing.fixed() is routing


@pytest.mark.parametrize("partitioner", BOTH, ids=lambda p: p.name)
def test_an_empty_sample_is_accepted(partitioner):
    routing = partitioner.fit(Sample.none(), n_shards=4)
    assert as_ints(routing.place(footprints_of([{5}], [{6}, {7}], [set()]))) == [0b0010, 0b1100, 0b1111]
    assert as_ints(routing.route(messages_of({5, 7}, set()))) == [0b1010, 0b0001]
    assert routing.loads.tolist() == [0.0] * 4


@pytest.mark.soak
@pytest.mark.skipif(SMALL, reason="it would start itself again")
@pytest.mark.parametrize("mode", MODES)
def test_these_tests_pass_with(mode):
    check_passes(mode, __file__, NEARCAST_TEST_SMALL="1")
