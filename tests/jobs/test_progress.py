"""Spark's reports of batches add up."""

import json

import pytest

from nearcast.jobs.progress import Tally


def report(shard, *, messages=4, updates=0, late=0, unknown=0, subscriptions=0, seconds=0.0, **more):
    return json.dumps(
        {"shard": shard, "messages": messages, "updates": updates, "late": late, "unknown": unknown,
         "subscriptions": subscriptions, "state_bytes": 100 * (shard + 1), "seconds": seconds, **more}
    )  # fmt: skip


def batch(number, *reports, rows=5, rejected=1, requested=0, broken=(0, 0), ms=500):
    return {
        "batchId": number,
        "numInputRows": rows,
        "durationMs": {"triggerExecution": ms},
        "observedMetrics": {
            "nearcast_messages": {"rows": rows, "rejected": rejected},
            "nearcast_subscriptions": {"rows": 9, "rejected": requested},
            "nearcast_malformed_messages": {"rejected": broken[0]},
            "nearcast_malformed_subscriptions": {"rejected": broken[1]},
            "nearcast_shards": {"reports": list(reports)},
        },
    }


def test_batches_are_added_up():
    tally = Tally()
    first = batch(
        0, report(0, updates=3, late=1, subscriptions=7, seconds=3.0), report(1, updates=2, late=1, seconds=1.0)
    )
    second = batch(
        1, report(1, messages=9, updates=5, unknown=2, subscriptions=4), rows=10, requested=2, broken=(3, 4)
    )
    assert tally.take([first]) and tally.take([first, second])
    figures = tally.figures()
    assert figures["batches"] == 2 and figures["batch"] == 1
    assert figures["messages"] == 4 + 9
    assert figures["updates"] == 10
    assert figures["rejected"] == 1 + 1 + 2 + 3 + 4
    assert figures["late"] == 1, "every shard receives every late message"
    assert figures["unknown"] == 2
    assert figures["subscriptions"] == 7 + 4, "an idle shard keeps its subscriptions"
    assert figures["state_bytes"] == 300
    assert figures["messages_per_second"] == pytest.approx(9 / 0.5)
    assert figures["updates_per_second"] == pytest.approx(5 / 0.5)
    assert figures["shard_balance"] == pytest.approx(3.0 / 2.0)


def test_known_and_empty_reports_change_nothing():
    tally = Tally()
    assert not tally.take([batch(0, rows=0)])
    assert tally.take([batch(0)])
    assert not tally.take([batch(0), batch(1, rows=0)])
    assert tally.batches == 1


def test_a_batch_without_observations_counts_as_a_batch():
    tally = Tally()
    assert tally.take([{"batchId": 3, "numInputRows": 2}])
    assert (tally.batches, tally.messages, tally.balance) == (1, 0, 1.0)
    assert dict(tally.rows())["messages/s"] == "0"


def test_figures_of_progress_are_formatted():
    tally = Tally()
    tally.take([batch(0, report(0, messages=2000, updates=1234, subscriptions=2), rows=2001, ms=100)])
    published = dict(tally.rows())
    assert (
        published["messages"] == "2,000" and published["messages/s"] == "20,000" and published["updates"] == "1,234"
    )
    assert published["last batch"] == "0.10 s" and published["rejected"] == "1"


def test_an_adjustment_is_shown_with_what_it_changed_and_how_long_it_took():
    summary = {
        "action": "move",
        "load_ratio_before": 3.1,
        "load_ratio_after": 1.05,
        "moved_subscriptions": 2325,
        "moved_bytes": 324_000,
        "steps": 41,
    }
    last = [report(shard, moving=seconds) for shard, seconds in ((0, 0.25), (1, 0.5))]
    first = [report(0, epoch=3, moving=0.125), report(1, epoch=3)]
    tally = Tally()
    tally.take([batch(0, *last), {**batch(1, *first), "nearcast_adjustment": summary}])
    figures = tally.figures()
    assert figures["adjustments"] == 1 and figures["epoch"] == 3
    assert figures["last_adjustment"] == {"epoch": 3, "seconds": 0.625, **summary}, "of the slowest shards"
    shown = "epoch 3: 2,325 subscriptions moved in 0.62 s, busiest / idlest 3.10 to 1.05"
    assert dict(tally.rows())["last adjustment"] == shown
    for number, (action, shown) in enumerate(
        {
            "refit": "epoch 4: a fresh routing takes new subscriptions",
            "retire": "epoch 5: the old routing has retired, 2,325 subscriptions moved in 0.00 s",
        }.items()
    ):
        last = tally.last_batch
        first = [report(shard, epoch=4 + number) for shard in (0, 1)]
        tally.take([{**batch(last + 1, *first), "nearcast_adjustment": {**summary, "action": action}}])
        assert dict(tally.rows())["last adjustment"] == shown
    assert tally.adjustments == 3


def test_a_rescale_is_no_adjustment():
    tally = Tally()
    tally.take([batch(2, report(0, epoch=4), report(1, epoch=4))])
    assert (tally.epoch, tally.adjustments) == (4, 0)
