"""Parts of space have equal costs."""

import numpy as np
import pytest

from nearcast.model import Footprints, MessageBatch
from nearcast.partition.base import Sample
from nearcast.partition.location import LocationPartitioner, even_cut
from nearcast.text import Vocabulary


def footprints_at(xs, ys):
    n = len(xs)
    none = np.zeros(0, np.int64)
    needs = np.zeros(n, np.bool_)
    indptr = np.zeros(n + 1, np.int64)
    return Footprints.of_any_term(
        np.arange(n, dtype=np.uint64), xs, ys, np.ones(n, np.int32), indptr, none, needs=needs
    )


def messages_at(xs, ys):
    return MessageBatch.from_columns(
        ids=list(range(len(xs))), xs=xs, ys=ys, ats_us=np.zeros(len(xs), np.int64), places=[None] * len(xs),
        texts=[""] * len(xs), vocabulary=Vocabulary.with_weights({}),
    )  # fmt: skip


@pytest.mark.parametrize("n_shards", [2, 3, 8, 32])
def test_costs_are_even_where_subscriptions_and_messages_are_dense_in_different_places(n_shards):
    rng = np.random.default_rng(n_shards)
    subscriptions = footprints_at(rng.normal(3, 1, 20_000), rng.normal(3, 1, 20_000))
    messages = messages_at(rng.normal(4, 2, 20_000), rng.normal(4, 2, 20_000))
    routing = LocationPartitioner().fit(Sample(subscriptions, messages), n_shards=n_shards)
    assignment = routing.tree.leaves_at(subscriptions.xs, subscriptions.ys)
    seen = routing.tree.leaves_at(messages.xs, messages.ys)
    costs = np.bincount(assignment, minlength=n_shards) * np.bincount(seen, minlength=n_shards).astype(float)
    assert costs.min() > 0
    assert costs.max() / costs.mean() < 2.0
    assert np.log2(routing.place(subscriptions)[:, 0].astype(float)).tolist() == assignment.tolist()


def test_the_cut_depends_on_messages():
    points = np.arange(100.0)
    assert even_cut(points, np.zeros(0), (1, 1)) == 49.0
    assert even_cut(points, np.full(1_000, 5.0), (1, 1)) < 49.0
    assert even_cut(points, np.zeros(0), (1, 3)) == 24.0
