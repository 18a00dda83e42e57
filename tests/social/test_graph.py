"""The social score, against its definition."""

import random

import pytest

import nearcast as nc
from oracle import Oracle


@pytest.mark.parametrize("seed", range(5))
def test_scores_follow_the_definition(seed):
    rng = random.Random(seed)
    edges = [(f"u{rng.randrange(12)}", f"p{rng.randrange(9)}") for _ in range(rng.randint(1, 40))]
    graph = nc.SocialGraph(edges)
    oracle = Oracle(metric="euclidean", max_distance=1, weights={}, edges=edges, window=None)
    for user in graph.users:
        for place in [*graph.places, "nowhere", None]:
            assert graph.score(user, place) == pytest.approx(oracle.social(user, place))


def test_a_repeated_edge_counts_once():
    graph = nc.SocialGraph([("ann", "cafe"), ("ann", "cafe"), ("bob", "cafe")])
    assert len(graph) == 2
    assert graph.edges() == [("ann", "cafe"), ("bob", "cafe")]


def test_unknown_users_and_places_score_nothing():
    graph = nc.SocialGraph([("ann", "cafe")])
    assert graph.score("nobody", "cafe") == graph.score("ann", "nowhere") == graph.score("ann", None) == 0
    assert nc.SocialGraph().score("ann", "cafe") == 0


def test_ids_may_be_integers():
    assert nc.SocialGraph([(1, 2), (1, "2")]).score(1, 2) == 1
