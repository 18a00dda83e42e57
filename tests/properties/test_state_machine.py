"""After every step every result is exact, and the updates are the difference."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import nearcast as nc
from effort import effort
from nearcast.engine import EngineConfig
from nearcast.engine.shard_engine import ShardEngine
from nearcast.index import INDEXES
from nearcast.model import KINDS, facets
from nearcast.partition import PARTITIONERS, Sample
from nearcast.partition.balance.cells import has_cells
from nearcast.space.region_formats import to_geojson
from nearcast.testing import strategies
from nearcast.text import TEXT_SIMILARITIES, analyzer_names
from oracle import Oracle

KIND_NAMES = [kind.kind for kind in KINDS]
GROWING = {kind.kind for kind in KINDS if not kind.result_policy.is_stateful}
IDS = st.sampled_from(["s1", "s2", "s3", "s4", 5, 6])
WORKERS = st.sampled_from([1, 2, 3, 5])
ADJUSTABLE = [one.name for one in PARTITIONERS if has_cells(one.fit(Sample.none(), n_shards=2))]
STEPS = st.sampled_from([0.0, 0.0, 1.0, 1.0, 2.5, 7.0])


class Machine(RuleBasedStateMachine):
    index = "auto"
    kinds: tuple[str, ...] = ()

    @initialize(
        space=st.sampled_from(strategies.SPACES),
        window=st.sampled_from([("count", 1), ("count", 3), ("count", 6), ("time", 3.0), ("time", 6.0), None]),
        workers=st.sampled_from([1, 3, 3]),
        partitioner=st.sampled_from(["auto", *(p.name for p in PARTITIONERS)]),
        text_similarity=st.sampled_from(sorted(TEXT_SIMILARITIES)),
        in_folder=st.booleans(),
        hash_key=st.none() | st.binary(min_size=16, max_size=16),
        bodies=st.booleans(),
        analyzer=st.sampled_from(["simple", "unicode", "english"]) | st.sampled_from(analyzer_names()),
        is_spelled=st.booleans(),
        balance=st.none()
        | st.builds(
            nc.Balance,
            sigma=st.just(1.0),
            every=st.just(1),
            messages=st.integers(1, 3),
            refit_every=st.integers(0, 2),
            refit_gain=st.just(1e-9),  # a fresh routing always pays
            retire_below=st.sampled_from([0.0, 0.5, 1.0]),
        ),
    )
    def set_up(
        self,
        space,
        window,
        workers,
        partitioner,
        text_similarity,
        in_folder,
        hash_key,
        bodies,
        analyzer,
        is_spelled,
        balance,
    ):
        self.spell = strategies.spell if is_spelled else dict
        self.space, self.clock, self.published, self.fields = space, 100.0, 0, []
        without = [kind.kind for kind in KINDS if kind.kind in self.kinds and not kind.result_policy.needs_window]
        self.kinds, window = (without, None) if window is None and without else (self.kinds, window or ("count", 3))
        kind, size = window or (None, None)
        options = {
            "space": space,
            "vocabulary": strategies.vocabulary(),
            "window": {"count": nc.CountWindow, "time": nc.TimeWindow}[kind](size) if window else None,
            "social": strategies.social_graph(),
            "text_similarity": text_similarity,
            "workers": workers,
            "partitioner": partitioner,
            "balance": balance if partitioner in ADJUSTABLE else None,
            "index": self.index,
            "hash_key": hash_key,
            "bodies": bodies,
            "analyzer": analyzer,
            "attributes": strategies.ATTRIBUTES,
        }
        self.folder = tempfile.TemporaryDirectory() if in_folder else None
        self.config = EngineConfig.of(options)
        self.engine = ShardEngine.create(self.config, folder=self.folder and self.folder.name)
        self.oracle = Oracle(
            metric=space.metric,
            max_distance=space.max_distance,
            weights=strategies.WEIGHTS,
            edges=strategies.EDGES,
            window=window,
            text_similarity=text_similarity,
            analyzer=analyzer,
        )

    def teardown(self):
        if hasattr(self, "engine"):
            self.engine.close()
            if self.folder:
                self.folder.cleanup()

    # -- rules

    @rule(data=st.data(), id_=IDS, as_table=st.booleans())
    def subscribe(self, data, id_, as_table):
        kind = data.draw(st.sampled_from(self.kinds))
        fields = self.spell(data.draw(strategies.filtered_fields(kind, self.space)))
        lasts = data.draw(st.sampled_from([None, None, 0.5, 1.0, 6.0]))
        fields["expires_at"] = None if lasts is None else self.clock + lasts
        before = self.results()
        subscription = strategies.make_subscription(kind, id_, fields)
        if as_table and isinstance(id_, str):
            updates = self.updates_of(self.engine.subscribe(table_of(kind, id_, fields)))
        else:
            updates = self.engine.subscribe([subscription])
        self.oracle.subscribe(id_, kind, fields)
        assert {u.subscription for u in updates} <= {id_}
        self.check_updates(updates, before, self.results())

    @precondition(lambda self: self.oracle.now > 0)
    @rule(data=st.data(), id_=IDS, ago=STEPS)
    def subscribe_too_late(self, data, id_, ago):
        kind = data.draw(st.sampled_from(self.kinds))
        fields = self.spell(data.draw(strategies.subscription_fields(kind, self.space)))
        before, n = self.results(), len(self.engine)
        with pytest.raises(nc.InvalidInput, match="expires_at must be later than now"):
            self.engine.subscribe(
                [strategies.make_subscription(kind, id_, {**fields, "expires_at": self.oracle.now - ago})]
            )
        assert (self.results(), len(self.engine)) == (before, n)

    @precondition(lambda self: len(self.engine) > 0)
    @rule(data=st.data())
    def unsubscribe(self, data):
        id_ = data.draw(st.sampled_from(sorted(self.oracle.subscriptions, key=str)))
        assert self.engine.unsubscribe([id_]) is None
        self.oracle.unsubscribe(id_)
        assert id_ not in self.engine

    @rule(data=st.data(), n=st.integers(1, 3), delays=st.lists(STEPS, min_size=3, max_size=3), as_table=st.booleans())
    def publish(self, data, n, delays, as_table):
        batch = []
        for i in range(n):
            self.clock += delays[i]
            self.published += 1
            late = data.draw(st.sampled_from([0.0, 0.0, 0.0, 2.0, 5.0]))
            again = st.sampled_from(self.fields) if self.fields else st.nothing()
            fields = self.spell(data.draw(strategies.message_fields(self.space) | again))  # equal messages tie
            self.fields.append(fields)
            message = {"id": f"m{self.published}", **self.draw_times(data, self.clock - late), **fields}
            batch.append(message | {"attributes": data.draw(strategies.attribute_values())})
        before = self.results()
        if as_table:
            updates = self.updates_of(self.engine.publish(table_of_messages(batch)))
        else:
            updates = self.engine.publish([nc.Message(**m) for m in batch])
        self.check_published(updates, batch, before)

    @precondition(lambda self: self.oracle.retractable())
    @rule(data=st.data(), as_table=st.booleans())
    def retract(self, data, as_table):
        ids = data.draw(st.lists(st.sampled_from(self.oracle.retractable()), min_size=1, max_size=3))
        before, growing = self.results(), self.growing_kinds()
        if as_table:
            updates = self.updates_of(self.engine.retract(pa.table({"id": ids})))
        else:
            updates = self.engine.retract(ids)
        withdrawn = self.oracle.retract(ids)
        assert all(u.seq == self.oracle.seq for u in updates)
        self.check_withdrawn([u for u in updates if u.subscription in growing], withdrawn, growing)
        self.check_updates([u for u in updates if u.subscription not in growing], before, self.results())
        for id_ in ids:
            with pytest.raises(nc.UnknownMessage):
                self.engine.retract([id_])

    @rule(data=st.data(), delay=STEPS, as_table=st.booleans())
    def replace(self, data, delay, as_table):
        self.clock += delay
        ids = [*self.oracle.retractable(), f"r{self.clock}"]
        fields = self.spell(data.draw(strategies.message_fields(self.space)))
        message = {"id": data.draw(st.sampled_from(ids)), **self.draw_times(data, self.clock), **fields}
        message["attributes"] = data.draw(strategies.attribute_values())
        before = self.results()
        if as_table:
            updates = self.updates_of(self.engine.replace(table_of_messages([message])))
        else:
            updates = self.engine.replace([nc.Message(**message)])
        withdrawn = self.oracle.retract([message["id"]])
        in_time, growing = self.oracle.publish(message), self.growing_kinds()
        assert all(u.seq == self.oracle.seq for u in updates)
        for id_ in {u.subscription for u in updates}:
            changes = [u.change for u in updates if u.subscription == id_]
            assert changes == sorted(changes, reverse=True), "leaves come first"
        of_growing = [u for u in updates if u.subscription in growing]
        self.check_withdrawn([u for u in of_growing if u.change == "leave"], withdrawn, growing)
        self.check_growing([u for u in of_growing if u.change == "enter"], message, in_time)
        of_others = [u for u in updates if u.subscription not in growing]
        self.check_updates(of_others, before, self.results(), replaced=message["id"])

    def draw_times(self, data, at):
        """Draw when a message was published and when it expires, and its body."""
        needs_time = self.config.window is not None and self.config.window.needs_time
        is_timeless = not needs_time and data.draw(st.sampled_from([False, False, True]))
        lasts = data.draw(st.sampled_from([None, None, 0.5, 1.0, 2.5, 6.0]))
        return {
            "at": None if is_timeless else at,
            "expires_at": None if lasts is None else at - 2 * is_timeless + lasts,
            "body": data.draw(st.sampled_from([None, "", f"body at {at} ü"])),
        }

    def growing_kinds(self):
        return {id_ for id_, s in self.oracle.subscriptions.items() if s["kind"] in GROWING}

    def check_withdrawn(self, updates, withdrawn, growing):
        """Check the leaves of kinds that only report matches."""
        emitted = {(u.subscription, u.message): u for u in updates}
        assert len(emitted) == len(updates) and all(u.change == "leave" for u in updates)
        for id_ in growing:
            for message in withdrawn:
                must, may, score = self.oracle.matches(id_, message)
                came_after = message["seq"] > self.oracle.subscriptions[id_]["since"]
                update = emitted.pop((id_, message["id"]), None)
                assert update is not None if must and came_after else (may and came_after) or update is None
                if update is not None:
                    assert update.score == pytest.approx(score, abs=1e-9)
        assert not emitted

    @precondition(lambda self: "social" in self.kinds)
    @rule(user=st.sampled_from((*strategies.USERS, "new")), place=st.sampled_from((*strategies.PLACES, "nowhere")))
    def add_or_remove_edges(self, user, place):
        before, edge = self.results(), (user, place)
        if edge in self.oracle.edges:
            updates = self.engine.remove_edges([edge])
        else:
            updates = self.engine.add_edges([edge])
        self.oracle.edges ^= {edge}
        assert all(u.seq == self.oracle.seq for u in updates)
        self.check_updates(updates, before, self.results())

    @precondition(lambda self: len(self.engine) > 0)
    @rule(data=st.data())
    def move(self, data):
        id_ = data.draw(st.sampled_from(sorted(self.oracle.subscriptions, key=str)))
        known = self.oracle.subscriptions[id_]
        fields = {name: value for name, value in known.items() if name not in ("kind", "since", "held")}
        if known["kind"] == "boolean":
            fields["region"] = data.draw(strategies.boxes(self.space))
        else:
            fields["location"] = data.draw(strategies.locations(self.space))
        before = self.results()
        updates = self.engine.subscribe([strategies.make_subscription(known["kind"], id_, fields)])
        self.oracle.subscribe(id_, known["kind"], fields)
        self.check_updates(updates, before, self.results())

    @rule(delay=STEPS)
    def advance(self, delay):
        self.clock += delay
        before = self.results()
        updates = self.engine.advance(self.clock)
        self.oracle.advance(self.clock)
        assert all(u.seq == self.oracle.seq for u in updates)
        self.check_updates(updates, before, self.results())

    @precondition(lambda self: self.folder is None)
    @rule(workers=WORKERS)
    def save_and_load(self, workers):
        before, stats = self.results(), self.engine.stats()
        with tempfile.TemporaryDirectory() as folder:
            self.engine.save(Path(folder) / "engine")
            self.engine.close()
            self.engine = ShardEngine.load(Path(folder) / "engine", workers=workers)
        self.check_same(before, stats)

    @precondition(lambda self: self.folder is None)
    @rule(workers=WORKERS)
    def rescale(self, workers):
        before, stats = self.results(), self.engine.stats()
        self.engine.rescale(workers)
        assert self.engine.workers == workers
        self.check_same(before, stats)

    @precondition(lambda self: self.folder is not None)
    @rule()
    def seal_and_attach(self):
        before, stats = self.results(), self.engine.stats()
        self.engine.seal("now")
        self.engine.close()
        self.engine = ShardEngine.attach(self.folder.name, "now", self.config)
        self.check_same(before, stats)

    def check_same(self, before, stats):
        assert self.results() == before
        after = self.engine.stats()
        assert (after.messages, after.late, after.updates, after.window) == (
            stats.messages, stats.late, stats.updates, stats.window,
        )  # fmt: skip
        assert after.work == stats.work

    # -- invariants

    @invariant()
    def every_result_is_right(self):
        for id_, s in self.oracle.subscriptions.items():
            if s["kind"] not in GROWING:
                self.oracle.check_result(id_, [(r.message, r.score) for r in self.engine.results(id_)])
            elif self.config.window is not None:
                found = {r.message for r in self.engine.results(id_)}
                for m in self.oracle.live():
                    must, may, _ = self.oracle.matches(id_, m) if m["seq"] > s["since"] else (False, False, 0)
                    assert must <= (m["id"] in found) <= may, (id_, m)
                assert found <= {m["id"] for m in self.oracle.live()}

    @invariant()
    def counts_agree(self):
        stats = self.engine.stats()
        assert stats.messages == self.oracle.seq
        assert stats.late == self.oracle.late
        assert stats.window == len(self.oracle.live())
        assert stats.subscriptions == len(self.oracle.subscriptions) == sum(stats.kinds.values())
        assert stats.matched <= stats.verified <= stats.candidates <= stats.visited

    def check_published(self, updates, batch, before):
        """Replay the updates step by step: each step must be the difference of two right results."""
        held = {id_: dict(result) for id_, result in before.items()}
        by_step = {}
        for u in updates:
            by_step.setdefault(u.seq, []).append(u)
        assert [u.seq for u in updates] == sorted(u.seq for u in updates)
        for message in batch:
            in_time = self.oracle.publish(message)
            held = {id_: result for id_, result in held.items() if id_ in self.oracle.subscriptions}
            step = by_step.pop(self.oracle.seq, [])
            self.check_bodies(step)
            self.check_growing(step, message, in_time)
            for u in step:
                if self.oracle.subscriptions[u.subscription]["kind"] in GROWING:
                    continue
                result = held[u.subscription]
                if u.change == "enter":
                    assert u.message not in result, f"{u} entered twice"
                    result[u.message] = u.score
                else:
                    assert result.pop(u.message) == u.score
            for id_, s in self.oracle.subscriptions.items():
                if s["kind"] not in GROWING:
                    sign = 1 if s["kind"] == "nearest" else -1
                    seqs = {m["id"]: m["seq"] for m in self.oracle.log}
                    ranked = sorted(held[id_].items(), key=lambda r: (sign * r[1], sign * seqs[r[0]]))
                    self.oracle.check_result(id_, ranked)
            assert len({(u.subscription, u.message) for u in step}) == len(step), "a step reports a message twice"
        assert not by_step, f"updates without a message: {by_step}"
        assert held == {id_: dict(result) for id_, result in self.results().items()}

    def check_growing(self, step, message, in_time):
        emitted = {u.subscription: u for u in step if self.oracle.subscriptions[u.subscription]["kind"] in GROWING}
        for id_, s in self.oracle.subscriptions.items():
            if s["kind"] not in GROWING:
                continue
            must, may, score = self.oracle.matches(id_, message)
            if id_ in emitted:
                assert may and in_time, f"{emitted[id_]} does not match"
                assert emitted[id_].change == "enter" and emitted[id_].message == message["id"]
                assert emitted[id_].score == pytest.approx(score, abs=1e-9)
            else:
                assert not (must and in_time), f"{message} should match {s}"

    def check_updates(self, updates, before, after, *, replaced=None):
        """Check that updates are the difference of two results, in which a replaced message is another one."""
        self.check_bodies(updates)
        before = {id_: result for id_, result in before.items() if id_ in self.oracle.subscriptions}
        held = {i: {m for m, _ in r if m != replaced} for i, r in before.items()}
        holds = {i: {m for m, _ in r if m != replaced} for i, r in after.items()}
        gone = {(i, m, "leave") for i, r in before.items() for m, _ in r if m not in holds.get(i, ())}
        come = {(i, m, "enter") for i, r in after.items() for m, _ in r if m not in held.get(i, ())}
        assert {(u.subscription, u.message, u.change) for u in updates} == gone | come
        assert len(updates) == len(gone | come)

    def updates_of(self, table):
        """Return a table of updates as objects."""
        names = ["seq", "subscription", "message", "change", "score", *["body"] * self.config.bodies]
        assert table.column_names == [names[0], "at", *names[1:]]
        rows = [{name: row[name] for name in names} for row in table.to_pylist()]
        assert all(isinstance(row["subscription"], str) for row in rows)
        return [nc.Update(**{**row, "subscription": self.native(row["subscription"])}) for row in rows]

    def check_bodies(self, updates):
        """Check that a message has its body where it enters a result, if the engine has bodies."""
        for u in updates:
            assert u.body == (self.oracle.body(u.message) if self.config.bodies and u.change == "enter" else None), u

    def native(self, id_):
        return int(id_) if id_.isdigit() else id_

    def results(self):
        """Return the results of the stateful kinds."""
        return {
            id_: [] if s["kind"] in GROWING else [(r.message, r.score) for r in self.engine.results(id_)]
            for id_, s in self.oracle.subscriptions.items()
        }


LISTS = pa.list_(pa.string())
ARROW = {float: pa.float64(), int: pa.int32(), str: pa.string(), bool: pa.bool_()}


def table_of_messages(batch):
    return pa.table(
        {
            "id": [m["id"] for m in batch],
            "x": [m["location"][0] for m in batch],
            "y": [m["location"][1] for m in batch],
            "text": pa.array([m["text"] for m in batch], None if isinstance(batch[0]["text"], str) else LISTS),
            "at": [m["at"] for m in batch],
            "place": pa.array([m["place"] for m in batch], pa.string()),
            "expires_at": [m["expires_at"] for m in batch],
            "body": pa.array([m["body"] for m in batch], pa.string()),
            **{
                name: pa.array([m["attributes"].get(name) for m in batch], ARROW[type_])
                for name, type_ in strategies.ATTRIBUTES.items()
            },
        }
    )


def table_of(kind, id_, fields):
    row = {"op": "subscribe", "id": id_, "kind": kind, **fields}
    if "location" in row:
        row["x"], row["y"] = row.pop("location")
    region = row.pop("region", None)
    if region is not None and isinstance(region[0], str):
        row["region"] = json.dumps(to_geojson(strategies.make_region(region)))
    elif region is not None:
        row["xmin"], row["ymin"], row["xmax"], row["ymax"] = region
    if not isinstance(row["keywords"], str):
        row["keywords"] = " ".join(row["keywords"])
    return pa.Table.from_pylist([row])


CHOICES = [
    ("auto", KIND_NAMES),
    *((entry.name, [kind for kind in KIND_NAMES if entry.serves(kind)]) for entry in INDEXES),
]


@pytest.mark.parametrize(("index", "kinds"), CHOICES, ids=[name for name, _ in CHOICES])
def test_every_result_is_right_after_every_step(index, kinds, monkeypatch):
    monkeypatch.setattr(facets, "LEAST_RATIO", 1)  # the few values of the small data set suffice
    machine = type("Machine", (Machine,), {"index": index, "kinds": tuple(kinds)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=effort(30 if index == "auto" else 12, 400),
            stateful_step_count=25,
            suppress_health_check=list(HealthCheck),
        ),
    )
