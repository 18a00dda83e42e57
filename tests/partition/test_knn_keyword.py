"""The cost of subscriptions is assigned evenly."""

from dataclasses import replace

import numpy as np
import pytest

import nearcast as nc
from nearcast.model import MessageBatch, SubscriptionBatch
from nearcast.partition.base import Sample
from nearcast.partition.knn_keyword import KnnKeywordPartitioner
from nearcast.partition.masks import as_ints
from nearcast.testing import strategies


def sampled(texts, keywords):
    scoring = strategies.scoring()
    messages = [nc.Message(i, (0, 0), text) for i, text in enumerate(texts)]
    subscriptions = [
        nc.NearestSubscription(f"s{i}", location=(0, 0), keywords=words, k=1) for i, words in enumerate(keywords)
    ]
    footprints = SubscriptionBatch.of(subscriptions, scoring).footprints
    return Sample(footprints, MessageBatch.from_messages(messages, vocabulary=scoring.vocabulary))


def test_costs_equal_equation_1_and_the_most_expensive_is_assigned_first():
    texts = ["a b", "a c", "a", "d"]  # P(a) = 3/4, P(b) = P(c) = P(d) = 1/4
    sample = sampled(texts, ["a b", "a", "c", "d z", "c d"])  # 1, 0.75, 0.25, 0.25, 0.5
    routing = KnnKeywordPartitioner().fit(sample, n_shards=2)
    assert as_ints(routing.place(sample.footprints)) == [1, 2, 1, 1, 2]
    assert routing.loads.tolist() == [1.5, 1.25]


def test_a_later_subscription_goes_to_the_least_loaded_shard_and_adds_to_its_load():
    sample = sampled(["a", "a b"], ["a", "b"])
    routing = KnnKeywordPartitioner().fit(sample, n_shards=2)
    assert routing.loads.tolist() == [1.0, 0.5]
    later = sampled([], ["x", "y", "a", "a"]).footprints.take(np.array([2, 3]))
    later = replace(later, keys=later.keys + np.uint64(7))
    assert [as_ints(routing.place(later.take(np.array([i])))) for i in (0, 1)] == [[2], [1]]
    assert routing.loads.tolist() == [2.0, 1.5]
    assert as_ints(routing.place(sample.footprints)) == [1, 2], "placed subscriptions stay"


@pytest.mark.parametrize("n_shards", [2, 8, 32])
def test_loads_are_even_although_terms_are_skewed(n_shards):
    rng = np.random.default_rng(n_shards)
    words = [f"w{i}" for i in range(300)]
    published = rng.zipf(1.3, (2_000, 3)) % 300
    requested = rng.zipf(1.3, (2_000, 2)) % 300
    sample = sampled([[words[i] for i in row] for row in published], [[words[i] for i in row] for row in requested])
    loads = KnnKeywordPartitioner().fit(sample, n_shards=n_shards).loads
    assert loads.max() - loads.min() < 0.02 * loads.mean()
