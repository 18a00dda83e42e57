"""Samples for tests of partitioners: a town, and some subscriptions outside it."""

from dataclasses import replace

import numpy as np

import nearcast as nc
from nearcast.model import MessageBatch, SubscriptionBatch
from nearcast.partition import Sample
from nearcast.testing import strategies


def crowded(n=2_000, n_messages=6_000, k=3, seed=0):
    rng = np.random.default_rng(seed)
    scoring = replace(strategies.scoring(), space=nc.Space(nc.Box(-100, -100, 200, 200)))
    words = ["a", "b", "c", "d"]

    def points(n):
        town = rng.random(n) < 0.7
        return np.where(town[:, None], rng.normal(20, 3, (n, 2)), rng.uniform(0, 100, (n, 2))).tolist()

    subscriptions = [
        nc.NearestSubscription(f"s{i}", location=tuple(at), keywords=words[i % 4], k=k)
        for i, at in enumerate(points(n))
    ]
    messages = [
        nc.Message(i, tuple(at), [words[j] for j in set((rng.zipf(1.5, 2) % 4).tolist())])
        for i, at in enumerate(points(n_messages))
    ]
    footprints = SubscriptionBatch.of(subscriptions, scoring).footprints
    return Sample(footprints, MessageBatch.from_messages(messages, vocabulary=scoring.vocabulary))
