"""Results of stateless kinds are matched as columns, and equal what the reference scores say."""

import pyarrow as pa
import pytest

import nearcast as nc
from nearcast.model import SubscriptionBatch
from nearcast.window.store import Store
from nearcast.workload import make

N, WINDOW, N_SUBSCRIPTIONS = 1_500, 1_000, 60


def reference_results(engine, id_):
    """Return a result by the reference score, message by message."""
    owner, slot = engine._locate(id_)
    rows = owner.registry.rows(pa.array([slot]).to_numpy().astype("int32"))
    subscription = SubscriptionBatch(owner.kind, rows, engine._scoring)
    (score_of,), (footprint,) = subscription.scorers, subscription.footprints
    documents = engine._shards.touching(footprint, after=owner.registry.since(slot))
    scored = [(score, d) for d in documents if (score := score_of(d)) is not None]
    rank = owner.kind.result_policy.rank
    return [nc.Result(d.id, score) for score, d in sorted(scored, key=lambda pair: rank(pair[0], pair[1].seq))]


def with_prices(table):
    return table.append_column("price", pa.array([float(i % 50) for i in range(len(table))]))


def filled_engine(kind, **options):
    workload = make("incidents", seed=3)
    engine = nc.Engine(
        space=workload.space(max_distance=500_000.0),
        vocabulary=workload.vocabulary(sample=2_000),
        window=nc.CountWindow(WINDOW),
        attributes={"price": float},
        **options,
    )
    made = pa.concat_tables(workload.subscriptions(kind, N_SUBSCRIPTIONS)).combine_chunks()
    words = workload.terms()[:4].to_pylist()
    wheres = ["price < 20" if i % 4 == 1 else None for i in range(len(made))]
    made = made.set_column(made.column_names.index("where"), "where", pa.array(wheres, pa.string()))
    if kind == "similarity":
        requires = [f'NOT "{words[0]} {words[1]}"' if i % 5 == 2 else None for i in range(len(made))]
        made = made.set_column(made.column_names.index("require"), "require", pa.array(requires, pa.string()))
    half = len(made) // 2
    messages = with_prices(pa.concat_tables(workload.messages(N)).combine_chunks())
    engine.subscribe(made.slice(0, half))
    engine.publish(messages.slice(0, N - 500))
    engine.subscribe(made.slice(half))
    engine.publish(messages.slice(N - 500))
    return engine, made["id"].to_pylist()


@pytest.mark.parametrize("index", ["auto", "scan"])
@pytest.mark.parametrize("kind", ["boolean", "similarity"])
def test_results_equal_the_reference_scores_of_the_window(kind, index):
    engine, ids = filled_engine(kind, index=index)
    n_found = 0
    for id_ in ids:
        result, expected = engine.results(id_), reference_results(engine, id_)
        assert [one.score for one in result] == pytest.approx([one.score for one in expected], abs=1e-12)
        assert {one.message for one in result} == {one.message for one in expected}
        assert result == expected or index == "auto"
        n_found += len(result)
    assert n_found > N_SUBSCRIPTIONS


def test_results_have_the_scores_that_were_reported_with_the_messages():
    workload = make("incidents", seed=3)
    engine = nc.Engine(space=workload.space(), vocabulary=workload.vocabulary(), window=nc.CountWindow(500))
    for table in workload.subscriptions("similarity", 40):
        engine.subscribe(table)
    updates = engine.publish(next(workload.messages(500))).to_pylist()
    reported = {(one["subscription"], one["message"]): one["score"] for one in updates}
    ids = {subscription for subscription, _ in reported}
    found = {(id_, one.message): one.score for id_ in ids for one in engine.results(id_)}
    assert found == reported


def test_results_of_workers_that_see_some_messages_are_merged():
    engine, ids = filled_engine("boolean", workers=2, partitioner="space_grid")
    for id_ in ids:
        assert engine.results(id_) == reference_results(engine, id_)


def test_a_withdrawn_message_is_in_no_result():
    engine, ids = filled_engine("similarity")
    id_ = max(ids, key=lambda id_: len(engine.results(id_)))
    first, *others = engine.results(id_)
    engine.retract([first.message])
    assert engine.results(id_) == others


def test_no_message_of_the_window_becomes_an_object(monkeypatch):
    engine, ids = filled_engine("similarity")
    monkeypatch.delattr(Store, "documents")
    assert sum(len(engine.results(id_)) for id_ in ids) > N_SUBSCRIPTIONS
