"""`nearcast advise --drift` says what load adjustment would have done, and every decision can be replayed."""

import json

import numpy as np
import pytest

import nearcast as nc
from nearcast.advice import generated, try_adjusting
from nearcast.cli import main
from nearcast.partition import PARTITIONERS, Sample
from nearcast.partition.balance.adjustment import Adjustment
from nearcast.partition.balance.cells import Period, measure

(KD,) = (one for one in PARTITIONERS if one.name == "space_kd")
SMALL = ["advise", "--drift", "--workload", "drift", "--subscriptions", "2000", "--sample", "3300", "--shards", "4"]


@pytest.fixture(scope="module")
def stream():
    return generated("drift", ["boolean"], n_subscriptions=2000, n_messages=3300, window=10)


def test_a_dry_run_decides_what_can_be_replayed(stream):
    """The loads of a period are those of the routing that the decisions before it lead to."""
    report = try_adjusting(stream, KD, n_shards=4, balance=nc.Balance(sigma=1.1), n_periods=5)
    footprints, messages = stream.sample
    routing = KD.fit(Sample(footprints, messages.take(np.arange(550))), n_shards=4).fixed()
    assert len(report.periods) == 5 and any(period.decision for period in report.periods)
    for number, period in enumerate(report.periods, 1):
        part = messages.take(np.arange(550 * number, 550 * (number + 1)))
        loads = measure(routing, Period.of(part, footprints, counts_pairs=True)).shard_loads
        assert period.adjusted.tolist() == loads.tolist()
        if period.decision is not None:
            again = Adjustment.from_json(json.dumps(period.decision.content()))
            routing = again.replay(routing)
            assert max(again.loads_after) <= max(again.loads_before)
    assert report.gain > 1
    assert report.periods[0].gain == 1, "nothing has been adjusted before the first period"


def test_a_dry_run_says_when_a_fresh_routing_pays(stream):
    easy, hard = (
        try_adjusting(stream, KD, n_shards=4, balance=nc.Balance(sigma=1e6, refit_gain=gain), n_periods=2)
        for gain in (1e-9, 1e9)
    )
    assert [period.refit for period in hard.periods] == [None, None]
    assert hard.summary.endswith("a fresh routing (global adjustment) would pay after no period")
    assert easy.summary.endswith("a fresh routing (global adjustment) would pay after periods 1, 2")
    footprints, messages = stream.sample
    for number, period in enumerate(easy.periods, 1):
        part = messages.take(np.arange(1100 * number, 1100 * (number + 1)))
        fresh = KD.fit(Sample(footprints, part), n_shards=4).fixed()
        loads = measure(fresh, Period.of(part, footprints, counts_pairs=True)).shard_loads
        assert period.fresh.tolist() == loads.tolist() == list(period.refit.loads_after)
        assert period.refit.moved_subscriptions == 0


def test_even_periods_are_left_alone(stream):
    report = try_adjusting(stream, KD, n_shards=4, balance=nc.Balance(sigma=1e6), n_periods=2)
    assert [period.decision for period in report.periods] == [None, None]
    assert report.gain == 1
    assert report.summary.startswith("No period has a shard with more than 1e+06 times the load of the idlest one")


def test_the_command_prints_a_table_or_json(capsys):
    words = [*SMALL, "--partitioner", "space_kd", "--partitioner", "hybrid", "--periods", "3", "--sigma", "1.1"]
    assert main(words) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "drift: space_kd, 4 shards, 3 periods of 825 messages" in out and "drift: hybrid" in out
    assert "the busiest shard would have had 1/" in out
    assert main([*words, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [one["partitioner"] for one in report["drift"]] == ["space_kd", "hybrid"]
    decision = report["drift"][0]["periods"][0]["decision"]
    assert decision["steps"] and decision["sigma"] == 1.1


@pytest.mark.parametrize(
    ("words", "published"),
    [
        (["--partitioner", "hash"], "partitioner must divide its work into cells to be adjusted"),
        (["--sigma", "0.5"], "sigma must be a number of 1 or more; got 0.5 (balance)"),
        (
            ["--sample", "5", "--periods", "5"],
            "messages must be at least one for each of the 6 periods; got 5 (drift)",
        ),
    ],
)
def test_what_cannot_be_adjusted_is_refused(words, published, capsys):
    assert main([*SMALL, *words]) == 2
    assert published in capsys.readouterr().err
