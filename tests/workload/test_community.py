import itertools

import numpy as np
import pyarrow as pa
import pytest

from nearcast.errors import InvalidInput
from nearcast.workload import make


@pytest.fixture(scope="module")
def community():
    return make("reviews", seed=2).social(6_000)


def whole(tables):
    return pa.concat_tables(tables).combine_chunks()


def degrees(community):
    return np.diff(community.graph.user_indptr)


def test_there_are_six_users_per_place_by_default(community):
    assert (community.users, community.places) == (6_000, 1_000)
    assert make("reviews").social(10, places=3).places == 3
    assert make("reviews").social(2).places == 1


def test_every_user_has_been_somewhere_and_ids_are_numbered(community):
    assert set(community.graph.users) == {f"u{i}" for i in range(6_000)}
    assert set(community.graph.places) <= {f"p{i}" for i in range(1_000)}
    assert degrees(community).min() == 1


def test_users_have_four_places_on_average_and_a_few_have_many(community):
    counts = np.sort(degrees(community))
    assert 3 < counts.mean() < 5
    assert np.median(counts) <= 2
    assert counts[-1] > 60
    assert counts[-60:].sum() > 0.1 * counts.sum()  # one user in a hundred has a tenth of the check-ins


def pairs_with_two_common_places(graph_places, indptr, sample):
    """Count the pairs of some users that share two places or more."""
    rows = [set(graph_places[indptr[u] : indptr[u + 1]].tolist()) for u in sample]
    return sum(len(one & other) >= 2 for one, other in itertools.combinations(rows, 2))


def test_users_share_more_places_than_by_chance(community):
    graph = community.graph
    sample = np.flatnonzero((degrees(community) > 2) & (degrees(community) < 10))[
        :1_000
    ]  # without the users of very many places
    shared = pairs_with_two_common_places(graph.user_places, graph.user_indptr, sample)
    shuffled = np.random.default_rng(0).permutation(graph.user_places)
    assert shared > 5 * pairs_with_two_common_places(shuffled, graph.user_indptr, sample)


def test_the_same_seed_gives_the_same_community():
    reviews = make("reviews", seed=2)
    first, second, other = reviews.social(300), reviews.social(300), reviews.social(300, seed=3)
    assert first.graph.edges() == second.graph.edges() != other.graph.edges()
    assert np.array_equal(first.xs, second.xs) and not np.array_equal(first.xs, other.xs)


def test_places_lie_in_the_bounds(community):
    bounds = make("reviews").bounds
    assert all(bounds.contains(x, y) for x, y in zip(community.xs, community.ys, strict=True))


def test_a_message_of_a_community_lies_at_the_place_that_publishes_it(community):
    table = next(make("reviews", seed=2).messages(500, community=community))
    for row in table.to_pylist():
        place = int(row["place"].removeprefix("p"))
        assert (row["x"], row["y"]) == (community.xs[place], community.ys[place])


def test_a_community_changes_where_messages_lie_and_nothing_else(community):
    reviews = make("reviews", seed=2)
    without, within = next(reviews.messages(500)), next(reviews.messages(500, community=community))
    for name in ("id", "text", "at"):
        assert without[name].equals(within[name])
    assert not without["x"].equals(within["x"])


def test_messages_of_a_community_do_not_depend_on_the_table_size(community):
    places = make("places", seed=2)
    expected = whole(places.messages(10_000, community=community))
    assert whole(places.messages(200, start=8_100, block=64, community=community)).equals(expected.slice(8_100, 200))


def test_places_with_more_users_publish_more(community):
    table = whole(make("places", seed=2).messages(40_000, community=community))
    numbers = [int(place.removeprefix("p")) for place in table["place"].to_pylist()]
    published = np.bincount(numbers, minlength=community.places)
    popularity = np.diff(community.popularity, prepend=0.0)
    assert np.corrcoef(published, popularity)[0, 1] > 0.95


@pytest.mark.parametrize("bad", [{"users": 0}, {"users": 2.5}, {"users": 5, "places": 0}])
def test_bad_options_of_a_community_are_refused(bad):
    with pytest.raises(InvalidInput, match="must be an integer of 1 or more"):
        make("places").social(**bad)
