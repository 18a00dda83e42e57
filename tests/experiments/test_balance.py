"""The experiment with load adjustment measures what its page says."""

from functools import partial

from experiments import balance
from nearcast import Balance


def test_every_selection_moves_enough_and_none_is_cheaper_than_the_dynamic_program():
    rows = balance.measure_selections(0.002)
    assert len(rows) == len(balance.TAUS) * 4
    for share in balance.TAUS:
        cost = {row["selection"]: row["bytes"] for row in rows if row["share"] == share}
        assert cost["dp"] <= min(cost.values())
    assert all(row["cells"] == 10_000 and row["moved_share"] >= row["share"] for row in rows)


def test_shards_that_are_adjusted_report_the_same_updates(monkeypatch):
    monkeypatch.setattr(balance, "BATCHES", 6)
    monkeypatch.setattr(balance, "STRIDE", 400_000)
    rows = balance.measure_drift(0.01)
    still, *adjusted = ([row for row in rows if row["load"] == load] for load in balance.LOADS)
    assert sum(row["updates"] for row in still) > 100
    assert not any(row["moved"] for row in still)
    for variant in adjusted:
        assert [row["updates"] for row in still] == [row["updates"] for row in variant]
        assert sum(row["moved"] for row in variant) > 100
        for row in variant:
            if row["moved"]:
                before, after = row["loads"]
                assert max(after) < max(before)
                assert row["moved_bytes"] > 100 * row["moved"]


def test_shards_stay_even_while_subscriptions_come_and_go(monkeypatch):
    monkeypatch.setattr(balance, "CHURN_SUBSCRIPTIONS", (20_000,))
    rows = balance.measure_churn(0.1)
    assert {row["subscriptions"] for row in rows} == {2_000}, "as many come as leave"
    worst = {
        name: max(row["over_mean"] for row in rows if row["placement"] == name and row["replaced"] > 0)
        for name in balance.PLACEMENTS
    }
    assert worst["least loaded"] < 1.05 < worst["by key"]


def test_fresh_routings_report_the_same_updates(monkeypatch):
    monkeypatch.setattr(balance, "CHANGE_BATCHES", 9)
    monkeypatch.setattr(balance, "CHANGE_STEADY", 1)
    monkeypatch.setattr(balance, "CHANGE_STEPS", 3)
    monkeypatch.setattr(balance, "CHANGE_LAST", 3)
    monkeypatch.setattr(balance, "CHANGES", {balance.WIDE: balance.CHANGES[balance.WIDE]})
    monkeypatch.setattr(balance, "Balance", partial(Balance, refit_gain=1e-9))
    rows = balance.measure_global(0.004)
    runs = {how: [row for row in rows if row["routing"] == how] for how in balance.ROUTINGS}
    assert [len(run) for run in runs.values()] == [9, 9, 9, 3]
    updates = [row["updates"] for row in runs["stays"]]
    assert sum(updates) > 50
    for run in runs.values():
        assert [row["updates"] for row in run] == updates[-len(run) :]
    actions = [row["action"] for row in runs["global"] if row["action"]]
    assert actions[:3] == ["refit", "retire", "refit"], "two routings were in force at once"
    in_transition = [row["old"] for row in runs["global"]]
    assert max(in_transition) > 0.5 and not any(row["old"] for row in runs["local"])
    assert not any(row["moved"] for row in runs["stays"])
