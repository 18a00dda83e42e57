"""Scores follow changes of edges, and kernels agree with the reference."""

import random

import numpy as np
import pytest

import nearcast as nc
from nearcast.social._kernels import graph as kernels


def random_edges(rng, n):
    return [(f"u{rng.randrange(14)}", rng.choice([f"p{rng.randrange(10)}", rng.randrange(3)])) for _ in range(n)]


def assert_loops_agree(graph):
    arrays = graph.arrays
    users, places = np.zeros(len(graph.users)), np.zeros(len(graph.places))
    counts, others = np.zeros(len(graph.users), np.int32), np.zeros(len(graph.users), np.int32)
    met = np.zeros(len(graph.users) + len(graph.places), np.int32)
    for place, p in graph.places.items():
        expected = {u: graph.score(user, place) for user, u in graph.users.items()}
        n = kernels.users_near(arrays, p, users, met)
        assert {u: users[u] for u in met[:n].tolist()} == {u: s for u, s in expected.items() if s > kernels.SLACK}
        assert {u: kernels.social_score(arrays, u, users, counts, others) for u in expected} == expected
        users[met[:n]] = 0.0
    for user, u in graph.users.items():
        n = kernels.all_places_near(arrays, u, places, met, counts, others)
        expected = {p: graph.score(user, place) for place, p in graph.places.items()}
        assert {p: places[p] for p in met[:n].tolist()} == {p: s for p, s in expected.items() if s > 0.0}
        places[met[:n]] = 0.0
    assert not counts.any()


@pytest.mark.parametrize("seed", range(6))
def test_a_changed_graph_equals_one_built_from_the_same_edges(seed):
    rng = random.Random(seed)
    edges = set(random_edges(rng, 20))
    graph = nc.SocialGraph(edges)
    for _ in range(12):
        before = {(u, p): graph.score(u, p) for u in graph.users for p in graph.places}
        if rng.random() < 0.5:
            coming = random_edges(rng, rng.randint(1, 3))
            touched, edges = graph.add_edges(coming), edges | set(coming)
        else:
            going = rng.sample(sorted(edges, key=str), rng.randint(0, min(3, len(edges))))
            touched, edges = graph.remove_edges(going), edges - set(going)
        fresh = nc.SocialGraph(edges)
        assert set(graph.edges()) == edges and len(graph) == len(edges)
        for user in graph.users:
            for place in graph.places:
                score = graph.score(user, place)
                assert score == fresh.score(user, place)
                assert score == before.get((user, place), 0.0) or user in touched
        assert_loops_agree(graph)


def test_a_copy_is_independent():
    graph = nc.SocialGraph([("ann", "cafe"), ("bob", "bar")])
    copy = graph.copy()
    copy.add_edges([("ann", "gym"), ("eve", "bar")])
    assert graph.edges() == [("ann", "cafe"), ("bob", "bar")]
    assert graph.score("ann", "gym") == 0.0 and copy.score("ann", "gym") == 1.0
    graph.remove_edges([("bob", "bar")])
    assert copy.score("eve", "bar") == 1.0


def test_numbers_do_not_depend_on_the_order_of_edges():
    edges = random_edges(random.Random(1), 30)
    one, other = nc.SocialGraph(edges), nc.SocialGraph(reversed(edges))
    assert one.users == other.users and one.places == other.places
    assert one.edges() == other.edges()


def test_numbers_stay_when_users_and_places_are_added():
    graph = nc.SocialGraph([("bob", "bar"), ("eve", "gym")])
    before = dict(graph.users)
    graph.add_edges([("ann", "bar"), (7, "zoo")])
    assert {user: graph.users[user] for user in before} == before
    assert sorted(graph.users.values()) == [0, 1, 2, 3]
    again = nc.SocialGraph(graph.edges(), users=graph.users, places=graph.places)
    assert again.users == graph.users and again.places == graph.places


def test_removing_an_unknown_edge_is_refused():
    graph = nc.SocialGraph([("ann", "cafe"), ("bob", "bar")])
    with pytest.raises(nc.InvalidInput, match=r"must be edges of the social graph; got \('ann', 'bar'\)"):
        graph.remove_edges([("ann", "cafe"), ("ann", "bar")])
    assert graph.score("ann", "cafe") == 1.0, "nothing is half done"


def test_adding_existing_edges_changes_nothing():
    graph = nc.SocialGraph([("ann", "cafe")])
    assert graph.add_edges([("ann", "cafe")]) == []
    assert graph.add_edges([]) == graph.remove_edges([]) == []


def test_anything_but_an_edge_is_refused():
    with pytest.raises(nc.InvalidInput, match="edges must be pairs"):
        nc.SocialGraph().add_edges([("ann",)])


def test_an_empty_graph_has_arrays():
    graph = nc.SocialGraph()
    assert graph.arrays.neighbour_indptr.tolist() == [0]
    graph.add_edges([("ann", "cafe")])
    assert_loops_agree(graph)
