"""Operations and messages of one batch are applied in the order of their times, in every shard alike."""

import random
from collections import Counter

import pyarrow as pa
import pytest

import nearcast as nc
from effort import effort, sampled
from jobs.local_shards import LocalShards
from jobs.test_shard import MATCHES, NAMES, fitted, frames_of
from nearcast.engine.shard_engine import ShardEngine
from nearcast.jobs import operations, shard
from nearcast.jobs.shard import ShardCounts, apply
from nearcast.model import KINDS
from nearcast.model.columns import TIMESTAMP
from spark import inputs

BOX = {"xmin": 0.0, "ymin": 0.0, "xmax": 8.0, "ymax": 8.0}
BOOLEAN = {"op": "subscribe", "kind": "boolean", "keywords": "a", **BOX}
NEAREST = {"op": "subscribe", "kind": "nearest", "keywords": "a", "x": 0.0, "y": 0.0, "k": 1}
TOPK = NEAREST | {"kind": "topk", "alpha": 0.5}


def message(id_, at, *, x=0.0, text="a"):
    return {"id": id_, "x": x, "y": 0.0, "text": text, "at": None if at is None else at * 1_000_000}


def operation(row, id_, at):
    return {**row, "id": id_, "at": None if at is None else at * 1_000_000}


def leave(id_, at):
    return operation({"op": "unsubscribe"}, id_, at)


def batch(messages, requests):
    return inputs.Batch(inputs.table(messages, inputs.MESSAGES), inputs.table(requests, inputs.SUBSCRIPTIONS))


def run(of, given, *, counts=None, engines=None, blocks=3):
    """Return the updates of all shards, with their times; `counts` is for all shards, or a list of one for each."""
    shards, updates = LocalShards(of), []
    shards.engines = shards.engines if engines is None else engines
    for one in given:
        updates += shards.run(frames_of(one, of, blocks=blocks), counts)
    return timed(updates)


def timed(tables):
    return Counter((*inputs.key(row), row["at"]) for updates in tables for row in updates.to_pylist())


def expected_of(of, given):
    return timed(inputs.row_by_row(of, given))


def mixed(given, seed, *, messages_too):
    """Take the times of some rows away; others of the same batch have the same time."""
    rng = random.Random(seed)

    def some(rows):
        ats = [None if rng.random() < 0.2 else at for at in rows["at"].cast(pa.int64()).to_pylist()]
        return rows.set_column(rows.column_names.index("at"), "at", pa.array(ats, pa.int64()).cast(TIMESTAMP))

    return [inputs.Batch(some(b.messages) if messages_too else b.messages, some(b.subscriptions)) for b in given]


def in_one(given):
    """Return several batches as one, as static frames are."""
    return [inputs.Batch(*(pa.concat_tables([getattr(b, n) for b in given]) for n in ("messages", "subscriptions")))]


@pytest.mark.parametrize(("name", "shards"), [("hash", 1), *sampled(NAMES, [2, 5], part=(2, 4))])
def test_every_partitioner_applies_rows_in_the_order_of_their_times(name, shards, random_fields):
    first = NAMES.index(name) % 2  # odd seeds have another window than even ones
    check_random(name, shards, random_fields, seeds=range(first, first + effort(1, 6)))


def check_random(name, shards, random_fields, *, seeds):
    n_updates = 0
    for seed in seeds:
        window = nc.CountWindow(7) if seed % 2 else nc.TimeWindow(9)
        of = inputs.job(window=window, shards=shards, partitioner=name)
        given = inputs.batches(seed, random_fields, n=6, timed=True)
        given = mixed(given, seed, messages_too=seed % 2)
        of = fitted(of, given)
        for arranged in (given, in_one(given)):
            expected = expected_of(of, arranged)
            assert run(of, arranged) == expected, f"seed {seed}"
            n_updates += expected.total()
    assert n_updates > 10 * len(seeds)


@pytest.mark.parametrize("kinds", [(kind.kind,) for kind in KINDS] + [MATCHES], ids=" and ".join)
def test_every_kind_applies_rows_in_the_order_of_their_times(kinds, random_fields):
    of = inputs.job(window=nc.TimeWindow(20), shards=2)
    for seed in range(effort(2, 6)):
        given = inputs.batches(seed, random_fields, n=6, timed=True, kinds=kinds)
        expected = expected_of(of, in_one(given))
        assert expected and run(of, in_one(given)) == expected, f"seed {seed}"


def test_runs_may_end_anywhere(monkeypatch, random_fields):
    of = inputs.job(window=nc.TimeWindow(9), shards=2)
    given = in_one(inputs.batches(3, random_fields, n=6, timed=True))
    expected = expected_of(of, given)
    for first, most, n_updates in ((1, 3, 1 << 18), (1, 100, 2), (1, 1, 1), (5, 5, 3)):
        monkeypatch.setattr(shard, "_FIRST", first)
        monkeypatch.setattr(shard, "CHUNK", most)
        monkeypatch.setattr(shard, "UPDATES_PER_ROW", n_updates)
        assert run(of, given) == expected
    for name in ("MOST_AMONG", "MOST_VERSIONS"):
        for most in (1, 2, 5):
            monkeypatch.setattr(operations, name, most)
            assert run(of, given) == expected


@pytest.mark.parametrize("row", [BOOLEAN, NEAREST | {"k": 20}, TOPK | {"k": 20}], ids=lambda row: row["kind"])
def test_a_subscription_receives_what_is_published_while_it_is_in_force(row):
    of = inputs.job(window=nc.CountWindow(50), shards=2)
    messages = [message(f"m{at}", at) for at in (-1, 0, 5, 9, 10, 11)]
    given = [batch(messages, [operation(row, "s", 0), leave("s", 10)])]
    entered = {message for _, _, message, change, _, _ in run(of, given) if change == "enter"}
    assert entered == {"m0", "m5", "m9"} | ({"m-1"} if row["kind"] == "topk" else set())
    assert run(of, given) == expected_of(of, given)


@pytest.mark.parametrize("name", ["hash", "location", "space_kd"])
def test_a_subscriber_who_moves_receives_what_is_near_at_each_time(name):
    at_each = {0: 0.0, 4: 3.0, 8: 6.0}
    moves = [operation(BOOLEAN | {"xmin": x, "xmax": x + 1}, "walker", at) for at, x in at_each.items()]
    messages = [message(f"m{at}.{x}", at, x=float(x)) for at in range(12) for x in (0, 3, 6)]
    others = [operation(BOOLEAN | {"xmin": float(x)}, f"other{x}", 0) for x in range(8)]
    of = fitted(inputs.job(shards=3, partitioner=name), [batch([], others)])
    given = [batch(messages, others + moves)]
    updates = run(of, given)
    assert updates == expected_of(of, given)
    received = {update[2] for update in updates if update[1] == "walker"}
    assert received == {f"m{at}.{0 if at < 4 else 3 if at < 8 else 6}" for at in range(12)}


def test_rows_of_the_same_time_and_rows_without_a_time_are_operations_first():
    of = inputs.job(shards=2)
    messages = [message("none", None), message("m5", 5), message("later", 6)]
    requests = [
        operation(BOOLEAN, "from the start", None),
        operation(BOOLEAN, "from 5", 5),
        leave("from the start", 5),
        operation(BOOLEAN, "from 7", 7),
        operation(BOOLEAN, "never", 5),
        leave("never", 5),
    ]
    received = {(update[1], update[2]) for update in run(of, [batch(messages, requests)])}
    assert received == {("from the start", "none"), ("from 5", "m5"), ("from 5", "later")}


def test_the_updates_of_an_operation_carry_the_last_message_before_it():
    """The time of an operation does not advance the clock."""
    of = inputs.job(window=nc.CountWindow(9), shards=2)
    messages = [message("m1", 1), message("m2", 3)]
    requests = [operation(TOPK, "s", 2), operation(TOPK | {"keywords": "b"}, "s", 50), operation(TOPK, "t", 99)]
    updates = [(*update[:4], update[5].timestamp()) for update in run(of, [batch(messages, requests)])]
    assert sorted(updates) == [
        (1, "s", "m1", "enter", 1.0),
        (2, "s", "m1", "leave", 3.0),
        (2, "s", "m2", "enter", 3.0),
        (2, "s", "m2", "leave", 3.0),
        (2, "t", "m2", "enter", 3.0),
    ]


@pytest.mark.parametrize("name", ["hash", "location", "space_kd", "text_frequency"])
def test_unknown_ids_are_counted_where_they_are_unknown(name):
    requests = [
        *(operation(BOOLEAN, f"s{i}", 0) for i in range(6)),
        *(leave(f"s{i}", 3) for i in range(9)),  # three are unknown
        *(leave(f"s{i}", 5) for i in range(2)),  # these were just removed
        operation(BOOLEAN, "s0", 6),
        operation(BOOLEAN | {"xmin": 4.0}, "s0", 7),
        leave("s0", 8),
        leave("s0", 8),  # again
        leave("s1", 99),  # after the last message
    ]
    of = inputs.job(shards=3, partitioner=name)
    of = fitted(of, [batch([], requests[:6])])
    counts = ShardCounts()
    run(of, [batch([message(f"m{at}", at) for at in range(20)], requests)], counts=counts)
    assert counts.unknown == 3 + 2 + 1 + 1


@pytest.mark.parametrize("shards", [1, 3])
def test_engines_continue_with_the_last_versions(shards, random_fields):
    """Each has what the reference has, since the same message."""
    of = inputs.job(window=nc.CountWindow(40), shards=shards)
    for seed in range(effort(3, 8)):
        given = in_one(inputs.batches(seed, random_fields, n=6, timed=True))
        engines = [of.new_shard_engine() for _ in range(shards)]
        run(of, given, engines=engines)
        alone = inputs.engine(of)
        for source, row in inputs.in_order(given[0]):
            if source == "message":
                alone.publish(inputs.table([row], inputs.MESSAGES))
            elif row["op"] != "unsubscribe":
                alone.subscribe(inputs.table([row | {"op": "subscribe"}], inputs.SUBSCRIPTIONS))
            elif row["id"] in alone:
                alone.unsubscribe([row["id"]])
        found = {s.id: (s, engine) for engine in engines for s in engine.subscriptions()}
        assert {id_: s for id_, (s, _) in found.items()} == {s.id: s for s in alone.subscriptions()}
        for id_, (_, engine) in found.items():
            assert engine.scored_messages(id_) == alone.scored_messages(id_)
        assert {engine.stats().messages for engine in engines} == {alone.stats().messages}
        assert sum(engine.stats().matched for engine in engines) == alone.stats().matched
        assert sum(engine.stats().updates for engine in engines) == alone.stats().updates


def test_only_operations_on_kinds_with_a_window_divide_messages(monkeypatch):
    calls = []
    publish = ShardEngine.publish_slice

    def noted(self, messages, stream_slice, **options):
        calls.append(len(messages))
        return publish(self, messages, stream_slice, **options)

    monkeypatch.setattr(ShardEngine, "publish_slice", noted)
    monkeypatch.setattr(shard, "_FIRST", shard.CHUNK)
    of = inputs.job(window=nc.CountWindow(100), shards=1)
    messages = [message(f"m{at}", at) for at in range(100)]
    moves = [operation(BOOLEAN | {"xmin": float(at // 4 % 2)}, f"s{at % 4}", at) for at in range(100)]
    moves += [operation(NEAREST, f"n{at % 4}", at) for at in range(100)]
    given = [batch(messages, [operation(TOPK, "t", 0), *moves])]
    updates = run(of, given)
    assert calls == [100]
    assert updates == expected_of(of, given)
    calls.clear()
    run(of, [batch(messages, [operation(TOPK, "t", 50), operation(BOOLEAN, "t", 70), *moves])])
    assert calls == [50, 20, 30]
    calls.clear()
    monkeypatch.setattr(operations, "MOST_AMONG", 10)
    run(of, [batch(messages, moves[:100])])
    assert calls == [11] * 9 + [1]
    calls.clear()
    monkeypatch.setattr(operations, "MOST_AMONG", 100)
    monkeypatch.setattr(operations, "MOST_VERSIONS", 2)
    walk = [operation(BOOLEAN, "s", at) for at in range(0, 100, 2)]
    run(of, [batch(messages, walk)])
    assert calls == [6] * 16 + [4]


def test_small_tables_of_updates_are_joined():
    of = inputs.job(window=nc.CountWindow(100), shards=1)
    messages = [message(f"m{at}", at) for at in range(100)]
    (frames,) = frames_of(batch(messages, [operation(TOPK, f"t{at}", at) for at in range(100)]), of)
    tables = list(apply(of.new_shard_engine(), frames, shard=0, job=of, counts=ShardCounts()))
    assert len(tables) == 1 and all(column.num_chunks == 1 for column in tables[0].columns)
