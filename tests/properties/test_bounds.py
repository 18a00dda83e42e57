"""The papers' bounds are safe: they never rule out a match."""

import itertools
import random

from nearcast.index.bounds import similarity, social, topk
from nearcast.text import dice

SHARES = (0.0, 0.1, 0.5, 0.9, 1.0)


def with_seeds(n):
    """Run a test on many seeds; a failure names the seed."""

    def decorate(check):
        def test():
            for seed in range(n):
                try:
                    check(random.Random(seed))
                except AssertionError as error:
                    raise AssertionError(f"seed {seed}: {error}") from error

        test.__name__ = check.__name__
        return test

    return decorate


def random_weights(rng, n):
    return sorted((rng.choice([0.0, 0.5, 1.0, rng.uniform(0, 3)]) for _ in range(n)), reverse=True)


def share_or_random(rng):
    return rng.choice([*SHARES, rng.random()])


@with_seeds(3000)
def test_similarity_prefixes_and_spatial_bounds_lose_no_match(rng):
    weights = random_weights(rng, rng.randint(1, 6))
    delta, tau, near = share_or_random(rng), share_or_random(rng), share_or_random(rng)
    most_near = max(near, share_or_random(rng))
    shared = sorted(rng.sample(range(len(weights)), rng.randint(0, len(weights))))
    total = sum(weights)
    text = sum(weights[i] for i in shared) / total if total else 0.0
    if delta * text + (1 - delta) * near < tau + 1e-12:
        return  # no match, or too close to tell: the bounds may rule it out
    length = similarity.prefix_length(weights, delta=delta, tau=tau, most_near=most_near)
    if not shared:
        assert length is None
        assert near >= similarity.least_near_without_text(delta=delta, tau=tau) - 1e-12
        return
    assert length is None or shared[0] < length
    assert near >= similarity.least_near(weights, shared[0], delta=delta, tau=tau) - 1e-12
    if length is None:
        return
    # A message that shares only k terms before the k-th further prefix must share one inside it.
    ends = [length, *similarity.further_prefixes(weights, delta=delta, tau=tau, most_near=most_near)]
    for k, (start, end) in enumerate(itertools.pairwise(ends), start=1):
        before = [i for i in shared if i < start]
        if len(before) <= k and delta * sum(weights[i] for i in before) < (tau - (1 - delta) * most_near) * total:
            inside = [i for i in shared if start <= i < end]
            assert inside
            bound = similarity.least_near(weights, inside[0], delta=delta, tau=tau, others=k)
            assert near >= bound - 1e-12


@with_seeds(2000)
def test_topk_prefixes_and_bounds_lose_no_match(rng):
    terms = list(range(10))
    s = {t: rng.random() for t in sorted(rng.sample(terms, rng.randint(1, 6)))}
    m = {t: rng.random() for t in sorted(rng.sample(terms, rng.randint(1, 6)))}
    alpha, near, threshold = share_or_random(rng), rng.random(), rng.uniform(0, 1.5)
    most_near = min(1.0, near + rng.choice([0, 0.1]))
    cosine = sum(s[t] * m[t] for t in s.keys() & m.keys())
    weights, others = list(s.values()), list(m.values())
    assert topk.upper_bound_unseen(weights, others) >= cosine - 1e-12
    if alpha * near + (1 - alpha) * cosine < threshold + 1e-12 or not s.keys() & m.keys():
        return
    lam = topk.least_cosine(threshold=threshold, alpha=alpha, most_near=most_near)
    assert cosine >= lam - 1e-9
    length = topk.prefix_length(weights, needed=lam)
    positions = [sum(1 for t in m if t < own) for own in s]
    refined = topk.refined_prefix_length(weights, positions, others, needed=lam)
    assert refined <= length
    if lam > 0:
        assert list(s)[:refined] and set(list(s)[:refined]) & m.keys()


@with_seeds(500)
def test_a_node_bounds_the_text_of_all_its_subscriptions(rng):
    members = [set(rng.sample(range(12), rng.randint(1, 5))) for _ in range(rng.randint(1, 4))]
    message = set(rng.sample(range(12), rng.randint(0, 6)))
    bound = social.upper_bound_text(set().union(*members), message)
    for own in members:
        assert bound >= dice(len(own & message), 0.0, len(own), 0.0, len(message), 0.0) - 1e-12


def test_the_bounds_hold_at_the_ends_of_delta_and_alpha():
    assert similarity.prefix_length([1.0, 1.0], delta=0.0, tau=0.5) is None
    assert similarity.prefix_length([1.0, 1.0], delta=0.0, tau=0.5, most_near=0.2) == 0  # nothing can match
    assert similarity.prefix_length([1.0, 1.0], delta=1.0, tau=1.0) == 1
    assert similarity.least_near([1.0], 0, delta=1.0, tau=1.0) == 0.0
    assert similarity.least_near([1.0, 1.0], 1, delta=1.0, tau=1.0) == float("inf")
    assert topk.least_cosine(threshold=0.5, alpha=1.0) == float("-inf")
    assert topk.least_cosine(threshold=0.5, alpha=1.0, most_near=0.4) == float("inf")
