"""A kind and a partitioner that are defined outside the package work in every form of the engine."""

import random
from importlib.metadata import EntryPoint, EntryPoints

import pyarrow as pa
import pytest

import nearcast as nc
from extension.plugin import LatestSubscription, ReversedPartitioner
from nearcast import index
from nearcast.index.scan import Scan
from nearcast.model import BEST_IN_WINDOW, ResultPolicy, find_kind, kind_registry, kinds
from nearcast.model.columns import MESSAGES, subscriptions_schema
from nearcast.model.subscription import KeywordSubscription
from nearcast.partition import partitioner_names, partitioners
from nearcast.partition import registry as partitioner_registry
from nearcast.partition.serialization import pack, unpack
from nearcast.testing import strategies

N = 7


def options(**extra):
    return {
        "space": strategies.PLANE,
        "vocabulary": strategies.vocabulary(),
        "social": strategies.social_graph(),
        "window": nc.CountWindow(N),
        **extra,
    }


def stream(seed, n=60):
    rng = random.Random(seed)
    for i in range(n):
        yield nc.Message(
            f"m{i}",
            rng.choice(strategies.GRID[strategies.PLANE]),
            " ".join(rng.choices(strategies.TERMS, k=rng.randint(0, 3))),
        )


def subscriptions(seed, n=12):
    rng = random.Random(seed)
    return [
        LatestSubscription(
            f"s{i}",
            location=rng.choice(strategies.GRID[strategies.PLANE]),
            keywords=" ".join(rng.choices(strategies.TERMS, k=2)),
            k=rng.randint(1, 3),
            radius=rng.choice([0.0, 2.0, 4.0, 8.0]),
        )
        for i in range(n)
    ]


def expected(subscription, published):
    """Return the result by the definition alone."""
    words = set(subscription.keywords.split())
    (x, y), window = subscription.location, published[-N:]
    inside = [
        m.id
        for m in window
        if words & set(m.text.split())
        and ((m.location[0] - x) ** 2 + (m.location[1] - y) ** 2) ** 0.5 <= subscription.radius
    ]
    return inside[::-1][: subscription.k]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("partitioner", ["hash", "reversed", "space_kd", "keyword"])
def test_results_follow_the_definition_with_any_partitioner(partitioner, workers):
    made = subscriptions(1)
    with nc.Engine(**options(workers=workers, partitioner=partitioner)) as engine:
        engine.subscribe(made)
        published, held = [], {one.id: [] for one in made}
        for message in stream(2):
            published.append(message)
            for update in engine.publish([message]):
                if update.change == "enter":
                    held[update.subscription].append(update.message)
                else:
                    held[update.subscription].remove(update.message)
            for one in made:
                right = expected(one, published)
                assert [result.message for result in engine.results(one.id)] == right
                assert sorted(held[one.id]) == sorted(right)


def test_tables_are_read_with_the_columns_that_the_kind_declares():
    assert {"k", "radius"} <= set(subscriptions_schema().names)
    rows = [one.to_row() for one in subscriptions(3)]
    table = pa.Table.from_pylist(rows, schema=subscriptions_schema())
    messages = [{"id": m.id, "x": m.location[0], "y": m.location[1], "text": m.text} for m in stream(4)]
    by_table, by_object = nc.Engine(**options()), nc.Engine(**options())
    by_table.subscribe(table)
    by_object.subscribe(subscriptions(3))
    updates = by_table.publish(pa.Table.from_pylist(messages, schema=MESSAGES))
    assert updates.num_rows > 0
    assert [(row["subscription"], row["message"], row["change"]) for row in updates.to_pylist()] == [
        (u.subscription, u.message, u.change) for u in by_object.publish(list(stream(4)))
    ]


def test_a_bad_value_is_refused_by_object_and_by_table():
    with pytest.raises(nc.InvalidInput, match=r"radius must be in \[0, 10000\]; got -1"):
        LatestSubscription("s", location=(0, 0), keywords="a", k=1, radius=-1)
    row = subscriptions(5)[0].to_row() | {"radius": float("nan")}
    table = pa.Table.from_pylist([row], schema=subscriptions_schema())
    with pytest.raises(nc.InvalidInput, match=r"radius must be in .*subscription 's0'"):
        nc.Engine(**options()).subscribe(table)


def test_a_saved_engine_continues_and_explains(tmp_path):
    engine = nc.Engine(**options(partitioner="reversed", workers=2))
    engine.subscribe(subscriptions(6))
    engine.publish(list(stream(7, n=40)))
    engine.save(tmp_path / "engine")
    again = nc.Engine.load(tmp_path / "engine")
    ids = [one.id for one in subscriptions(6)]
    assert [again.results(id_) for id_ in ids] == [engine.results(id_) for id_ in ids]
    assert any(engine.results(id_) for id_ in ids)
    more = [nc.Message("last", (4.0, 4.0), "a b c d e f")]
    assert again.publish(more) == engine.publish(more)
    near = LatestSubscription("near", location=(4, 4), keywords="a", k=1, radius=1.0)
    again.subscribe([near])
    explained = again.explain("near", "last")
    assert explained.passes and [part.distance for part in explained.parts] == [0.0, None, None]
    far = again.explain("near", nc.Message("far", (0, 0), "a"))
    assert not far.passes and "near failed" in far.reason
    for one in (engine, again):
        one.close()


def test_a_routing_of_a_registered_partitioner_survives_as_bytes():
    routing = ReversedPartitioner().fit(None, n_shards=3)
    assert unpack(pack(routing)) == routing
    partitioner_registry._REGISTERED.pop("reversed")
    with pytest.raises(nc.FormatError, match="no registered partitioner"):
        unpack(pack(routing))


def test_names_of_built_in_parts_cannot_be_taken():
    with pytest.raises(nc.InvalidInput, match=r"kind must not be one of .*'topk'"):
        nc.register_kind(type("Other", (LatestSubscription,), {"kind": "topk"}))
    with pytest.raises(nc.InvalidInput, match=r"name must not be one of .*'hash'"):
        nc.register_partitioner(type("Other", (ReversedPartitioner,), {"name": "hash"})())


def test_a_kind_with_an_unknown_result_policy_is_refused():
    class Odd(LatestSubscription):
        kind = "odd"
        result_policy = ResultPolicy("odd", is_stateful=True, needs_window=True)

    rule = r"result_policy must be one of \['best ever', 'best in window', 'matches'\]; got ResultPolicy"
    with pytest.raises(nc.InvalidInput, match=rule):
        nc.register_kind(Odd)


def test_a_stateful_kind_without_a_number_of_results_is_refused():
    class Endless(KeywordSubscription):
        kind = "endless"
        result_policy = BEST_IN_WINDOW

    rule = r"k must be a field of a stateful kind; got \['keywords', 'location', 'require'\] \(Endless\)"
    with pytest.raises(nc.InvalidInput, match=rule):
        nc.register_kind(Endless)


def test_entry_points_of_installed_packages_are_registered(monkeypatch):
    kind_registry._REGISTERED.pop("latest")
    partitioner_registry._REGISTERED.pop("reversed")
    assert "latest" not in {kind.kind for kind in kinds()} and "reversed" not in partitioner_names()
    installed = {
        "nearcast.kinds": EntryPoint("latest", "extension.plugin:LatestSubscription", "nearcast.kinds"),
        "nearcast.partitioners": EntryPoint(
            "reversed", "extension.plugin:ReversedPartitioner", "nearcast.partitioners"
        ),
    }
    for registry in (kind_registry, partitioner_registry):
        monkeypatch.setattr(registry, "entry_points", lambda group: EntryPoints([installed[group]]))
        registry._load_entry_points.cache_clear()
    try:
        assert find_kind("latest") is LatestSubscription
        assert isinstance(partitioners()[-1], ReversedPartitioner)
    finally:
        for registry in (kind_registry, partitioner_registry):
            registry._load_entry_points.cache_clear()


def test_auto_takes_a_registered_index_for_the_kind_of_its_name(monkeypatch):
    class CountingScan(Scan):
        """Scans, and counts how often it is made."""

        made = 0

        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            CountingScan.made += 1

    monkeypatch.setattr(index, "_REGISTERED", {})
    with nc.Engine(space=nc.Space(nc.Box(0, 0, 1, 1)), window=nc.CountWindow(9)) as engine:
        engine.subscribe([LatestSubscription("l", location=(0, 0), keywords="jazz", k=1, radius=1.0)])
    assert CountingScan.made == 0
    make = lambda scoring, arena: CountingScan(scoring)  # noqa: E731
    index.register(index.IndexEntry("latest", frozenset({"latest"}), make, in_arena=False))
    assert index.find_index("auto", "latest").name == "latest"
    assert index.find_index("auto", "topk").name == "topk"
    with nc.Engine(space=nc.Space(nc.Box(0, 0, 1, 1)), window=nc.CountWindow(9)) as engine:
        engine.subscribe([LatestSubscription("l", location=(0, 0), keywords="jazz", k=1, radius=1.0)])
        assert [u.message for u in engine.publish([nc.Message("m", (0.1, 0.1), "jazz")])] == ["m"]
    assert CountingScan.made == 1
