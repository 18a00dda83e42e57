"""Retractions and replacements in a stream give the updates of one engine, in every shard alike."""

import json

import pyarrow as pa
import pytest

import nearcast as nc
from effort import effort, sampled
from jobs.local_shards import served
from jobs.test_order import BOOLEAN, NEAREST, TOPK, batch, expected_of, in_one, leave, mixed, operation, run
from jobs.test_shard import NAMES, fitted, frames_of
from nearcast.jobs import shard
from nearcast.jobs.block import open_block, pack_messages
from nearcast.jobs.progress import Tally
from nearcast.jobs.shard import ShardCounts, apply
from nearcast.jobs.validate import bad_messages, fault, message_at
from nearcast.model import KINDS
from spark import inputs


def row(id_, at, op=None, *, x=0.0, text="a"):
    blank = {"x": None, "y": None, "text": None} if op == "retract" else {"x": x, "y": 0.0, "text": text}
    return {"id": id_, "at": None if at is None else at * 1_000_000, "op": op, **blank}


def rows(messages, requests):
    return inputs.Batch(inputs.table(messages, inputs.MESSAGE_ROWS), inputs.table(requests, inputs.SUBSCRIPTIONS))


@pytest.mark.parametrize(("name", "shards"), [("hash", 1), *sampled(NAMES, [2, 5], part=(0, 4))])
def test_every_partitioner_gives_the_updates_of_one_engine(name, shards, random_fields):
    first, n_leaves = NAMES.index(name) % 2, 0
    for seed in range(first, first + effort(1, 6)):
        window = nc.CountWindow(30) if seed % 2 else nc.TimeWindow(25)
        of = inputs.job(window=window, shards=shards, partitioner=name)
        given = inputs.batches(seed, random_fields, n=effort(7, 12), timed=True, withdrawn=0.4, kinds=served(of))
        given = mixed(given, seed, messages_too=seed % 2)
        of = fitted(of, [inputs.Batch(published(given), pa.concat_tables(b.subscriptions for b in given))])
        for arranged in (given, in_one(given)):
            expected = expected_of(of, arranged)
            assert run(of, arranged) == expected, f"seed {seed}"
            n_leaves += sum(n for update, n in expected.items() if update[3] == "leave")
    assert n_leaves > 0


@pytest.mark.parametrize("name", ["text_frequency", "keyword", "hybrid"])
def test_messages_leave_the_subscriptions_that_were_placed_by_values_of_attributes(name, random_fields, monkeypatch):
    """Conditions that demand a value decide which shards have a subscription, and which see a message."""
    demanding = ("category = 'bike'", "stars IN (-1, 3)", "category IN ('bike', 'it''s')", "price = 1.5")
    monkeypatch.setattr(inputs, "CONDITIONS", demanding)
    of, n_leaves = inputs.job(window=nc.CountWindow(60), shards=4, partitioner=name), 0
    for seed in (3, 6, 7):
        given = inputs.batches(seed, random_fields, n=8, timed=True, withdrawn=0.5, kinds=served(of), filtered=0.95)
        job = fitted(of, [inputs.Batch(published(given), pa.concat_tables(b.subscriptions for b in given))])
        expected = expected_of(job, given)
        assert run(job, given) == expected, f"seed {seed}"
        n_leaves += sum(n for update, n in expected.items() if update[3] == "leave")
    assert n_leaves > 0


def published(given):
    """Return the rows that hold a message, from which a partitioner can learn."""
    messages = pa.concat_tables(b.messages for b in given)
    return messages.filter(pa.compute.is_valid(messages["x"])).drop_columns(["op"])


@pytest.mark.parametrize("kind", [kind.kind for kind in KINDS])
def test_every_kind_gives_the_updates_of_one_engine(kind, random_fields):
    of = inputs.job(window=nc.CountWindow(40), shards=2)
    for seed in range(effort(2, 6)):
        given = inputs.batches(seed, random_fields, n=6, timed=True, kinds=(kind,), withdrawn=0.4)
        expected = expected_of(of, in_one(given))
        assert expected and run(of, in_one(given)) == expected, f"seed {seed}"


def test_runs_may_end_anywhere(monkeypatch, random_fields):
    of = inputs.job(window=nc.TimeWindow(9), shards=2)
    given = in_one(inputs.batches(3, random_fields, n=6, timed=True, withdrawn=0.3))
    expected = expected_of(of, given)
    for first, most, n_updates in ((1, 3, 1 << 18), (1, 1, 1)):
        monkeypatch.setattr(shard, "_FIRST", first)
        monkeypatch.setattr(shard, "CHUNK", most)
        monkeypatch.setattr(shard, "UPDATES_PER_ROW", n_updates)
        assert run(of, given) == expected


def test_a_retraction_takes_no_seq_and_a_replacement_is_one_step():
    of = inputs.job(window=nc.CountWindow(9), shards=2)
    messages = [row("m1", 1), row("m1", 2, "retract"), row("m2", 3), row("m2", 4, "replace"), row("m3", 5)]
    requests = [operation(BOOLEAN, "b", 0), operation(TOPK | {"k": 3}, "t", 0)]
    updates = run(of, [rows(messages, requests)])
    assert sorted(update[:4] for update in updates) == sorted(
        (seq, name, message, change)
        for name in "bt"
        for seq, message, change in (
            (1, "m1", "enter"), (1, "m1", "leave"), (2, "m2", "enter"), (3, "m2", "leave"), (3, "m2", "enter"),
            (4, "m3", "enter"),
        )
    )  # fmt: skip
    assert updates == expected_of(of, [rows(messages, requests)])


def test_rows_of_messages_of_one_time_stay_in_the_order_of_arrival_after_operations():
    of = inputs.job(window=nc.CountWindow(9), shards=2)
    messages = [row("m", 1), row("m", 5, "retract"), row("m", 5), row("m", None, "retract")]
    requests = [operation(BOOLEAN, "b", 5), operation(NEAREST, "n", 0), leave("n", 5)]
    updates = run(of, [rows(messages, requests)])
    assert sorted(update[:4] for update in updates) == [(1, "n", "m", "enter"), (2, "b", "m", "enter")]


@pytest.mark.parametrize("name", ["hash", "location", "space_kd", "text_frequency"])
def test_unknown_ids_are_counted_once(name):
    of = fitted(
        inputs.job(window=nc.CountWindow(3), shards=3, partitioner=name), [batch([], [BOOLEAN | {"id": "b"}])]
    )
    messages = [row(f"m{at}", at) for at in range(6)]
    messages += [row(f"m{i}", 9, "retract") for i in (5, 4, 1, 5)] + [row("new", 9, "replace")]
    tally, reports = Tally(), []
    for number, frames in enumerate(frames_of(rows(messages, [operation(BOOLEAN, "b", None)]), of)):
        counts = ShardCounts()
        list(apply(of.new_shard_engine(), frames, shard=number, job=of, counts=counts))
        assert counts.messages == 7
        reports.append(
            json.dumps(vars(counts) | {"shard": number, "subscriptions": 0, "state_bytes": 0, "seconds": 0})
        )
    observed = {"nearcast_messages": {"rows": 11}, "nearcast_shards": {"reports": reports}}
    tally.take([{"batchId": 0, "numInputRows": 11, "observedMetrics": observed}])
    assert (tally.messages, tally.unknown) == (7, 2), "one had left the window, and one was retracted twice"


def test_messages_that_leave_no_trace_cannot_be_retracted():
    of = inputs.job(shards=2)
    of.__dict__["config"] = inputs.EngineConfig.of({"space": of.config.space})
    counts = ShardCounts()
    updates = run(
        of, [rows([row("m", 1), row("m", 2, "retract"), row("n", 3)], [operation(BOOLEAN, "b", 0)])], counts=counts
    )
    assert sorted(update[:4] for update in updates) == [(1, "b", "m", "enter"), (2, "b", "n", "enter")]
    assert counts.retractions == "00", "one for each shard"


def test_bad_rows_have_a_reason():
    of = inputs.job(window=nc.TimeWindow(9))
    given = [
        row("good", 1), row("good", None, "retract"), row("good", 1, "replace"), row("m", 1, "delete"),
        row("m", None), row("x" * 600, None, "retract"), row("good", 3, "retract") | {"x": float("nan")},
        row("m", 1, "replace") | {"text": None}, row(None, 1, "retract"),
    ]  # fmt: skip
    block = open_block(pack_messages(inputs.table(given, inputs.MESSAGE_ROWS)))
    bad = [number for number, _ in bad_messages(block, of)]
    assert bad == [3, 4, 5, 7, 8]
    engine = of.new_engine()
    reasons = [fault(message_at(block, number), engine, of) for number in range(len(given))]
    assert [number for number, reason in enumerate(reasons) if reason is not None] == bad
    assert reasons[3] == "op must be 'publish', 'retract' or 'replace'; got 'delete' (message 'm')"
    assert reasons[5].startswith("id must be at most 512 bytes")


def test_a_block_of_retractions_needs_ids_only():
    names = ("x", "y", "text")
    block = open_block(pack_messages(pa.table({"id": ["m"], "op": ["retract"], **{name: [None] for name in names}})))
    assert block["x"].type == pa.float64() and not list(bad_messages(block, inputs.job()))
    with pytest.raises(nc.InvalidInput, match="x must be a column of double"):
        pack_messages(pa.table({"id": ["m"], **{name: [None] for name in names}}))


def test_frames_without_messages_still_have_the_retractions_among_them():
    """They take no seq, so a shard that is rebuilt from such frames numbers messages alike."""
    of = inputs.job(shards=1)
    given = rows([row("m", 1), row("m", 2, "retract"), row("n", 3), row("n", 4, "replace")], [])
    (frames,) = frames_of(given, of, blocks=2)
    counts = [ShardCounts(), ShardCounts()]
    for some, count in zip((frames, [frame.only_counted() for frame in frames]), counts, strict=True):
        list(apply(of.new_shard_engine(), some, shard=0, job=of, counts=count))
    assert [count.messages for count in counts] == [3, 3]
