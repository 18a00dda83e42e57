"""Edges as a source: changes at their place in the order, the updates that they cause, and users that become known."""

import json
from collections import Counter

import pyarrow as pa
import pytest

import nearcast as nc
from effort import effort, sampled
from jobs.test_order import expected_of, in_one, leave, message, operation, run
from jobs.test_shard import NAMES, fitted, frames_of
from jobs.test_shard_state import another_host, run_batch
from nearcast.engine.shard_engine import ShardEngine
from nearcast.jobs.edge_rows import EDGE_ROWS
from nearcast.jobs.engine_cache import LocalEngineCache
from nearcast.jobs.folder import Folder
from nearcast.jobs.shard import ShardCounts, apply
from nearcast.jobs.shard_state import ShardManifest, ShardState
from nearcast.jobs.validate import bad_edges
from nearcast.testing import strategies
from spark import inputs

SOCIAL = {"op": "subscribe", "kind": "social", "keywords": "a", "x": 0.0, "y": 0.0, "k": 1, "user": "ann"}


def edge(op, user, place, at=None):
    return {"op": op, "user": user, "place": place, "at": None if at is None else at * 1_000_000}


def batch(messages, requests, edges):
    tables = (inputs.MESSAGES, messages), (inputs.SUBSCRIPTIONS, requests), (EDGE_ROWS, edges)
    return inputs.Batch(*(inputs.table(rows, schema) for schema, rows in tables))


def job(**options):
    return inputs.job(
        **{"social": nc.SocialGraph([("bob", "bar")]), "window": nc.CountWindow(20), "has_edges": True} | options
    )


@pytest.mark.parametrize(("name",), sampled(NAMES, part=(0, 4)))
def test_shards_give_the_updates_of_one_engine(name, random_fields):
    """Half of the users are unknown at first; subscriptions of unknown users are rejected."""
    known = strategies.USERS[: len(strategies.USERS) // 2]
    graph, n_rejected, n_updates = nc.SocialGraph([(user, strategies.PLACES[0]) for user in known]), 0, 0
    first = NAMES.index(name)
    for seed in range(first, first + effort(2, 8)):
        of = job(social=graph, partitioner=name, shards=1 + seed % 3, window=nc.TimeWindow(20))
        given = inputs.batches(
            seed, random_fields, n=8, timed=True, kinds=("social", "social", "topk"), withdrawn=0.1
        )
        given = inputs.with_edges(given, seed, timed=True)
        if name != "hash":
            of = fitted(of, [inputs.Batch(inputs.table([], inputs.MESSAGES), only_topk(given))])
        for arranged in (given, one(given)):
            counts, expected = ShardCounts(), expected_of(of, arranged)
            assert run(of, arranged, counts=counts) == expected, f"seed {seed}"
            n_rejected, n_updates = n_rejected + len(counts.rejections), n_updates + expected.total()
    assert n_rejected > 0 and n_updates > 20


def only_topk(given):
    rows = pa.concat_tables(b.subscriptions for b in given)
    return rows.filter(pa.compute.equal(rows["kind"], "topk"))


def one(given):
    (whole,) = in_one(given)
    return [inputs.Batch(whole.messages, whole.subscriptions, pa.concat_tables(b.edges for b in given))]


def test_at_equal_times_edges_come_before_subscriptions_and_these_before_messages():
    of = job(shards=2)
    messages = [message("near", 5) | {"place": "bar"}, message("liked", 5) | {"place": "cafe", "x": 1.0}]
    given = batch(messages, [operation(SOCIAL, "s", 5)], [edge("add", "ann", "cafe", 5)])
    updates = run(of, [given])
    assert updates == expected_of(of, [given])
    assert [update[:4] for update in sorted(updates)][-1] == (2, "s", "near", "leave")


def test_changes_of_edges_cause_updates_under_the_last_message():
    of = job(shards=2)
    messages = [message("near", 1) | {"place": "bar"}, message("far", 2) | {"place": "cafe", "x": 1.0}]
    edges = [edge("add", "ann", "gym"), edge("add", "ann", "cafe", 3), edge("remove", "ann", "cafe", 4)]
    updates = run(of, [batch(messages, [operation(SOCIAL, "s", None)], edges)])
    assert sorted(update[:4] for update in updates) == [
        (1, "s", "near", "enter"),
        (2, "s", "far", "enter"), (2, "s", "far", "leave"),
        (2, "s", "near", "enter"), (2, "s", "near", "leave"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["hash", "location"])
def test_a_subscription_is_rejected_if_its_user_becomes_known_later(name):
    of = fitted(
        job(shards=2, partitioner=name),
        [
            inputs.Batch(
                inputs.table([], inputs.MESSAGES),
                inputs.table([SOCIAL | {"id": "s", "user": "bob"}], inputs.SUBSCRIPTIONS),
            )
        ],
    )
    requests = [
        operation(SOCIAL, "early", 2),
        operation(SOCIAL, "in time", 3),
        operation(SOCIAL | {"user": "eve"}, "eve", 9),
    ]
    requests += [
        operation(SOCIAL | {"user": "bob"}, "kept", 0),
        operation(SOCIAL | {"user": "eve"}, "kept", 1),
        leave("early", 4),
    ]
    edges = [edge("add", "ann", "cafe", 3), edge("remove", "ann", "cafe", 3), edge("remove", "eve", "bar", 1)]
    counts = [ShardCounts(), ShardCounts()]
    engines = [of.new_shard_engine() for _ in counts]
    for number, frames in enumerate(frames_of(batch([message("m", 9)], requests, edges), of)):
        list(apply(engines[number], frames, shard=number, job=of, counts=counts[number]))
    rejections = {
        json.loads(r.row)["id"] + json.loads(r.row)["user"]: r for count in counts for r in count.rejections
    }
    assert sorted(rejections) == ["earlyann", "eveeve", "kepteve"]
    assert sum(len(count.rejections) for count in counts) == 3
    assert rejections["earlyann"].reason == "user must be known to the social graph; got 'ann' (subscription 'early')"
    assert json.loads(rejections["earlyann"].row) | {"at": None} == SOCIAL | {"id": "early", "at": None}
    held = {s.id: s.user for engine in engines for s in engine.subscriptions()}
    assert held == {"in time": "ann", "kept": "bob"}, (
        "a user stays known without edges, and a bad row changes nothing"
    )
    assert sum(count.unknown for count in counts) == 2, (
        "a subscription that was rejected, and an edge that is not there"
    )


def test_many_edges_cost_one_change_while_no_result_depends_on_users(monkeypatch):
    calls = []
    of = job(shards=1)
    engine = of.new_shard_engine()
    add = type(engine).add_edges
    monkeypatch.setattr(type(engine), "add_edges", lambda self, edges: calls.append(len(edges)) or add(self, edges))
    edges = [edge("add", f"u{i}", "cafe") for i in range(50)] + [
        edge("remove", "u7", "cafe"),
        edge("remove", "u7", "cafe"),
    ]
    counts = ShardCounts()
    for frames in frames_of(batch([], [operation(SOCIAL | {"user": "u7"}, "s", None)], edges), of):
        list(apply(engine, frames, shard=0, job=of, counts=counts))
    assert calls == [50] and counts.unknown == 1 and len(engine) == 1
    assert ("u8", "cafe") in engine._scoring.social and ("u7", "cafe") not in engine._scoring.social


def test_bad_rows_have_a_reason():
    rows = [
        edge("add", "ann", "cafe"), edge("drop", "ann", "cafe"), edge(None, "ann", "cafe"), edge("add", None, "cafe"),
        edge("remove", "ann", None), edge("add", "x" * 600, "cafe"), edge("add", "ann", "cafe", 10**12), edge("remove", "a", "b"),
    ]  # fmt: skip
    table = inputs.table(rows, EDGE_ROWS).append_column("broken", pa.array([[]] * len(rows), pa.list_(pa.string())))
    bad = dict(bad_edges(table, job()))
    assert list(bad) == [1, 2, 3, 4, 5]
    assert bad[1] == "op must be 'add' or 'remove'; got 'drop' (edge ('ann', 'cafe'))"
    assert bad[3].startswith("user must be a string") and bad[5].startswith("user must be at most 512 bytes; got 600")


def test_edges_survive_the_loss_of_an_engine(tmp_path, random_fields):
    """They are in the snapshots of a shard and in the frames since."""
    of = job(social=nc.SocialGraph([("u0", "p0")]), shards=1, batches_per_snapshot=2)
    given = inputs.with_edges(inputs.batches(5, random_fields, n=5, kinds=("social", "topk")), 5)
    emitted, manifest = [], ShardManifest()
    for one_batch in given:
        with LocalEngineCache(tmp_path / "local", of.config, ShardEngine) as cache:
            manifest, updates = run_batch((ShardState(of, Folder(str(tmp_path)), cache, 0), of), manifest, one_batch)
        emitted.append(updates)
        another_host(tmp_path)
    assert sum(emitted, Counter()) == inputs.embedded(of, given)
