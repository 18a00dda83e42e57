"""Messages are withdrawn and replaced: they leave every result, which is filled up again."""

import random

import pyarrow as pa
import pytest

import nearcast as nc
from effort import effort
from nearcast.testing import strategies

SPACE = nc.Space(nc.Box(0, 0, 1, 1))
HERE = (0.5, 0.5)


def engine_of(window=None, **options):
    social = nc.SocialGraph([("ann", "cafe"), ("bob", "cafe"), ("bob", "bar")])
    return nc.Engine(space=SPACE, window=window or nc.CountWindow(10), social=social, **options)


def subscriptions(k=2):
    words = {"location": HERE, "keywords": "jazz"}
    return [
        nc.BooleanSubscription("b", region=SPACE.bounds, keywords="jazz"),
        nc.SimilaritySubscription("s", delta=0.5, tau=0.5, **words),
        nc.TopKSubscription("t", k=k, alpha=0.5, **words),
        nc.NearestSubscription("n", k=k, **words),
        nc.SocialSubscription("g", k=k, user="ann", **words),
    ]


def message(id_, x=0.5, text="jazz", **fields):
    return nc.Message(id_, (x, 0.5), text, **fields)


def changes(updates):
    return sorted((u.subscription, u.message, u.change) for u in updates)


def test_a_retracted_message_leaves_every_result_and_others_take_its_place():
    engine = engine_of()
    engine.subscribe(subscriptions(k=1))
    engine.publish([message("near"), message("far", 0.9), message("tea", text="tea")])
    scores = {id_: engine.results(id_)[0].score for id_ in "tng"}
    updates = engine.retract(["near"])
    assert changes(updates) == [
        ("b", "near", "leave"),
        ("g", "far", "enter"),
        ("g", "near", "leave"),
        ("n", "far", "enter"),
        ("n", "near", "leave"),
        ("s", "near", "leave"),
        ("t", "far", "enter"),
        ("t", "near", "leave"),
    ]
    assert {u.subscription: u.score for u in updates if u.change == "leave" and u.subscription in "tng"} == scores
    assert all(u.seq == 3 for u in updates) and engine.stats().messages == 3
    assert [r.message for r in engine.results("b")] == ["far"]


def test_all_messages_under_an_id_are_withdrawn_in_one_step():
    engine = engine_of()
    engine.subscribe(subscriptions(k=3))
    engine.publish([message("twice"), message("other"), message("twice", 0.6)])
    updates = engine.retract(["twice", "twice"])
    assert [changes(updates).count((id_, "twice", "leave")) for id_ in "bstng"] == [2] * 5
    assert [[r.message for r in engine.results(id_)] for id_ in "tng"] == [["other"]] * 3


def test_an_unknown_id_is_refused_and_nothing_is_withdrawn():
    engine = engine_of(nc.CountWindow(2))
    engine.publish([message(i) for i in range(4)])
    for unknown in (1, "3", "never"):  # expired, another type, never there
        with pytest.raises(nc.UnknownMessage, match=repr(unknown)):
            engine.retract([3, unknown])
    assert engine.stats().window == 2
    assert engine.retract([3, 2]) == [] and engine.stats().window == 0


def test_a_message_that_only_a_nearest_result_holds_can_be_retracted():
    engine = engine_of(nc.CountWindow(2))
    engine.subscribe([nc.NearestSubscription("n", location=HERE, keywords="jazz", k=2)])
    engine.publish([message("best"), message("worse", 0.9), message("worst", 1.0), message("tea", text="tea")])
    assert [r.message for r in engine.results("n")] == ["best", "worse"]
    assert changes(engine.retract(["best"])) == [("n", "best", "leave"), ("n", "worst", "enter")]
    assert changes(engine.retract(["worse"])) == [("n", "worse", "leave")]  # nothing else is in the window
    assert changes(engine.publish([message("new", 0.7)])) == [("n", "new", "enter")]


def test_without_a_window_only_held_messages_can_be_retracted():
    engine = nc.Engine(space=SPACE)
    engine.subscribe([nc.NearestSubscription("n", location=HERE, keywords="jazz", k=1)])
    engine.publish([message("near"), message("far", 0.9)])
    with pytest.raises(nc.UnknownMessage):
        engine.retract(["far"])
    assert changes(engine.retract(["near"])) == [("n", "near", "leave")]
    assert changes(engine.publish([message("farther", 1.0)])) == [("n", "farther", "enter")]


def test_matches_before_the_subscription_are_not_taken_back():
    engine = engine_of()
    engine.publish([message("early")])
    engine.subscribe(subscriptions())
    engine.publish([message("later")])
    assert [u.subscription for u in engine.retract(["early"])] == ["t", "g"]
    assert [u.subscription for u in engine.retract(["later"])] == ["b", "s", "t", "n", "g"]


def test_a_retracted_message_keeps_its_place_in_a_count_window():
    engine = engine_of(nc.CountWindow(3))
    engine.subscribe([nc.TopKSubscription("t", location=HERE, keywords="jazz", k=3, alpha=0.5)])
    engine.publish([message(i) for i in range(3)])
    engine.retract([2])
    assert changes(engine.publish([message(3)])) == [("t", 0, "leave"), ("t", 3, "enter")]
    assert engine.stats().window == 2


@pytest.mark.parametrize("as_table", [False, True])
def test_a_replaced_message_leaves_and_the_new_one_enters(as_table):
    engine = engine_of()
    engine.subscribe(subscriptions())
    engine.publish([message("bike", 0.5), message("other", 0.8)])
    new = [message("bike", 0.6), message("fresh", 0.55)]
    if as_table:
        columns = {
            "id": [m.id for m in new],
            "x": [m.location[0] for m in new],
            "y": [0.5, 0.5],
            "text": ["jazz"] * 2,
        }
        updates = [nc.Update(**{**row, "at": None}) for row in engine.replace(pa.table(columns)).to_pylist()]
    else:
        updates = engine.replace(new)
    of_bike = [(u.subscription, u.change) for u in updates if u.message == "bike" and u.seq == 3]
    assert [sorted(s for s, change in of_bike if change == wanted) for wanted in ("leave", "enter")] == [
        [*"bgnst"]
    ] * 2
    for id_ in "bstng":
        assert [change for s, change in of_bike if s == id_] == ["leave", "enter"]
    assert [r.message for r in engine.results("n")] == ["fresh", "bike"]
    assert engine.stats().messages == 4 and engine.stats().window == 3


def test_a_message_may_be_replaced_twice_in_one_call():
    engine = engine_of()
    engine.subscribe([nc.TopKSubscription("t", location=HERE, keywords="jazz", k=1, alpha=0.5)])
    updates = engine.replace([message("a", 0.6), message("b", 0.9), message("a", 0.7), message("a", text="tea")])
    assert [(u.seq, u.message, u.change) for u in updates] == [
        (1, "a", "enter"), (3, "a", "leave"), (3, "a", "enter"), (4, "a", "leave"), (4, "b", "enter"),
    ]  # fmt: skip
    assert engine.stats().window == 2


def test_a_bad_message_replaces_nothing():
    engine = engine_of()
    engine.subscribe(subscriptions())
    engine.publish([message("a")])
    with pytest.raises(nc.InvalidInput, match="location must lie in"):
        engine.replace([message("a", 0.6), message("b", 3.0)])
    assert engine.stats().messages == 1 and [r.score for r in engine.results("n")] == [0.0]


def test_late_messages_of_a_replacement_are_counted():
    engine = engine_of(nc.TimeWindow(10))
    engine.publish([message("a", at=100.0)])
    assert engine.replace([message("a", at=50.0), message("b", at=101.0)]) == []
    assert (engine.late_seqs, engine.stats().late, engine.stats().window) == ((2,), 1, 1)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_saved_engine_knows_what_was_withdrawn(tmp_path, workers):
    rng = random.Random(5)
    with engine_of(workers=workers) as engine:
        engine.subscribe(subscriptions())
        engine.publish([message(i, rng.random()) for i in range(9)])
        engine.retract([3, 7])
        engine.save(tmp_path / "saved")
        with nc.Engine.load(tmp_path / "saved") as again:
            assert again.stats().window == 7
            later = [message(i, rng.random()) for i in range(20, 30)]
            assert changes(again.publish(later)) == changes(engine.publish(later))
            with pytest.raises(nc.UnknownMessage):
                again.retract([3])


def test_many_withdrawals_agree_with_the_slow_reference():
    rng = random.Random(7)
    words = [*strategies.WEIGHTS]
    fast, slow = (engine_of(nc.CountWindow(60), index=index) for index in ("auto", "scan"))
    made = [
        nc.TopKSubscription(
            i, location=(rng.random(), rng.random()), keywords=rng.sample(words, 2), k=1 + i % 4, alpha=rng.random()
        )
        for i in range(40)
    ]
    for engine in (fast, slow):
        engine.subscribe(made)
    alive = []
    for step in range(effort(100, 1_000)):
        batch = [
            nc.Message(step * 5 + i, (rng.random(), rng.random()), rng.choices(words, k=4))
            for i in range(rng.randint(1, 5))
        ]
        assert changes(fast.publish(batch)) == changes(slow.publish(batch))
        alive = [*alive, *(m.id for m in batch)][-60:]
        leaving = rng.sample(alive, min(len(alive), rng.randint(0, 4)))
        known = [id_ for id_ in leaving if any(id_ == d.id for d in slow._shards.documents())]
        assert changes(fast.retract(known)) == changes(slow.retract(known))
        alive = [id_ for id_ in alive if id_ not in known]


def test_a_loaded_engine_takes_a_match_back_once_whatever_its_partitioner(tmp_path):
    engine = nc.Engine(space=nc.Space(nc.Box(0, 0, 1, 1)), window=nc.CountWindow(5), workers=3, partitioner="keyword")
    engine.subscribe([nc.SimilaritySubscription("s", location=(0, 0), keywords="a", delta=0, tau=0)])
    engine.publish([nc.Message("m", (0, 0), "a")])
    engine.save(tmp_path / "engine")
    loaded = nc.Engine.load(tmp_path / "engine")
    assert [update.change for update in loaded.retract(["m"])] == ["leave"]
