"""The geo-social paper's Examples 2.1, 2.2 and 3.1."""

import pytest

import nearcast as nc
from nearcast.index.bounds import social as bounds
from nearcast.text import dice

# Figure 2 has no numbers: these edges agree with Example 2.2.
EDGES = [
    ("u0", "p0"),
    ("u1", "p1"), ("u1", "p2"),
    ("u2", "p1"), ("u2", "p2"), ("u2", "p4"),
    ("u3", "p4"), ("u3", "p3"),
    ("u4", "p2"), ("u4", "p3"), ("u4", "p4"),
    ("u6", "p4"),
]  # fmt: skip


def test_example_2_1_keyword_score():
    query, message = {"w1", "w2"}, {"w2", "w3", "w4"}
    assert dice(len(query & message), 0.0, len(query), 0.0, len(message), 0.0) == pytest.approx(0.4)


def test_example_2_2_social_score():
    graph = nc.SocialGraph(EDGES)
    assert graph.score("u0", "p0") == 1
    assert graph.score("u1", "p4") == pytest.approx(0.8)


def test_example_2_2_without_u2_the_score_is_the_next_best():
    graph = nc.SocialGraph([edge for edge in EDGES if edge[0] != "u2"])
    assert graph.score("u1", "p4") == pytest.approx(0.4)


def test_example_3_1_bound_of_a_node():
    text = bounds.upper_bound_text({"w0", "w1", "w2", "w3", "w4"}, {"w1", "w2", "w5"})
    assert text == pytest.approx(0.8)
    assert bounds.upper_bound_score(most_near=0.6, most_text=text, most_social=0.8) == pytest.approx(2.2)


def test_the_engine_adds_the_three_parts_up():
    engine = nc.Engine(
        space=nc.Space(nc.Box(0, 0, 1, 1), max_distance=1),
        window=nc.CountWindow(10),
        social=nc.SocialGraph(EDGES),
    )
    engine.subscribe([nc.SocialSubscription("q", location=(0, 0), keywords="w1 w2", k=1, user="u1")])
    (update,) = engine.publish([nc.Message("o", (0, 0.4), "w2 w3 w4", place="p4")])
    assert update.score == pytest.approx(0.6 + 0.4 + 0.8)
