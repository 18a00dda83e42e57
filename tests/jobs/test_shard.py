"""Shards with frames of a stream emit the updates of one engine; without Spark, since stages are plain functions."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import nearcast as nc
from effort import effort, sampled
from jobs.local_shards import LocalShards
from nearcast.jobs import shard
from nearcast.jobs.edge_rows import EDGE_ROWS
from nearcast.jobs.frame import Frame
from nearcast.jobs.shard import ShardCounts
from nearcast.model import KINDS, Footprints, MessageBatch
from nearcast.model.id_column import IdColumn
from nearcast.partition import PARTITIONERS, Sample, serialization, shards_by_key
from nearcast.partition.fitting import fit
from nearcast.spark import dispatch
from nearcast.spark.batch_epoch import BatchEpoch
from nearcast.spark.job_handle import BroadcastJob
from nearcast.spark.shard_keys import keys_of
from nearcast.testing import strategies
from spark import inputs


class Local:
    """A broadcast within the process."""

    def __init__(self, value):
        self.value = value


def frames_of(batch, of, *, blocks=1, epoch=0, is_ending=False, share=None):
    """Pack a batch as the dispatch stage does; return the frames of each shard."""
    sent = BroadcastJob(lambda: Local(of))

    def find(job):
        return BatchEpoch(job, epoch, is_ending, share or (lambda frame: frame))

    subscriptions = batch.subscriptions.set_column(
        0, "op", pa.array([op or "subscribe" for op in batch.subscriptions["op"].to_pylist()], pa.string())
    )
    made = {key: [] for key in keys_of(of.shards, of.n_tasks)}
    for pack, rows in (
        (dispatch._packer("subscription", dispatch._distribute_subscriptions, sent, find), subscriptions),
        (dispatch._packer("message", dispatch._distribute_messages, sent, find), inputs.decoded(batch.messages, of)),
        (dispatch._packer("edge", dispatch._distribute_edges, sent, find), batch.edges or EDGE_ROWS.empty_table()),
    ):
        size = max(1, -(-len(rows) // blocks))
        for packed in pack(rows.to_batches(max_chunksize=size)):
            for row in packed.to_pylist():
                for key in row.pop("keys"):
                    made[key].append(Frame(**row))
    return list(made.values())


def answer(of, given, *, blocks=1, counts=None):
    shards, updates = LocalShards(of), []
    for batch in given:
        updates += shards.run(frames_of(batch, of, blocks=blocks), counts)
    return inputs.counted(updates)


def fitted(of, given):
    """Return a job with its routing, fitted to the first batch."""
    with_subscriptions = next(batch for batch in given if len(batch.subscriptions))
    ops = [op or "subscribe" for op in with_subscriptions.subscriptions["op"].to_pylist()]
    comes = with_subscriptions.subscriptions.filter(pa.array([op == "subscribe" for op in ops])).drop_columns(["op"])
    batches = of.admission.admit(comes)
    sample = Sample(
        Footprints.joined([batch.footprints for batch in batches]),
        MessageBatch.empty(),
    )
    return replace(of, fitted=serialization.pack(fit(of.partitioner, sample, n_shards=of.shards).fixed()))


NAMES = [known.name for known in PARTITIONERS]
MATCHES = tuple(kind.kind for kind in KINDS if not kind.result_policy.is_stateful)


@pytest.mark.parametrize(("name", "shards"), sampled(NAMES, [2, 5]))
def test_shards_with_any_partitioner_emit_the_updates_of_one_engine(name, shards, random_fields):
    for seed in range(effort(1, 3)):
        of = inputs.job(window=nc.CountWindow(7), shards=shards, partitioner=name, threads=shards - 1)
        given = inputs.batches(seed, random_fields, n=6)
        of = fitted(of, given)
        expected = inputs.embedded(of, given)
        assert answer(of, given, blocks=3) == expected, f"seed {seed}"


@pytest.mark.parametrize("name", ["hash", "knn_keyword", "space_kd", "text_frequency", "keyword_first"])
def test_more_shards_than_a_word_has_bits_emit_the_updates_of_one_engine(name, random_fields):
    of = inputs.job(window=nc.CountWindow(7), shards=70, partitioner=name)
    given = inputs.batches(1, random_fields, n=4)
    of = fitted(of, given)
    expected = inputs.embedded(of, given)
    assert expected
    assert answer(of, given, blocks=2) == expected


@pytest.mark.parametrize("name", NAMES)
def test_results_that_no_window_fills_up_cannot_be_merged_where_messages_are_withdrawn(name):
    for may_withdraw in (False, True):
        of = inputs.job(partitioner=name, shards=2, may_withdraw=may_withdraw)
        for kind in KINDS:
            if of.routing.sends_all or not may_withdraw or kind.kind != "nearest":
                of.check_kind(kind, "subscription 's'")
                continue
            rule = f"partitioner must send every message to all shards for kind 'nearest'.*'{name}'.*'s'"
            with pytest.raises(nc.InvalidInput, match=rule):
                of.check_kind(kind, "subscription 's'")


def test_unknown_ids_are_counted_once_across_shards():
    box = {"xmin": 0, "ymin": 0, "xmax": 4, "ymax": 4}
    rows = [{"id": f"s{i}", "kind": "boolean", "keywords": "a OR b", **box} for i in range(9)]
    leaves = [{"op": "unsubscribe", "id": f"s{i}"} for i in range(4, 15)]
    none = inputs.table([], inputs.MESSAGES)
    for name in ("hash", "location", "space_kd", "text_frequency"):
        of, counts = inputs.job(partitioner=name, shards=3), ShardCounts()
        given = [inputs.Batch(none, inputs.table(some, inputs.SUBSCRIPTIONS)) for some in (rows, leaves)]
        answer(fitted(of, given), given, counts=counts)
        assert counts.unknown == 6, name


@pytest.mark.parametrize("timed", [False, True], ids=["by arrival", "by time"])
@pytest.mark.parametrize("shards", [1, 2, 8])
@pytest.mark.parametrize("space", strategies.SPACES, ids=lambda s: s.metric)
def test_shards_emit_the_updates_of_one_engine(space, shards, timed, random_fields):
    window = nc.TimeWindow(9) if timed else nc.CountWindow(7)
    of = inputs.job(space=space, window=window, shards=shards, threads=1 + shards % 3)
    updates = 0
    n_seeds = effort(2, 8)
    for seed in range(n_seeds):
        given = inputs.batches(seed, random_fields, space=space, timed=timed)
        expected = inputs.embedded(of, given)
        assert answer(of, given, blocks=3) == expected, f"seed {seed}"
        updates += expected.total()
    assert updates > 20 * n_seeds


@pytest.mark.parametrize(("most", "updates"), [(3, 1 << 18), (100, 2)], ids=["messages", "updates"])
def test_long_batches_are_published_in_chunks(most, updates, monkeypatch, random_fields):
    monkeypatch.setattr(shard, "_FIRST", 1)
    monkeypatch.setattr(shard, "CHUNK", most)
    monkeypatch.setattr(shard, "UPDATES_PER_ROW", updates)
    of = inputs.job(window=nc.TimeWindow(9), shards=2)
    for seed in range(5):
        given = inputs.batches(seed, random_fields, timed=True, n=3)
        assert answer(of, given) == inputs.embedded(of, given)


def test_a_shard_with_some_of_the_messages_numbers_and_expires_like_the_others(monkeypatch, random_fields):
    """A routing may skip shards: here, each message goes to every shard but one."""

    class Some:
        n_shards = 2
        sends_all = False
        by_key = True

        def __init__(self, whole):
            self.place = whole.place

        def route(self, batch):
            return np.where(np.arange(len(batch)) % 2 == 0, np.uint64(3), np.uint64(2))[:, None]

    of = inputs.job(window=nc.CountWindow(4), shards=2)
    monkeypatch.setitem(of.__dict__, "routing", Some(of.routing))
    given = inputs.batches(1, random_fields, n=6)
    half, whole = answer(of, given), inputs.embedded(of, given)
    shares = [dict.fromkeys(name for _, name, *_ in half), dict.fromkeys(name for _, name, *_ in whole)]
    second = [name for name in shares[1] if shard_of(name, of) == 1]
    assert second
    for name in second:
        assert [u for u in half if u[1] == name] and all(half[u] == whole[u] for u in half | whole if u[1] == name)


def shard_of(name, of):
    return shards_by_key(IdColumn.of([name]).keys(of.scoring.hash_key), of.shards)[0]


def test_an_id_may_be_subscribed_unsubscribed_and_subscribed_again_in_one_batch():
    of = inputs.job(window=nc.CountWindow(9), shards=2)
    near = {"op": "subscribe", "id": "s", "kind": "topk", "x": 0.0, "y": 0.0, "keywords": "a", "k": 1, "alpha": 0.5}
    gone = {"op": "unsubscribe", "id": "s"}
    first = inputs.Batch(
        inputs.table([{"id": "m", "x": 0.0, "y": 0.0, "text": "a"}], inputs.MESSAGES),
        inputs.table([], inputs.SUBSCRIPTIONS),
    )
    second = inputs.Batch(
        first.messages.slice(0, 0), inputs.table([near, near | {"k": 2}, gone, gone, near], inputs.SUBSCRIPTIONS)
    )
    counts = ShardCounts()
    updates = answer(of, [first, second], counts=counts)
    assert updates == {(1, "s", "m", "enter", 1.0): 2}
    assert counts.unknown == 1


def test_a_term_may_occur_more_often_than_a_byte_can_count():
    of = inputs.job(window=nc.CountWindow(9), shards=2)
    wanted = {"op": "subscribe", "id": "s", "kind": "topk", "x": 0.0, "y": 0.0, "keywords": "a", "k": 9, "alpha": 0.0}
    texts = ("a b", "a " * 300 + "b", "a b b")
    rows = [{"id": f"m{i}", "x": 0.0, "y": 0.0, "text": text} for i, text in enumerate(texts)]
    given = [inputs.Batch(inputs.table(rows, inputs.MESSAGES), inputs.table([wanted], inputs.SUBSCRIPTIONS))]
    assert answer(of, given, blocks=3) == inputs.embedded(of, given)


def test_late_messages_are_counted(random_fields):
    of = inputs.job(window=nc.TimeWindow(5), shards=1)
    rows = [{"id": f"m{at}", "x": 0.0, "y": 0.0, "text": "a", "at": at * 1_000_000} for at in (20, 1, 30)]
    empty = inputs.table([], inputs.SUBSCRIPTIONS)
    counts = ShardCounts()
    answer(of, [inputs.Batch(inputs.table([row], inputs.MESSAGES), empty) for row in rows], counts=counts)
    assert (counts.messages, counts.late) == (3, 1)


def test_shards_emit_the_updates_of_one_engine_for_every_kind(random_fields):
    of = inputs.job(shards=2)
    for kind in KINDS:
        given = inputs.batches(3, random_fields, n=6, kinds=(kind.kind,))
        expected = inputs.embedded(of, given)
        assert expected and answer(of, given) == expected
