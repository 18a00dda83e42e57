"""The recommended partitioner has the least load on its busiest shard."""

from dataclasses import replace

import numpy as np
import pytest

import nearcast as nc
from nearcast.errors import InvalidInput
from nearcast.model import Footprints, MessageBatch, SubscriptionBatch
from nearcast.partition import PARTITIONERS, Sample
from nearcast.partition.candidate_pairs import find_candidate_pairs
from nearcast.partition.estimate import Constants, Evenness, choose, estimate_partitioners, recommend
from nearcast.partition.hash import HashRouting
from nearcast.partition.masks import as_ints
from nearcast.testing import strategies

NAMES = [p.name for p in PARTITIONERS]


def town(n=400, n_messages=600, seed=0, kind="boolean"):
    """Return a sample of small boxes, or of points of a stateful kind, and messages spread over a square."""
    rng = np.random.default_rng(seed)
    scoring = replace(strategies.scoring(), space=nc.Space(nc.Box(-10, -10, 110, 110)))
    words = [f"w{i}" for i in range(50)]

    def make(i):
        (x, y), word = rng.uniform(0, 100, 2).tolist(), words[int(rng.integers(50))]
        if kind == "boolean":
            return nc.BooleanSubscription(f"s{i}", region=nc.Box(x - 4, y - 4, x + 4, y + 4), keywords=word)
        return nc.NearestSubscription(f"s{i}", location=(x, y), keywords=[word, words[int(rng.integers(50))]], k=3)

    messages = [
        nc.Message(
            i, tuple(rng.uniform(0, 100, 2).tolist()), [words[j] for j in set(rng.integers(0, 50, 3).tolist())]
        )
        for i in range(n_messages)
    ]
    footprints = SubscriptionBatch.of([make(i) for i in range(n)], scoring).footprints
    return Sample(footprints, MessageBatch.from_messages(messages, vocabulary=scoring.vocabulary))


def by_name(estimates):
    return {estimate.name: estimate for estimate in estimates}


@pytest.mark.parametrize("kind", ["boolean", "nearest"])
def test_candidate_pairs_are_those_of_a_scan(kind):
    sample = town(60, 80, kind=kind)
    candidate_pairs = find_candidate_pairs(sample)
    found = set(zip(candidate_pairs.messages.tolist(), candidate_pairs.subscriptions.tolist(), strict=True))
    assert found == {
        (row, one)
        for row, document in enumerate(sample.messages.documents)
        for one, footprint in enumerate(sample.footprints)
        if footprint.may_match(*document.location, document.units.keys())
    }
    assert found


def test_a_branch_without_terms_pairs_with_every_message_in_its_box_and_many_pairs_are_sampled():
    sample = town(30, 40)
    n = len(sample.footprints)
    anyone = replace(
        sample.footprints, branch_indptr=np.arange(n + 1), term_indptr=np.zeros(n + 1, np.int64),
        term_ids=np.zeros(0, np.int64), boxes=np.tile([-np.inf, -np.inf, np.inf, np.inf], (n, 1)),
    )  # fmt: skip
    assert len(find_candidate_pairs(Sample(anyone, sample.messages)).messages) == 30 * 40
    some = find_candidate_pairs(Sample(anyone, sample.messages), most=400)
    assert len(some.messages) == 400
    assert len(set(some.messages.tolist())) == 40, "all messages are paired, with fewer subscriptions"


@pytest.mark.parametrize("kind", ["boolean", "nearest"])
@pytest.mark.parametrize("in_threads", [True, False])
def test_estimates_agree_with_the_routing(kind, in_threads):
    sample = town(kind=kind)
    for estimate in estimate_partitioners(sample, n_shards=4, in_threads=in_threads):
        is_shared = estimate.routing.sends_all and in_threads
        assert estimate.seen.sum() == pytest.approx(estimate.reach * len(sample.messages))
        assert estimate.held.sum() == pytest.approx(
            (4 if is_shared else estimate.replication) * len(sample.footprints), rel=0.01
        )
        assert 1 <= estimate.replication <= 4
        assert 0 <= estimate.dropped <= 1
        assert estimate.reach <= (1 if is_shared else 4)
        assert estimate.busiest_us == estimate.busy_us.max() > 0
        assert estimate.loads.shape == estimate.own_loads.shape == (4,)
        assert min(estimate.fit_seconds, estimate.placed_per_second, estimate.routed_per_second) > 0


def test_the_cost_of_definition_1_is_summed_over_shards():
    sample = town()
    constants = Constants(check=0.5, handle=2.0, insert=3.0)
    (alone,) = estimate_partitioners(sample, n_shards=1, partitioners=PARTITIONERS[:1], constants=constants)
    assert alone.total_load == pytest.approx(0.5 * 600 * 400 + 2.0 * 600 + 3.0 * 400)
    for estimate in estimate_partitioners(sample, n_shards=4, constants=constants, in_threads=False):
        load = 0.5 * (estimate.seen * estimate.held).sum() + 2.0 * estimate.seen.sum() + 3.0 * estimate.held.sum()
        assert estimate.total_load == pytest.approx(load)


def test_loads_scale_with_the_number_of_subscriptions_behind_a_sample():
    few, many = (estimate_partitioners(town(), n_shards=4, n_subscriptions=n)[0] for n in (400, 4_000_000))
    assert many.held.sum() == pytest.approx(10_000 * few.held.sum())
    assert many.busiest_us > 10 * few.busiest_us


def test_hash_is_recommended_for_threads_and_stateless_kinds():
    taken, reason = recommend(estimate_partitioners(town(), n_shards=4, constants=Constants(check=1.0)))
    assert taken.name == "hash"
    assert taken.replication == taken.reach == 1
    assert "busiest shard works" in reason and "it is the simplest" in reason


def test_for_processes_a_partitioner_that_routes_messages_to_one_shard_is_recommended():
    estimates = estimate_partitioners(town(2_000, 2_000), n_shards=4, in_threads=False)
    taken, reason = recommend(estimates)
    assert taken.name.startswith("space_"), "boxes are small, and most of the cost is handling messages"
    assert taken.reach == 1
    assert taken.busiest_us < by_name(estimates)["hash"].busiest_us / 1.1
    assert f"that of hash, the simplest, {by_name(estimates)['hash'].busiest_us:.3g}" in reason


def test_stateful_kinds_prefer_one_replica():
    estimates = by_name(estimate_partitioners(town(kind="nearest"), n_shards=4, in_threads=False))
    keyword, kd = estimates["keyword"], estimates["space_kd"]
    assert kd.replication == 4
    assert 1 < keyword.replication < 2.1
    assert recommend(list(estimates.values()))[0].replication == 1
    assert kd.busiest_us > estimates["hash"].busiest_us


def test_the_first_partitioner_close_to_the_best_is_recommended():
    first, second = estimate_partitioners(town(), n_shards=2, partitioners=PARTITIONERS[:2])
    slower = replace(first, busy_us=np.array([1.0, 1.09]))
    assert recommend([slower, replace(second, busy_us=np.array([1.0, 1.0]))])[0] is slower
    quick = replace(second, busy_us=np.array([0.9, 0.9]))
    assert recommend([slower, quick])[0] is quick


def test_without_messages_or_with_one_shard_the_first_partitioner_is_recommended():
    silent = Sample(town().footprints, MessageBatch.empty())
    assert "nothing tells them apart" in recommend(estimate_partitioners(silent, n_shards=4))[1]
    assert "nothing tells them apart" in recommend(estimate_partitioners(town(), n_shards=1))[1]
    assert choose(silent, n_shards=4) == HashRouting(4)
    assert choose(town(), n_shards=1) == HashRouting(1)
    none = Sample(Footprints.joined([]), town().messages)
    assert choose(none, n_shards=4) == HashRouting(4)
    assert estimate_partitioners(none, n_shards=4, partitioners=PARTITIONERS[:1])[0].replication == 1


def test_the_recommended_partitioner_is_fitted_to_the_whole_sample_and_repeatably():
    sample = town(2_000, 2_000)
    chosen = choose(sample, n_shards=4, in_threads=False)
    again = choose(sample, n_shards=4, in_threads=False)
    (partitioner,) = (
        p
        for p in PARTITIONERS
        if p.name == recommend(estimate_partitioners(sample, n_shards=4, in_threads=False))[0].name
    )
    on_all = partitioner.fit(sample, n_shards=4)
    assert as_ints(chosen.place(sample.footprints)) == as_ints(on_all.place(sample.footprints))
    assert as_ints(again.place(sample.footprints)) == as_ints(on_all.place(sample.footprints))


def test_partitioners_are_estimated_in_order_and_reported_to_watch():
    requested = []
    estimates = estimate_partitioners(town(50, 50), n_shards=2, watch=requested.append)
    assert requested == NAMES == [estimate.name for estimate in estimates]


def test_balance_handles_idle_shards_and_bad_input_is_refused():
    assert Evenness.of(np.zeros(3)) == (1, 1)
    assert Evenness.of(np.array([0.0, 2.0])) == (2, np.inf)
    with pytest.raises(InvalidInput, match="n_shards must be between 1 and 4096; got 0"):
        estimate_partitioners(town(5, 5), n_shards=0)
    with pytest.raises(InvalidInput, match=r"estimates must hold at least one; got \[\]"):
        recommend([])
