"""Shards of a job with clock="wall" advance by the time of the batch, and reject messages too far ahead of it."""

import json
from dataclasses import replace

import pytest

import nearcast as nc
from effort import effort, sampled
from jobs.local_shards import LocalShards, served
from jobs.test_order import TOPK, operation, timed
from jobs.test_shard import NAMES, fitted, frames_of
from jobs.test_withdrawal import published, row, rows
from nearcast.engine.clocked_engine import ClockedEngine
from nearcast.jobs.batch_time import CLOCK, BatchTime, time_of, with_time
from nearcast.jobs.frame import Frame
from nearcast.jobs.shard import ShardCounts, apply
from nearcast.model.columns import updates_to_table
from nearcast.spark import dispatch
from spark import inputs

S = 1_000_000


def clock_frame(now_s, of):
    time = BatchTime.of(now_s * S, max_ahead_s=of.ahead_s)
    return Frame(CLOCK, 0, 0, 1, None, time.packed())


def run(of, given, nows, *, counts=None):
    """Return the updates of all shards, given the time of each batch; None if the clock has not moved."""
    shards, updates = LocalShards(of), []
    for one, now in zip(given, nows, strict=True):
        frames_of_shards = frames_of(one, of, blocks=2)
        for number, frames in enumerate(frames_of_shards):
            frames += [] if now is None else [clock_frame(now, of)]
            frames_of_shards[number] = with_time(frames, shards.engines[number].now_us, max_ahead_s=of.ahead_s)
        updates += shards.run(frames_of_shards, counts)
    return timed(updates)


def expected_of(of, given, nows):
    """Return the updates of one engine that is advanced before each batch."""
    alone, updates = ClockedEngine.from_config(of.config), []
    for one, now in zip(given, nows, strict=True):
        if now is not None:
            updates.append(updates_to_table(alone.advance(now), bodies=of.config.bodies))
        updates += inputs.apply_batch(alone, one)
    return timed(updates)


@pytest.mark.parametrize(("name", "shards"), [("hash", 1), *sampled(NAMES, [2, 5], part=(3, 4))])
def test_shards_give_the_updates_of_one_engine_that_the_clock_moves(name, shards, random_fields):
    for seed in range(NAMES.index(name), NAMES.index(name) + effort(1, 6)):
        of = inputs.job(window=nc.TimeWindow(9), shards=shards, partitioner=name, clock="wall")
        given = inputs.batches(seed, random_fields, n=8, timed=True, withdrawn=0.2, kinds=served(of))
        of = fitted(of, [inputs.Batch(published(given), inputs.pa.concat_tables(b.subscriptions for b in given))])
        nows = [None if step % 3 == 2 else step * 6 for step in range(len(given))]
        expected = expected_of(of, given, nows)
        assert expected and run(of, given, nows) == expected, f"seed {seed}"


def test_a_batch_without_messages_expires():
    of = inputs.job(window=nc.TimeWindow(9), shards=2, clock="wall")
    given = [rows([row("m", 20)], [operation(TOPK, "t", None)]), rows([], [])]
    updates = run(of, given, [20, 29])
    assert sorted((*update[:4], update[5].timestamp()) for update in updates) == [
        (1, "t", "m", "enter", 20.0),
        (1, "t", "m", "leave", 29.0),
    ]


@pytest.mark.parametrize("name", ["hash", "space_kd"])
def test_messages_too_far_ahead_are_rejected_once_and_take_no_seq(name, monkeypatch):
    monkeypatch.setattr(dispatch, "time", lambda: 1_000.0)
    of = inputs.job(window=nc.TimeWindow(9), shards=3, partitioner=name, clock="wall", max_ahead_s=100.0)
    of = fitted(of, [rows([], [operation(MATCHING, "b", None)])])
    counts = [ShardCounts() for _ in range(3)]
    given = [
        rows(
            [row("a", 1_000), row("b", 1_100), row("c", 1_101), row("d", 9_999, text="z")],
            [operation(MATCHING, "s", 0)],
        )
    ]
    updates = run(of, given, [1_000], counts=counts)
    assert sorted(update[:3] for update in updates) == [(1, "s", "a"), (2, "s", "b")]
    assert [count.messages for count in counts] == [2, 2, 2]
    assert [len(count.rejections) for count in counts] == [2, 0, 0]
    for rejection, text in zip(counts[0].rejections, "az", strict=True):
        assert rejection.source == "message" and json.loads(rejection.row)["text"] == text
    assert counts[0].rejections[1].reason == (
        "at must be at most 100 s ahead of the clock of the job, 1000.000; got 9999.0 (message 'd')"
    )


def test_a_host_whose_clock_is_wrong_rejects_the_same_messages(monkeypatch):
    """Only their texts are missing from what is shown."""
    monkeypatch.setattr(dispatch, "time", lambda: 1e9)
    of = inputs.job(window=nc.TimeWindow(9), shards=1, clock="wall")
    counts = [ShardCounts()]
    assert not run(of, [rows([row("m", 9_999)], [operation(TOPK, "t", 0)])], [1_000], counts=counts)
    (rejection,) = counts[0].rejections
    assert json.loads(rejection.row) == {
        "id": "m",
        "x": 0.0,
        "y": 0.0,
        "place": None,
        "at": "1970-01-01T02:46:39.000Z",
    }


def test_the_limit_is_recorded_with_the_batch():
    of = inputs.job(window=nc.TimeWindow(9), shards=1, clock="wall", max_ahead_s=5.0)
    (frames,) = frames_of(rows([row("m", 1_006), row("n", 1_004)], []), of)
    frames.append(clock_frame(1_000, of))
    for other in (of, replace(of, max_ahead_s=50.0), replace(of, max_ahead_s=float("inf"))):
        counts = ShardCounts()
        list(apply(other.new_shard_engine(), frames, shard=0, job=other, counts=counts))
        assert counts.messages == 1
    assert time_of([clock_frame(1_000, replace(of, max_ahead_s=float("inf")))]).latest_us > 1 << 61


MATCHING = {"op": "subscribe", "kind": "boolean", "keywords": "a", "xmin": 0.0, "ymin": 0.0, "xmax": 8.0, "ymax": 8.0}
