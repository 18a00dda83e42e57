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


@pytest.mark.parametrize("seed", range(5))
def test_a_link_names_a_user_who_accounts_for_the_score(seed):
    rng = random.Random(seed)
    edges = {(f"u{rng.randrange(12)}", f"p{rng.randrange(9)}") for _ in range(rng.randint(1, 40))}
    graph = nc.SocialGraph(sorted(edges))
    places = {user: {p for u, p in edges if u == user} for user in graph.users}
    for user in graph.users:
        for place in [*graph.places, "nowhere", None]:
            link, score = graph.link(user, place), graph.score(user, place)
            if score == 0:
                assert link is None
            elif place in places[user]:
                assert link.user == user
            else:
                shared = places[user] & places[link.user]
                assert place in places[link.user] and set(link.shared_places) == shared
                assert score == pytest.approx(2 * len(shared) / (len(places[user]) + len(places[link.user])))


@pytest.mark.parametrize(
    ("place", "note"),
    [
        ("cafe", "ann is connected to cafe"),
        ("gym", "bob, who shares 1 place with ann, is connected to gym"),
        ("pool", "no connection between ann and pool"),
        (None, "the message has no place"),
    ],
)
def test_an_explanation_says_who_connects_user_and_place(place, note):
    edges = [("ann", "cafe"), ("ann", "bar"), ("bob", "bar"), ("bob", "gym"), ("eve", "pool")]
    engine = nc.Engine(space=nc.Space(nc.Box(0, 0, 1, 1)), social=nc.SocialGraph(edges), window=nc.CountWindow(3))
    engine.subscribe(nc.SocialSubscription("s", (0.5, 0.5), "jazz", k=1, user="ann"))
    explained = engine.explain("s", nc.Message("m", (0.5, 0.5), "jazz", place=place))
    assert [part.note for part in explained.parts if part.name == "social"] == [note]


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
