"""The engine: steps, windows, lateness, replacement, tables, explanations, counts."""

import random
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

import nearcast as nc
from nearcast.engine import EngineConfig, StreamSlice
from nearcast.engine.shard_engine import ShardEngine
from nearcast.model import NO_TIME
from nearcast.model.columns import UPDATES

SPACE = nc.Space(nc.Box(0, 0, 10, 10), max_distance=10)


def engine(window=None, **options):
    return nc.Engine(space=SPACE, window=window or nc.CountWindow(3), **options)


def topk(id_="t", k=2, location=(0, 0), keywords="a", alpha=1.0):
    return nc.TopKSubscription(id_, location=location, keywords=keywords, k=k, alpha=alpha)


def at_x(id_, x, text="a", **fields):
    return nc.Message(id_, (x, 0), text, **fields)


def changes_of(updates):
    return [(u.seq, u.subscription, u.message, u.change) for u in updates]


def test_the_readme_example():
    e = nc.Engine(
        space=nc.Space(bounds=nc.Box(0, 0, 1, 1)),
        vocabulary=nc.Vocabulary.from_texts(["coffee sale", "jazz tonight"]),
        window=nc.CountWindow(1_000_000),
        social=nc.SocialGraph(edges=[("ann", "cafe")]),
        text_similarity="containment",
        workers=1,
        partitioner="hash",
    )
    e.subscribe([
        nc.BooleanSubscription(id="b1", region=nc.Box(0, 0, .5, .5), keywords="coffee AND (sale OR discount)"),
        nc.SimilaritySubscription(id="s1", location=(.2, .3), keywords="nike shoes", delta=.5, tau=.7),
        nc.TopKSubscription(id="t1", location=(.2, .3), keywords="jazz tonight", k=20, alpha=.5),
        nc.NearestSubscription(id="n1", location=(.2, .3), keywords="ramen sushi", k=5),
        nc.SocialSubscription(id="g1", location=(.2, .3), keywords="brunch", k=10, user="ann"),
    ])  # fmt: skip
    updates = e.publish([nc.Message(id="m1", location=(0.21, 0.3), text="Coffee sale today", at=None, place=None)])
    expected = "Update(seq=1, subscription='b1', message='m1', change='enter', score=1.0)"
    assert repr(updates[0]) == expected
    assert {u.subscription for u in updates} == {"b1", "g1"}


def test_messages_expire_before_one_arrives_and_a_message_that_enters_and_leaves_in_one_step_is_not_reported():
    e = engine(nc.CountWindow(1))
    e.subscribe([topk(k=1)])
    assert changes_of(e.publish([at_x("m1", 5)])) == [(1, "t", "m1", "enter")]
    # m2 is worse than m1, but m1 leaves in the same step.
    assert changes_of(e.publish([at_x("m2", 9)])) == [(2, "t", "m1", "leave"), (2, "t", "m2", "enter")]


def test_a_displaced_message_returns_when_a_better_one_expires():
    e = engine(nc.CountWindow(2))
    e.subscribe([topk(k=1)])
    updates = e.publish([at_x("near", 1), at_x("far", 5), at_x("farther", 7)])
    assert changes_of(updates) == [(1, "t", "near", "enter"), (3, "t", "near", "leave"), (3, "t", "far", "enter")]


def test_ties_go_to_the_newer_message_in_a_window_and_to_the_older_one_for_nearest():
    e = engine(nc.CountWindow(10))
    e.subscribe([topk(k=1), nc.NearestSubscription("n", location=(0, 0), keywords="a", k=1)])
    e.publish([at_x("old", 3), at_x("new", 3)])
    assert [r.message for r in e.results("t")] == ["new"]
    assert [r.message for r in e.results("n")] == ["old"]


def test_nearest_has_no_window_and_its_score_is_the_distance():
    e = engine(nc.CountWindow(1))
    e.subscribe([nc.NearestSubscription("n", location=(0, 0), keywords="a", k=2)])
    e.publish([at_x("m1", 1), at_x("m2", 7), at_x("m3", 9), at_x("m4", 5)])
    assert e.results("n") == [nc.Result("m1", 1.0), nc.Result("m4", 5.0)]


def test_a_message_expires_exactly_at_the_end_of_a_time_window():
    e = engine(nc.TimeWindow(10))
    e.subscribe([topk(k=5)])
    e.publish([at_x("m1", 1, at=100.0)])
    assert changes_of(e.publish([at_x("m2", 2, at=109.999999)])) == [(2, "t", "m2", "enter")]
    assert changes_of(e.publish([at_x("m3", 3, at=110.0)])) == [(3, "t", "m1", "leave"), (3, "t", "m3", "enter")]


def test_times_in_tenths_of_a_second_are_exact():
    e = engine(nc.TimeWindow(0.2))
    e.subscribe([topk(k=5)])
    e.publish([at_x("m1", 1, at=0.1)])
    assert (2, "t", "m1", "leave") in changes_of(e.publish([at_x("m2", 2, at=0.3)]))


def test_a_late_message_is_dropped_and_counted_but_takes_a_seq():
    e = engine(nc.TimeWindow(10))
    e.subscribe([topk(k=5), nc.BooleanSubscription("b", region=SPACE.bounds, keywords="a")])
    e.publish([at_x("m1", 1, at=100)])
    assert e.publish([at_x("late", 1, at=90)]) == []
    assert {u.seq for u in e.publish([at_x("m3", 1, at=95)])} == {3}
    stats = e.stats()
    assert (stats.messages, stats.late, stats.window) == (3, 1, 2)


def test_a_message_out_of_order_expires_by_its_own_time():
    e = engine(nc.TimeWindow(10))
    e.subscribe([topk(k=5)])
    e.publish([at_x("m1", 1, at=100), at_x("older", 2, at=95)])
    assert changes_of(e.advance(105)) == [(2, "t", "older", "leave")]
    assert [r.message for r in e.results("t")] == ["m1"]


def test_time_advances_without_messages_but_never_goes_backwards():
    e = engine(nc.TimeWindow(10))
    e.subscribe([topk(k=5)])
    e.publish([at_x("m1", 1, at=100)])
    assert e.advance(50) == []
    (update,) = e.advance(110)
    assert (update.seq, update.change, update.at) == (1, "leave", 110.0)
    assert e.publish([at_x("m2", 1, at=100)]) == []  # already expired
    assert e.stats().late == 1


def test_datetimes_and_seconds_are_the_same_time():
    start = datetime(2026, 1, 1, tzinfo=UTC)
    e = engine(nc.TimeWindow(10))
    e.subscribe([topk(k=5)])
    e.publish([at_x("m1", 1, at=start)])
    (enter,) = e.publish([at_x("m2", 1, at=start.timestamp() + 1)])
    assert enter.at == start.timestamp() + 1
    elsewhere = (start + timedelta(seconds=11)).astimezone()
    assert len(e.advance(elsewhere)) == 2


def test_a_new_subscription_starts_with_the_best_of_the_window():
    e = engine(nc.CountWindow(3), social=nc.SocialGraph([("ann", "cafe")]))
    e.publish([at_x("m1", 1), at_x("m2", 2), at_x("m3", 3), at_x("m4", 4)])
    updates = e.subscribe([
        topk(k=2),
        nc.SocialSubscription("g", location=(0, 0), keywords="z", k=1, user="ann"),
        nc.NearestSubscription("n", location=(0, 0), keywords="a", k=1),
        nc.BooleanSubscription("b", region=SPACE.bounds, keywords="a"),
    ])  # fmt: skip
    assert changes_of(updates) == [(4, "t", "m2", "enter"), (4, "t", "m3", "enter"), (4, "g", "m2", "enter")]


def test_replacing_a_subscription_returns_the_difference():
    e = engine(nc.CountWindow(10))
    e.subscribe([topk(k=2)])
    e.publish([at_x("m1", 1), at_x("m5", 5), at_x("m9", 9)])
    assert changes_of(e.subscribe([topk(k=2, location=(10, 0))])) == [
        (3, "t", "m1", "leave"),
        (3, "t", "m9", "enter"),
    ]
    assert len(e) == 1


def test_replacing_by_another_kind_ends_the_old_result():
    e = engine(nc.CountWindow(10))
    e.subscribe([topk("x", k=2)])
    e.publish([at_x("m1", 1)])
    assert changes_of(e.subscribe([nc.BooleanSubscription("x", region=SPACE.bounds, keywords="a")])) == [
        (1, "x", "m1", "leave")
    ]
    assert changes_of(e.subscribe([topk("x", k=2)])) == [(1, "x", "m1", "enter")]
    assert changes_of(e.subscribe([nc.NearestSubscription("x", location=(0, 0), keywords="a", k=1)])) == [
        (1, "x", "m1", "leave")
    ]
    assert e.stats().kinds["nearest"] == 1


def test_the_last_of_several_subscriptions_with_one_id_counts():
    e = engine()
    e.subscribe([topk("x", k=1), nc.BooleanSubscription("x", region=SPACE.bounds, keywords="a")])
    assert len(e) == 1
    assert [u.score for u in e.publish([at_x("m", 1)])] == [1.0]


def test_an_integer_and_its_string_are_different_ids():
    e = engine()
    e.subscribe([topk(7), topk("7")])
    assert len(e) == 2
    assert {u.subscription for u in e.publish([at_x("m", 1)])} == {7, "7"}


def test_results_of_stateless_kinds_are_the_matches_since_the_subscription_in_the_window():
    e = engine(nc.CountWindow(3))
    e.publish([at_x("before", 1)])
    e.subscribe([nc.SimilaritySubscription("s", location=(0, 0), keywords="a", delta=0.0, tau=0.5)])
    e.publish([at_x("m2", 4), at_x("m3", 2), at_x("far", 9)])
    assert e.results("s") == [nc.Result("m3", 0.8), nc.Result("m2", 0.6)]
    e.publish([at_x("m5", 3)])
    assert [r.message for r in e.results("s")] == ["m3", "m5"]


def test_text_may_be_a_list_of_terms_which_are_taken_verbatim():
    e = engine()
    e.subscribe([nc.BooleanSubscription("b", region=SPACE.bounds, keywords=["New York", "pizza"])])
    assert e.publish([nc.Message("m1", (0, 0), "New York pizza")]) == []
    assert len(e.publish([nc.Message("m2", (0, 0), ["pizza", "New York", "tonight"])])) == 1


def test_tf_counts_in_topk():
    vocabulary = nc.Vocabulary.with_weights({"a": 1.0, "b": 1.0})
    e = engine(nc.CountWindow(9), vocabulary=vocabulary)
    e.subscribe([topk(alpha=0.0, keywords="a")])
    e.publish([at_x("plain", 0, "a b"), at_x("twice", 0, "a a b")])
    best = e.results("t")
    assert [r.message for r in best] == ["twice", "plain"]
    assert best[0].score == pytest.approx(2 / 5**0.5)


def test_an_empty_batch_changes_nothing():
    e = engine()
    assert e.publish([]) == [] and e.subscribe([]) == [] and e.unsubscribe([]) is None
    assert e.publish(pa.table({"id": pa.array([], pa.string()), "x": pa.array([], pa.float64()),
                               "y": pa.array([], pa.float64()), "text": pa.array([], pa.string())})).num_rows == 0  # fmt: skip


def test_a_message_without_terms_matches_only_kinds_that_need_no_shared_term():
    e = engine(social=nc.SocialGraph([("ann", "cafe")]))
    e.subscribe([
        nc.SocialSubscription("g", location=(0, 0), keywords="z", k=1, user="ann"),
        nc.SimilaritySubscription("s", location=(0, 0), keywords="z", delta=0.5, tau=0.5),
        topk(),
    ])  # fmt: skip
    assert {u.subscription for u in e.publish([nc.Message("m", (0, 0), "?!")])} == {"g", "s"}


def test_terms_of_weight_zero_add_nothing_to_a_score():
    e = engine(vocabulary=nc.Vocabulary(documents=0, frequencies={}))
    e.subscribe([topk(alpha=0.5), nc.SimilaritySubscription("s", location=(0, 0), keywords="a", delta=1, tau=0.5)])
    (update,) = e.publish([at_x("m", 0)])
    assert (update.subscription, update.score) == ("t", 0.5)


# -- tables


def test_publishing_a_table_returns_a_table():
    e = engine(nc.CountWindow(9))
    subscribed = e.subscribe(pa.table({
        "op": ["subscribe", "subscribe"], "id": ["t", "b"], "kind": ["topk", "boolean"], "x": [0.0, None],
        "y": [0.0, None], "xmin": [None, 0.0], "ymin": [None, 0.0], "xmax": [None, 5.0], "ymax": [None, 5.0],
        "keywords": ["a", "a OR b"], "k": pa.array([2, None], pa.int32()), "alpha": [1.0, None],
    }))  # fmt: skip
    assert subscribed.schema == UPDATES and subscribed.num_rows == 0
    times = pa.array([datetime(2026, 1, 1, tzinfo=UTC), None], pa.timestamp("ms", "UTC"))
    published = e.publish(
        pa.table({"id": ["m1", "m2"], "x": [1.0, 2.0], "y": [0.0, 0.0], "text": ["a", "b c"], "at": times})
    )
    assert published.schema == UPDATES
    assert published.select(["seq", "subscription", "message"]).to_pylist() == [
        {"seq": 1, "subscription": "b", "message": "m1"},
        {"seq": 1, "subscription": "t", "message": "m1"},
        {"seq": 2, "subscription": "b", "message": "m2"},
    ]
    assert published["at"].to_pylist() == [datetime(2026, 1, 1, tzinfo=UTC)] * 3, "`now` of each step"
    assert e.unsubscribe(pa.table({"id": ["t"]})) is None
    assert len(e) == 1


def test_a_table_may_hold_integer_ids_large_strings_and_further_columns():
    e = engine()
    e.subscribe([topk(7)])
    table = pa.table({
        "id": pa.array([1], pa.int64()), "x": pa.array([1], pa.int32()), "y": [0.0],
        "text": pa.array(["a"], pa.large_string()), "at": pa.nulls(1), "colour": ["red"],
    })  # fmt: skip
    (row,) = e.publish(table).to_pylist()
    assert (row["subscription"], row["message"]) == ("7", "1")
    assert e.results(7) == [nc.Result(1, 0.9)]


def test_a_list_column_is_taken_as_terms():
    e = engine()
    e.subscribe([nc.BooleanSubscription("b", region=SPACE.bounds, keywords=["New York"])])
    table = pa.table({"id": ["m"], "x": [0.0], "y": [0.0], "text": [["New York"]]})
    assert e.publish(table).num_rows == 1


# -- explain and stats


def test_explain_returns_each_part_and_the_threshold():
    e = engine(nc.CountWindow(9))
    e.subscribe([topk(k=1, alpha=0.5)])
    e.publish([at_x("m1", 1), at_x("m2", 5), at_x("other", 0, "z")])
    best, worse, other = (e.explain("t", m) for m in ("m1", "m2", "other"))
    assert [(p.name, p.value, p.weight) for p in best.parts] == [("near", 0.9, 0.5), ("text", 1.0, 0.5)]
    assert (best.score, best.threshold, best.passes) == (0.95, 0.95, True)
    assert (worse.score, worse.threshold, worse.passes) == (0.75, 0.95, False)
    assert other.score is None and not other.passes and "text failed" in other.reason
    assert "near" in str(best) and "threshold 0.95" in str(best)


def test_explain_accepts_a_message_that_was_never_published():
    e = engine(nc.CountWindow(9))
    e.subscribe([topk(k=1)])
    e.publish([at_x("m1", 4)])
    assert e.explain("t", at_x("tie", 4)).passes, "newer, so it would win the tie"
    assert not e.explain("t", at_x("worse", 5)).passes
    assert e.stats().messages == 1, "explain does not publish"


def test_explain_by_id_uses_the_newest_message_with_the_id():
    e = engine(nc.CountWindow(9))
    e.subscribe([topk(k=1)])
    e.publish([at_x("again", 8), at_x("again", 2)])
    assert e.explain("t", "again").score == 0.8


def test_explain_names_the_failed_part_of_boolean_and_similarity():
    e = engine()
    e.subscribe([
        nc.BooleanSubscription("b", region=nc.Box(0, 0, 1, 1), keywords="a AND b OR c"),
        nc.SimilaritySubscription("s", location=(0, 0), keywords="a", delta=0.5, tau=0.9),
    ])  # fmt: skip
    explain = lambda id_, x, text: e.explain(id_, at_x("m", x, text))  # noqa: E731
    assert explain("b", 0, "c").passes
    assert "region failed" in explain("b", 5, "c").reason
    assert "keywords failed" in explain("b", 0, "a").reason
    assert "region and keywords failed" in explain("b", 5, "z").reason
    assert [p.note for p in explain("b", 0, "z").parts][1] == "missing: c"
    assert explain("s", 0, "a").passes
    assert "near failed" in explain("s", 9, "a").reason
    assert "text failed" in explain("s", 0, "z").reason
    assert "text and near failed" in explain("s", 9, "z").reason


def test_explain_reports_messages_published_before_the_subscription():
    e = engine(nc.CountWindow(9))
    e.publish([at_x("m1", 1)])
    e.subscribe([nc.NearestSubscription("n", location=(0, 0), keywords="a", k=1)])
    explained = e.explain("n", "m1")
    assert not explained.passes and "before the subscription" in explained.reason


def test_stats_count_messages_subscriptions_and_work():
    e = engine(nc.CountWindow(2), workers=2, index="scan")
    e.subscribe([topk("t1", k=1), topk("t2", k=1), nc.BooleanSubscription("b", region=SPACE.bounds, keywords="z")])
    e.publish([at_x(f"m{i}", i) for i in range(4)])
    stats = e.stats()
    assert (stats.messages, stats.window, stats.subscriptions, stats.late) == (4, 2, 3, 0)
    assert stats.kinds == {"topk": 2, "boolean": 1}
    assert sum(stats.shards) == 3
    assert stats.visited == stats.verified == 12
    assert stats.work["boolean"].matched == 0
    assert stats.work["topk"].matched == stats.matched == 2  # m0 for both; m1 and m2 enter when another expires
    assert stats.memory_bytes > 1_000_000
    e.close()


def test_a_slice_of_the_stream_is_numbered_and_expires_as_the_whole_stream_does():
    whole, part = engine(nc.CountWindow(2)), ShardEngine.create(EngineConfig(space=SPACE, window=nc.CountWindow(2)))
    for e in (whole, part):
        e.subscribe([topk(k=1)])
    stream = [at_x("m1", 1), at_x("m2", 2, "b"), at_x("m3", 3, "b"), at_x("m4", 4)]
    stream_slice = StreamSlice(np.array([0, 3]), np.full(4, NO_TIME))
    published = part.publish_slice([stream[0], stream[3]], stream_slice).select(
        ["seq", "subscription", "message", "change"]
    )
    assert [tuple(row.values()) for row in published.to_pylist()] == changes_of(whole.publish(stream))
    assert part.stats().messages == 4


def test_a_slice_that_does_not_fit_its_messages_is_refused_and_changes_nothing():
    e = ShardEngine.create(EngineConfig(space=SPACE))
    for rows in ([0], [1, 0], [0, 4], [-1, 0]):
        with pytest.raises(nc.InvalidInput, match=r"stream_slice\.rows"):
            e.publish_slice([at_x("m1", 1), at_x("m2", 2)], StreamSlice(np.array(rows), np.full(4, NO_TIME)))
    assert e.stats().messages == 0


@pytest.mark.parametrize("kind", ["topk", "boolean"])
def test_a_conflated_batch_returns_the_net_updates(kind):
    rng = random.Random(kind)
    plain, conflating, by_table = (engine(window=nc.CountWindow(8)) for _ in range(3))
    region, point = nc.Box(0, 0, 8, 8), (1, 1)
    if kind == "topk":
        wanted = [nc.TopKSubscription(i, point, "a", k=i + 1, alpha=0.5) for i in range(4)]
    else:
        wanted = [nc.BooleanSubscription(i, region, "a OR b") for i in range(4)]
    for one in (plain, conflating, by_table):
        one.subscribe(wanted)
    for size in (1, 7, 30, 12):
        messages = [
            nc.Message(f"m{rng.random()}", (rng.randrange(8), rng.randrange(8)), rng.choice("abc"))
            for _ in range(size)
        ]
        results: dict[object, set[object]] = {i: set() for i in range(4)}
        before = {i: {r.message for r in plain.results(i)} for i in range(4)} if kind == "topk" else results
        plain.publish(messages)
        emitted = conflating.publish(messages, conflate=True)
        columns = {
            "id": [m.id for m in messages], "x": [float(m.location[0]) for m in messages],
            "y": [float(m.location[1]) for m in messages], "text": [m.text for m in messages],
        }  # fmt: skip
        table = by_table.publish(pa.table(columns), conflate=True)
        rows = [(u.seq, str(u.subscription), u.message, u.change, u.score) for u in emitted]
        by_row = [
            [row[n] for n in ("seq", "subscription", "message", "change", "score")] for row in table.to_pylist()
        ]
        assert sorted(map(tuple, by_row)) == sorted(rows)
        if kind == "topk":
            for i in range(4):
                after = {r.message for r in plain.results(i)}
                changed = {(u.message, u.change) for u in emitted if u.subscription == i}
                assert changed == {(m, "enter") for m in after - before[i]} | {
                    (m, "leave") for m in before[i] - after
                }
        else:
            assert len(emitted) == 4 * sum(m.text in ("a", "b") for m in messages)
    assert conflating.stats().updates == by_table.stats().updates
