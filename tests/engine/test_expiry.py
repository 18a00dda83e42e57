"""Messages that expire by a time of their own leave every result, whatever the window."""

import random
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

import nearcast as nc
from effort import sampled
from nearcast.engine import EngineConfig
from nearcast.engine.interleaved import Operations
from nearcast.engine.shard_engine import ShardEngine
from nearcast.engine.shard_set import ShardSet
from nearcast.engine.stream_slice import StreamSlice
from nearcast.model import NEVER, NO_TIME
from nearcast.model.columns import subscriptions_schema

SPACE = nc.Space(nc.Box(0, 0, 1, 1))
HERE = (0.5, 0.5)
WORDS = {"location": HERE, "keywords": "jazz"}
WINDOWS = [nc.CountWindow(10), nc.TimeWindow(1000)]


def engine_of(window=None, **options):
    social = nc.SocialGraph([("ann", "cafe"), ("bob", "cafe")])
    return nc.Engine(space=SPACE, window=window, social=social, **options)


def subscriptions(k=1):
    return [
        nc.BooleanSubscription("b", region=SPACE.bounds, keywords="jazz"),
        nc.SimilaritySubscription("s", delta=0.5, tau=0.5, **WORDS),
        nc.TopKSubscription("t", k=k, alpha=0.5, **WORDS),
        nc.NearestSubscription("n", k=k, **WORDS),
        nc.SocialSubscription("g", k=k, user="ann", **WORDS),
    ]


def message(id_, x=0.5, at=0.0, text="jazz", **fields):
    return nc.Message(id_, (x, 0.5), text, at=at, **fields)


def table_of(messages):
    return pa.table(
        {
            "id": [str(m.id) for m in messages],
            "x": [m.location[0] for m in messages],
            "y": [m.location[1] for m in messages],
            "text": [m.text for m in messages],
            "at": [m.at for m in messages],
            "expires_at": pa.array([m.expires_at for m in messages], pa.float64()),
        }
    )


def changes(updates):
    return sorted((str(u.subscription), str(u.message), u.change) for u in updates)


@pytest.mark.parametrize("window", WINDOWS)
def test_an_expired_message_leaves_every_kept_result_and_others_take_its_place(window):
    engine = engine_of(window)
    engine.subscribe(subscriptions())
    engine.publish([message("near", expires_at=10), message("far", 0.9)])
    scores = {id_: engine.results(id_)[0].score for id_ in "tng"}
    assert engine.advance(9.999999) == []
    updates = engine.advance(10)
    assert changes(updates) == sorted(
        (id_, *change) for id_ in "tng" for change in (("near", "leave"), ("far", "enter"))
    )
    assert {u.subscription: u.score for u in updates if u.change == "leave"} == scores
    assert all((u.seq, u.at) == (2, 10) for u in updates)
    for id_ in "bstng":
        assert [r.message for r in engine.results(id_)] == ["far"]
    with pytest.raises(nc.UnknownMessage):
        engine.retract(["near"])
    assert (engine.stats().window, engine.stats().late) == (1, 0)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("form", ["objects", "table", "groups"])
def test_a_batch_gives_the_same_updates_as_its_messages_one_by_one(window, form):
    rng = random.Random(1)
    made = []
    for i in range(90):
        at = float(i // 3)
        lasts = rng.choice([None, None, 0.5, 2.0, 20.0])
        made.append(message(i, rng.random(), at, expires_at=None if lasts is None else at + lasts))
    together, alone = engine_of(window), engine_of(window)
    for engine in (together, alone):
        engine.subscribe(subscriptions(k=3))
    expected = [update for one in made for update in alone.publish([one])]
    if form == "objects":
        assert [(u.seq, u.at) for u in together.publish(made)] == [(u.seq, u.at) for u in expected]
        return
    found = together.publish(table_of(made), grouped=form == "groups")
    rows = (nc.ungroup(found) if form == "groups" else found).to_pylist()
    assert sorted((r["seq"], r["subscription"], r["message"], r["change"]) for r in rows) == sorted(
        (u.seq, u.subscription, str(u.message), u.change) for u in expected
    )
    assert [r["seq"] for r in rows] == sorted(r["seq"] for r in rows)


def test_within_a_step_only_the_difference_is_reported():
    engine = engine_of(nc.CountWindow(10))
    engine.subscribe(subscriptions())
    engine.publish([message("old", 0.6, expires_at=5), message("fallback", 0.9)])
    assert changes(engine.publish([message("new", 0.5, at=5)])) == [
        ("b", "new", "enter"), ("g", "new", "enter"), ("g", "old", "leave"), ("n", "new", "enter"),
        ("n", "old", "leave"), ("s", "new", "enter"), ("t", "new", "enter"), ("t", "old", "leave"),
    ]  # fmt: skip


def test_two_messages_with_the_same_id_are_different_ones():
    engine = engine_of(nc.CountWindow(10))
    engine.subscribe([nc.NearestSubscription("n", k=1, **WORDS)])
    engine.publish([message("same", 0.6, expires_at=5)])
    updates = engine.publish([message("same", 0.7, at=5)])
    assert [(u.message, u.change) for u in updates] == [("same", "leave"), ("same", "enter")]


def test_without_a_window_nearest_gives_a_message_up():
    engine = engine_of()
    engine.subscribe([nc.NearestSubscription("n", k=1, **WORDS)])
    engine.publish([message("near", expires_at=5), message("far", 0.9)])
    assert changes(engine.publish([message("tea", text="tea", at=7)])) == [("n", "near", "leave")]
    assert engine.results("n") == []
    assert changes(engine.publish([message("farther", 0.95, at=8)])) == [("n", "farther", "enter")]


def test_nearest_is_filled_up_from_messages_after_the_subscription_only():
    engine = engine_of(nc.CountWindow(10))
    engine.publish([message("before", 0.55)])
    engine.subscribe([nc.NearestSubscription("n", k=1, **WORDS)])
    engine.publish([message("near", expires_at=5), message("after", 0.9)])
    assert changes(engine.advance(5)) == [("n", "after", "enter"), ("n", "near", "leave")]


def test_nearest_is_filled_up_from_the_window_as_it_is_at_that_step():
    engine = engine_of(nc.CountWindow(3))
    engine.subscribe([nc.NearestSubscription("n", k=1, **WORDS)])
    engine.publish([message("leaving", 0.6), message("near", expires_at=5), message("far", 0.9)])
    assert changes(engine.publish([message("tea", text="tea", at=5)])) == [
        ("n", "far", "enter"),
        ("n", "near", "leave"),
    ]


@pytest.mark.parametrize("at", [None, 3.0])
@pytest.mark.parametrize("window", [nc.CountWindow(2), None])
def test_a_message_that_has_expired_on_arrival_is_late(window, at):
    engine = engine_of(window)
    engine.subscribe([nc.NearestSubscription("n", k=5, **WORDS)])
    engine.publish([message("first", at=10)])
    assert engine.publish([message("late", at=at, expires_at=10)]) == []
    assert (engine.late_seqs, engine.stats().late, engine.stats().messages) == ((2,), 1, 2)
    assert engine.publish([message("just in time", at=at, expires_at=10.000001)]) != []
    assert engine.stats().window == (1 if window else 0)  # the late one took a place
    assert [r.message for r in engine.results("n")] == ["first", "just in time"]


def test_late_messages_of_a_time_window_are_counted_once():
    engine = engine_of(nc.TimeWindow(5))
    engine.publish([message("first", at=10), message("both", at=1, expires_at=2), message("own", at=8, expires_at=9)])
    assert (engine.late_seqs, engine.stats().late, engine.stats().window) == ((2, 3), 2, 1)


def test_an_expired_message_keeps_its_place_in_a_count_window():
    engine = engine_of(nc.CountWindow(3))
    engine.subscribe([nc.TopKSubscription("t", k=3, alpha=0.5, **WORDS)])
    engine.publish([message(0), message(1), message(2, expires_at=1)])
    engine.advance(1)
    assert changes(engine.publish([message(3, at=1)])) == [("t", "0", "leave"), ("t", "3", "enter")]
    assert engine.stats().window == 2


def test_a_replaced_message_does_not_expire_twice():
    engine = engine_of(nc.CountWindow(5))
    engine.subscribe(subscriptions())
    engine.publish([message("a", expires_at=5)])
    engine.replace([message("a", 0.6, at=1)])
    assert engine.advance(5) == []
    engine.replace([message("a", 0.7, at=6, expires_at=8)])
    updates = engine.replace([message("a", 0.8, at=8)])  # at the step at which it expires
    assert [[u.change for u in updates if u.subscription == id_] for id_ in "bstng"] == [["leave", "enter"]] * 5


@pytest.mark.parametrize(
    ("expires_at", "reason"),
    [
        (10, "expires_at must be later than at; got 10 .message 'm'."),
        (9.5, "expires_at must be later than at; got 9.5"),
        (float("nan"), "expires_at must be an aware datetime or finite seconds"),
        (datetime(2030, 1, 1), "expires_at must carry a time zone"),
        ("soon", "expires_at must be an aware datetime or finite seconds"),
    ],
)
def test_a_bad_expires_at_is_refused(expires_at, reason):
    with pytest.raises(nc.InvalidInput, match=reason):
        message("m", at=10, expires_at=expires_at)


def test_bad_columns_are_refused_and_nothing_is_published():
    engine = engine_of(nc.CountWindow(5))
    for column, reason in (
        ([11.0, 9.0], "expires_at must be later than at; got 9.0 .message '1'."),
        (pa.array([1, 2], pa.timestamp("us")), "expires_at must carry a time zone"),
        (["a", "b"], "expires_at must be a column of timestamps or of seconds"),
        ([1e300, None], "expires_at must be finite seconds since the epoch"),
    ):
        table = table_of([message(0, at=10.0), message(1, at=10.0)]).drop_columns("expires_at")
        with pytest.raises(nc.InvalidInput, match=reason):
            engine.publish(table.append_column("expires_at", pa.array(column)))
    assert engine.stats().messages == 0


@pytest.mark.parametrize("column", [pa.array([5.0, None]), pa.array([5_000_000, None], pa.timestamp("us", "UTC"))])
def test_columns_of_seconds_and_of_timestamps_are_accepted(column):
    engine = engine_of(nc.CountWindow(5))
    table = table_of([message(0), message(1)]).drop_columns("expires_at").append_column("expires_at", column)
    engine.publish(table)
    engine.advance(datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC))
    assert engine.stats().window == 1


@pytest.mark.parametrize("window", [*WINDOWS, None])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_saved_engine_knows_what_will_expire(tmp_path, window, workers):
    rng = random.Random(5)
    with engine_of(window, workers=workers) as engine:
        kinds = [s for s in subscriptions(k=2) if window or not s.result_policy.needs_window]
        engine.subscribe(kinds)
        engine.publish([message(i, rng.random(), expires_at=rng.choice([None, 5, 9])) for i in range(30)])
        engine.save(tmp_path / "saved")
        with nc.Engine.load(tmp_path / "saved") as again:
            for now in (5, 7, 9):
                assert changes(again.advance(now)) == changes(engine.advance(now))
            later = [message(i, rng.random(), at=10) for i in range(40, 50)]
            assert changes(again.publish(later)) == changes(engine.publish(later))
            assert again.stats().window == engine.stats().window


@pytest.mark.parametrize(
    ("partitioner", "window"),
    sampled(["hash", "prefix", "spatial_first", "keyword"], [nc.TimeWindow(15), nc.CountWindow(40)]),
)
def test_several_workers_agree_with_one(partitioner, window):
    rng, words = random.Random(11), ["jazz", "tea", "bike", "sale"]
    made = [
        kind(i * 10 + j, location=(rng.random(), rng.random()), keywords=" ".join(rng.sample(words, 2)), **fields)
        for i in range(15)
        for j, (kind, fields) in enumerate(
            [
                (nc.TopKSubscription, {"k": 1 + i % 4, "alpha": 0.5}),
                (nc.NearestSubscription, {"k": 1 + i % 4}),
                (nc.SocialSubscription, {"k": 2, "user": "ann"}),
            ]
        )
    ]
    with engine_of(window, workers=3, partitioner=partitioner) as many, engine_of(window, index="scan") as one:
        for engine in (many, one):
            engine.subscribe(made)
        for start in range(0, 125, 25):
            batch = []
            for i in range(start, start + 25):
                at, lasts = float(i // 4), rng.choice([None, 0.5, 1.5, 6.0])
                text = " ".join(rng.choices(words, k=3))
                batch.append(
                    nc.Message(
                        i, (rng.random(), rng.random()), text, at=at, expires_at=None if lasts is None else at + lasts
                    )
                )
            assert changes(many.publish(batch)) == changes(one.publish(batch))


@pytest.fixture
def counted(monkeypatch):
    """The number of calls of `ShardSet.publish` and `ShardSet.withdraw`."""
    calls = {"publish": 0, "withdraw": 0}

    def counting(name):
        original = getattr(ShardSet, name)

        def count(self, *arguments):
            calls[name] += 1
            return original(self, *arguments)

        return count

    for name in calls:
        monkeypatch.setattr(ShardSet, name, counting(name))
    return calls


def batch_of(n, expires_at=lambda i: None):
    return [message(i, 0.1 + 0.001 * (i % 100), at=float(i), expires_at=expires_at(i)) for i in range(1, n + 1)]


def test_a_batch_is_divided_only_where_something_expires(counted):
    engine = engine_of(nc.CountWindow(1000))
    engine.subscribe(subscriptions())
    engine.publish(batch_of(200))
    assert counted == {"publish": 1, "withdraw": 0}  # no message has a time of its own
    engine.publish([message(i, at=200.0 + i, expires_at=1_000.0) for i in range(200)])
    assert counted == {"publish": 2, "withdraw": 0}  # none expires
    engine.publish([message(i, at=400.0 + i, expires_at=450.5) for i in range(40)])
    engine.publish([message(i, at=440.0 + i) for i in range(40)])
    assert counted == {"publish": 6, "withdraw": 1}  # all of them at one step


def test_a_window_of_seconds_ends_messages_without_a_cut(counted):
    engine = engine_of(nc.TimeWindow(1000))
    engine.subscribe([s for s in subscriptions() if s.id != "n"])
    engine.publish(batch_of(200, expires_at=lambda i: i + 3))
    assert counted == {"publish": 1, "withdraw": 0}
    assert engine.stats().window == 3
    assert engine._stream.expiries is None


def test_messages_that_no_nearest_result_holds_do_not_divide_a_batch(counted):
    engine = engine_of(nc.TimeWindow(1000))
    engine.subscribe([nc.NearestSubscription("n", k=1, **WORDS)])
    engine.publish([message("near", at=0)])
    engine.publish([message(i, 0.9, at=1, expires_at=50 + i) for i in range(100)])
    engine.publish([message(100 + i, 0.9, at=50.0 + i) for i in range(100)])
    assert counted == {"publish": 3, "withdraw": 0}


def test_messages_that_are_gone_are_forgotten_before_they_expire():
    engine = engine_of(nc.CountWindow(5))
    for start in range(0, 20_000, 500):
        engine.publish([message(i, expires_at=1e9) for i in range(start, start + 500)])
    assert len(engine._stream.expiries) < 2_500
    kept = engine._shards.kept_seqs()
    assert np.isin(kept, engine._stream.expiries.entries.values).all() and len(kept) == 5


def test_an_engine_that_sees_a_slice_counts_late_messages_of_the_whole_stream():
    config = EngineConfig(space=SPACE, window=nc.CountWindow(10))
    one, other = ShardEngine.create(config), ShardEngine.create(config)
    for engine in (one, other):
        engine.subscribe([nc.NearestSubscription("n", k=3, **WORDS)])
    ends = np.array([5_000_000, 2_000_000, NEVER, NEVER])
    ats = np.array([1_000_000, 3_000_000, NO_TIME, 5_000_000])
    seen = [message("a", at=1, expires_at=5), message("c", 0.6, at=None), message("d", text="tea", at=5)]
    groups = one.publish_slice(seen, StreamSlice(np.array([0, 2, 3]), ats, expires_us=ends), grouped=True)
    other.publish_slice([], StreamSlice(np.zeros(0, np.int64), ats, expires_us=ends))
    assert (one.late_seqs, other.late_seqs) == ((2,), (2,))
    rows = [(r["seq"], r["message"], r["change"]) for r in nc.ungroup(groups).to_pylist()]
    assert rows == [(1, "a", "enter"), (3, "c", "enter"), (4, "a", "leave")]


def test_a_version_that_an_operation_has_ended_keeps_what_expires_later():
    engine = ShardEngine.create(EngineConfig(space=SPACE, window=nc.CountWindow(10)))
    ending = nc.NearestSubscription("n", k=2, **WORDS)
    again = pa.Table.from_pylist([ending.to_row() | {"op": "subscribe"}], schema=subscriptions_schema())
    engine.subscribe([ending])
    stream = [message("a", at=1, expires_at=3), message("b", at=2), message("c", at=3)]
    ats = np.array([1, 2, 3]) * 1_000_000
    begun = engine.begin(Operations(again, np.array([True]), np.array([False]), np.array([2]), ats, None))
    engine.publish_slice(stream, StreamSlice(np.arange(3), ats))
    leaves = engine.end(begun)
    assert leaves.updates["message"].to_pylist() == ["a", "b"]  # both were in its result when it was replaced
    assert [r.message for r in engine.results("n")] == ["c"]
