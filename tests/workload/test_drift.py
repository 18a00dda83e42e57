"""Hot spots wander, topics come and go, and both follow from the seed."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from nearcast.errors import InvalidInput
from nearcast.workload import Drift, make


def drifting(**changes):
    """Return the workload with fast changes."""
    made = make("drift", seed=3)
    return dataclasses.replace(made, drift=dataclasses.replace(made.drift, **changes))


def table_of(workload, n, start):
    return pa.concat_tables(workload.messages(n, start=start)).combine_chunks()


def distances_m(workload, table, start, spot):
    """Return the distance of each message from a hot spot, roughly."""
    positions = start + np.arange(len(table))
    xs, ys = workload.drift.spots_at(positions, np.full(len(table), spot), cities=workload.cities, seed=workload.seed)
    east = (table["x"].to_numpy() - xs) * np.cos(np.radians(ys))
    return np.hypot(east, table["y"].to_numpy() - ys) * 111_195


@pytest.mark.parametrize("start", [0, 700_000, 30_000_000])
def test_a_share_of_the_messages_lies_around_the_hot_spots_of_their_time(start):
    workload = make("drift", seed=3)
    table = table_of(workload, 20_000, start)
    nearest = np.min([distances_m(workload, table, start, spot) for spot in range(3)], axis=0)
    is_near = nearest < 3 * workload.drift.spread_m
    assert 0.48 < is_near.mean() < 0.6
    later = np.min([distances_m(workload, table, start + 4_000_000, spot) for spot in range(3)], axis=0)
    assert (later < 3 * workload.drift.spread_m).mean() < 0.2, "a way later they are elsewhere"


def test_a_hot_spot_is_never_far_from_where_it_was():
    workload = make("drift", seed=5)
    positions = np.arange(0, 24_000_000, 8_000)
    for spot in range(3):
        spots = np.full(len(positions), spot)
        xs, ys = workload.drift.spots_at(positions, spots, cities=workload.cities, seed=5)
        assert np.abs(np.diff(xs)).max() < 0.2
        assert np.abs(np.diff(ys)).max() < 0.1
        assert np.ptp(xs) > 5


def test_a_topic_is_frequent_while_it_lasts_and_at_no_other_time():
    workload = drifting(topics=1, topical=1.0, topic_terms=4, life=30_000)

    def most_frequent(start):
        terms = table_of(workload, 10_000, start)["text"].combine_chunks().flatten().value_counts()
        counts = {row["values"]: row["counts"] for row in terms.to_pylist()}
        return sorted(counts, key=counts.get)[-4:], counts

    first, counts = most_frequent(10_000)
    assert all(counts[term] > 4_000 for term in first)
    assert sorted(most_frequent(19_000)[0]) == sorted(first)
    other, counts = most_frequent(40_000)
    assert not set(other) & set(first)
    assert all(counts.get(term, 0) < 400 for term in first)


def test_without_a_share_of_them_hot_spots_and_topics_change_nothing():
    still = drifting(hot=0.0, topical=0.0)
    plain = dataclasses.replace(still, drift=None)
    assert table_of(still, 9_000, 100).equals(table_of(plain, 9_000, 100))


def test_subscriptions_are_where_hot_spots_are_at_any_time():
    workload = make("drift", seed=3)
    table = pa.concat_tables(workload.subscriptions("boolean", 20_000))
    ys = (table["ymin"].to_numpy() + table["ymax"].to_numpy()) / 2
    messages = table_of(workload, 20_000, 0)["y"].to_numpy()

    def densest(values):
        return np.histogram(values, bins=50, range=(24.5, 49.5))[0].max() / len(values)

    assert densest(ys) < densest(messages)
    still = make("tweets", seed=3)
    assert densest(ys) > 1 / 50
    assert workload.words.size < still.words.size


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hot": 1.5}, r"hot must be in \[0, 1\] in drift; got 1.5|hot must be in \[0, 1\]"),
        ({"topical": -0.1}, r"topical must be in \[0, 1\]"),
        ({"spots": 0}, "spots must be an integer of 1 or more"),
        ({"stay": 2.5}, "stay must be an integer of 1 or more"),
        ({"life": True}, "life must be an integer of 1 or more"),
        ({"topic_terms": -1}, "topic_terms must be an integer of 1 or more"),
        ({"spread_m": float("inf")}, "spread_m must be finite and 0 or more"),
        ({"spread_m": float("nan")}, "spread_m must be finite and 0 or more"),
    ],
)
def test_what_is_no_drift_is_refused(changes, message):
    with pytest.raises(InvalidInput, match=message):
        dataclasses.replace(make("drift").drift, **changes)
    assert isinstance(make("drift").drift, Drift)
