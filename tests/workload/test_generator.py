import dataclasses
import subprocess
import sys
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from nearcast.errors import InvalidInput
from nearcast.text import tokenize
from nearcast.workload import MESSAGES, WORKLOADS, make

NAMES = [workload.name for workload in WORKLOADS]


def whole(tables):
    return pa.concat_tables(tables).combine_chunks()


def serialised(table):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue().to_pybytes()


def test_the_workloads_are_named():
    assert NAMES == ["tweets", "places", "reviews", "drift", "incidents"]


@pytest.mark.parametrize("name", NAMES)
def test_messages_have_exactly_the_columns_of_the_design(name):
    table = next(make(name).messages(10))
    assert table.schema.equals(MESSAGES)
    assert [(field.name, str(field.type)) for field in table.schema] == [
        ("id", "string"),
        ("x", "double"),
        ("y", "double"),
        ("text", "list<item: string>"),
        ("at", "timestamp[us, tz=UTC]"),
        ("place", "string"),
    ]
    assert table["place"].null_count == 10
    assert all(table[column].null_count == 0 for column in ("id", "x", "y", "text", "at"))


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_bytes(name):
    first, second = (whole(make(name, seed=9).messages(9_000)) for _ in range(2))
    assert serialised(first) == serialised(second)


@pytest.mark.parametrize("name", NAMES)
def test_neither_block_size_nor_start_matters(name):
    workload = make(name, seed=4)
    expected = whole(workload.messages(20_000))
    assert whole(workload.messages(20_000, block=777)).equals(expected)
    assert whole(workload.messages(20_000, block=50_000)).equals(expected)
    assert whole(workload.messages(300, start=16_300, block=128)).equals(expected.slice(16_300, 300))


def test_another_process_sees_the_same_bytes():
    code = "from nearcast.workload import make; print(next(make('tweets', seed=5).messages(3)).to_pylist())"
    outputs = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
        for _ in range(2)
    }
    assert outputs == {f"{next(make('tweets', seed=5).messages(3)).to_pylist()}\n"}


def test_different_seeds_and_workloads_differ():
    drawn = [next(make(name, seed=seed).messages(50)) for name in NAMES for seed in (0, 1)]
    for column in ("x", "y", "text"):
        assert len({str(table[column].to_pylist()) for table in drawn}) == len(drawn)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "incidents"])
def test_messages_have_the_configured_number_of_terms_and_at_least_one(name):
    workload = make(name, seed=1)
    sizes = pc.list_value_length(whole(workload.messages(16_384))["text"]).to_numpy()
    assert sizes.min() == 1
    assert abs(sizes.mean() / workload.terms_mean - 1) < 0.03
    assert sizes.std() > 0.4 * sizes.mean()


@pytest.mark.parametrize("name", NAMES)
def test_a_message_holds_a_term_once(name):
    for terms in next(make(name).messages(3_000))["text"].to_pylist():
        assert len(set(terms)) == len(terms)


@pytest.mark.parametrize("name", NAMES)
def test_every_term_of_a_message_tokenizes_to_itself(name):
    for terms in next(make(name).messages(1_000))["text"].to_pylist():
        assert tokenize(" ".join(terms)) == terms


def test_vocabularies_are_as_large_as_in_the_papers():
    assert [len(make(name).terms()) for name in NAMES] == [1_700_000, 53_931, 85_000, 200_000, 20_000]


def distinct_terms(workload, n, start=0):
    return pc.count_distinct(whole(workload.messages(n, start=start))["text"].combine_chunks().flatten()).as_py()


def test_the_vocabulary_of_tweets_grows_with_the_stream():
    tweets = make("tweets", seed=3)
    seen = [distinct_terms(tweets, n) for n in (2_000, 8_000, 32_000)]
    assert 1.7 < seen[1] / seen[0] < 4
    assert 1.7 < seen[2] / seen[1] < 4
    assert distinct_terms(tweets, 8_192, start=4_000_000) > 1.2 * distinct_terms(tweets, 8_192)
    sizes = [tweets.terms_at(message) for message in (0, 10_000, 1_000_000, 12_700_000, 10**9)]
    assert sizes == sorted(sizes)
    assert sizes[-2:] == [1_700_000, 1_700_000]


def test_a_message_uses_only_terms_of_the_vocabulary_so_far():
    tweets = make("tweets", seed=3)
    terms = whole(tweets.messages(8_192))["text"].combine_chunks().flatten()
    ranks = pc.index_in(terms, value_set=tweets.terms()).to_numpy()
    assert ranks.max() < tweets.terms_at(8_191)


def test_no_term_of_tweets_is_a_stop_word():
    terms = whole(make("tweets", seed=6).messages(20_000))["text"].combine_chunks().flatten()
    frequent = max(pc.value_counts(terms).field("counts").to_pylist()) / 20_000
    assert 0.01 < frequent < 0.05


def test_some_terms_occur_together():
    tweets = make("tweets", seed=8)
    together = alone = 0
    first, partner = tweets.terms()[10].as_py(), tweets.terms()[11].as_py()
    for terms in whole(tweets.messages(40_000))["text"].to_pylist():
        if first in terms:
            together += partner in terms
            alone += partner not in terms
    assert 0.15 < together / (together + alone) < 0.5  # 0.026 if terms were independent


def test_times_start_at_the_epoch_and_increase_at_the_rate():
    at = whole(make("tweets", rate=3_000).messages(9_001))["at"].cast(pa.int64()).to_numpy()
    assert np.all(np.diff(at) > 0)
    assert at[9_000] - at[0] == 3_000_000
    fastest = whole(make("tweets", rate=1e6).messages(9_000))["at"].cast(pa.int64()).to_numpy()
    assert np.all(np.diff(fastest) == 1)


def test_ids_count_from_zero():
    assert next(make("places").messages(2, start=99_999))["id"].to_pylist() == ["m99999", "m100000"]


def test_the_space_is_the_earth_within_the_bounds():
    workload = make("tweets")
    space = workload.space(max_distance=500_000)
    assert (space.bounds, space.metric, space.max_distance) == (workload.bounds, "haversine", 500_000)
    assert workload.space().max_distance > 4_000_000


def test_a_fitted_vocabulary_weighs_rare_terms_more_and_is_seeded():
    places = make("places", seed=2)
    vocabulary = places.vocabulary(sample=20_000)
    terms = places.terms()
    assert vocabulary.idf(terms[0].as_py()) < vocabulary.idf(terms[500].as_py()) < vocabulary.idf("unheard")
    again = make("places", seed=2).vocabulary(sample=20_000)
    assert np.array_equal(vocabulary.ids, again.ids) and np.array_equal(vocabulary.idfs, again.idfs)
    assert not np.array_equal(vocabulary.ids, make("places", seed=3).vocabulary(sample=20_000).ids)


def test_a_fitted_vocabulary_counts_the_documents_of_its_sample():
    assert make("places").vocabulary(sample=100).default == pytest.approx(np.log(101))


def test_memory_stays_flat_while_messages_and_subscriptions_stream():
    tweets = make("tweets", seed=1)
    streams = (tweets.messages(200_000), tweets.subscriptions("boolean", 200_000, queries="q2"))
    for stream in streams:
        next(stream)  # builds tables that are reused
        tracemalloc.start()
        arrow, most = pa.total_allocated_bytes(), 0
        for _ in stream:
            most = max(most, pa.total_allocated_bytes() - arrow)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 20e6  # all 200,000 rows would be 100 MB and more
        assert peak < 40e6


def test_importing_loads_no_heavy_library():
    code = "import sys, nearcast.workload; print('numba' in sys.modules, 'rich' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "False False\n"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("terms_mean", 0.5),
        ("terms_shape", 0),
        ("phrases", 1.0),
        ("archive", 0),
        ("heaps", 1.5),
        ("lead", 0),
        ("rate", 0.0),
        ("rate", 2e6),
        ("seed", -1),
        ("seed", True),
    ],
)
def test_bad_options_of_a_workload_are_refused(field, value):
    with pytest.raises(InvalidInput, match=rf"{field} must be .* \(workload 'tweets'\)"):
        dataclasses.replace(make("tweets"), **{field: value})


def test_messages_of_one_term_are_possible():
    terse = dataclasses.replace(make("places"), terms_mean=1.0)
    assert set(pc.list_value_length(next(terse.messages(100))["text"]).to_pylist()) == {1}


def test_an_unknown_workload_is_refused():
    with pytest.raises(
        InvalidInput, match="workload must be one of tweets, places, reviews, drift, incidents; got 'tweet'"
    ):
        make("tweet")
