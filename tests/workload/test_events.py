"""The workload `incidents`: its statistics are those of the recorded stream that it stands for."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from nearcast.errors import InvalidInput
from nearcast.workload import Events, make
from nearcast.workload.events import first_origins
from nearcast.workload.sample import TermRanks
from nearcast.workload.streams import BLOCK

N = 4 * BLOCK


@pytest.fixture(scope="module")
def stream():
    return pa.concat_tables(make("incidents", seed=2).messages(N)).combine_chunks()


def points(table):
    return list(zip(table["x"].to_pylist(), table["y"].to_pylist(), strict=True))


def test_texts_are_long_and_made_of_few_frequent_words(stream):
    texts = stream["text"].to_pylist()
    assert 28 < np.mean([len(text) for text in texts]) < 37
    shares = sorted((count / N for count in Counter(word for text in texts for word in text).values()), reverse=True)
    assert 0.6 < shares[0] < 0.85
    assert 0.3 < shares[10] < 0.65
    assert 0.02 < shares[100] < 0.1
    assert shares[1_000] < 0.01


def test_half_of_the_messages_lie_at_a_point_of_an_earlier_one_mostly_a_recent_one(stream):
    last, lags = {}, []
    for i, point in enumerate(points(stream)):
        if point in last:
            lags.append(i - last[point])
        last[point] = i
    assert 0.4 < len(lags) / N < 0.6
    assert np.median(lags) < 20
    assert np.percentile(lags, 90) > 1_000  # sites where events happen again


def test_some_texts_repeat_at_their_point(stream):
    both = {(*point, *text) for point, text in zip(points(stream), stream["text"].to_pylist(), strict=True)}
    assert 0.01 < 1 - len(both) / N < 0.06


def test_revisions_share_the_point_and_most_words_with_what_they_revise(stream):
    by_point = {}
    for point, text in zip(points(stream), stream["text"].to_pylist(), strict=True):
        by_point.setdefault(point, []).append(set(text))
    pairs = [texts[:2] for texts in by_point.values() if len(texts) == 2]
    alike = [len(a & b) / len(a | b) for a, b in pairs]
    assert np.median(alike) > 0.9


def test_times_come_in_bursts_and_gaps_at_the_rate_of_the_workload(stream):
    at = stream["at"].cast(pa.int64()).to_numpy()
    gaps = np.diff(at)
    assert gaps.min() >= 0
    assert gaps.mean() == pytest.approx(1_000, rel=0.02)
    assert np.median(gaps) < 600
    assert 6_000 < np.percentile(gaps, 99) < 12_000
    assert np.sort(gaps)[-3] > 0.04 * BLOCK * 1_000  # a silence per block


def test_categories_have_forms_of_their_own(stream):
    texts = [set(text) for text in stream["text"].to_pylist()[:2_000]]
    alike = [len(a & b) for a, b in pairwise(texts)]
    assert max(alike) > 2 * np.mean(alike)


def test_messages_of_a_community_come_from_its_places_and_repeat():
    workload = make("incidents", seed=2)
    community = workload.social(600)
    table = next(workload.messages(500, community=community))
    assert table["place"].null_count == 0
    places = table["place"].to_pylist()
    assert np.mean([place in places[max(0, i - 40) : i] for i, place in enumerate(places)]) > 0.4


def test_subscriptions_are_made_from_events():
    workload = make("incidents", seed=2)
    table = next(workload.subscriptions("topk", 400))
    frequent = set(workload.terms()[:120].to_pylist())
    words = [word for keywords in table["keywords"].to_pylist() for word in keywords.split()]
    assert 0.5 < np.mean([word in frequent for word in words]) < 0.9


def test_an_origin_is_followed_to_the_first_message_of_the_event():
    assert first_origins(np.array([0, 0, 1, 3, 2, 3])).tolist() == [0, 0, 0, 3, 0, 3]
    origins = Events(revised=0.99, lag=2.0).origins(np.random.default_rng(1), 1_000)
    firsts = first_origins(origins)
    assert (firsts <= origins).all() and (origins[firsts] == firsts).all()


def test_rows_of_terms_are_followed_by_others_once_each():
    rows = TermRanks(np.array([0, 2, 2, 3]), np.array([5, 6, 7]))
    both = rows.followed_by(TermRanks(np.array([0, 2, 3, 3]), np.array([6, 8, 9])))
    assert both.indptr.tolist() == [0, 3, 4, 5]
    assert both.ranks.tolist() == [5, 6, 8, 9, 7]


def test_a_stream_without_revisions_and_silences_is_possible():
    workload = replace(make("incidents"), events=Events(revised=0.0, silence=0.0, at_sites=0.0))
    table = next(workload.messages(1_000))
    assert len(set(points(table))) > 990


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("most_frequent", 1.0),
        ("at_sites", -0.1),
        ("revised", 1.0),
        ("verbatim", float("nan")),
        ("silence", 1.0),
        ("lag", 0.5),
        ("lag", float("inf")),
        ("half", 0.0),
        ("spread", float("nan")),
        ("form_words", 0),
    ],
)
def test_bad_options_of_events_are_refused(field, value):
    with pytest.raises(InvalidInput, match=rf"{field} must be .* \(events\)"):
        Events(**{field: value})
