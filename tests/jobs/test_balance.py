"""The routing of a job follows its load: shards measure, the driver decides, and no update depends on it."""

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import nearcast as nc
from effort import effort
from jobs.local_shards import served
from jobs.test_epochs import Cluster, everything
from jobs.test_shard import MATCHES
from nearcast.engine import period_sampler
from nearcast.jobs.balancer import Balancer, check_balance
from nearcast.jobs.epochs import EpochLog
from nearcast.jobs.periods import newest_measured, read_parts
from nearcast.model import Footprints
from nearcast.partition.balance.cells import Period, measure
from nearcast.partition.balance.period_parts import PeriodPart, are_chosen, hashes_of, level_for, period_of
from nearcast.partition.serialization import pack, unpack
from nearcast.partition.transition import TransitionRouting
from spark import inputs

SOAK = ("space_kd", "location", "keyword", "prefix")
EAGER = nc.Balance(sigma=1.0, every=1)


def cluster_of(folder, seed, random_fields, *, balance=EAGER, partitioner="hybrid", **options):
    of = inputs.job(shards=3, partitioner=partitioner, batches_per_snapshot=3, balance=balance, **options)
    given = everything(seed, random_fields, n=effort(10, 16), kinds=MATCHES)
    return Cluster(folder, of, given), given


def parts_of(cluster):
    """Return the parts of the newest measured batch."""
    newest = cluster.log.newest()
    measured = newest_measured(cluster.of.state, epoch=newest.number, shards=newest.shards)
    return measured, read_parts(cluster.of.state, measured, epoch=newest.number, shards=newest.shards)


@pytest.mark.parametrize("name", ["hybrid", "space_grid", "location"])
def test_the_parts_of_all_shards_are_the_whole_period(name, tmp_path, random_fields):
    """Every message and subscription counts once, however many shards hold it.

    A subscription that is replaced between two batches by one in its slot is not seen to be new, so none is replaced.
    """
    of = inputs.job(shards=3, partitioner=name, balance=EAGER)
    given = [batch for batch in inputs.batches(2, random_fields, n=12, kinds=MATCHES) if len(batch.messages)]
    cluster, stored = Cluster(tmp_path, of, given), {}
    n_new = n_deleted = 0
    for number, batch in enumerate(given):
        is_again = [row["op"] != "unsubscribe" and row["id"] in stored for row in batch.subscriptions.to_pylist()]
        batch = replace(batch, subscriptions=batch.subscriptions.filter(pa.array([not one for one in is_again])))
        cluster.run(batch)
        before, stored = stored, dict(stored)
        for row in batch.subscriptions.to_pylist():
            if row["op"] == "unsubscribe":
                stored.pop(row["id"], None)
            else:
                stored[row["id"]] = (number, row)
        measured, parts = parts_of(cluster)
        assert measured.batch == number
        period = period_of(parts, counts_pairs=False)
        came = [id_ for id_, one in stored.items() if before.get(id_) != one]
        went = [id_ for id_, one in before.items() if stored.get(id_) != one]
        ids, footprints = footprints_of(cluster.of, [row for _, row in stored.values()])
        whole = Period.of(
            cluster.of.read_messages(batch.messages).for_routing,
            footprints,
            are_new=np.array([id_ in came for id_ in ids], np.bool_),
            deleted=footprints_of(cluster.of, [before[id_][1] for id_ in went])[1],
        )
        assert len(period.messages) == len(whole.messages)
        routing = unpack(cluster.log.newest().routing)
        ours, theirs = (measure(routing, one) for one in (period, whole))
        for column in ("messages", "subscriptions", "inserted", "deleted"):
            for of_what in ("counts", "in_shards"):
                got, wanted = (getattr(getattr(table, of_what), column).tolist() for table in (ours, theirs))
                assert got == wanted, f"batch {number}: {column} of {of_what}"
        assert ours.sizes.tolist() == theirs.sizes.tolist()
        n_new, n_deleted = n_new + len(came), n_deleted + len(went)
    assert n_new and n_deleted, "some come and some go"


def footprints_of(of, rows):
    """Return ids and footprints, in the order of kinds."""
    table = inputs.table(rows, inputs.SUBSCRIPTIONS).drop_columns(["op"])
    batches = of.admission.admit(table)
    return [id_ for some in batches for id_ in some.ids], Footprints.joined(
        [some.routing_footprints for some in batches]
    )


@pytest.mark.parametrize("name", ["hybrid", "dkm", *(pytest.param(one, marks=pytest.mark.soak) for one in SOAK)])
def test_updates_do_not_depend_on_what_the_balancer_decides(name, tmp_path, random_fields):
    """With a crash, a replay or a lost host before any batch, and a driver that starts anew."""
    n_decisions = 0
    for seed in range(effort(1 if name == "dkm" else 2, 8)):
        rng = random.Random(seed)
        cluster, given = cluster_of(tmp_path / str(seed), seed, random_fields, partitioner=name, bodies=True)
        balancer, updates = Balancer(cluster.of, EAGER), Counter()
        for batch in given:
            n_decisions += balancer.look() is not None
            if rng.random() < 0.3:
                cluster.run(batch, n_runs=rng.randint(1, 3))
            rng.choice([cluster.restart, cluster.lose_host, lambda: None])()
            if rng.random() < 0.3:
                balancer = Balancer(cluster.of, EAGER)
            updates += cluster.run(batch)
        assert updates == inputs.embedded(cluster.of, given), f"seed {seed}"
        check_decisions_lead_from_epoch_to_epoch(cluster)
    assert n_decisions > (0 if name == "dkm" else 2), "the routing was adjusted"


def check_decisions_lead_from_epoch_to_epoch(cluster):
    log = EpochLog(cluster.of.state)
    for number in range(1, log.newest_number() + 1):
        adjustment, before, after = log.adjustment(number), log.read(number - 1), log.read(number)
        assert pack(adjustment.replay(unpack(before.routing))) == after.routing
        assert after.origin == before.origin, "a restart with the same routing keeps the adjustment"
        if adjustment.action == "move":
            assert max(adjustment.loads_after) <= max(adjustment.loads_before)


@pytest.mark.parametrize("name", ["hybrid", "dkm", *(pytest.param(one, marks=pytest.mark.soak) for one in SOAK)])
@pytest.mark.parametrize("window", [None, nc.CountWindow(7)], ids=str)
def test_updates_do_not_depend_on_fresh_routings(name, window, tmp_path, random_fields):
    """Two routings are in force at once, and the old one retires; with crashes, replays and lost hosts on the way."""
    balance = replace(EAGER, refit_every=1, refit_gain=1e-9, retire_below=0.5)
    actions = []
    for seed in range(effort(1, 6)):
        rng = random.Random(seed)
        of = inputs.job(
            shards=3, partitioner=name, batches_per_snapshot=3, balance=balance, window=window, bodies=True
        )
        given = everything(seed, random_fields, n=effort(12, 20), kinds=served(of))
        cluster, updates = Cluster(tmp_path / str(seed), of, given), Counter()
        balancer = Balancer(cluster.of, balance)
        for batch in given:
            decision = balancer.look()
            if decision is not None:
                actions.append(decision.adjustment.action)
            if rng.random() < 0.4:
                cluster.run(batch, n_runs=rng.randint(1, 3))
            rng.choice([cluster.restart, cluster.lose_host, lambda: None])()
            if rng.random() < 0.3:
                balancer = Balancer(cluster.of, balance)
            updates += cluster.run(batch)
        assert updates == inputs.embedded(cluster.of, given), f"seed {seed}"
        check_decisions_lead_from_epoch_to_epoch(cluster)
        assert len(set(cluster.epochs)) > 2, "epochs have begun"
    assert actions[:2] == ["refit", "retire"]


def test_a_transition_can_be_rescaled(tmp_path, random_fields):
    """Old and new subscriptions go to the shards of another number of them."""
    balance = replace(EAGER, refit_every=1, refit_gain=1e-9, retire_below=0.0)
    for seed in range(effort(2, 8)):
        of = inputs.job(shards=3, partitioner="hybrid", balance=balance, window=nc.CountWindow(7))
        given = everything(seed, random_fields, n=10, kinds=served(of))
        cluster, updates = Cluster(tmp_path / str(seed), of, given), Counter()
        rescaled, balancer = None, Balancer(cluster.of, balance)
        for batch in given:
            updates += cluster.run(batch)
            newest = cluster.log.newest()
            if isinstance(unpack(newest.routing), TransitionRouting) and cluster.epochs[-1] == newest.number:
                rescaled = newest.number + 1
                cluster.rescale(2 + 2 * (seed % 2))
            elif rescaled is None:
                balancer.look()
        assert rescaled in cluster.epochs
        assert updates == inputs.embedded(cluster.of, given), f"seed {seed}"


def test_nothing_is_decided_while_an_epoch_waits(tmp_path, random_fields):
    cluster, given = cluster_of(tmp_path, 0, random_fields)
    balancer, batches, decision = Balancer(cluster.of, EAGER), iter(given), None
    while decision is None:
        cluster.run(next(batches))
        decision = balancer.look()
    assert str(decision).startswith("epoch 1: busiest over idlest shard: ")
    assert balancer.look() is None
    cluster.run(next(batches))  # writes what moves
    assert balancer.look() is None
    assert cluster.epochs[-1] == 0
    cluster.run(next(batches))
    assert cluster.epochs[-1] == 1
    assert parts_of_epoch(cluster, 0) == [], "what was measured before is removed"


def parts_of_epoch(cluster, number):
    return list((cluster.folder / "state" / "q" / "periods" / f"{number:08d}").glob("*.part"))


def test_every_so_many_batches_are_measured_and_the_old_parts_removed(tmp_path, random_fields):
    cluster, given = cluster_of(tmp_path, 1, random_fields, balance=nc.Balance(every=3))
    for batch in given[:7]:
        cluster.run(batch)
    names = sorted(path.name for path in parts_of_epoch(cluster, 0))
    assert names == [f"00000005.{shard}.part" for shard in range(3)]


def test_even_shards_are_left_alone(tmp_path, random_fields):
    cluster, given = cluster_of(tmp_path, 1, random_fields, partitioner="space_grid")
    cluster.run(many(given))
    assert Balancer(cluster.of, nc.Balance(sigma=1e6, every=1)).look() is None
    assert cluster.log.newest_number() == 0
    assert Balancer(cluster.of, EAGER).look() is not None, "with less patience they are not"


def many(given):
    """Return a batch with many subscriptions and messages, more of both in the west."""
    rng = random.Random(5)
    rows = [
        {"op": "subscribe", "kind": "boolean", "id": f"b{i}", "keywords": "a"}
        | {"xmin": x, "ymin": 0.0, "xmax": x, "ymax": 8.0}
        for i, x in enumerate(8 * rng.random() ** 3 for _ in range(2000))
    ]
    messages = [{"id": f"x{i}", "x": 8 * rng.random(), "y": 8 * rng.random(), "text": "a"} for i in range(1500)]
    return inputs.Batch(inputs.table(messages, given[0].messages.schema), inputs.table(rows, inputs.SUBSCRIPTIONS))


def test_samples_of_several_levels_fit_together(tmp_path, random_fields, monkeypatch):
    """Of many subscriptions and messages a few are taken, each with the weight of those that are not."""
    monkeypatch.setattr(period_sampler, "SUBSCRIPTIONS", 300)
    monkeypatch.setattr(period_sampler, "MESSAGES", 150)
    cluster, given = cluster_of(tmp_path, 1, random_fields)
    cluster.run(many(given))
    _, parts = parts_of(cluster)
    assert len({part.level for part in parts}) > 1, "shards have different numbers of subscriptions"
    period = period_of(parts, counts_pairs=False)
    assert period.weight > 1 and period.message_weight > 1
    n, n_messages = len(period.footprints) * period.weight, len(period.messages) * period.message_weight
    assert 0.7 * 2000 < n < 1.3 * 2000 and 0.6 * 1500 < n_messages < 1.5 * 1500
    assert len(period.footprints) < 600 and len(period.messages) < 300


def test_a_part_survives_its_bytes(tmp_path, random_fields):
    cluster, given = cluster_of(tmp_path, 1, random_fields)
    for batch in given[:4]:
        cluster.run(batch)
    for part in parts_of(cluster)[1]:
        again = PeriodPart.unpack(part.pack())
        assert again.pack() == part.pack()
        assert again.footprints.term_ids.tolist() == part.footprints.term_ids.tolist()


def test_a_higher_level_holds_half_of_the_rows():
    hashes = hashes_of(np.arange(100_000))
    shares = [np.mean(are_chosen(hashes, level)) for level in range(5)]
    assert np.allclose(shares, [1, 1 / 2, 1 / 4, 1 / 8, 1 / 16], atol=0.01)
    assert all(100_000 >> level_for(100_000, most=most) <= most for most in (1, 7, 1_000, 99_999, 100_000))


def test_a_routing_without_cells_cannot_be_adjusted():
    of = replace(inputs.job(shards=2, balance=nc.Balance()), state="anywhere")
    rule = r"balance must be left out for this partitioner: it has no cells that could move; got 'hash' \(job\)"
    with pytest.raises(nc.InvalidInput, match=rule):
        check_balance(of)
    check_balance(replace(of, balance=None))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sigma": 0.9}, "sigma must be a number of 1 or more; got 0.9"),
        ({"sigma": float("nan")}, "sigma must be a number of 1 or more; got nan"),
        ({"selection": "best"}, "selection must be one of"),
        ({"every": 0}, "every must be an integer of 1 or more; got 0"),
        ({"load": "time"}, r"load must be one of \['pairs', 'products'\]; got 'time'"),
    ],
)
def test_a_bad_balance_is_refused(options, message):
    with pytest.raises(nc.InvalidInput, match=message):
        nc.Balance(**options)
