"""The question `cliffs`: its cases change the uniform workload as they say, and its rows compare with it."""

import pyarrow as pa
import pytest
from experiments.cliffs import CASES, KINDS, UNIFORM, Bench, Case, _ratios, measure_deletes, measure_kind
from experiments.pages.cliffs import verdict

import nearcast as nc
from experiments import cliffs

BY_NAME = {case.name: case for case in CASES}


def messages_of(case, kind="boolean", n=600):
    bench = Bench(kind, case, subscriptions=120, window=nc.CountWindow(100))
    return pa.concat_tables(bench.batches(n)).combine_chunks()


def test_copies_differ_in_their_ids_only():
    table = messages_of(BY_NAME["bursts of copies of a message"])
    assert len(set(table["id"].to_pylist())) == 600
    assert len({str(text) for text in table["text"].to_pylist()}) == 2
    assert len(set(zip(table["x"].to_pylist(), table["y"].to_pylist(), strict=True))) == 2


def test_messages_of_a_case_are_at_one_point_long_or_of_one_place():
    assert len(set(messages_of(BY_NAME["all messages at one point"])["x"].to_pylist())) == 1
    assert {len(text) for text in messages_of(BY_NAME["messages of 300 terms"], n=5)["text"].to_pylist()} == {300}
    places = messages_of(BY_NAME["one place with half of the messages"], "social")["place"].to_pylist()
    assert 300 <= places.count(places[0]) < 400


def test_half_of_the_messages_have_the_one_word_of_all_subscriptions():
    case = BY_NAME["all subscriptions with one word"]
    bench = Bench("boolean", case, subscriptions=50, window=nc.CountWindow(100))
    bench.subscribe()
    (word,) = {str(one.keywords) for one in bench.engine.subscriptions()}
    texts = messages_of(case)["text"].to_pylist()
    assert 290 <= sum(word in text for text in texts) <= 340


@pytest.mark.parametrize("kind", KINDS)
def test_subscriptions_at_one_point_are_valid(kind):
    bench = Bench(kind, BY_NAME["all subscriptions at one point"], subscriptions=50, window=nc.CountWindow(100))
    assert bench.subscribe()[0] == 50


def test_a_user_has_all_places():
    bench = Bench("social", BY_NAME["a user with 10,000 places"], subscriptions=120, window=nc.CountWindow(100))
    assert all(bench.community.graph.score("u0", f"p{i}") == 1 for i in range(bench.community.places))


def test_the_least_ratio_counts():
    uniform = {"us_per_message": 10.0, "updates_per_message": 2.0, "terms_per_message": 10.0}
    ratios = _ratios({"us_per_message": 60.0, "updates_per_message": 4.0, "terms_per_message": 100.0}, uniform)
    assert ratios == {
        "per_message": 6.0,
        "per_update": 3.0,
        "per_term": pytest.approx(0.6),
        "ratio": pytest.approx(0.6),
    }
    rare = _ratios({"us_per_message": 20.0, "updates_per_message": 0.0, "terms_per_message": 10.0}, uniform)
    assert rare["ratio"] == 2.0


def test_rows_compare_each_case_with_the_uniform_workload(monkeypatch):
    monkeypatch.setattr(cliffs, "CASES", (UNIFORM, Case("k = 1,000", ("topk",), k=1_000)))
    rows = measure_kind("topk", 0.002)
    assert [row["case"] for row in rows] == ["uniform", "k = 1,000"]
    assert rows[0]["ratio"] == 1.0 and rows[1]["ratio"] > 0
    assert rows[1]["subscriptions"] == 1_000 and rows[1]["messages"] == 2_000


def test_the_rows_of_deletes_count_what_was_deleted(monkeypatch):
    monkeypatch.setattr(cliffs, "KINDS", ("boolean",))
    assert [row["deleted"] for row in measure_deletes(0.002)] == [500, 500]


def test_a_goal_names_what_is_beyond_it():
    assert verdict([("a", 1.0), ("b", 6.0)], at_most=5.0).endswith("not reached by b: 6.00.")
