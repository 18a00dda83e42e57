"""Bodies: opaque strings that an engine keeps as long as the message, and returns whenever it enters a result."""

import random

import numpy as np
import pyarrow as pa
import pytest

import nearcast as nc
from nearcast.engine.message_bodies import MessageBodies

SPACE = nc.Space(nc.Box(0, 0, 1, 1))
HERE = (0.5, 0.5)
WORDS = {"location": HERE, "keywords": "jazz"}


def engine_of(window=None, **options):
    options = {"bodies": True, "social": nc.SocialGraph([("ann", "cafe")]), **options}
    return nc.Engine(space=SPACE, window=window or nc.CountWindow(10), **options)


def subscriptions(k=1):
    return [
        nc.BooleanSubscription("b", region=SPACE.bounds, keywords="jazz"),
        nc.SimilaritySubscription("s", delta=0.5, tau=0.5, **WORDS),
        nc.TopKSubscription("t", k=k, alpha=0.5, **WORDS),
        nc.NearestSubscription("n", k=k, **WORDS),
        nc.SocialSubscription("g", k=k, user="ann", **WORDS),
    ]


def message(id_, x=0.5, text="jazz", **fields):
    return nc.Message(id_, (x, 0.5), text, **{"body": f"body of {id_}", **fields})


def table_of(messages):
    return pa.table(
        {
            "id": [m.id for m in messages],
            "x": [m.location[0] for m in messages],
            "y": [m.location[1] for m in messages],
            "text": [m.text for m in messages],
            "body": pa.array([m.body for m in messages], pa.string()),
        }
    )


def carried(updates):
    return {(u.subscription, u.message, u.change): u.body for u in updates}


def test_every_enter_carries_the_body_and_no_leave_does():
    engine = engine_of()
    engine.subscribe(subscriptions())
    first = engine.publish([message("far", 0.9)])
    assert carried(first) == {(id_, "far", "enter"): "body of far" for id_ in "bstng"}
    second = engine.publish([message("near")])
    assert {u.body for u in second if u.change == "enter"} == {"body of near"}
    assert {u.message for u in second if u.change == "leave"} == {"far"}
    assert all(u.body is None for u in second if u.change == "leave")


def test_an_old_message_enters_again_with_its_body():
    engine = engine_of(nc.CountWindow(3))
    engine.subscribe(subscriptions())
    engine.publish([message("near"), message("far", 0.9)])
    by_retraction = carried(engine.retract(["near"]))
    assert [by_retraction[id_, "far", "enter"] for id_ in "tng"] == ["body of far"] * 3
    engine.publish([message("near again")])
    by_expiry = carried(engine.publish([message("x", text="tea"), message("y", text="tea"), message("z", 0.95)]))
    assert by_expiry["t", "z", "enter"] == "body of z"
    assert carried(engine.subscribe(nc.TopKSubscription("new", k=1, alpha=0.5, **WORDS))) == {
        ("new", "z", "enter"): "body of z"
    }


def test_a_change_of_edges_carries_bodies():
    engine = engine_of(social=nc.SocialGraph([("ann", "cafe"), ("bob", "bar")]))
    engine.subscribe(subscriptions())
    engine.publish([message("bar", place="bar"), message("cafe", place="cafe")])
    engine.remove_edges([("ann", "cafe")])
    assert carried(engine.add_edges([("ann", "bar")])) == {
        ("g", "bar", "enter"): "body of bar",
        ("g", "cafe", "leave"): None,
    }


def test_a_nearest_result_keeps_bodies_beyond_the_window(tmp_path):
    engine = engine_of(nc.CountWindow(1))
    engine.subscribe([nc.NearestSubscription("n", k=2, **WORDS)])
    engine.publish([message("a"), message("b", 0.6), message("c", text="tea"), message("d", text="tea")])
    seqs = [scored.seq for scored in engine.scored_messages("n")]
    assert engine.bodies([*seqs, 3, 99]) == ["body of a", "body of b", "body of c", None]
    engine.save(tmp_path / "saved")
    again = nc.Engine.load(tmp_path / "saved")
    assert again.bodies([1, 2, 3, 4]) == [
        "body of a",
        "body of b",
        None,
        "body of d",
    ]  # what is not kept is not saved


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("partitioner", ["hash", "prefix", "spatial_first"])
@pytest.mark.parametrize("form", ["objects", "table", "groups", "conflated", "conflated groups"])
def test_bodies_are_the_same_in_every_form(workers, partitioner, form):
    rng = random.Random(3)
    with engine_of(nc.CountWindow(20), workers=workers, partitioner=partitioner) as engine:
        engine.subscribe(
            [
                nc.TopKSubscription(i, location=(rng.random(), 0.5), keywords="jazz tea", k=2, alpha=0.5)
                for i in range(20)
            ]
            + [nc.NearestSubscription(f"n{i}", location=(rng.random(), 0.5), keywords="jazz", k=2) for i in range(20)]
            + subscriptions()
        )
        bodies = {i: rng.choice([None, "", f"body {i}"]) for i in range(300)}
        for start in range(0, 300, 30):
            batch = [
                message(i, rng.random(), rng.choice(["jazz", "tea"]), body=bodies[i])
                for i in range(start, start + 30)
            ]
            conflate, grouped = form.startswith("conflated"), form.endswith("groups")
            if form == "objects":
                updates = engine.publish(batch)
            else:
                table = engine.publish(table_of(batch), conflate=conflate, grouped=grouped)
                assert table.column_names[-1] == "body"
                rows = (nc.ungroup(table) if grouped else table).to_pylist()
                updates = [nc.Update(**{**row, "at": None}) for row in rows]
            assert updates
            for u in updates:
                assert u.body == (bodies[int(u.message)] if u.change == "enter" else None)


def test_a_saved_engine_continues_with_its_bodies(tmp_path):
    engine = engine_of()
    engine.subscribe(subscriptions())
    engine.publish([message("a"), message("b", 0.6)])
    engine.save(tmp_path / "saved")
    again = nc.Engine.load(tmp_path / "saved")
    assert carried(again.retract(["a"])) == carried(engine.retract(["a"]))


def test_without_bodies_a_body_is_checked_and_ignored():
    engine = engine_of(bodies=False)
    engine.subscribe(subscriptions())
    assert {u.body for u in engine.publish([message("a")])} == {None}
    table = engine.publish(table_of([message("b")]))
    assert "body" not in table.column_names
    with pytest.raises(nc.InvalidInput, match="body must be at most 65536 bytes; got 65537"):
        engine.publish([message("long", body="x" * 65537)])
    with pytest.raises(nc.StateError, match="bodies=False"):
        engine.bodies([1])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (7, "body must be a string; got 7"),
        (b"bytes", "body must be a string; got b'bytes'"),
        ("\ud800", "body must hold no halves of characters"),
    ],
)
def test_a_body_must_be_a_string(body, reason):
    with pytest.raises(nc.InvalidInput, match=reason):
        message("m", body=body)


def test_a_limit_counts_bytes_and_can_be_changed():
    engine = engine_of(limits=nc.Limits(body_bytes=5))
    engine.publish([message("m", body="café")])
    refused = "body must be at most 5 bytes; got 6 .message 'm'."
    for messages in ([message("m", body="cafés")], table_of([message("m", body="cafés")])):
        with pytest.raises(nc.InvalidInput, match=refused):
            engine.publish(messages)
    assert engine.stats().messages == 1


@pytest.mark.parametrize("column", [[1], [1.5], [["a"]]])
def test_a_column_of_bodies_must_hold_strings(column):
    table = table_of([message("m")]).drop_columns("body").append_column("body", pa.array(column))
    with pytest.raises(nc.InvalidInput, match="body must be a column of strings"):
        engine_of().publish(table)


def test_dicts_and_null_columns_are_accepted():
    engine = engine_of()
    engine.subscribe(subscriptions())
    updates = engine.publish({"id": "d", "x": 0.5, "y": 0.5, "text": "jazz", "body": "{}"})
    assert {u.body for u in updates} == {"{}"}
    table = table_of([message("m")]).drop_columns("body").append_column("body", pa.nulls(1))
    assert set(engine.publish(table)["body"].to_pylist()) == {None}


def test_bodies_of_messages_that_are_gone_are_dropped():
    engine = engine_of(nc.CountWindow(5))
    for i in range(0, 4000, 10):
        engine.publish([message(j, body="x" * 1000) for j in range(i, i + 10)])
    assert engine._stream.bodies.nbytes < 1_200_000  # of four million
    assert engine.bodies([4000, 3996]) == ["x" * 1000] * 2


def test_long_columns_of_bodies_are_several_chunks(monkeypatch):
    from nearcast._jit import Arena
    from nearcast.engine import message_bodies

    monkeypatch.setattr(message_bodies._bounds, "__defaults__", (10,))
    bodies = MessageBodies(Arena())
    bodies.append(np.array([1, 2, 5]), pa.array(["one", None, "five five"]))
    found = bodies.of(np.array([5, 1, 2, 1, 1, 5]))
    assert found.to_pylist() == ["five five", "one", None, "one", "one", "five five"]
    assert found.num_chunks == 3
