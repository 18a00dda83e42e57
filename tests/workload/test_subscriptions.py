import itertools
from math import cos, radians

import numpy as np
import pyarrow as pa
import pytest

from nearcast.errors import InvalidInput
from nearcast.text import tokenize
from nearcast.workload import MAKERS, QUERIES, SUBSCRIPTIONS, WORKLOADS, make

KINDS = [maker.kind for maker in MAKERS]
NAMES = [workload.name for workload in WORKLOADS]
N = 9_000
KM = 1 / 111.1951  # degrees of latitude

USED = {
    "boolean": {"xmin", "ymin", "xmax", "ymax"},
    "similarity": {"x", "y", "delta", "tau"},
    "topk": {"x", "y", "k", "alpha"},
    "nearest": {"x", "y", "k"},
    "social": {"x", "y", "k", "user"},
}


def whole(tables):
    return pa.concat_tables(tables).combine_chunks()


def subscriptions(name, kind, n=N, *, seed=1, **options):
    workload = make(name, seed=seed)
    community = workload.social(12_000) if kind == "social" else None
    return whole(workload.subscriptions(kind, n, community=community, **options))


def column(table, name):
    return table[name].to_numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_the_columns_are_those_of_the_design_and_a_kind_fills_its_own(kind):
    table = subscriptions("places", kind, 100)
    assert table.schema.equals(SUBSCRIPTIONS)
    assert [f"{field.name} {field.type}" for field in table.schema] == [
        "op string",
        "id string",
        "kind string",
        *(f"{name} double" for name in ("x", "y", "xmin", "ymin", "xmax", "ymax")),
        "region string",
        "radius double",
        "keywords string",
        "require string",
        "k int32",
        *(f"{name} double" for name in ("alpha", "delta", "tau")),
        "user string",
        "where string",
        "expires_at timestamp[us, tz=UTC]",
        "at timestamp[us, tz=UTC]",
    ]
    for name in table.column_names:
        filled = name in USED[kind] | {"op", "id", "kind", "keywords"}
        assert table[name].null_count == (0 if filled else 100), name
    assert set(table["op"].to_pylist()) == {"subscribe"}
    assert set(table["kind"].to_pylist()) == {kind}


@pytest.mark.parametrize("kind", KINDS)
def test_a_subscription_depends_on_seed_and_number_only(kind):
    workload = make("tweets", seed=3)
    community = workload.social(20_000) if kind == "social" else None

    def made(n, **options):
        return whole(workload.subscriptions(kind, n, community=community, **options))

    expected = made(18_000)
    assert made(18_000, block=999).equals(expected)
    assert made(500, start=8_000, block=70_000).equals(expected.slice(8_000, 500))
    assert not subscriptions("tweets", kind, 500, seed=4).equals(expected.slice(0, 500))
    assert len(set(expected["id"].to_pylist())) == 18_000


def test_ids_of_kinds_do_not_collide():
    assert len({maker.prefix for maker in MAKERS} | {"m", "u", "p"}) == len(MAKERS) + 3


def test_kinds_and_messages_are_independent_but_share_their_cities():
    tweets = make("tweets", seed=2)
    xs = [column(whole(tweets.subscriptions(kind, N)), "x") for kind in ("similarity", "topk", "nearest")]
    xs.append(column(whole(tweets.messages(N)), "x"))
    for one, other in itertools.combinations(xs, 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.05
        shares = [np.histogram(points, bins=60, range=(-125, -66.5))[0] / N for points in (one, other)]
        assert np.corrcoef(*shares)[0, 1] > 0.95


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("kind", "most"), [("topk", 5), ("similarity", 5), ("nearest", 5), ("social", 11)])
def test_keywords_are_distinct_terms_up_to_the_number_of_the_paper(name, kind, most):
    rows = [keywords.split(" ") for keywords in subscriptions(name, kind, 2_000)["keywords"].to_pylist()]
    sizes = np.array([len(row) for row in rows])
    assert sizes.min() == 1
    assert sizes.max() == most or name == "places"
    assert all(tokenize(" ".join(row)) == row and len(set(row)) == len(row) for row in rows)
    assert {term for row in rows for term in row} <= set(make(name).terms().to_pylist())


def test_the_number_of_keywords_is_uniform_where_messages_are_long_enough():
    sizes = [keywords.count(" ") + 1 for keywords in subscriptions("reviews", "topk")["keywords"].to_pylist()]
    shares = np.bincount(sizes, minlength=6)[1:] / N
    np.testing.assert_allclose(shares, 0.2, atol=0.02)


def is_uniform(values, low, high):
    parts = np.histogram(values, bins=10, range=(low, high))[0] / len(values)
    return low <= values.min() and values.max() <= high and np.all(np.abs(parts - 0.1) < 0.02)


def test_topk_has_alpha_from_0_to_1_and_the_k_given():
    table = subscriptions("tweets", "topk")
    assert is_uniform(column(table, "alpha"), 0, 1)
    assert set(table["k"].to_pylist()) == {20}
    assert set(subscriptions("tweets", "topk", 100, k=7)["k"].to_pylist()) == {7}


def test_similarity_has_delta_from_0_and_tau_from_a_half_to_1():
    table = subscriptions("tweets", "similarity")
    assert is_uniform(column(table, "delta"), 0, 1)
    assert is_uniform(column(table, "tau"), 0.5, 1)


@pytest.mark.parametrize("kind", ["nearest", "social"])
def test_k_is_uniform_up_to_the_greatest(kind):
    shares = np.bincount(column(subscriptions("places", kind), "k"), minlength=11)
    assert shares[0] == 0 and len(shares) == 11
    np.testing.assert_allclose(shares[1:] / N, 0.1, atol=0.02)
    assert set(subscriptions("places", kind, 500, k=3)["k"].to_pylist()) == {1, 2, 3}


def test_social_has_one_subscription_per_user_anywhere_in_the_bounds():
    table = subscriptions("reviews", "social")
    assert table["user"].to_pylist() == [f"u{i}" for i in range(N)]
    assert is_uniform(column(table, "x"), -125, -66.5)
    assert is_uniform(column(table, "y"), 24.5, 49.5)


def sides_km(table):
    """Return the sides of the squares that no border cut, in kilometres, as (across, along)."""
    xmin, ymin, xmax, ymax = (column(table, name) for name in ("xmin", "ymin", "xmax", "ymax"))
    inside = (xmin > -125) & (xmax < -66.5) & (ymin > 24.5) & (ymax < 49.5)
    replica_planner = np.array([cos(radians(y)) for y in (ymin + ymax) / 2])
    return ((xmax - xmin) * replica_planner / KM)[inside], ((ymax - ymin) / KM)[inside]


@pytest.mark.parametrize(("queries", "longest"), [("q1", 50), ("q2", 100)])
def test_boolean_regions_are_squares_of_the_right_size_within_the_bounds(queries, longest):
    table = subscriptions("tweets", "boolean", queries=queries)
    across, along = sides_km(table)
    assert len(across) > 0.95 * N
    np.testing.assert_allclose(across, along, rtol=1e-6)
    assert is_uniform(np.clip(along, 1, longest), 1, longest)
    assert along.min() > 0.999 and along.max() < longest * 1.001
    assert column(table, "xmin").min() >= -125 and column(table, "xmax").max() <= -66.5
    assert column(table, "ymin").min() >= 24.5 and column(table, "ymax").max() <= 49.5
    assert np.all(column(table, "xmin") <= column(table, "xmax"))


def keywords_of(expression):
    return [word for word in expression.split(" ") if word not in ("AND", "OR")]


@pytest.mark.parametrize("queries", QUERIES)
def test_boolean_expressions_join_one_to_three_terms_with_one_operator(queries):
    rows = subscriptions("tweets", "boolean", queries=queries)["keywords"].to_pylist()
    sizes = np.bincount([len(keywords_of(row)) for row in rows], minlength=4)
    assert sizes[0] == 0 and len(sizes) == 4
    np.testing.assert_allclose(sizes[1:] / N, 1 / 3, atol=0.04)
    assert all(not (" AND " in row and " OR " in row) for row in rows)
    ands, ors = (sum(operator in row for row in rows) for operator in (" AND ", " OR "))
    assert abs(ands / (ands + ors) - 0.5) < 0.03
    for row in rows:
        words = keywords_of(row)
        assert tokenize(" ".join(words)) == words
        assert row in (" AND ".join(words), " OR ".join(words))


@pytest.fixture(scope="module")
def frequent_terms():
    return {name: set(make(name).terms()[: len(make(name).terms()) // 100].to_pylist()) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_q2_has_a_keyword_outside_the_most_frequent_hundredth(name, frequent_terms):
    rare = [
        any(word not in frequent_terms[name] for word in keywords_of(row))
        for row in subscriptions(name, "boolean", queries="q2")["keywords"].to_pylist()
    ]
    assert all(rare)


def test_q1_keywords_have_the_frequencies_of_terms(frequent_terms):
    tweets = make("tweets", seed=1)
    rows = subscriptions("tweets", "boolean")["keywords"].to_pylist()
    words = [word for row in rows for word in keywords_of(row)]
    published = [term for terms in whole(tweets.messages(N, start=5_000_000))["text"].to_pylist() for term in terms]
    shares = [np.mean([term in frequent_terms["tweets"] for term in terms]) for terms in (words, published)]
    assert 0.4 < shares[1] < 0.8
    assert abs(shares[0] - shares[1]) < 0.02


def test_q3_gives_each_of_a_hundred_regions_one_rule(frequent_terms):
    table = subscriptions("tweets", "boolean", 60_000, queries="q3")
    xs = (column(table, "xmin") + column(table, "xmax")) / 2
    ys = (column(table, "ymin") + column(table, "ymax")) / 2
    sides = (column(table, "ymax") - column(table, "ymin")) / KM
    regions = ((xs + 125) / 5.85).astype(int) + 10 * ((ys - 24.5) / 2.5).astype(int)
    rare = np.array(
        [
            any(word not in frequent_terms["tweets"] for word in keywords_of(row))
            for row in table["keywords"].to_pylist()
        ]
    )
    at_border = (column(table, "xmin") == -125) | (column(table, "xmax") == -66.5)
    at_border |= (column(table, "ymin") == 24.5) | (column(table, "ymax") == 49.5)
    wide, narrow = [], []
    for region in range(100):
        here = (regions == region) & ~at_border
        if here.sum() < 100:
            continue
        (wide if sides[here].max() > 60 else narrow).append(region)
        if region in wide:
            assert np.all(rare[here])
            assert 40 < sides[here].mean() < 61
        else:
            assert sides[here].max() < 50.1
            assert 0.3 < np.mean(rare[here]) < 0.9
    assert len(wide) > 25 and len(narrow) > 25


def test_an_and_of_two_terms_matches_real_messages_sometimes():
    tweets = make("tweets", seed=1)
    pairs = {
        frozenset(keywords_of(row))
        for row in whole(tweets.subscriptions("boolean", 50_000))["keywords"].to_pylist()
        if row.count(" AND ") == 1
    }
    matches = sum(
        frozenset(pair) in pairs
        for terms in next(tweets.messages(2_000))["text"].to_pylist()
        for pair in itertools.combinations(terms, 2)
    )
    assert matches > 200


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"kind": "range"}, "kind must be one of boolean, similarity, topk, nearest, social; got 'range'"),
        ({"kind": "boolean", "queries": "q4"}, "queries must be one of q1, q2, q3; got 'q4'"),
        ({"kind": "topk", "k": 0}, "k must be 1 or more; got 0"),
        ({"kind": "social"}, "community must be given for kind 'social'"),
        ({"kind": "topk", "start": -1}, "start must be an integer of 0 or more; got -1"),
    ],
)
def test_bad_options_of_subscriptions_are_refused_at_once(options, reason):
    with pytest.raises(InvalidInput, match=reason):
        make("places").subscriptions(n=10, **options)


def test_a_community_has_no_more_subscriptions_than_users():
    places = make("places")
    community = places.social(50)
    assert sum(t.num_rows for t in places.subscriptions("social", 50, community=community)) == 50
    with pytest.raises(InvalidInput, match="must not exceed 50"):
        places.subscriptions("social", 40, start=11, community=community)
