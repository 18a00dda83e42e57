"""Ends of messages and subscriptions, and bodies, give the updates of one engine in every shard alike."""

import json
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest

import nearcast as nc
from effort import effort, sampled
from jobs import test_batch_time
from jobs.local_shards import served
from jobs.test_order import BOOLEAN, NEAREST, TOPK, in_one, leave, mixed, operation, run, timed
from jobs.test_shard import NAMES, fitted, frames_of
from jobs.test_shard_state import another_host, another_worker, keep_all, run_batch
from jobs.test_withdrawal import published, row, rows
from nearcast.engine.shard_engine import ShardEngine
from nearcast.jobs import engine_cache, shard
from nearcast.jobs.block import open_block, pack_messages
from nearcast.jobs.engine_cache import LocalEngineCache
from nearcast.jobs.folder import Folder
from nearcast.jobs.frame import MESSAGE, unpack
from nearcast.jobs.message_rows import MESSAGE_ROWS
from nearcast.jobs.shard import ShardCounts
from nearcast.jobs.shard_state import ShardManifest, ShardState
from nearcast.jobs.static_rejections import rejected_operations
from nearcast.jobs.validate import bad_messages, fault, message_at
from nearcast.model import KINDS
from spark import inputs

S = 1_000_000


def ending(row, at):
    return row | {"expires_at": at * S}


def check(of, given):
    """Check shards against one engine: updates with their bodies, rejections, and late messages; return updates."""
    counts, reasons = [ShardCounts() for _ in range(of.shards)], []
    expected = timed(inputs.row_by_row(of, given, reasons))
    assert run(of, given, counts=counts) == expected
    assert Counter(r.reason for count in counts for r in count.rejections) == Counter(reasons)
    assert len({count.late for count in counts}) == 1
    return expected, reasons


@pytest.mark.parametrize(("name", "shards"), [("hash", 1), *sampled(NAMES, [2, 5], part=(1, 4))])
def test_every_partitioner_gives_the_updates_of_one_engine(name, shards, random_fields):
    first, n_bodies, n_rejected = NAMES.index(name) % 2, 0, 0
    for seed in range(first, first + effort(1, 8)):
        window = nc.CountWindow(30) if seed % 2 else nc.TimeWindow(25)
        of = inputs.job(window=window, shards=shards, partitioner=name, bodies=True)
        given = inputs.batches(seed, random_fields, n=effort(9, 12), timed=True, withdrawn=0.2, kinds=served(of))
        given = inputs.with_ends(mixed(given, seed, messages_too=seed % 2), seed)
        of = fitted(of, [inputs.Batch(published(given), pa.concat_tables(b.subscriptions for b in given))])
        for arranged in (given, in_one(given)):
            expected, reasons = check(of, arranged)
            n_bodies += sum(n for update, n in expected.items() if update[5] is not None)
            n_rejected += len(reasons)
    assert n_bodies and n_rejected


@pytest.mark.parametrize("kind", [kind.kind for kind in KINDS])
def test_every_kind_gives_the_updates_of_one_engine(kind, random_fields):
    for seed in range(effort(2, 8)):
        window = nc.CountWindow(40) if seed % 2 else nc.TimeWindow(12)
        of = inputs.job(window=window, shards=2, bodies=True)
        given = inputs.with_ends(inputs.batches(seed, random_fields, n=8, timed=True, kinds=(kind,)), seed)
        expected, _ = check(of, in_one(given))
        assert expected, f"seed {seed}"


def test_runs_may_end_anywhere(monkeypatch, random_fields):
    of = inputs.job(window=nc.CountWindow(9), shards=2, bodies=True)
    given = in_one(inputs.with_ends(inputs.batches(3, random_fields, n=6, timed=True, withdrawn=0.2), 3))
    for first, most, n_updates in ((1, 3, 1 << 18), (1, 1, 1)):
        monkeypatch.setattr(shard, "_FIRST", first)
        monkeypatch.setattr(shard, "CHUNK", most)
        monkeypatch.setattr(shard, "UPDATES_PER_ROW", n_updates)
        check(of, given)


def test_edges_return_the_bodies_of_messages_that_enter_again(random_fields):
    of = inputs.job(window=nc.CountWindow(20), shards=2, bodies=True, has_edges=True)
    given = inputs.batches(5, random_fields, n=8, timed=True, kinds=("social",))
    given = inputs.with_ends(inputs.with_edges(given, 5, timed=True), 5)
    expected, _ = check(of, given)
    assert any(update[5] for update in expected)


@pytest.mark.parametrize("name", ["hash", "location", "space_kd"])
def test_shards_whose_clock_moves_give_the_updates_of_one_engine(name, random_fields):
    for seed in range(effort(1, 6)):
        of = inputs.job(window=nc.CountWindow(30), shards=3, partitioner=name, clock="wall", bodies=True)
        given = inputs.batches(seed, random_fields, n=8, timed=True, withdrawn=0.2, kinds=served(of))
        given = inputs.with_ends(given, seed)
        of = fitted(of, [inputs.Batch(published(given), pa.concat_tables(b.subscriptions for b in given))])
        nows = [None if step % 3 == 2 else step * 6 for step in range(len(given))]
        expected = test_batch_time.expected_of(of, given, nows)
        assert expected and test_batch_time.run(of, given, nows) == expected, f"seed {seed}"


@pytest.mark.parametrize(
    ("lose", "window"), sampled([another_host, another_worker, keep_all], [nc.CountWindow(9), None])
)
def test_updates_are_the_same_after_any_loss_and_replay(tmp_path, random_fields, lose, window):
    kinds = tuple(kind.kind for kind in KINDS if window is not None or not kind.result_policy.needs_window)
    of = inputs.job(window=window, shards=1, batches_per_snapshot=3, bodies=True)
    of = replace(of, config=replace(of.config, window=window))
    given = inputs.batches(8, random_fields, n=effort(5, 14), timed=True, withdrawn=0.2, kinds=kinds)
    given = inputs.with_ends(given, 8)
    manifest, emitted = ShardManifest(), Counter()
    with LocalEngineCache(tmp_path / "local", of.config, ShardEngine) as local:
        state = ShardState(of, Folder(str(tmp_path)), local, 0)
        for batch in given:
            lose(tmp_path)
            run_batch((state, of), manifest, batch)  # the state was not committed
            lose(tmp_path)
            manifest, updates = run_batch((state, of), manifest, batch)
            emitted += updates
    engine_cache._MAPPED.clear()
    assert emitted == inputs.embedded(of, given)
    assert any(update[5] for update in emitted)


@pytest.mark.parametrize("kind", [BOOLEAN, NEAREST | {"k": 20}, TOPK | {"k": 20}], ids=lambda kind: kind["kind"])
def test_a_subscription_receives_what_is_published_before_its_end(kind):
    of = inputs.job(window=nc.CountWindow(50), shards=2)
    messages = [row(f"m{at}", at) for at in range(12)]
    others = [operation(BOOLEAN, f"o{at}", at) for at in range(12)]
    requests = [ending(operation(kind, "s", 2), 5), ending(operation(kind, "s", 8), 10), *others, leave("s", 11)]
    counts = ShardCounts()
    updates = run(of, [rows(messages, requests)], counts=counts)
    assert updates == timed(inputs.row_by_row(of, [rows(messages, requests)]))
    received = {update[2] for update in updates if update[1] == "s" and update[3] == "enter"}
    window = {f"m{at}" for at in range(8)} if kind["kind"] == "topk" else set()
    assert received == {"m2", "m3", "m4", "m8", "m9"} | window
    assert counts.unknown == 1, "it had expired when it was unsubscribed"


def test_only_ends_divide_the_messages_among_which_operations_are(monkeypatch):
    calls, publish = [], ShardEngine.publish_slice

    def noted(self, messages, stream_slice, **options):
        calls.append(len(messages))
        return publish(self, messages, stream_slice, **options)

    monkeypatch.setattr(ShardEngine, "publish_slice", noted)
    monkeypatch.setattr(shard, "_FIRST", shard.CHUNK)
    of = inputs.job(window=nc.CountWindow(100), shards=1)
    messages = [row(f"m{at}", at) | {"expires_at": (at + 5) * S} for at in range(100)]
    moves = [operation(BOOLEAN, f"s{at % 4}", at) for at in range(100)]
    run(of, [rows(messages, moves)])
    assert calls == [100], "ends of messages do not"
    calls.clear()
    run(of, [rows(messages, [ending(operation(BOOLEAN, "e", 30), 70), *moves])])
    assert calls == [30, 40, 1, 29]
    calls.clear()
    run(of, [rows(messages, [ending(operation(BOOLEAN, "e", None), 70)])])
    assert calls == [100], "no operations are among them"


@pytest.mark.parametrize("name", ["hash", "location", "space_kd", "text_frequency"])
def test_a_subscription_that_has_expired_is_rejected_once_and_replaces_nothing(name):
    of = fitted(
        inputs.job(shards=3, partitioner=name), [rows([], [operation(BOOLEAN, f"s{i}", 0) for i in range(6)])]
    )
    messages = [row(f"m{at}", at) for at in range(10)]
    replaced = [ending(operation(BOOLEAN | {"xmin": 4.0}, f"s{i}", 5), 4) for i in range(6)]
    given = rows(messages, [*(operation(BOOLEAN, f"s{i}", 0) for i in range(6)), *replaced])
    counts = [ShardCounts() for _ in range(3)]
    updates = run(of, [given], counts=counts)
    assert len(updates) == 6 * 10
    rejections = [rejection for count in counts for rejection in count.rejections]
    assert sorted(json.loads(rejection.row)["id"] for rejection in rejections) == [f"s{i}" for i in range(6)]
    assert {(r.source, json.loads(r.row)["expires_at"]) for r in rejections} == {
        ("subscription", "1970-01-01T00:00:04.000Z")
    }
    reason = "expires_at must be later than now, which is 4.0; got 4.0 (subscription 's0')"
    assert reason in {rejection.reason for rejection in rejections}


@pytest.mark.parametrize("name", ["hash", "location", "space_kd"])
def test_a_static_run_rejects_what_shards_reject(name, random_fields):
    n_rejected = 0
    for seed in range(effort(2, 8)):
        of = inputs.job(window=nc.CountWindow(30), shards=3, partitioner=name, has_edges=True)
        given = inputs.batches(seed, random_fields, n=8, timed=True, withdrawn=0.3, kinds=served(of))
        given = inputs.with_ends(inputs.with_edges(given, seed, timed=True), seed)
        given = inputs.Batch(
            *(pa.concat_tables(getattr(b, n) for b in given) for n in ("messages", "subscriptions", "edges"))
        )
        of = fitted(of, [inputs.Batch(published([given]), given.subscriptions)])
        counts = [ShardCounts() for _ in range(3)]
        run(of, [given], counts=counts)
        for number, frames in enumerate(frames_of(given, of, blocks=2)):
            found = rejected_operations(frames, of, shard=number)
            assert Counter(found) == Counter(counts[number].rejections), f"seed {seed}"
            n_rejected += len(found)
    assert n_rejected


def test_a_message_leaves_at_its_end_and_an_older_one_enters_again_with_its_body():
    of = inputs.job(window=nc.CountWindow(9), shards=2, bodies=True)
    messages = [
        row("old", 1, x=3.0) | {"body": "old body"},
        row("offer", 2) | {"body": "an offer", "expires_at": 5 * S},
        row("tick", 5, text="z"),
    ]
    late = row("late", 3) | {"expires_at": 4 * S}
    counts = [ShardCounts(), ShardCounts()]
    given = [rows(messages, [operation(TOPK, "t", 0)]), rows([late], [])]
    updates = run(of, given, counts=counts)
    assert sorted((update[0], update[3], *update[2:6:3]) for update in updates) == [
        (1, "enter", "old", "old body"),
        (2, "enter", "offer", "an offer"),
        (2, "leave", "old", None),
        (3, "enter", "old", "old body"),
        (3, "leave", "offer", None),
    ]
    assert [count.late for count in counts] == [1, 1]


def test_frames_carry_ends_and_bodies_only_where_there_are_any():
    without, with_bodies = inputs.job(shards=2), inputs.job(shards=2, bodies=True)
    plain = row("m", 1)
    for of, given, has_ends, has_bodies in (
        (with_bodies, plain, False, False),
        (without, plain | {"body": "b"}, False, False),
        (with_bodies, plain | {"body": "b"}, False, True),
        (without, plain | {"expires_at": 2 * S}, True, False),
    ):
        for frames in frames_of(rows([given], []), of):
            (frame,) = (frame for frame in frames if frame.source == MESSAGE)
            assert (frame.ends is not None) == has_ends
            assert ("body" in unpack(frame.payload).column_names) == has_bodies


def test_bad_ends_and_bodies_have_a_reason():
    for of in (inputs.job(), inputs.job(bodies=True)):
        given = [
            row("good", 1) | {"expires_at": S + 1, "body": "b" * (64 << 10)},
            row("good", None) | {"expires_at": -5},
            row("good", 3, "retract") | {"expires_at": 1, "body": "b" * (65 << 10)},
            row("m", 1) | {"expires_at": S},
            row("m", 1) | {"body": "é" * (33 << 10)},
        ]
        block = open_block(pack_messages(inputs.table(given, MESSAGE_ROWS)))
        assert [number for number, _ in bad_messages(block, of)] == [3, 4]
        engine = of.new_engine()
        reasons = [fault(message_at(block, number), engine, of) for number in range(len(given))]
        assert reasons[:3] == [None] * 3
        assert reasons[3] == "expires_at must be later than at; got 1.0 (message 'm')"
        assert reasons[4].startswith("body must be at most 65536 bytes; got 67584")


@pytest.mark.parametrize("option", [{"bodies": True}, {"analyzer": "english"}])
def test_a_job_continues_only_with_the_same_bodies_and_analyzer(option):
    kept, other = inputs.job().fixed_settings, inputs.job(**option).fixed_settings
    assert [name for name in kept if kept[name] != other[name]] == list(option)
